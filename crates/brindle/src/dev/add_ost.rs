//! `brindle dev add-ost`: one more OST for a cluster that runs; new files lie on it at once.

use brindle_types::{Code, Fault, Result, Role, TargetId};

use super::state::{Cluster, alive, lock};
use super::{AddOstArgs, OSTS_MAX, image, need_root, node, up};
use crate::cli;
use crate::exit::Done;
use crate::format;

/// Runs the command.
pub fn run(args: &AddOstArgs) -> Result<Done> {
    let dir = args.dir.absolute()?;
    Cluster::load(&dir)?;
    let _lock = lock(&dir)?;
    let mut cluster = Cluster::load(&dir)?;
    let mgs_runs = cluster.servers.iter().any(|s| s.target == TargetId::MGT && alive(s.run.as_ref()));
    let mgs = cluster.mgs().filter(|_| mgs_runs).ok_or_else(|| {
        Fault::new(Code::NoMgs)
            .what("cannot add an OST to")
            .subject(dir.display().to_string())
            .why("its MGS does not run")
            .next(format!("start it: brindle dev up --dir {}", dir.display()))
    })?;
    let osts: Vec<_> = cluster.servers.iter().filter(|s| s.target.role == Role::Ost).collect();
    if osts.len() >= usize::from(OSTS_MAX) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot add an OST to")
            .subject(dir.display().to_string())
            .why(format!("it has {OSTS_MAX} OSTs, the most that a development cluster may have")));
    }
    let index = osts.iter().map(|s| s.target.index + 1).max().unwrap_or(0);
    // Unless told otherwise it is made like the last one.
    let like = osts.last().and_then(|s| s.image.as_ref());
    let size = args.ost_size.or(like.map(|image| image.size_bytes));
    let kind = args.image_fs.or(like.map(|image| image.kind)).unwrap_or(image::Kind::Ext4);
    if size.is_some() {
        need_root("cannot use loop images")?;
    }
    cluster.servers.push(up::new_server(&dir, TargetId::ost(index), size, kind));
    let at = cluster.servers.len() - 1;
    // What is begun is in the state first, so that `down` finds it whatever happens here.
    cluster.save(&dir)?;
    let (name, text) = (cluster.servers[at].name.clone(), cli::text(&dir)?);
    let begun = |fault: Fault| fault.next(format!("try again: brindle dev start --dir {text} {name}"));
    if let Some(image) = &cluster.servers[at].image {
        image::attach(image, &cluster.servers[at].dir)?;
    }
    up::format_if_new(&cluster, at, &[mgs], &format::runtime()?)?;
    let started = node::spawn_server(&cluster, at).map_err(&begun)?;
    node::server_ready(&mut cluster, started).map_err(&begun)?;
    cluster.save(&dir)?;
    node::until_used(&cluster, &dir)?;
    let server = &cluster.servers[at];
    let address = server.run.as_ref().and_then(|r| r.addresses.first()).cloned().unwrap_or_default();
    println!(
        "{} serves {} at {address}; new files lie on it from now on",
        server.name,
        cluster.fs.target(server.target)
    );
    Ok(Done::Ok)
}
