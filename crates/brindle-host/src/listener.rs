//! Processes that listen at an address, for messages of commands.

use brindle_types::{Code, Fault, Nid};
use procfs::net::TcpState;
use procfs::process::FDTarget;

/// Names the process that has the address, where that can be found out.
pub fn name_listener(fault: Fault, nid: &Nid) -> Fault {
    if fault.code != Code::AddressInUse {
        return fault;
    }
    match listener(nid.port) {
        Some((pid, name)) => fault.why(format!("process {pid} ({name}) listens there")),
        None => fault.why("another process listens there"),
    }
}

/// Pid and name of the process that listens at a TCP port.
fn listener(port: u16) -> Option<(u32, String)> {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    let sockets = tables.into_iter().filter_map(Result::ok).flatten();
    let mut listening = sockets.filter(|s| s.state == TcpState::Listen && s.local_address.port() == port);
    let wanted = FDTarget::Socket(listening.next()?.inode);
    // Processes that end meanwhile, or belong to others, are passed over.
    procfs::process::all_processes().ok()?.flatten().find_map(|process| {
        let mut descriptors = process.fd().ok()?.flatten();
        descriptors.find(|descriptor| descriptor.target == wanted)?;
        Some((
            u32::try_from(process.pid).ok()?,
            process.stat().map_or_else(|_| String::new(), |stat| stat.comm),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_is_named() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(listener(port).expect("found").0, std::process::id());
        let nid = Nid { host: "127.0.0.1".into(), port, rail: 0 };
        let fault = name_listener(Fault::new(Code::AddressInUse), &nid);
        assert!(fault.why[0].starts_with(&format!("process {} (", std::process::id())), "{fault}");
        drop(socket);
        assert_eq!(listener(port), None);
    }
}
