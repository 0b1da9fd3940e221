//! Hosts on one machine: network namespaces, each with a link to one switch, or to one for each rail.
//!
//! A switch is a bridge in a namespace of its own. The far ends of all links are in that namespace, too; links are shaped and cut there.
//! The machine's own namespace has only one interface, the administrator's link to the switch, so that commands reach every host.
//!
//! Names: `bdID-sw` the namespace of the switch, `bdID-NAME` that of a host, `bdID` the administrator's interface, `to-NAME` the port of the
//! switch, `eth0` the interface of a host. ID is made of the directory of the cluster. Further rails have a switch each, in the same namespace, and
//! a network of their own: `bdIDr1`, `to1-NAME`, `eth1`.
//!
//! A link that is cut both ways has no carrier. A link that is cut one way has a queue on that way that takes no packet: nobody is told, as
//! with a broken transceiver.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use brindle_stdx::crc;
use brindle_types::units::round_down;
use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::system::{run, run_with_input};

/// Packages of the commands.
const PACKAGES: &str = "iproute2";
/// Directory of named network namespaces.
const NETNS_DIR: &str = "/run/netns";
/// Directory of the interfaces of this network namespace.
const NET_DIR: &str = "/sys/class/net";
/// Bytes of a packet on the links.
const MTU: u32 = 9000;
/// Most servers, and most clients, on one switch; the last address is the administrator's.
pub const HOSTS_MAX: usize = 120;
/// Last part of the administrator's address.
const STATION: u8 = 254;
/// Networks that are tried for one that nobody has.
const SUBNETS_TRIED: u32 = 256;
/// Smallest burst of a shaped link, in bytes.
const BURST_MIN_BYTES: u64 = 256 << 10;
/// Parts of a second that may pass as one burst: 1 in so many.
const BURST_PARTS: u64 = 200;

/// The network of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// First part of all names.
    pub id: String,
    /// The first three bytes of all addresses.
    pub subnet: [u8; 3],
    /// First three bytes of the addresses on each further rail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<[u8; 3]>,
}

/// A host and its links, one for each rail.
pub struct Linked<'a> {
    /// Name of the host.
    pub host: &'a str,
    /// Last byte of its addresses.
    pub number: u8,
    /// Links of the host.
    pub links: Vec<Link>,
}

/// State of a link: its rate, and the directions that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Bits a second each way; `None`: as fast as the machine is.
    pub rate_bits: Option<u64>,
    /// Whether what is sent to the host arrives.
    pub takes_in: bool,
    /// Whether what the host sends arrives.
    pub lets_out: bool,
}

impl Default for Link {
    fn default() -> Link {
        Link { rate_bits: None, takes_in: true, lets_out: true }
    }
}

impl Link {
    /// State of the link in a word: `up`, `cut`, `cut in`, `cut out`.
    pub fn word(self) -> &'static str {
        match (self.takes_in, self.lets_out) {
            (true, true) => "up",
            (false, false) => "cut",
            (false, true) => "cut in",
            (true, false) => "cut out",
        }
    }
}

/// Namespaces of a process of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Within {
    /// The network namespace, a file.
    pub netns: PathBuf,
    /// Name of the host.
    pub host_name: String,
}

impl Network {
    /// The network of the cluster in `dir`, with addresses that nobody on this machine has.
    pub fn new(dir: &Path, rails: usize) -> Result<Network> {
        let hash = crc(dir.as_os_str().as_encoded_bytes());
        let taken = taken_subnets()?;
        let mut free = (0..SUBNETS_TRIED)
            .map(|n| hash.wrapping_add(n).to_le_bytes())
            .map(|bytes| [10, 64 | (bytes[0] & 63), bytes[1]])
            .filter(|subnet| !taken.contains(subnet));
        let none = || {
            Fault::new(Code::AddressInUse).what("no free network for the hosts among").subject("10.64.0.0/10")
        };
        let subnet = free.next().ok_or_else(none)?;
        let further: Vec<[u8; 3]> = free.take(rails.saturating_sub(1)).collect();
        if further.len() + 1 < rails {
            return Err(none());
        }
        Ok(Network { id: format!("bd{:06x}", hash & 0xff_ffff), subnet, further })
    }

    /// Number of rails.
    pub fn rails(&self) -> usize {
        1 + self.further.len()
    }

    /// Addresses of the host with this number, from 1: one on each rail.
    pub fn addresses(&self, number: u8) -> impl Iterator<Item = Ipv4Addr> {
        let subnets = std::iter::once(&self.subnet).chain(&self.further);
        subnets.map(move |[a, b, c]| Ipv4Addr::new(*a, *b, *c, number))
    }

