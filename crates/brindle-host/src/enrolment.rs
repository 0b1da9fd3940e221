//! Enrolment of a host: it makes the cluster ([`init`]), or joins it with a token ([`join`]).
//!
//! Files of a host, in its configuration directory ([`CONF_DIR`]):
//!
//! | file | holds |
//! |---|---|
//! | `identity.pem` | its key, its certificate and that of the authority; secret |
//! | `identity.key` | its key while it joins, so that it can ask again with the same one; secret |
//! | `cluster.toml` | which cluster it is of, and where the MGS is ([`ClusterFile`]) |
//! | `serve.toml` | options of its daemon, `brindle serve`; yours to change |
//!
//! `identity.pem` is written last: a host that has it has all of them.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::place::FsLocation;
use brindle_auth::{
    Authority, ClusterId, Credentials, HostKey, HostRole, Identity, KeyId, Name, Roles, Secret, Token,
    check_host_name, sha256,
};
use brindle_config::ConfigStore;
use brindle_config::etcd::Address;
use brindle_config::etcd::settings::{Settings, TlsTexts};
use brindle_mgs::hosts::rows::{HostRow, TokenRow};
use brindle_net::{Proving, Security, TcpTransport};
use brindle_stdx::Seams;
use brindle_targets::{Directory, Introduction, Plain};
use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};
use brindle_wire::map::TargetEntry;
use brindle_wire::mgs::hosts::JoinReq;
use serde::{Deserialize, Serialize};

use crate::format::{Plan, carry_out, refuse_occupied};
use crate::identity::{write_secret, write_whole};
use crate::mgt;
use crate::service::listens;

/// Directory of the files of a host.
pub const CONF_DIR: &str = "/etc/brindle";
/// Name of the file of its identity.
pub const IDENTITY_FILE: &str = "identity.pem";
/// Name of the file of its key while it joins.
const KEY_FILE: &str = "identity.key";
/// Name of the file that names its cluster.
pub const CLUSTER_FILE: &str = "cluster.toml";
/// Name of the file with the options of its daemon.
pub const SERVE_FILE: &str = "serve.toml";
/// Lifetime of the first token, in seconds.
pub const FIRST_TOKEN_S: u64 = 24 * 3600;
/// Longest wait of a joining host for the answer of the MGS.
const JOIN_MS: u64 = 10_000;
/// Largest file that is read.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// The cluster that a host is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    /// Number of the cluster.
    pub cluster: String,
    /// Name of the host.
    pub host: String,
    /// File system of the cluster.
    pub fs: FsName,
    /// Addresses of its MGS.
    pub mgs: Vec<String>,
}

impl ClusterFile {
    /// Reads the file in a configuration directory; `None` where the host is of no cluster.
    pub fn read(conf: &Path) -> Result<Option<ClusterFile>> {
        let path = conf.join(CLUSTER_FILE);
        let text = match read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Fault::io(Code::BadConfigValue, "cannot read", shown(&path), &e)),
        };
        toml::from_str(&text).map(Some).map_err(|e| {
            Fault::new(Code::BadConfigValue)
                .what("cannot read")
                .subject(shown(&path))
                .why(e.message().to_owned())
                .next("remove the file, and let the host join again: brindle join")
        })
    }

    /// Addresses of the MGS.
    pub fn nids(&self) -> Result<Vec<Nid>> {
        let parsed = self.mgs.iter().map(|text| text.parse().map_err(|why| (text, why)));
        parsed.collect::<std::result::Result<Vec<Nid>, (&String, String)>>().map_err(|(text, why)| {
            Fault::new(Code::BadConfigValue)
                .what("cannot use the address of the MGS in")
                .subject(CLUSTER_FILE)
                .why(format!("'{text}': {why}"))
        })
    }

    /// Keeps the addresses of the MGS in the file, as they change. For as long as the process runs.
    pub async fn follow_mgs(mut self, conf: PathBuf, mgs: Arc<Directory>) {
        let mut news = mgs.map().subscribe();
        mgs.map().watch();
        while news.changed().await.is_ok() {
            // The directory goes by the same map; where only one host runs the MGS the addresses that were given stay.
            let map = news.borrow_and_update().clone();
            let several = |standby: &[String]| !standby.is_empty() || self.mgs.len() > 1;
            let is_known = |mgs: &&TargetEntry| several(&mgs.replicas.standby) || mgs.nids.len() > 1;
            let Some(entry) = map.target(TargetId::MGT).filter(is_known) else {
                continue;
            };
            let nids: Vec<String> = entry.nids.iter().map(ToString::to_string).collect();
            if nids == self.mgs {
                continue;
            }
            self.mgs = nids;
            if let Err(fault) = self.write(&conf) {
                tracing::warn!(code = %fault.code, "cannot keep the addresses of the MGS: {fault}");
            }
        }
    }

    pub(crate) fn write(&self, conf: &Path) -> Result<()> {
        let body = toml::to_string(self).map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?;
        let text =
            format!("# The cluster of this host. Written by brindle cluster init and brindle join.\n{body}");
        write(&conf.join(CLUSTER_FILE), &text)
    }
}

