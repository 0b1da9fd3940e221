//! `lctl dl` and `lctl list_nids`: the devices of this host, and its addresses.

use std::net::{ToSocketAddrs, UdpSocket};

use brindle_types::{Code, Fault, Result, Role};

use super::MgsArgs;
use super::node::Node;
use crate::exit::Done;
use brindle_admin::place::Source;

/// Arguments of `lctl dl` and `list_nids`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    mgs: MgsArgs,
}

/// A line of `lctl dl`.
struct Device {
    is_up: bool,
    kind: &'static str,
    name: String,
    uuid: String,
    /// Number of users: clients (of a target), registered targets (of the MGS), targets (lov, lmv), requests
    /// under way (osc, mdc).
    users: u64,
}

/// Runs `lctl dl`.
pub fn list(args: &Args) -> Result<Done> {
    let node = Node::new(args.mgs.place_args());
    let devices: Vec<Device> = served(&node)?.into_iter().chain(mounted(&node)?).collect();
    if devices.is_empty() {
        return Err(Fault::new(Code::NotMounted)
            .what("no devices here:")
            .subject("this host neither serves a target of the file system nor mounts it")
            .next("see who does: brindle target list"));
    }
    print!("{}", lines(&devices));
    Ok(Done::Ok)
}

fn lines(devices: &[Device]) -> String {
    let line = |(number, d): (usize, &Device)| {
        let state = if d.is_up { "UP" } else { "IN" };
        format!("{number:>3} {state} {} {} {} {}\n", d.kind, d.name, d.uuid, d.users)
    };
    devices.iter().enumerate().map(line).collect()
}

fn served(node: &Node) -> Result<Vec<Device>> {
    let device = |target: &std::rc::Rc<super::node::Served>| {
        let (kind, name, uuid) = match target.entry.id.role {
            Role::Mgt => ("mgs", "MGS".to_owned(), "MGS".to_owned()),
            Role::Mdt => ("mdt", target.name.clone(), format!("{}_UUID", target.name)),
            Role::Ost => ("obdfilter", target.name.clone(), format!("{}_UUID", target.name)),
        };
        let info = target.info();
        let counter = |wanted: &str| {
            let found = info.as_ref().ok()?.counters.iter().find(|(name, _)| name == wanted);
            found.map(|(_, count)| *count)
        };
        let users = match target.entry.id.role {
            Role::Mgt => counter("targets").unwrap_or(0),
            Role::Mdt | Role::Ost => info.as_ref().map_or(0, |info| info.clients.into()),
        };
        Device { is_up: info.is_ok(), kind, name, uuid, users }
    };
    Ok(node.targets()?.iter().map(device).collect())
}

fn mounted(node: &Node) -> Result<Vec<Device>> {
    let links = node.links()?;
    let mut devices = Vec::new();
    for mount in node.mounts()? {
        let (fs, instance, uuid) = (&mount.map.fs, mount.instance(), &mount.session);
        let source: Option<Source> = mount.line.source.parse().ok();
        let host = source.and_then(|s| Some(s.mgs.first()?.host.clone())).unwrap_or_default();
        let count = |role: Role| mount.map.targets.iter().filter(|t| t.id.role == role).count() as u64;
        let mut add = |kind, name, users| {
            devices.push(Device { is_up: true, kind, name, uuid: uuid.clone(), users });
        };
        add("mgc", format!("MGC{host}@tcp"), 1);
        add("lov", format!("{fs}-clilov-{instance}"), count(Role::Ost));
        add("lmv", format!("{fs}-clilmv-{instance}"), count(Role::Mdt));
        for link in links.iter().filter(|link| std::rc::Rc::ptr_eq(&link.mount, mount)) {
            add(link.kind(), link.device(), link.connection.as_ref().map_or(0, |c| c.requests_in_flight));
        }
    }
    Ok(devices)
}

/// Runs `lctl list_nids`.
pub fn nids(args: &Args) -> Result<Done> {
    let node = Node::new(args.mgs.place_args());
    let mut nids: Vec<String> = Vec::new();
    let served = node.targets()?.iter().flat_map(|target| target.entry.nids.iter().map(ToString::to_string));
    nids.extend(served);
    if nids.is_empty() {
        for mount in node.mounts()? {
            let source: Option<Source> = mount.line.source.parse().ok();
            let mgs = source.map(|source| source.mgs).unwrap_or_default();
            nids.extend(mgs.iter().filter_map(|nid| address_towards(&nid.host, nid.port)));
        }
    }
    if nids.is_empty() {
        return Err(Fault::new(Code::NotMounted)
            .what("no addresses here:")
            .subject("this host neither serves a target of the file system nor mounts it")
            .next("see who does: brindle target list"));
    }
    let mut told = std::collections::BTreeSet::new();
    for nid in nids.iter().filter(|nid| told.insert(nid.as_str())) {
        println!("{nid}");
    }
    Ok(Done::Ok)
}

/// The address from which this host reaches another: the kernel's choice of a route. No packet is sent.
fn address_towards(host: &str, port: u16) -> Option<String> {
    let to = (host, port).to_socket_addrs().ok()?.next()?;
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(format!("{}@tcp", socket.local_addr().ok()?.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_listed_as_in_lustre() {
        let device = |is_up, kind, name: &str, uuid: &str, users| Device {
            is_up,
            kind,
            name: name.to_owned(),
            uuid: uuid.to_owned(),
            users,
        };
        let devices = [
            device(true, "mgs", "MGS", "MGS", 5),
            device(true, "obdfilter", "testfs-OST0000", "testfs-OST0000_UUID", 3),
            device(false, "obdfilter", "testfs-OST0001", "testfs-OST0001_UUID", 0),
        ];
        assert_eq!(
            lines(&devices),
            "  0 UP mgs MGS MGS 5\n  1 UP obdfilter testfs-OST0000 testfs-OST0000_UUID 3\n  \
             2 IN obdfilter testfs-OST0001 testfs-OST0001_UUID 0\n"
        );
    }

    #[test]
    fn the_way_to_this_host_is_this_host() {
        assert_eq!(address_towards("127.0.0.1", 9880).as_deref(), Some("127.0.0.1@tcp"));
    }
}