    /// Address of the host with this number on the first rail.
    pub fn address(&self, number: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, number)
    }

    /// The administrator's interface on a rail.
    fn station(&self, rail: usize) -> String {
        if rail == 0 { self.id.clone() } else { format!("{}r{rail}", self.id) }
    }

    /// Namespaces of the processes of a host.
    pub fn within(&self, host: &str) -> Within {
        Within { netns: Path::new(NETNS_DIR).join(self.netns(host)), host_name: host.to_owned() }
    }

    fn netns(&self, host: &str) -> String {
        format!("{}-{host}", self.id)
    }

    fn switch(&self) -> String {
        self.netns("sw")
    }

    /// Makes the switches, and a namespace and links for each host. Remains of an earlier start are removed
    /// first.
    pub fn make(&self, hosts: &[Linked<'_>]) -> Result<()> {
        self.remove()?;
        let switch = self.switch();
        let mut namespaces = format!("netns add {switch}\n");
        let mut ports = "link set lo up\n".to_owned();
        let mut own = String::new();
        for (rail, station) in self.addresses(STATION).enumerate() {
            let (id, admin) = (self.station(rail), port(rail, "admin"));
            // Writing to a String cannot fail.
            let _ = writeln!(
                namespaces,
                "link add {id} mtu {MTU} type veth peer name {admin} mtu {MTU} netns {switch}"
            );
            let _ = writeln!(
                ports,
                "link add br{rail} mtu {MTU} type bridge\nlink set br{rail} up\n\
                 link set {admin} master br{rail} up"
            );
            let _ = writeln!(own, "addr add {station}/24 dev {id}\nlink set {id} up");
        }
        for Linked { host, .. } in hosts {
            let netns = self.netns(host);
            let _ = writeln!(namespaces, "netns add {netns}");
            for rail in 0..self.rails() {
                let port = port(rail, host);
                let _ = writeln!(
                    ports,
                    "link add {port} mtu {MTU} type veth peer name eth{rail} mtu {MTU} netns {netns}\n\
                     link set {port} master br{rail} up"
                );
            }
        }
        ip(None, &namespaces)?;
        ip(Some(&switch), &ports)?;
        ip(None, &own)?;
        for Linked { host, number, links } in hosts {
            let mut inside = "link set lo up\n".to_owned();
            for (rail, address) in self.addresses(*number).enumerate() {
                let _ = writeln!(inside, "addr add {address}/24 dev eth{rail}\nlink set eth{rail} up");
            }
            ip(Some(&self.netns(host)), &inside)?;
            for (rail, link) in links.iter().enumerate() {
                self.set_link(host, rail, *link)?;
            }
        }
        Ok(())
    }

    /// Removes everything that [`Network::make`] makes; there may be none of it.
    pub fn remove(&self) -> Result<()> {
        let names = namespaces()?;
        let ours = names.iter().filter(|name| name.starts_with(&format!("{}-", self.id)));
        let mut batch: String = ours.map(|name| format!("netns delete {name}\n")).collect();
        for station in (0..self.rails()).map(|rail| self.station(rail)) {
            // The kernel would remove the interface with the switch, but some time later.
            if Path::new(NET_DIR).join(&station).exists() {
                batch.insert_str(0, &format!("link delete {station}\n"));
            }
        }
        if batch.is_empty() { Ok(()) } else { ip(None, &batch) }
    }

    /// Has the link of a host on a rail let through what it should.
    pub fn set_link(&self, host: &str, rail: usize, link: Link) -> Result<()> {
        let (switch, port) = (self.switch(), port(rail, host));
        let is_cut = !link.takes_in && !link.lets_out;
        ip(Some(&switch), &format!("link set {port} {}\n", if is_cut { "down" } else { "up" }))?;
        tc(&switch, &queue(&port, link.rate_bits, link.takes_in))?;
        tc(&self.netns(host), &queue(&format!("eth{rail}"), link.rate_bits, link.lets_out))
    }
}

/// The port of a rail's switch for a host.
fn port(rail: usize, host: &str) -> String {
    if rail == 0 { format!("to-{host}") } else { format!("to{rail}-{host}") }
}

/// The queue of an interface: for what leaves through it.
fn queue(interface: &str, rate_bits: Option<u64>, passes: bool) -> String {
    match (passes, rate_bits) {
        // A queue of one byte takes no packet.
        (false, _) => format!("qdisc replace dev {interface} root handle 1: bfifo limit 1\n"),
        (true, None) => format!("qdisc replace dev {interface} root handle 2: pfifo limit 1000\n"),
        (true, Some(rate)) => {
            let burst = (rate / 8 / BURST_PARTS).max(BURST_MIN_BYTES);
            format!(
                "qdisc replace dev {interface} root handle 3: tbf rate {rate}bit burst {burst} latency 50ms\n"
            )
        }
    }
}