/// The file system of the cluster that this host has joined, if it has.
pub fn place() -> Result<Option<FsLocation>> {
    let Some(file) = cluster_here()? else { return Ok(None) };
    Ok(Some(FsLocation { mgs: file.nids()?, fs: Some(file.fs), dev: None }))
}

/// The file of the cluster that this host has joined, beside the identity that commands show.
pub fn cluster_here() -> Result<Option<ClusterFile>> {
    let named = std::env::var_os(crate::identity::VARIABLE).map(PathBuf::from);
    let identity = named.unwrap_or_else(|| PathBuf::from(crate::identity::DEFAULT_PATH));
    ClusterFile::read(conf_of(&identity))
}

/// The configuration directory that belongs to an identity.
pub fn conf_of(identity: &Path) -> &Path {
    identity.parent().unwrap_or(Path::new(CONF_DIR))
}

/// Settings of [`init`].
#[derive(Clone, Debug)]
pub struct Init {
    /// The file system.
    pub fs: FsName,
    /// Directory of the MGT.
    pub dir: PathBuf,
    /// Configuration directory of this host.
    pub conf: PathBuf,
    /// Name of this host.
    pub host: String,
    /// Address that others reach this host at; several, one in each network, separated by commas.
    pub address: String,
    /// Port of the MGS.
    pub port: u16,
    /// Place of the configuration in etcd; `None`: it lies beside the MGT.
    pub etcd: Option<EtcdPlace>,
}

/// An etcd that is to hold the configuration of a cluster.
#[derive(Clone)]
pub struct EtcdPlace {
    /// Address of the members of etcd.
    pub address: Address,
    /// Certificates and key for TLS.
    pub tls: Option<TlsTexts>,
}

impl std::fmt::Debug for EtcdPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.address)
    }
}

/// A new cluster.
#[derive(Debug)]
pub struct Made {
    /// Number of the cluster.
    pub cluster: ClusterId,
    /// A token for the next server.
    pub token: Token,
}

