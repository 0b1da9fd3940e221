//! Credentials of the process at the other end of a Unix socket, as the kernel recorded them when it connected.

use std::io;
use std::os::fd::AsRawFd;

use brindle_stdx::cast::len_u32;
use brindle_wire::Cred;
use tokio::net::UnixStream;

/// Most groups that a process can be in (NGROUPS_MAX of Linux).
const GROUPS_MAX: usize = 65_536;
/// Room for so many groups suits nearly everybody.
const GROUPS_USUAL: usize = 256;

/// User, group and supplementary groups of whoever connected.
pub(super) fn cred(stream: &UnixStream) -> io::Result<Cred> {
    let peer = stream.peer_cred()?;
    Ok(Cred { uid: peer.uid(), gid: peer.gid(), groups: groups(stream)? })
}

fn groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    match groups_up_to(stream, GROUPS_USUAL) {
        Err(e) if e.raw_os_error() == Some(libc::ERANGE) => groups_up_to(stream, GROUPS_MAX),
        other => other,
    }
}

/// `ERANGE` if there are more.
fn groups_up_to(stream: &UnixStream, count_max: usize) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; count_max];
    let mut len: libc::socklen_t = len_u32(count_max * size_of::<u32>());
    // SAFETY: the buffer has `len` bytes, which the kernel is told and does not exceed; both outlive the call.
    let outcome = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(len as usize / size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_this_process_are_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("runtime");
        let cred = runtime.block_on(async {
            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            cred(&ours).expect("told")
        });
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let line = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("there");
            line.split_whitespace().map(|n| n.parse().expect("a number")).collect::<Vec<u32>>()
        };
        assert_eq!(cred.uid, line("Uid:")[1]);
        assert_eq!(cred.gid, line("Gid:")[1]);
        let (mut told, mut have) = (cred.groups, line("Groups:"));
        told.sort_unstable();
        have.sort_unstable();
        assert_eq!(told, have);
    }
}
