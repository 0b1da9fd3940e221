//! Access to the cluster: processes ask the MGS which hosts were removed and which rights others have, and renew the certificate of their
//! own host in time.
//!
//! The keys of removed hosts, and the nodemaps, are also kept in files beside the identity. A server that starts while the MGS is away uses
//! these files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::target::hex;
use brindle_auth::{Credentials, HostRole, Identity, KeyId};
use brindle_net::{CredentialSource, RemovedKeys, Transport};
use brindle_stdx::Seams;
use brindle_targets::{Directory, Introduction, Plain};
use brindle_types::{Code, Fault, FsName, Nid, Result};
use brindle_wire::Message;
use brindle_wire::form::{self, Form, FormatLevel};
use brindle_wire::mgs::hosts::{RenewCertificateReq, WatchAccessReq, WatchAccessResp};
use brindle_wire::mgs::id_map::{
    MappedNodemap, MappedNodemapList, WatchMappedNodemapsReq, WatchMappedNodemapsResp,
};
use brindle_wire::mgs::nodemap::WatchNodemapsReq;

use crate::enrolment::{ClusterFile, conf_of};
use crate::identity::{IdentityFile, write_secret};

/// Longest time that the MGS holds a request.
const POLL_MS: u32 = 10_000;
/// Additional time for the answer.
const GRACE_MS: u64 = 5_000;
/// Pause after a question that was not answered.
const PAUSE_MS: u64 = 1_000;
/// Interval at which the daemon checks whether the certificate is due for renewal.
const RENEW_EVERY_MS: u64 = 3_600_000;
/// Attempts to get the certificate for a new name before the host starts anew without it.
const NAME_TRIES_MAX: u32 = 10;
/// Pause after a renewal that failed.
const RENEW_PAUSE_MS: u64 = 60_000;
/// Last part of the name of the file with removed keys.
const REMOVED_EXTENSION: &str = "removed";
/// Last part of the name of the file with nodemaps.
const NODEMAPS_EXTENSION: &str = "nodemaps";
/// Pause after the MGS has said that it does not know the request.
const NOTHING_PAUSE_MS: u64 = 30_000;

/// The way of a process of this host to the MGS; and to the file system, if its map is wanted too.
pub fn mgs(
    seams: &Seams,
    transport: Arc<dyn Transport>,
    introduction: Introduction,
    nids: Vec<Nid>,
    fs: Option<FsName>,
) -> Result<Arc<Directory>> {
    let any = || "any".parse().map_err(|why: String| Fault::new(Code::Bug).why(why));
    let fs = fs.map_or_else(any, Ok)?;
    Ok(Directory::new(seams, transport, introduction, Arc::new(Plain), nids, fs, 0))
}

/// Asks the MGS with a long poll for everything newer than a known version, for as long as the process runs. `take` applies an answer and
/// returns its version. `nothing` is called with the reason if the MGS does not know the request: it is of an earlier release, or its
/// cluster has no authority.
async fn follow<M: Message, F: Future<Output = ()> + Send>(
    seams: &Seams,
    mgs: &Directory,
    ask: impl Fn(u64) -> M,
    take: impl Fn(M::Resp) -> u64,
    nothing: impl Fn(Code) -> F,
) {
    let mut known_version = 0;
    loop {
        let request = ask(known_version);
        let patience_ms = u64::from(POLL_MS) + GRACE_MS;
        let asked = seams.now();
        match seams.timeout_ms(patience_ms, mgs.mgs().probe(&request)).await {
            Some(Ok(answer)) => {
                let version = take(answer);
                if version == known_version && seams.now().ms_since(asked) < PAUSE_MS {
                    // Too many processes wait at the MGS.
                    seams.sleep_ms(PAUSE_MS).await;
                }
                known_version = version;
            }
            Some(Err(fault)) if matches!(fault.code, Code::UnknownOp | Code::NoAuthority) => {
                nothing(fault.code).await;
                seams.sleep_ms(NOTHING_PAUSE_MS).await;
            }
            Some(Err(fault)) => {
                tracing::debug!(code = %fault.code, op = M::OP.name(), "the MGS does not answer: {fault}");
                seams.sleep_ms(PAUSE_MS).await;
            }
            None => mgs.map().mgs_is_silent(),
        }
    }
}