fn ip(netns: Option<&str>, batch: &str) -> Result<()> {
    let mut command = Command::new("ip");
    if let Some(netns) = netns {
        command.args(["-n", netns]);
    }
    run_with_input(ends_with_starter(command.args(["-batch", "-"])), PACKAGES, batch)
}

fn tc(netns: &str, batch: &str) -> Result<()> {
    let mut command = Command::new("tc");
    command.args(["-n", netns, "-batch", "-"]);
    run_with_input(ends_with_starter(&mut command), PACKAGES, batch)
}

/// A start that is killed makes no more namespaces: they would appear behind the back of a `down` that follows at once.
fn ends_with_starter(command: &mut Command) -> &mut Command {
    // SAFETY: what is done is one system call.
    unsafe { command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

/// Names of the network namespaces of this machine.
fn namespaces() -> Result<Vec<String>> {
    match std::fs::read_dir(NETNS_DIR) {
        Ok(entries) => Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Fault::io(Code::CommandFailed, "cannot look into", NETNS_DIR, &e)),
    }
}

/// Networks of this machine's own addresses.
fn taken_subnets() -> Result<BTreeSet<[u8; 3]>> {
    let routes = std::fs::read_to_string("/proc/net/route")
        .map_err(|e| Fault::io(Code::CommandFailed, "cannot read", "/proc/net/route", &e))?;
    // The second column: the destination, in the byte order of this machine, in hexadecimal digits.
    let destinations = routes.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(1));
    let bytes = destinations.filter_map(|text| u32::from_str_radix(text, 16).ok()).map(u32::to_ne_bytes);
    Ok(bytes.map(|[a, b, c, _]| [a, b, c]).collect())
}

/// Bits a second, as tc(8) has them: `1gbit`, `99.2mbit`, `none`.
pub fn parse_rate(text: &str) -> std::result::Result<Option<u64>, String> {
    if text == "none" {
        return Ok(None);
    }
    let wrong = || format!("'{text}' is not a rate such as 1gbit, 99.2mbit or none");
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).ok_or_else(wrong)?;
    let bits = number.parse::<f64>().map_err(|_| wrong())? * unit;
    if (8e3..=1e12).contains(&bits) {
        Ok(Some(round_down(bits)))
    } else {
        Err(format!("{text}: 8kbit to 1000gbit are possible"))
    }
}

/// Whether `ip` is there.
pub fn check_tools() -> Result<()> {
    run(Command::new("ip").arg("-V"), PACKAGES)?;
    run(Command::new("tc").arg("-V"), PACKAGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_tc_reads_them() {
        assert_eq!(parse_rate("1gbit"), Ok(Some(1_000_000_000)));
        assert_eq!(parse_rate("99.2mbit"), Ok(Some(99_200_000)));
        assert_eq!(parse_rate("8000bit"), Ok(Some(8_000)));
        assert_eq!(parse_rate("none"), Ok(None));
        for wrong in ["", "1", "1g", "gbit", "-1gbit", "nangbit", "1bit", "1e9gbit"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_rail_has_a_network_of_its_own() {
        let network = Network::new(Path::new("/somewhere"), 3).unwrap();
        let addresses: BTreeSet<Ipv4Addr> = network.addresses(7).collect();
        assert_eq!((network.rails(), addresses.len()), (3, 3));
        assert_eq!(network.addresses(7).next(), Some(network.address(7)));
        assert_eq!((port(0, "oss1"), port(1, "oss1")), ("to-oss1".to_owned(), "to1-oss1".to_owned()));
        let state = r#"{"id": "bd0", "subnet": [10, 64, 0]}"#;
        assert_eq!(serde_json::from_str::<Network>(state).unwrap().rails(), 1, "of an earlier release");
    }

    #[test]
    fn a_link_is_shaped_or_takes_nothing() {
        assert_eq!(
            queue("eth0", Some(1_000_000_000), true),
            "qdisc replace dev eth0 root handle 3: tbf rate 1000000000bit burst 625000 latency 50ms\n"
        );
        assert!(queue("eth0", Some(1_000_000), true).contains("burst 262144"));
        assert!(queue("eth0", Some(1_000_000), false).contains("bfifo limit 1"));
        assert!(queue("eth0", None, true).contains("pfifo"));
    }
}
