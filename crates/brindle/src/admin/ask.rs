//! A command's way to the servers of a file system.

use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_types::Result;
use brindle_wire::map::Map;

/// The way. Must be called on a tokio runtime.
pub fn servers() -> Servers {
    brindle_host::servers(&brindle_stdx::real::seams(tokio::runtime::Handle::current()))
}

/// The map of a file system; says on standard error where it comes from if not from the MGS.
pub async fn map(servers: &Servers, place: &FsLocation) -> Result<Map> {
    let (map, without_mgs) = servers.map(place).await?;
    without_mgs.iter().for_each(warn_without_mgs);
    Ok(map)
}

/// Says that the MGS does not answer.
pub fn warn_without_mgs(fault: &brindle_types::Fault) {
    eprintln!("warning: {} {}; the targets are those that a mount here knows", fault.what, fault.subject);
}

/// Says which MDTs do not know of a change yet.
pub fn warn_not_told(names: &[String]) {
    for name in names {
        eprintln!("warning: {name} does not know of the change yet; it takes it in when it finds the MGS");
    }
}