/// Makes a cluster of one host: the MGT, the authority, and the identity of this host, which is a server and administers.
pub fn init(seams: &Seams, runtime: &tokio::runtime::Handle, init: &Init) -> Result<Made> {
    check_host_name(&init.host)?;
    refuse_joined(&init.conf)?;
    refuse_existing(&init.conf.join(SERVE_FILE))?;
    refuse_occupied(&*seams.disk, &init.dir).map_err(|fault| {
        fault.next("give another directory: --dir DIR; if an earlier init was interrupted, remove this one")
    })?;
    make_conf(&init.conf)?;
    let nids = listens(&init.address, init.port)?;
    let store = runtime.block_on(make_mgt(seams, init))?;
    let now_s = seams.wall().secs;
    let authority = Authority::new(ClusterId(seams.rng.next_u64()), now_s)?;
    write_secret(&init.dir.join(brindle_mgs::hosts::AUTHORITY_FILE), &authority.to_pem())?;
    let roles = Roles::of(&[HostRole::Server, HostRole::Admin]);
    let key = HostKey::generate()?;
    let secret = Secret::generate()?;
    let token = Token {
        cluster: authority.cluster(),
        authority: authority.fingerprint(),
        secret,
        roles: Roles::of(&[HostRole::Server]),
        mgs: nids.clone(),
        expires_s: now_s.saturating_add_unsigned(FIRST_TOKEN_S),
    };
    runtime.block_on(first_rows(seams, init, &*store, (roles, &key), &token))?;
    let name = Name { cluster: authority.cluster(), host: init.host.clone(), roles };
    let certificate = authority.issue(&name, &key.public(), now_s)?;
    let identity = Identity::new(key, certificate, authority.certificate().to_vec())?;
    let daemon = Daemon { listen: &init.address, port: Some(init.port), dir: Some(&init.dir) };
    daemon.write(&init.conf)?;
    let file = ClusterFile {
        cluster: authority.cluster().to_string(),
        host: init.host.clone(),
        fs: init.fs.clone(),
        mgs: nids.iter().map(ToString::to_string).collect(),
    };
    file.write(&init.conf)?;
    write_secret(&init.conf.join(IDENTITY_FILE), &identity.to_pem())?;
    Ok(Made { cluster: authority.cluster(), token })
}

/// Makes the MGT; the store that holds the configuration from then on.
async fn make_mgt(seams: &Seams, init: &Init) -> Result<Box<dyn ConfigStore>> {
    if let Some(etcd) = &init.etcd {
        let settings = Settings::new(&etcd.address, &init.fs, etcd.tls.clone());
        let store = settings.open(seams.clone())?;
        mgt::make(seams, (&init.dir, &init.fs), &settings, &store).await?;
        return Ok(Box::new(store));
    }
    let plan = Plan {
        fs: init.fs.clone(),
        target: TargetId::MGT,
        mgs: Vec::new(),
        dir: init.dir.clone(),
        uuid: None,
    };
    carry_out(seams, &plan, &[]).await?;
    Ok(Box::new(brindle_mgs::local_store(seams.disk.clone(), &crate::text(&init.dir)?)?))
}

async fn first_rows(
    seams: &Seams,
    init: &Init,
    store: &dyn ConfigStore,
    (roles, key): (Roles, &HostKey),
    token: &Token,
) -> Result<()> {
    let host = HostRow {
        name: init.host.clone(),
        key: KeyId::of_public(&key.public()).0,
        roles: roles.to_string(),
        joined_s: seams.wall().secs,
        certificate_ends_s: brindle_mgs::hosts::certificate_ends_s(seams.wall().secs),
        assignments: Vec::new(),
    };
    let token = TokenRow {
        id: token.secret.id(),
        secret_hash: token.secret.hash(),
        roles: token.roles.to_string(),
        host: String::new(),
        expires_s: token.expires_s,
        used_by: None,
    };
    brindle_mgs::hosts::found(store, host, token).await
}

/// A host that joins.
#[derive(Clone, Debug)]
pub struct Join {
    /// The token.
    pub token: Token,
    /// Addresses of the MGS, where they are not those of the token.
    pub mgs: Vec<Nid>,
    /// Configuration directory of this host.
    pub conf: PathBuf,
    /// Name of this host.
    pub host: String,
    /// Address that others reach this host at; the one that it reaches the MGS from without it.
    pub address: Option<String>,
    /// The host has joined before: it keeps its key and its options.
    pub again: bool,
}

/// The host as it has joined.
#[derive(Debug)]
pub struct Joined {
    /// The cluster.
    pub cluster: ClusterId,
    /// File system of the cluster.
    pub fs: FsName,
    /// Addresses of the MGS.
    pub mgs: Vec<Nid>,
    /// Roles of the host.
    pub roles: Roles,
    /// Address that its daemon listens at, if it is a server.
    pub address: Option<String>,
}

