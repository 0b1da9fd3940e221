//! Ids and addresses, each with the one way it is printed and parsed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::layout::Stripe;

/// Bits of an inode number that count; the 16 above them are the home MDT.
const COUNTER_BITS: u32 = 48;
/// First FID sequence of MDT 0 (Lustre's FID_SEQ_NORMAL).
const FID_SEQ_BASE: u64 = 0x2_0000_0400;

/// An inode number: 16 bits of home MDT index, 48 bits of counter. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory: counter 1 on MDT 0, which is also FUSE's root node id.
    pub const ROOT: Ino = Ino(1);

    /// Builds a number from its parts; `counter` must fit in 48 bits.
    pub fn new(mdt: u16, counter: u64) -> Ino {
        assert!(counter >> COUNTER_BITS == 0, "inode counter out of range");
        Ino(u64::from(mdt) << COUNTER_BITS | counter)
    }

    /// Index of the MDT that the inode lives on.
    pub fn mdt(self) -> u16 {
        (self.0 >> COUNTER_BITS) as u16
    }

    /// The counter part.
    pub fn counter(self) -> u64 {
        self.0 & ((1 << COUNTER_BITS) - 1)
    }

    /// The number as people see it.
    pub fn fid(self) -> Fid {
        let seq = FID_SEQ_BASE + (u64::from(self.mdt()) << 16) + (self.counter() >> 32);
        Fid { seq, oid: (self.counter() & 0xffff_ffff) as u32, ver: 0 }
    }
}

/// A Lustre file identifier, printed `[0x200000400:0x1:0x0]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fid {
    /// Sequence: MDT and the counter's high 16 bits.
    pub seq: u64,
    /// Object id: the counter's low 32 bits.
    pub oid: u32,
    /// Version: always 0.
    pub ver: u32,
}

impl Fid {
    /// The inode number, or `None` for a FID that no Brindle MDT can have issued.
    pub fn ino(self) -> Option<Ino> {
        let n = self.seq.checked_sub(FID_SEQ_BASE)?;
        let mdt = u16::try_from(n >> 16).ok()?;
        (self.ver == 0).then(|| Ino::new(mdt, (n & 0xffff) << 32 | u64::from(self.oid)))
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

impl FromStr for Fid {
    type Err = String;

    fn from_str(s: &str) -> Result<Fid, String> {
        let wrong = || format!("'{s}' is not a FID such as [0x200000400:0x1:0x0]");
        let inner = s.strip_prefix('[').and_then(|s| s.strip_suffix(']')).unwrap_or(s);
        let mut parts = inner.split(':').map(|p| u64::from_str_radix(p.strip_prefix("0x")?, 16).ok());
        let mut next = || parts.next().flatten().ok_or_else(wrong);
        let (seq, oid, ver) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(wrong());
        }
        let oid = u32::try_from(oid).map_err(|_| wrong())?;
        let ver = u32::try_from(ver).map_err(|_| wrong())?;
        Ok(Fid { seq, oid, ver })
    }
}

/// A number that is never given out twice: the term of the log's opening, and a counter within it. Ordered.
/// `data_version`, component generations, truncate, write and session epochs and changelog indices are pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pair {
    /// Term of the MDT's log in which the number was issued.
    pub term: u32,
    /// Counter within the term.
    pub counter: u64,
}

impl Pair {
    /// Smaller than every number ever issued.
    pub const ZERO: Pair = Pair { term: 0, counter: 0 };
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.counter)
    }
}

/// Generation of a layout component; never changes and is never reused.
pub type Gen = Pair;

/// Name of an object on an OST: (inode, component generation, stripe). Made by the first write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The file.
    pub ino: Ino,
    /// The layout component.
    pub generation: Gen,
    /// Index of the stripe within the component.
    pub stripe: u32,
}

impl ObjectId {
    /// The object of a file's stripe.
    pub fn of(ino: Ino, stripe: Stripe) -> ObjectId {
        ObjectId { ino, generation: stripe.generation, stripe: stripe.index }
    }

    /// Stripe of the object.
    pub fn named(&self) -> Stripe {
        Stripe { generation: self.generation, index: self.stripe }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:016x}.{:x}.{:x}.{:x}",
            self.ino.0, self.generation.term, self.generation.counter, self.stripe
        )
    }
}

impl FromStr for ObjectId {
    type Err = String;

