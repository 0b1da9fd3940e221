//! `brindle umount`: unmounts and waits until the daemon has said goodbye to the servers.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use brindle_types::{Code, Fault, Result};

use crate::cli;
use crate::control::socket;
use crate::exit::Done;
use brindle_host::mounts;

/// Longest time for the daemon to end after the unmount.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);

/// Arguments of `brindle umount`.
#[derive(clap::Args, Debug)]
pub struct UmountArgs {
    /// Where it is mounted
    #[arg(value_name = "MNT", add = crate::completion::live::mount_points())]
    mount_point: PathBuf,
    /// Take it away from programs that use it
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub fn run(args: &UmountArgs) -> Result<Done> {
    let at = PathBuf::from(cli::text(&args.mount_point)?);
    let not_ours = |why: String| {
        Err(Fault::new(Code::NotMounted).what("cannot unmount").subject(at.display().to_string()).why(why))
    };
    let line = match mounts::find(&at) {
        Some(line) if line.fs_type == mounts::FUSE_TYPE => line,
        Some(line) => return not_ours(format!("it is no Brindle file system, but {}", line.fs_type)),
        None => return not_ours("nothing is mounted there".to_owned()),
    };
    // The daemon's end of this connection closes when it has ended.
    let daemon = UnixStream::connect(socket(line.minor)).ok();
    mounts::unmount(&at, args.force)?;
    if let Some(mut daemon) = daemon {
        // However the wait ends, the file system is unmounted.
        let _ = daemon.set_read_timeout(Some(GOODBYE_LIMIT));
        let _ = daemon.read(&mut [0; 1]);
    }
    Ok(Done::Ok)
}