/// Joins a cluster. May be repeated with the same token when the answer was lost: the host keeps its key.
pub async fn join(seams: &Seams, join: &Join) -> Result<Joined> {
    check_host_name(&join.host)?;
    if !join.again {
        refuse_joined(&join.conf)?;
    }
    let serves = join.token.roles.has(HostRole::Server);
    let serve_file = join.conf.join(SERVE_FILE);
    // Options that an earlier join wrote stay as they are.
    let has_options = is_of_a_daemon(&serve_file)?;
    if serves && !has_options {
        refuse_existing(&serve_file)?;
    }
    if serves && has_options && join.address.is_some() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot use --listen: this host has options already, in")
            .subject(shown(&serve_file))
            .data("nothing was changed")
            .next("leave --listen out; change 'listen' in that file"));
    }
    make_conf(&join.conf)?;
    let key = pending_key(&join.conf, join.again)?;
    let mgs = if join.mgs.is_empty() { join.token.mgs.clone() } else { join.mgs.clone() };
    let answer = ask(seams, join, &mgs, &key).await;
    if answer.as_ref().is_err_and(|fault| fault.code == Code::HostRemoved) {
        // The key is of no use any more: the next attempt makes a new one.
        remove(&join.conf.join(KEY_FILE))?;
    }
    let answer = answer?;
    let identity = Identity::new(key, answer.certificate, answer.authority)?;
    let name = identity.name().clone();
    check_answer(&identity, join, seams.wall().secs)?;
    let mut address = None;
    if serves && !has_options {
        let own = match &join.address {
            Some(address) => address.clone(),
            None => address_towards(&mgs).await?,
        };
        Daemon { listen: &own, port: None, dir: None }.write(&join.conf)?;
        address = Some(own);
    }
    let nids = if answer.mgs.is_empty() { mgs } else { answer.mgs };
    let file = ClusterFile {
        cluster: name.cluster.to_string(),
        host: join.host.clone(),
        fs: answer.fs.clone(),
        mgs: nids.iter().map(ToString::to_string).collect(),
    };
    file.write(&join.conf)?;
    write_secret(&join.conf.join(IDENTITY_FILE), &identity.to_pem())?;
    // The identity has the key now.
    remove(&join.conf.join(KEY_FILE))?;
    Ok(Joined { cluster: name.cluster, fs: answer.fs, mgs: nids, roles: name.roles, address })
}

/// The answer comes from a server of the cluster, and perhaps not from the MGS: what it says is checked.
fn check_answer(identity: &Identity, join: &Join, now_s: i64) -> Result<()> {
    let name = identity.name();
    let refuse = |why: &'static str| {
        Fault::new(Code::ForeignCertificate)
            .what("cannot use the answer to the token: it is not of the MGS of this cluster")
            .why(why)
            .data("nothing was changed but the token, which may be used up")
            .next("compare the address that was given with that of the MGS; then ask for a new token")
    };
    if sha256(identity.authority()) != join.token.authority {
        return Err(refuse("its authority is not the one that the token names"));
    }
    if name.cluster != join.token.cluster || name.host != join.host || name.roles != join.token.roles {
        return Err(refuse("its certificate is of another host, or has other roles than the token"));
    }
    let credentials = Credentials::new(Identity::from_pem(&identity.to_pem())?)?;
    match u64::try_from(now_s).is_ok_and(|now_s| credentials.holds_at(now_s)) {
        true => Ok(()),
        false => Err(Fault::new(Code::CertificateExpired)
            .what("the certificate that was given does not hold now, by the clock of this host")
            .next("compare the clocks of both hosts: date; then try again with the same token")),
    }
}

