//! `brindle dev up`: from nothing, or from what an earlier start left, to mounted.

use std::path::{Path, PathBuf};
use std::time::Instant;

use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};

use super::state::{Cluster, Image, Mount, Server, alive, lock};
use super::{FS_DEFAULT, OSTS_DEFAULT, UpArgs, down, image, need_root, node};
use crate::cli;
use crate::exit::{Done, warn};
use crate::format::{self, Plan};
use crate::target_dir::LOCK_FILE;

/// Prints what was done, with the time since the start.
struct Progress(Instant);

impl Progress {
    fn line(&self, name: &str, what: &str) {
        let line = format!("{:6.2} s  {name:<8} {what}", self.0.elapsed().as_secs_f64());
        eprintln!("{}", line.trim_end());
    }
}

/// Runs the command.
pub fn run(args: &UpArgs) -> Result<Done> {
    let progress = Progress(Instant::now());
    let dir = args.dir.absolute()?;
    let mounts_wanted = !args.no_mount;
    if mounts_wanted {
        need_root("cannot mount")?;
        brindle_requirements()?;
    }
    let _lock = lock(&dir)?;
    let mut cluster = load_or_new(&dir, args)?;
    refuse_running(&dir, &cluster)?;
    wanted_servers(&mut cluster, &dir, args)?;
    wanted_mounts(&mut cluster, &dir, args)?;
    cluster.save(&dir)?;
    match bring_up(&mut cluster, &dir, &progress) {
        Ok(()) => {
            summary(&cluster, &dir, &progress);
            Ok(Done::Ok)
        }
        Err(fault) => {
            // What was started goes again; the data stays. The first fault is the one to show.
            if let Err(second) = down::end_all(&mut cluster, &dir, true) {
                warn(&second);
            }
            Err(fault)
        }
    }
}

/// Checks that this machine can mount.
fn brindle_requirements() -> Result<()> {
    crate::mount::requirements()
}

fn load_or_new(dir: &Path, args: &UpArgs) -> Result<Cluster> {
    match Cluster::load(dir) {
        Ok(cluster) => {
            if let Some(fs) = args.fsname.as_ref().filter(|fs| **fs != cluster.fs) {
                return Err(Fault::new(Code::BadArgument)
                    .what("cannot start")
                    .subject(dir.display().to_string())
                    .why(format!("its file system is called '{}', not '{fs}'", cluster.fs))
                    .next("leave --fsname out, or give another directory"));
            }
            Ok(cluster)
        }
        Err(fault) if fault.code == Code::NoSuchCluster && !dir.join("state.json").exists() => {
            refuse_foreign(dir)?;
            let fs = args.fsname.clone();
            Ok(Cluster::new(fs.unwrap_or_else(default_fs)))
        }
        Err(fault) => Err(fault),
    }
}

fn default_fs() -> FsName {
    FS_DEFAULT.parse().expect("the default is a good name")
}

/// A new cluster gets an empty directory, because `down --purge` removes it whole.
fn refuse_foreign(dir: &Path) -> Result<()> {
    let entries = std::fs::read_dir(dir)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot look into", dir.display().to_string(), &e))?;
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    // A mount point below DIR may have been made already.
    let foreign = names.filter(|n| n != LOCK_FILE).find(|n| !is_empty_dir(&dir.join(n)));
    match foreign {
        None => Ok(()),
        Some(name) => Err(Fault::new(Code::BadArgument)
            .what("cannot start a cluster in")
            .subject(dir.display().to_string())
            .why(format!("it holds '{name}', which is not of a cluster"))
            .data("nothing was changed")
            .next("give an empty or a new directory")),
    }
}