/// Follows the removed keys at the MGS, for as long as the process runs. For servers, which have applied the keys on file before.
pub async fn follow_removed(seams: Seams, mgs: Arc<Directory>, identity: PathBuf, removed: Arc<RemovedKeys>) {
    let take = |answer: WatchAccessResp| {
        if let Some(keys) = answer.removed_keys {
            let keys: BTreeSet<KeyId> = keys.into_iter().map(KeyId).collect();
            // First the keys are applied, then the file is written: a full disk lets no removed host in.
            removed.replace(keys.clone());
            keep(&identity, &keys);
        }
        answer.version
    };
    let ask = |known_version| WatchAccessReq { known_version, wait_ms: POLL_MS };
    follow(&seams, &mgs, ask, take, |_| std::future::ready(())).await;
}

/// Follows the nodemaps at the MGS, for as long as the process runs. For servers, which have applied the nodemaps on file before.
pub async fn follow_nodemaps(
    seams: Seams,
    mgs: Arc<Directory>,
    identity: PathBuf,
    removed: Arc<RemovedKeys>,
) {
    let take = |answer: WatchMappedNodemapsResp| {
        answer.nodemaps.into_iter().for_each(|nodemaps| heard(&removed, &identity, nodemaps));
        answer.version
    };
    let ask = |known_version| WatchMappedNodemapsReq { known_version, wait_ms: POLL_MS };
    let plain = |code| {
        let (seams, mgs, identity, removed) = (seams.clone(), mgs.clone(), identity.clone(), removed.clone());
        async move { take_plain_nodemaps(&seams, &mgs, &identity, &removed, code).await }
    };
    follow(&seams, &mgs, ask, take, plain).await;
}

/// First applies the nodemaps, then writes the file: a full disk gives no host more rights.
fn heard(removed: &RemovedKeys, identity: &Path, nodemaps: Vec<MappedNodemap>) {
    removed.nodemaps.replace(&nodemaps);
    keep_nodemaps(identity, &MappedNodemapList { nodemaps });
}

/// Asks an MGS that has refused the request for mapped nodemaps: an MGS of the last release maps no numbers.
async fn take_plain_nodemaps(
    seams: &Seams,
    mgs: &Directory,
    identity: &Path,
    removed: &RemovedKeys,
    code: Code,
) {
    let request = WatchNodemapsReq { known_version: 0, wait_ms: 0 };
    let answer = match code {
        Code::UnknownOp => seams.timeout_ms(GRACE_MS, mgs.mgs().probe(&request)).await,
        code => Some(Err(Fault::new(code))),
    };
    match answer {
        Some(Ok(answer)) => {
            let nodemaps = answer.nodemaps.into_iter().flatten().map(MappedNodemap::from).collect();
            heard(removed, identity, nodemaps);
        }
        Some(Err(fault)) if matches!(fault.code, Code::UnknownOp | Code::NoAuthority) => {
            removed.nodemaps.replace(&[]);
        }
        // Nodemaps and removed keys that are already known stay in force.
        Some(Err(_)) | None => {}
    }
}

fn nodemaps_file(identity: &Path) -> PathBuf {
    identity.with_extension(NODEMAPS_EXTENSION)
}

/// Nodemaps that are on file; `None` where there is no file. An unreadable file is refused: hosts would be trusted that are not to be
/// trusted.
pub fn nodemaps_on_file(identity: &Path) -> Result<Option<Vec<MappedNodemap>>> {
    let path = nodemaps_file(identity);
    let subject = path.display().to_string();
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::io(Code::StoreDamaged, "cannot read the nodemaps in", subject, &e)),
    };
    let damaged = |why| {
        Fault::new(Code::StoreDamaged)
            .what("cannot read the nodemaps in")
            .subject(subject)
            .why(why)
            .next("remove the file while the MGS can be reached: it has them")
    };
    let text = String::from_utf8_lossy(&bytes);
    let bytes = unhex(text.trim()).ok_or_else(|| "it is no line of hexadecimal digits".to_owned());
    let list: MappedNodemapList = match bytes {
        Ok(bytes) => form::decode(&bytes).map_err(|why| why.fault("the nodemaps", damaged))?,
        Err(why) => return Err(damaged(why)),
    };
    Ok(Some(list.nodemaps))
}