async fn ask(
    seams: &Seams,
    join: &Join,
    mgs: &[Nid],
    key: &HostKey,
) -> Result<brindle_wire::mgs::hosts::JoinResp> {
    let token = &join.token;
    let proving = Proving::Token { cluster: token.cluster, authority: token.authority };
    let transport =
        TcpTransport::new(seams.clone()).over_tcp_only().secured(Security { proving, ..Security::none() });
    let any = "any".parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?;
    let introduction = Introduction::agent(&join.host);
    let plain = Arc::new(Plain);
    let asked = Directory::new(seams, Arc::new(transport), introduction, plain, mgs.to_vec(), any, 0);
    let public_key = key.public();
    let request = JoinReq {
        token: token.secret.id(),
        host: join.host.clone(),
        public_key,
        proof: token.secret.proof(&join.host, &public_key),
    };
    asked.mgs().probe_within(&request, JOIN_MS).await.map_err(|fault| match fault.code {
        Code::TargetDown => {
            let why = fault.why.into_iter();
            let new = Fault::new(Code::NoMgs)
                .what("cannot join: no answer from the MGS at")
                .subject(fault.subject.into_owned())
                .data("nothing was changed; the token can be used again")
                .next("on the MGS host: brindle serve, or systemctl status brindle-serve; then try again");
            why.fold(new, Fault::why)
        }
        _ => fault,
    })
}

/// The key of a host that joins, made at its first attempt; one that joins again has it.
fn pending_key(conf: &Path, again: bool) -> Result<HostKey> {
    let identity = conf.join(IDENTITY_FILE);
    let has_identity = again && identity.exists();
    let path = if has_identity { identity } else { conf.join(KEY_FILE) };
    match read(&path) {
        Ok(text) => HostKey::from_pem(&text).map_err(|fault| fault.subject(shown(&path))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let key = HostKey::generate()?;
            write_secret(&path, &key.to_pem())?;
            Ok(key)
        }
        Err(e) => Err(Fault::io(Code::BadIdentity, "cannot read", shown(&path), &e)),
    }
}

/// Options of the daemon of a host.
pub(crate) struct Daemon<'a> {
    pub(crate) listen: &'a str,
    pub(crate) port: Option<u16>,
    pub(crate) dir: Option<&'a Path>,
}

impl Daemon<'_> {
    pub(crate) fn write(&self, conf: &Path) -> Result<()> {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text = String::from(
            "# Options of brindle serve, the daemon of this host; brindle config default shows all of them.\n\
             # Serve what the cluster assigns to this host (brindle target add --node).\nassigned = true\n",
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "listen = {}", quoted(self.listen));
        if let Some(port) = self.port {
            let _ = writeln!(text, "port = {port}");
        }
        if let Some(dir) = self.dir {
            let _ = writeln!(text, "# The MGT, with the configuration and the authority of the cluster.");
            let _ = writeln!(text, "dir = [{}]", quoted(&crate::text(dir)?));
        }
        write(&conf.join(SERVE_FILE), &text)
    }
}

fn refuse_joined(conf: &Path) -> Result<()> {
    if !conf.join(IDENTITY_FILE).exists() {
        return Ok(());
    }
    let fault = Fault::new(Code::HostNameInUse)
        .what("this host is of a cluster already:")
        .data("nothing was changed")
        .next(format!(
            "for other roles, or a certificate that has ended: brindle join --again, with a token for this host; to take it out: \
             brindle node remove HOST, from another host, then remove {}",
            shown(&conf.join(IDENTITY_FILE))
        ));
    Err(match ClusterFile::read(conf) {
        Ok(Some(file)) => fault.subject(file.cluster).why(format!(
            "it is {} of the file system {}, whose MGS is at {}",
            file.host,
            file.fs,
            file.mgs.join(", ")
        )),
        _ => fault.subject(shown(&conf.join(IDENTITY_FILE))),
    })
}

/// Whether the file has options of a host's daemon.
fn is_of_a_daemon(path: &Path) -> Result<bool> {
    match read(path) {
        Ok(text) => {
            let table = text.parse::<toml::Table>().unwrap_or_default();
            Ok(table.get("assigned").and_then(toml::Value::as_bool) == Some(true))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Fault::io(Code::BadConfigValue, "cannot read", shown(path), &e)),
    }
}

pub(crate) fn refuse_existing(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what("will not write over")
        .subject(shown(path))
        .why("it has the options of brindle serve, and perhaps targets of another cluster")
        .data("nothing was changed")
        .next("move it away, then try again; targets that it names can be served beside: brindle serve --config FILE"))
}