fn is_empty_dir(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn refuse_running(dir: &Path, cluster: &Cluster) -> Result<()> {
    let servers = cluster.servers.iter().map(|s| (&s.name, s.run.as_ref()));
    let mounts = cluster.mounts.iter().map(|m| (&m.name, m.run.as_ref()));
    let running: Vec<&str> =
        servers.chain(mounts).filter(|(_, run)| alive(*run)).map(|(name, _)| name.as_str()).collect();
    if running.is_empty() {
        return Ok(());
    }
    let next = if running.len() == cluster.names().len() {
        format!("see it: brindle dev status --dir {0}; end it: brindle dev down --dir {0}", dir.display())
    } else {
        format!("start what is missing: brindle dev start --dir {} NAME", dir.display())
    };
    Err(Fault::new(Code::ClusterExists)
        .what("cannot start")
        .subject(dir.display().to_string())
        .why(format!("a cluster runs there already: {}", running.join(", ")))
        .next(next))
}

/// A server that has never run.
pub fn new_server(dir: &Path, target: TargetId, size: Option<u64>, kind: image::Kind) -> Server {
    let name = match target.role {
        brindle_types::Role::Mgt => "mgs".to_owned(),
        brindle_types::Role::Mdt => format!("mdt{}", target.index),
        brindle_types::Role::Ost => format!("ost{}", target.index),
    };
    let image = size.map(|size_bytes| {
        let file = dir.join("images").join(format!("{name}.img"));
        Image { file, kind, size_bytes }
    });
    Server {
        dir: dir.join(&name),
        log: dir.join("log").join(format!("{name}.log")),
        name,
        target,
        port: 0,
        metrics_port: 0,
        image,
        run: None,
    }
}

/// Adds the servers that are missing.
fn wanted_servers(cluster: &mut Cluster, dir: &Path, args: &UpArgs) -> Result<()> {
    let is_ost = |s: &&Server| s.target.role == brindle_types::Role::Ost;
    let have = cluster.servers.iter().filter(is_ost).count() as u16;
    let osts = args.osts.unwrap_or(if have == 0 { OSTS_DEFAULT } else { have });
    if osts < have {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot start with fewer OSTs than there are:")
            .subject(dir.display().to_string())
            .why(format!("it has {have} OSTs, and files lie on them"))
            .next("leave --osts out, or give another directory"));
    }
    if cluster.servers.is_empty() {
        cluster.servers.push(new_server(dir, TargetId::MGT, None, args.image_fs));
        cluster.servers.push(new_server(dir, TargetId::mdt(0), args.mdt_size, args.image_fs));
    }
    let taken = cluster.servers.iter().filter(is_ost).map(|s| s.target.index + 1).max();
    for index in (taken.unwrap_or(0)..).take(usize::from(osts - have)) {
        cluster.servers.push(new_server(dir, TargetId::ost(index), args.ost_size, args.image_fs));
    }
    Ok(())
}

/// Replaces the mounts where others are asked for.
fn wanted_mounts(cluster: &mut Cluster, dir: &Path, args: &UpArgs) -> Result<()> {
    let mut points: Vec<PathBuf> = Vec::new();
    for mount in &args.mount {
        points.push(PathBuf::from(cli::text(mount)?));
    }
    if args.no_mount {
        cluster.mounts.clear();
        return Ok(());
    }
    if points.is_empty() {
        points = cluster.mounts.iter().map(|m| m.mount_point.clone()).collect();
    }
    if points.is_empty() {
        points.push(dir.join("mnt"));
    }
    let old = std::mem::take(&mut cluster.mounts);
    for (n, mount_point) in points.into_iter().enumerate() {
        if cluster.mounts.iter().any(|m| m.mount_point == mount_point) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot mount twice at")
                .subject(mount_point.display().to_string()));
        }
        let known = old.iter().find(|m| m.mount_point == mount_point);
        let name = format!("client{n}");
        cluster.mounts.push(Mount {
            log: dir.join("log").join(format!("{name}.log")),
            name,
            made_dir: known.is_some_and(|m| m.made_dir),
            metrics_port: known.map_or(0, |m| m.metrics_port),
            run: None,
            mount_point,
        });
    }
    Ok(())
}

