//! `brindle dev remove-ost`: an OST that was drained leaves a cluster that runs, with its process and its directory.

use std::path::Path;

use brindle_types::{Code, Fault, Result, Role, TargetId};

use super::state::{Cluster, Server, alive, lock};
use super::{NameArgs, down, image};
use crate::admin::ask::Asker;
use crate::admin::place::Place;
use crate::admin::target_remove;
use crate::exit::Done;
use crate::format::runtime;

/// Runs the command.
pub fn run(args: &NameArgs) -> Result<Done> {
    let dir = args.dir.absolute()?;
    Cluster::load(&dir)?;
    let _lock = lock(&dir)?;
    let mut cluster = Cluster::load(&dir)?;
    let at = named(&cluster, &args.name)?;
    let target = cluster.servers[at].target;
    let removed = take_out(&cluster, &dir, target)?;
    down::end_processes(std::iter::once((args.name.as_str(), cluster.servers[at].run.as_ref())))?;
    let server = cluster.servers.remove(at);
    erase(&server)?;
    cluster.save(&dir)?;
    match removed {
        true => println!("{} is removed, with its process and its directory", cluster.fs.target(target)),
        false => println!("{} was removed before; its directory is gone now too", cluster.fs.target(target)),
    }
    Ok(Done::Ok)
}

fn named(cluster: &Cluster, name: &str) -> Result<usize> {
    let is_ost = |s: &Server| s.target.role == Role::Ost;
    cluster.servers.iter().position(|s| s.name == name && is_ost(s)).ok_or_else(|| {
        let names: Vec<&str> =
            cluster.servers.iter().filter(|s| is_ost(s)).map(|s| s.name.as_str()).collect();
        Fault::new(Code::UnknownTarget)
            .what("no such OST")
            .subject(name.to_owned())
            .data("nothing was changed")
            .next(format!("the OSTs are: {}", names.join(", ")))
    })
}

/// Takes it out of the map; `false` when it is not in it.
fn take_out(cluster: &Cluster, dir: &Path, target: TargetId) -> Result<bool> {
    let mgs_runs = cluster.servers.iter().any(|s| s.target == TargetId::MGT && alive(s.run.as_ref()));
    let mgs = cluster.mgs().filter(|_| mgs_runs).ok_or_else(|| {
        Fault::new(Code::NoMgs)
            .what("cannot remove an OST from")
            .subject(dir.display().to_string())
            .why("its MGS does not run")
            .data("nothing was changed")
            .next(format!("start it: brindle dev up --dir {}", dir.display()))
    })?;
    let mount = cluster.mounts.first().map_or("MOUNT".into(), |m| m.mount_point.display().to_string());
    runtime()?.block_on(async {
        let asker = Asker::new();
        let place = Place { mgs: vec![mgs], fs: Some(cluster.fs.clone()), dev_dir: Some(dir.to_owned()) };
        let map = asker.map(&place).await?;
        if map.is_removed(target) {
            return Ok(false);
        }
        target_remove::remove(&asker, &place, &map, target.index, &mount).await?;
        Ok(true)
    })
}

/// Its data, which nobody needs any more.
fn erase(server: &Server) -> Result<()> {
    let cannot = |path: &Path, e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot remove", path.display().to_string(), e)
    };
    if let Some(image) = &server.image {
        image::detach(&server.dir)?;
        std::fs::remove_file(&image.file).map_err(|e| cannot(&image.file, &e))?;
    }
    std::fs::remove_dir_all(&server.dir).map_err(|e| cannot(&server.dir, &e))
}