fn keep_nodemaps(identity: &Path, list: &MappedNodemapList) {
    if nodemaps_on_file(identity).is_ok_and(|known| known.as_ref() == Some(&list.nodemaps)) {
        return;
    }
    // A server of the last release reads the file as long as no numbers are mapped. The server does not start if it would trust hosts by
    // mistake.
    let bytes = match list.to_previous() {
        Some(plain) => form::encode(FormatLevel::FIRST, &plain),
        None => form::encode(FormatLevel::FIRST, list),
    };
    let kept = bytes.and_then(|bytes| write_secret(&nodemaps_file(identity), &(hex(&bytes) + "\n")));
    if let Err(fault) = kept {
        tracing::warn!(code = %fault.code, "cannot keep the nodemaps: {fault}");
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
    let pairs = (0..text.len() / 2).map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok());
    is_hex.then(|| pairs.collect::<Option<Vec<u8>>>()).flatten()
}

fn removed_file(identity: &Path) -> PathBuf {
    identity.with_extension(REMOVED_EXTENSION)
}

/// Removed keys that are on file; none where there is no file. An unreadable file is refused: hosts would be let in that were removed.
pub fn on_file(identity: &Path) -> Result<BTreeSet<KeyId>> {
    const WHAT: &str = "cannot read the removed hosts in";
    let path = removed_file(identity);
    let subject = path.display().to_string();
    let next = "remove the file while the MGS can be reached: it has them";
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(e) => return Err(Fault::io(Code::StoreDamaged, WHAT, subject, &e).next(next)),
    };
    keys_in(&text)
        .map_err(|why| Fault::new(Code::StoreDamaged).what(WHAT).subject(subject).why(why).next(next))
}

/// Removed keys in a file that a server keeps (`identity.removed`): all of it is read, or it is refused.
pub fn removed_in(path: &Path) -> Result<BTreeSet<KeyId>> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Fault::io(Code::BadArgument, "cannot read", shown.clone(), &e))?;
    keys_in(&text).map_err(|why| {
        Fault::new(Code::BadArgument)
            .what("cannot use the list of removed keys")
            .subject(shown)
            .why(why)
            .data("nothing was changed")
    })
}

/// Keys, one a line; or the reason why the text has none.
fn keys_in(text: &str) -> std::result::Result<BTreeSet<KeyId>, String> {
    let lines = text.lines().map(|line| parse_key(line).ok_or(line));
    let keys: std::result::Result<_, _> = lines.collect();
    keys.map_err(|line| format!("'{}' is not a key", line.chars().take(80).collect::<String>()))
}

fn keep(identity: &Path, keys: &BTreeSet<KeyId>) {
    if on_file(identity).is_ok_and(|known| known == *keys) {
        return;
    }
    let text: String = keys.iter().map(|key| hex(&key.0) + "\n").collect();
    if let Err(fault) = write_secret(&removed_file(identity), &text) {
        tracing::warn!(code = %fault.code, "cannot keep the list of removed hosts: {fault}");
    }
}

