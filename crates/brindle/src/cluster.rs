//! What commands need to know of a cluster from outside: who listens where.

use std::path::Path;

use brindle_types::{Code, Fault, Nid};

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
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| listening_inode(table, port))?;
    let wanted = format!("socket:[{inode}]");
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if has_descriptor(&entry.path(), &wanted) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}

/// Inode of the listening socket at `port` in a table of /proc/net.
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    /// State LISTEN in /proc/net/tcp.
    const LISTEN: &str = "0A";
    let text = std::fs::read_to_string(table).ok()?;
    let suffix = format!(":{port:04X}");
    text.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        if state != LISTEN || !local.ends_with(&suffix) {
            return None;
        }
        fields.nth(5)?.parse().ok()
    })
}

fn has_descriptor(process: &Path, wanted: &str) -> bool {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|d| std::fs::read_link(d.path()).is_ok_and(|l| l.as_os_str() == wanted))
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