    fn from_str(s: &str) -> Result<ObjectId, String> {
        let wrong = || format!("'{s}' is not an object name");
        let mut parts = s.split('.').map(|p| u64::from_str_radix(p, 16).ok());
        let mut next = || parts.next().flatten().ok_or_else(wrong);
        let (ino, term, counter, stripe) = (next()?, next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(wrong());
        }
        let term = u32::try_from(term).map_err(|_| wrong())?;
        let stripe = u32::try_from(stripe).map_err(|_| wrong())?;
        Ok(ObjectId { ino: Ino(ino), generation: Pair { term, counter }, stripe })
    }
}

/// A client's identity, given out by MDT 0 and durable there. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl SessionId {
    /// Sessions from here on are of MDTs at OSTs. Clients never get such a number.
    const OF_MDTS: u64 = 0xffff_ffff_ffff_0000;

    /// The session of an MDT at the OSTs. Its epoch is (term of the MDT, 1).
    pub fn of_mdt(index: u16) -> SessionId {
        SessionId(SessionId::OF_MDTS | u64::from(index))
    }

    /// Whether it is the session of an MDT.
    pub fn is_of_mdt(self) -> bool {
        self.0 >= SessionId::OF_MDTS
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// Role of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Management target: map and configuration.
    Mgt,
    /// Metadata target.
    Mdt,
    /// Object storage target.
    Ost,
}

impl Role {
    /// `MGT`, `MDT` or `OST`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Mgt => "MGT",
            Role::Mdt => "MDT",
            Role::Ost => "OST",
        }
    }
}

/// Role and index of a target within its file system; `OST000a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TargetId {
    /// Role of the target.
    pub role: Role,
    /// Index of the target.
    pub index: u16,
}

impl TargetId {
    /// The management target.
    pub const MGT: TargetId = TargetId { role: Role::Mgt, index: 0 };

    /// An MDT.
    pub fn mdt(index: u16) -> TargetId {
        TargetId { role: Role::Mdt, index }
    }

    /// An OST.
    pub fn ost(index: u16) -> TargetId {
        TargetId { role: Role::Ost, index }
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:04x}", self.role.name(), self.index)
    }
}

impl FromStr for TargetId {
    type Err = String;

    fn from_str(s: &str) -> Result<TargetId, String> {
        let wrong = || format!("'{s}' is not a target name such as OST000a");
        let role = [Role::Mgt, Role::Mdt, Role::Ost];
        let role = role.into_iter().find(|r| s.starts_with(r.name())).ok_or_else(wrong)?;
        let digits = &s[3..];
        if digits.len() != 4 {
            return Err(wrong());
        }
        Ok(TargetId { role, index: u16::from_str_radix(digits, 16).map_err(|_| wrong())? })
    }
}

/// Name of a file system: 1 to 8 characters of `-_a-zA-Z0-9` (Lustre's rule).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FsName(String);

impl FsName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Full name of a target: `scratch-OST000a`.
    pub fn target(&self, id: TargetId) -> String {
        format!("{}-{id}", self.0)
    }
}

impl fmt::Display for FsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FsName {
    type Err = String;

    fn from_str(s: &str) -> Result<FsName, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if s.is_empty() || s.len() > 8 || !s.chars().all(good) {
            return Err(format!("'{s}' is not a file system name: 1 to 8 letters, digits, '-' or '_'"));
        }
        Ok(FsName(s.to_owned()))
    }
}

/// Longest name of a pool.
pub const POOL_NAME_MAX_BYTES: usize = 15;
/// Words that stand where a pool's name could, and mean something else.
pub const POOL_NAMES_RESERVED: [&str; 3] = ["none", "ignore", "inherit"];

/// Name of a pool of OSTs: 1 to 15 characters of `-_a-zA-Z0-9` (Lustre's rule).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolName(String);

impl PoolName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PoolName {
    type Err = String;

    fn from_str(s: &str) -> Result<PoolName, String> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if s.is_empty() || s.len() > POOL_NAME_MAX_BYTES || !s.chars().all(good) {
            return Err(format!(
                "'{s}' is not a pool name: 1 to {POOL_NAME_MAX_BYTES} letters, digits, '-' or '_'"
            ));
        }
        if POOL_NAMES_RESERVED.contains(&s) {
            return Err(format!(
                "'{s}' cannot be a pool name: it has a meaning of its own behind setstripe -p"
            ));
        }
        Ok(PoolName(s.to_owned()))
    }
}