fn parse_key(line: &str) -> Option<KeyId> {
    let mut key = [0; 32];
    if line.len() != 2 * key.len() || !line.is_ascii() {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&line[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(KeyId(key))
}

/// Follows the removed hosts of the cluster, and renews the certificate of this host in time, for as long as the process runs. Does nothing
/// if no file beside the identity names the cluster. `transport` goes over TCP.
pub fn follow_cluster(
    seams: &Seams,
    identity: &Arc<IdentityFile>,
    transport: Arc<dyn Transport>,
    removed: Option<Arc<RemovedKeys>>,
) -> Result<()> {
    let conf = identity.path().parent().unwrap_or(Path::new("/"));
    let Some(file) = ClusterFile::read(conf)? else { return Ok(()) };
    let (introduction, nids) = (introduction(identity)?, file.nids()?);
    if let Some(removed) = removed {
        let way = mgs(seams, transport.clone(), introduction.clone(), nids.clone(), Some(file.fs))?;
        seams
            .spawn("access.removed", follow_removed(seams.clone(), way, identity.path().to_owned(), removed));
    }
    let own = seams.clone();
    let way = move || mgs(&own, transport.clone(), introduction.clone(), nids.clone(), None);
    seams.spawn("access.renew", keep_certificate(seams.clone(), way, identity.clone()));
    Ok(())
}

/// Introduction under which a process may ask for a new certificate of this host.
pub fn introduction(identity: &IdentityFile) -> Result<Introduction> {
    let current = identity.current()?;
    let name = current.identity().name();
    let is_agent = [HostRole::Server, HostRole::Agent].iter().any(|role| name.roles.has(*role));
    Ok(if is_agent { Introduction::agent(&name.host) } else { Introduction::client(&name.host) })
}

/// Renews the certificate in time, for as long as the process runs. Several processes of a host may do so at once. `mgs` makes a connection
/// to the MGS when it is needed.
pub async fn keep_certificate(
    seams: Seams,
    mgs: impl Fn() -> Result<Arc<Directory>>,
    identity: Arc<IdentityFile>,
) {
    loop {
        let pause_ms = match renew(&seams, &mgs, &identity).await {
            Ok(_) => RENEW_EVERY_MS,
            Err(fault) if fault.code == Code::NoAuthority => RENEW_EVERY_MS,
            Err(fault) => {
                tracing::warn!(code = %fault.code, "cannot renew the certificate of this host: {fault}");
                RENEW_PAUSE_MS
            }
        };
        seams.sleep_ms(pause_ms).await;
    }
}

/// Renews the certificate if half of its time has passed; returns whether it did.
pub async fn renew(
    seams: &Seams,
    mgs: &impl Fn() -> Result<Arc<Directory>>,
    identity: &IdentityFile,
) -> Result<bool> {
    let current = identity.current()?;
    if !current.wants_renewal(seams.wall().secs) {
        return Ok(false);
    }
    let renewed = ask_for_another(mgs, &current).await?;
    let own = current.identity().name();
    if renewed.name().host != own.host {
        // An administrator has given the host this name. Its daemon takes it: everything here goes by the present one.
        if own.roles.has(HostRole::Server) {
            return Ok(false);
        }
        write_new_name(&renewed, identity)?;
        show_new_name(mgs, identity).await?;
        return Ok(true);
    }
    write_secret(identity.path(), &renewed.to_pem())?;
    tracing::info!(host = renewed.name().host, "renewed the certificate of this host");
    Ok(true)
}

async fn ask_for_another(
    mgs: &impl Fn() -> Result<Arc<Directory>>,
    current: &Credentials,
) -> Result<Identity> {
    let request = RenewCertificateReq { public_key: current.identity().key().public() };
    let answer = mgs()?.mgs().probe_within(&request, u64::from(POLL_MS)).await?;
    current.identity().renewed(answer.certificate)
}

/// Asks for the certificate with the name that an administrator has given this host. Changes nothing here. Tries for a bounded time; a host that
/// starts anew without the name is told again.
pub async fn new_name(
    seams: &Seams,
    mgs: &impl Fn() -> Result<Arc<Directory>>,
    identity: &IdentityFile,
) -> Result<Identity> {
    let mut tries = 1;
    loop {
        let current = identity.current()?;
        match ask_for_another(mgs, &current).await {
            Ok(renewed) => return Ok(renewed),
            Err(fault) if tries == NAME_TRIES_MAX => return Err(fault),
            Err(fault) => tracing::warn!(code = %fault.code, "cannot take the new name yet: {fault}"),
        }
        tries += 1;
        seams.sleep_ms(PAUSE_MS).await;
    }
}

/// Writes the certificate for a new name, and the name into the file of the cluster. Nothing of a server process may go by the former name any more.
pub fn write_new_name(renewed: &Identity, identity: &IdentityFile) -> Result<()> {
    let host = renewed.name().host.clone();
    let conf = conf_of(identity.path());
    // The identity decides. The identity is written last, so that a host that was interrupted is told again.
    if let Some(file) = ClusterFile::read(conf)? {
        ClusterFile { host: host.clone(), ..file }.write(conf)?;
    }
    write_secret(identity.path(), &renewed.to_pem())?;
    tracing::info!(host, "this host has another name from now on");
    Ok(())
}

/// Shows the MGS the name that the identity has now: from then on the former one is refused. For hosts without a daemon.
pub async fn show_new_name(mgs: &impl Fn() -> Result<Arc<Directory>>, identity: &IdentityFile) -> Result<()> {
    ask_for_another(mgs, &*identity.current()?).await.map(drop)
}

/// Takes the name that an administrator has given this host, where no daemon does; the former name and the present one. Once more does no harm: a
/// host that was interrupted goes on.
pub async fn take_new_name(
    seams: &Seams,
    identity: &IdentityFile,
    over_tcp: Arc<dyn Transport>,
) -> Result<(String, String)> {
    let conf = conf_of(identity.path());
    let former = identity.current()?.identity().name().clone();
    if former.roles.has(HostRole::Server) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot take another name for")
            .subject(former.host)
            .why("it has joined as a server: its daemon takes the name by itself")
            .data("nothing was changed")
            .next("systemctl status brindle-serve"));
    }
    let Some(file) = ClusterFile::read(conf)? else {
        return Err(Fault::new(Code::NotEnrolled)
            .what("cannot take another name")
            .why(format!("no file in {} says which cluster this host belongs to", conf.display())));
    };
    let nids = file.nids()?;
    let way = || mgs(seams, over_tcp.clone(), introduction(identity)?, nids.clone(), None);
    let renewed = new_name(seams, &way, identity).await?;
    let host = renewed.name().host.clone();
    if host != former.host {
        write_new_name(&renewed, identity)?;
    }
    show_new_name(&way, identity).await?;
    Ok((former.host, host))
}

