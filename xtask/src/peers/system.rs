//! Abilities of every system that is measured.

use super::place::SystemPlace;
use super::scale::Scale;

/// A file system, with all that it needs to run on this machine alone.
pub trait System {
    /// Name of the system in the table and on the command line.
    fn name(&self) -> &'static str;

    /// Role of the system in the table of ratios.
    fn role(&self) -> Role;

    /// Installs what it needs and is missing.
    fn prepare(&self) -> Result<(), String>;

    /// Name and version.
    fn version(&self) -> String;

    /// Settings that differ from the defaults, and the worth of an fsync.
    fn settings(&self) -> String;

    /// Number of clients; 0 when the system is a directory without any process.
    fn clients(&self) -> usize;

    /// Whether it can know as many files and directories at once, and is the one to be measured with them.
    fn takes(&self, _inodes: u32) -> bool {
        true
    }

    /// Whether it is to be started before others: its hosts have mount namespaces of their own, in which mounts of others would stay.
    fn starts_first(&self) -> bool {
        false
    }

    /// Starts everything but the clients.
    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String>;

    /// Mounts a client at its mount point, which is there and empty.
    fn mount(&self, place: &mut SystemPlace, number: usize) -> Result<(), String>;

    /// Work to do once, when the clients are mounted.
    fn mounted(&self, _place: &mut SystemPlace) -> Result<(), String> {
        Ok(())
    }

    /// Ends what should not be ended by a signal alone; clients are unmounted already.
    fn down(&self, _place: &mut SystemPlace) -> Result<(), String> {
        Ok(())
    }

    /// Parts of command lines of its processes that do not name a path of its place.
    fn processes(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Role of a system in the table of ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The compared system: Brindle.
    Ours,
    /// A network file system that a user could mount instead.
    Peer,
    /// A file system of this kernel on the same kind of image.
    Local,
    /// The least that FUSE costs, over a local file system.
    Passthrough,
    /// Only shown.
    Shown,
}

/// Mounts all clients for the first time, each only when the one before works.
pub fn mount_all(system: &dyn System, place: &mut SystemPlace) -> Result<(), String> {
    for number in 0..system.clients() {
        place.mkdir(&format!("client{number}"))?;
        system.mount(place, number)?;
        let at = place.client(number);
        place.wait(&format!("{} has room", at.display()), ROOM_PATIENCE, |_| SystemPlace::room(&at) > 0)?;
    }
    Ok(())
}

/// Longest time until a mounted system knows its space: MooseFS's chunkservers report after a while.
const ROOM_PATIENCE: std::time::Duration = std::time::Duration::from_secs(90);

/// Unmounts all clients and mounts them again: their caches are empty then.
pub fn remount(system: &dyn System, place: &mut SystemPlace) -> Result<(), String> {
    if !place.exists() {
        return Err(format!("{0} is not up\n  next: cargo xtask peers --up {0}", system.name()));
    }
    (0..system.clients()).try_for_each(|number| place.unmount(number))?;
    // Without a look at the room, which is for the benchmark to judge: MooseFS sometimes reports none for minutes.
    (0..system.clients()).try_for_each(|number| system.mount(place, number))
}

/// The directory that is measured through each client.
pub fn measured(system: &dyn System, place: &SystemPlace) -> Vec<std::path::PathBuf> {
    (0..system.clients().max(1)).map(|number| place.client(number)).collect()
}