impl TryFrom<String> for PoolName {
    type Error = String;

    fn try_from(s: String) -> Result<PoolName, String> {
        s.parse()
    }
}

impl From<PoolName> for String {
    fn from(name: PoolName) -> String {
        name.0
    }
}

/// Address of a service: host, port and rail; `10.0.0.12:9880@tcp1`. The rail is the number behind `tcp`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nid {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Rail number.
    pub rail: u8,
}

/// Port that an MGS listens on unless told otherwise.
pub const DEFAULT_PORT: u16 = 9880;

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        if self.rail == 0 { f.write_str("@tcp") } else { write!(f, "@tcp{}", self.rail) }
    }
}

impl FromStr for Nid {
    type Err = String;

    fn from_str(s: &str) -> Result<Nid, String> {
        let wrong = || format!("'{s}' is not an address such as 10.0.0.12:9880@tcp");
        let (address, rail) = match s.split_once('@') {
            None => (s, 0),
            Some((a, "tcp")) => (a, 0),
            Some((a, net)) => (a, net.strip_prefix("tcp").and_then(|n| n.parse().ok()).ok_or_else(wrong)?),
        };
        let (host, port) = if let Some(rest) = address.strip_prefix('[') {
            let (host, behind) = rest.split_once(']').ok_or_else(wrong)?;
            let port = match behind.strip_prefix(':') {
                None if behind.is_empty() => None,
                port => Some(port.ok_or_else(wrong)?),
            };
            if !is_ipv6(host) {
                return Err(wrong());
            }
            (host, port)
        } else {
            match address.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (address, None),
            }
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if host.is_empty() || !(host.contains(':') || host.chars().all(is_name)) {
            return Err(wrong());
        }
        let port = port.map_or(Ok(DEFAULT_PORT), |p| p.parse().map_err(|_| wrong()))?;
        Ok(Nid { host: host.to_owned(), port, rail })
    }
}

/// Whether text is an address of IPv6, with the interface of a link-local one or without (`fe80::1%eth0`).
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "lo"));
    let is_zone =
        !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    is_zone && address.parse::<std::net::Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_none_are_refused() {
        for wrong in [
            "[::1]x",
            "[::1]9880",
            "[mgs1]:1",
            "[]",
            "[[::1]",
            "a b",
            "mgs1,mgs2",
            "mgs/1",
            "[::1%]:1",
            "x]",
            "\u{e9}",
        ] {
            assert!(wrong.parse::<Nid>().is_err(), "{wrong}");
        }
        assert_eq!(
            "[fe80::1%eth0]:7".parse::<Nid>().expect("link-local").to_string(),
            "[fe80::1%eth0]:7@tcp"
        );
    }

    #[test]
    fn fid_round_trips_through_text_and_inode_number() {
        for ino in [Ino::ROOT, Ino::new(0, 0xffff_ffff_ffff), Ino::new(0xffff, 0x1_2345_6789)] {
            let text = ino.fid().to_string();
            assert_eq!(text.parse::<Fid>().expect("own text parses").ino(), Some(ino), "{text}");
        }
        assert_eq!(Ino::ROOT.fid().to_string(), "[0x200000400:0x1:0x0]");
        assert!("[0x1:0x2]".parse::<Fid>().is_err());
        assert_eq!("[0x1:0x2:0x0]".parse::<Fid>().expect("well formed").ino(), None);
    }

    #[test]
    fn names_round_trip() {
        let t: TargetId = "OST000a".parse().expect("target");
        assert_eq!(t, TargetId::ost(10));
        assert_eq!(t.to_string(), "OST000a");
        assert!("OST00a".parse::<TargetId>().is_err());
        for text in ["10.0.0.1:9880@tcp", "host:1@tcp7", "[::1]:22@tcp"] {
            assert_eq!(text.parse::<Nid>().expect("nid").to_string(), text);
        }
        assert_eq!("mgs1".parse::<Nid>().expect("nid").port, DEFAULT_PORT);
        let o = ObjectId { ino: Ino::new(3, 9), generation: Pair { term: 4, counter: 255 }, stripe: 11 };
        assert_eq!(o.to_string().parse::<ObjectId>(), Ok(o));
    }
}