fn bring_up(cluster: &mut Cluster, dir: &Path, progress: &Progress) -> Result<()> {
    let logs = dir.join("log");
    std::fs::create_dir_all(&logs)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot make", logs.display().to_string(), &e))?;
    attach_images(cluster)?;
    start_servers(cluster, dir, progress)?;
    start_mounts(cluster, dir, progress)
}

fn attach_images(cluster: &Cluster) -> Result<()> {
    let with_image: Vec<&Server> = cluster.servers.iter().filter(|s| s.image.is_some()).collect();
    if !with_image.is_empty() {
        need_root("cannot use loop images")?;
    }
    for server in with_image {
        if let Some(image) = &server.image {
            image::attach(image, &server.dir)?;
        }
    }
    Ok(())
}

/// The MGS first, because the others must know its port; then all others at once.
fn start_servers(cluster: &mut Cluster, dir: &Path, progress: &Progress) -> Result<()> {
    let runtime = format::runtime()?;
    format_if_new(cluster, 0, &[], &runtime)?;
    let started = node::spawn_server(cluster, 0)?;
    node::server_ready(cluster, started)?;
    cluster.save(dir)?;
    say_server(cluster, 0, progress);
    let mgs: Vec<Nid> = cluster.mgs().into_iter().collect();
    let mut starting = Vec::new();
    for index in 1..cluster.servers.len() {
        format_if_new(cluster, index, &mgs, &runtime)?;
        starting.push((index, node::spawn_server(cluster, index)?));
    }
    let mut failed = None;
    for (index, started) in starting {
        match node::server_ready(cluster, started) {
            Ok(()) => say_server(cluster, index, progress),
            Err(fault) => failed = failed.or(Some(fault)),
        }
        cluster.save(dir)?;
    }
    failed.map_or(Ok(()), Err)
}

fn say_server(cluster: &Cluster, index: usize, progress: &Progress) {
    let server = &cluster.servers[index];
    let address = server.run.as_ref().and_then(|r| r.addresses.first()).cloned().unwrap_or_default();
    progress.line(&server.name, &format!("{} at {address}", cluster.fs.target(server.target)));
}

/// Formats the target of a server, if that was not done.
pub fn format_if_new(
    cluster: &Cluster,
    index: usize,
    mgs: &[Nid],
    runtime: &tokio::runtime::Runtime,
) -> Result<()> {
    let seams = &brindle_stdx::real::seams(runtime.handle().clone());
    let server = &cluster.servers[index];
    let text = cli::text(&server.dir)?;
    if brindle_config::Superblock::exists(&*seams.disk, &text)? {
        return Ok(());
    }
    let plan =
        Plan { fs: cluster.fs.clone(), target: server.target, mgs: mgs.to_vec(), dir: server.dir.clone() };
    runtime.block_on(format::carry_out(seams, &plan, &[]))?;
    Ok(())
}

fn start_mounts(cluster: &mut Cluster, dir: &Path, progress: &Progress) -> Result<()> {
    let mut starting = Vec::new();
    for index in 0..cluster.mounts.len() {
        starting.push((index, node::spawn_mount(cluster, index)?));
    }
    cluster.save(dir)?;
    let mut failed = None;
    for (index, started) in starting {
        match node::mount_ready(cluster, started) {
            Ok(()) => {
                let mount = &cluster.mounts[index];
                progress.line(&mount.name, &format!("mounted at {}", mount.mount_point.display()));
            }
            Err(fault) => failed = failed.or(Some(fault)),
        }
        cluster.save(dir)?;
    }
    failed.map_or(Ok(()), Err)
}

fn summary(cluster: &Cluster, dir: &Path, progress: &Progress) {
    progress.line("ready", "");
    for mount in &cluster.mounts {
        println!("{}", mount.mount_point.display());
    }
    let dir = dir.display();
    eprintln!(
        "next: brindle dev status --dir {dir} | brindle dev kill --dir {dir} ost0 | brindle dev down --dir {dir}"
    );
}