pub(crate) fn make_conf(conf: &Path) -> Result<()> {
    std::fs::create_dir_all(conf).map_err(|e| Fault::io(Code::NotWritable, "cannot make", shown(conf), &e))
}

/// The address of this host that the way to the MGS begins at.
async fn address_towards(mgs: &[Nid]) -> Result<String> {
    let mut last = None;
    for nid in mgs {
        let opened = tokio::net::TcpStream::connect((nid.host.as_str(), nid.port)).await;
        match opened.and_then(|stream| stream.local_addr()) {
            Ok(address) => return Ok(address.ip().to_canonical().to_string()),
            Err(e) => last = Some(Fault::io(Code::NoMgs, "cannot reach", nid.to_string(), &e)),
        }
    }
    Err(last.unwrap_or_else(|| Fault::new(Code::NoMgs).why("the token names no address")))
}

/// The single address at which others may reach this host; a fault if there is none, or more than one.
pub fn own_address() -> Result<String> {
    let found = addresses()?;
    match &found[..] {
        [one] => Ok(one.to_string()),
        several => {
            let shown: Vec<String> = several.iter().map(ToString::to_string).collect();
            let fault = Fault::new(Code::BadArgument)
                .what("which address do other hosts reach this one at?")
                .data("nothing was changed");
            Err(match several.is_empty() {
                true => fault.why("it has none but the loopback").next("give one: --listen ADDRESS"),
                false => fault
                    .why(format!("it has {}", shown.join(", ")))
                    .next(format!("give one: --listen {}", shown[0])),
            })
        }
    }
}

/// Addresses of this host besides the loopback, as the kernel's table of local routes has them.
fn addresses() -> Result<Vec<Ipv4Addr>> {
    const TABLE: &str = "/proc/net/fib_trie";
    let text = std::fs::read_to_string(TABLE)
        .map_err(|e| Fault::io(Code::CommandFailed, "cannot read", TABLE, &e))?;
    Ok(local_addresses(&text))
}

/// An address stands in the line before `/32 host LOCAL`.
fn local_addresses(table: &str) -> Vec<Ipv4Addr> {
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    let pairs = lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL");
    let parsed = pairs.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok());
    let mut found: Vec<Ipv4Addr> = parsed.filter(|address| !address.is_loopback()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn read(path: &Path) -> std::io::Result<String> {
    let len = std::fs::metadata(path)?.len();
    if len > FILE_MAX_BYTES {
        return Err(std::io::Error::other(format!("it has {len} bytes")));
    }
    std::fs::read_to_string(path)
}

fn write(path: &Path, text: &str) -> Result<()> {
    write_whole(path, text, 0o644).map_err(|e| Fault::io(Code::NotWritable, "cannot write", shown(path), &e))
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::io(Code::NotWritable, "cannot remove", shown(path), &e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_host_without_the_loopback() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.0\n        /24 link UNICAST\n     |-- 10.1.2.3\n        \
                     /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.1.2.3\n        /32 host LOCAL\n";
        assert_eq!(local_addresses(table), ["10.1.2.3".parse::<Ipv4Addr>().unwrap()]);
    }

    #[test]
    fn the_file_of_the_cluster_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ClusterFile::read(dir.path()), Ok(None));
        let file = ClusterFile {
            cluster: ClusterId(7).to_string(),
            host: "oss1".into(),
            fs: "scratch".parse().unwrap(),
            mgs: vec!["10.0.0.1:9880".into()],
        };
        file.write(dir.path()).unwrap();
        assert_eq!(ClusterFile::read(dir.path()), Ok(Some(file)));
        let file = ClusterFile::read(dir.path()).unwrap().unwrap();
        assert_eq!((file.nids().unwrap()[0].port, file.fs.as_str()), (9880, "scratch"));
        std::fs::write(dir.path().join(CLUSTER_FILE), "mgs = 3").unwrap();
        assert_eq!(ClusterFile::read(dir.path()).unwrap_err().code, Code::BadConfigValue);
    }
}