#[cfg(test)]
mod tests {
    use brindle_wire::mgs::id_map::IdMap;
    use brindle_wire::mgs::nodemap::Nodemap;

    use super::*;

    #[test]
    fn removed_keys_are_kept_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let identity = dir.path().join("identity.pem");
        assert_eq!(on_file(&identity).unwrap(), BTreeSet::new());
        let keys = BTreeSet::from([KeyId([1; 32]), KeyId([0xab; 32])]);
        keep(&identity, &keys);
        assert_eq!(on_file(&identity).unwrap(), keys);
        // Without this, removed hosts would be let in.
        let damaged: [&[u8]; 3] = [b"nonsense\n", "\u{e9}\n".as_bytes(), b"\xff\xfe"];
        for bytes in damaged {
            std::fs::write(removed_file(&identity), bytes).unwrap();
            assert_eq!(on_file(&identity).unwrap_err().code, Code::StoreDamaged);
        }
        std::fs::remove_file(removed_file(&identity)).unwrap();
        std::fs::create_dir(removed_file(&identity)).unwrap();
        assert_eq!(on_file(&identity).unwrap_err().code, Code::StoreDamaged, "it is no file");
        std::fs::remove_dir(removed_file(&identity)).unwrap();
        keep(&identity, &keys);
        assert_eq!(on_file(&identity).unwrap(), keys);
    }

    #[test]
    fn nodemaps_are_kept_in_a_file_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let identity = dir.path().join("identity.pem");
        assert_eq!(nodemaps_on_file(&identity).unwrap(), None);
        let lab = Nodemap { read_only: true, ..Nodemap::new("lab") };
        let ids = IdMap { uids: vec!["7:9".parse().unwrap()], ..IdMap::default() };
        for (ids, version) in [(IdMap::default(), "01"), (ids, "02")] {
            let nodemaps = vec![MappedNodemap { nodemap: lab.clone(), ids }];
            keep_nodemaps(&identity, &MappedNodemapList { nodemaps: nodemaps.clone() });
            assert_eq!(nodemaps_on_file(&identity).unwrap(), Some(nodemaps));
            assert!(std::fs::read_to_string(nodemaps_file(&identity)).unwrap().starts_with(version));
        }
        for damaged in ["", "01", "zz", "\u{e9}", "010"] {
            std::fs::write(nodemaps_file(&identity), damaged).unwrap();
            assert_eq!(nodemaps_on_file(&identity).unwrap_err().code, Code::StoreDamaged, "{damaged}");
        }
    }
}
