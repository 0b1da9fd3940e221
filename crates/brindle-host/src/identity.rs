//! Identities of this host: where they lie, and what processes prove with them.
//!
//! A process takes the identity that it was given (an option, or the environment variable `BRINDLE_IDENTITY`), or the one at
//! [`DEFAULT_PATH`] if the host has joined a cluster. The file is read again for each connection, because certificates are renewed.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use brindle_auth::{Credentials, Identity, Mode, Modes};
use brindle_net::{
    Connection, CredentialSource, Listener, NetError, Proving, Security, TcpTransport, Transport,
};
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Nid, Result};
use parking_lot::Mutex;

use crate::cluster::security::ADMIN_IDENTITY;

/// Path of the identity of a host that has joined a cluster.
pub const DEFAULT_PATH: &str = "/etc/brindle/identity.pem";
/// The environment variable that names another file.
pub const VARIABLE: &str = "BRINDLE_IDENTITY";
/// Largest file that is taken for an identity.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// The identity that the development cluster of this command has for administrators, if it has one.
static OF_DEV_CLUSTER: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Held while this process writes a file: the name that a file has until it is whole is one for each process.
static WRITING: Mutex<()> = Mutex::new(());

/// An identity's file.
pub struct IdentityFile {
    path: PathBuf,
    read: Mutex<Option<(String, Arc<Credentials>)>>,
}

impl IdentityFile {
    /// The identity in a file, which must be one now.
    pub fn open(path: impl Into<PathBuf>) -> Result<Arc<IdentityFile>> {
        let file = Arc::new(IdentityFile { path: path.into(), read: Mutex::default() });
        file.current()?;
        Ok(file)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the host, as its certificate has it.
    pub fn host(&self) -> Result<String> {
        Ok(self.current()?.identity().name().host.clone())
    }
}

impl CredentialSource for IdentityFile {
    fn current(&self) -> Result<Arc<Credentials>> {
        let text = read(&self.path)?;
        let mut kept = self.read.lock();
        if let Some((before, credentials)) = &*kept
            && *before == text
        {
            return Ok(credentials.clone());
        }
        let about = |fault: Fault| fault.subject(self.path.display().to_string());
        let identity = Identity::from_pem(&text).map_err(about)?;
        let credentials = Arc::new(Credentials::new(identity).map_err(about)?);
        *kept = Some((text, credentials.clone()));
        Ok(credentials)
    }
}

fn read(path: &Path) -> Result<String> {
    let subject = || path.display().to_string();
    let cannot = |e: &std::io::Error| {
        let fault = Fault::io(Code::BadIdentity, "cannot read the identity", subject(), e);
        match e.kind() {
            std::io::ErrorKind::PermissionDenied => fault.next("run the command as root"),
            _ => fault,
        }
    };
    let len = std::fs::metadata(path).map_err(|e| cannot(&e))?.len();
    if len > FILE_MAX_BYTES {
        return Err(Fault::new(Code::BadIdentity).subject(subject()).why(format!("it has {len} bytes")));
    }
    std::fs::read_to_string(path).map_err(|e| cannot(&e))
}

/// Writes a file that root alone may read; whole or not at all.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    write_whole(path, text, 0o600).map_err(|e| {
        Fault::io(Code::NotWritable, "cannot write the identity", path.display().to_string(), &e)
    })
}

/// Writes a file with these permissions; whole or not at all, and synced.
pub fn write_whole(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    // Several processes of a host may write at once, and several tasks of one.
    let _one = WRITING.lock();
    let mut temp = path.as_os_str().to_owned();
    temp.push(format!(".new-{}", std::process::id()));
    match std::fs::remove_file(&temp) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temp)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temp, path)?;
    std::fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The process serves targets.
    Server,
    /// The process is a mount.
    Mount,
    /// The process is a command.
    Command,
}

/// The identity to use: the one given, else that of the environment, else the host's own; `None` where there is none.
pub fn find(given: Option<&Path>) -> Result<Option<Arc<IdentityFile>>> {
    let named = given.map(Path::to_owned).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        return IdentityFile::open(path).map(Some);
    }
    let own = Path::new(DEFAULT_PATH);
    if own.exists() { IdentityFile::open(own).map(Some) } else { Ok(None) }
}

/// The modes that were asked for; if none were, `auth` with an identity, and `none` without. Refused where an identity is needed and missing.
pub fn modes(asked: Option<Modes>, has_identity: bool) -> Result<Modes> {
    match asked {
        None if has_identity => Ok(Mode::Auth.into()),
        None => Ok(Mode::None.into()),
        Some(modes) if modes.strongest() == Mode::None || has_identity => Ok(modes),
        Some(modes) => Err(Fault::new(Code::NotEnrolled)
            .what("cannot use the mode of protection")
            .subject(modes.to_string())
            .why("this host has no identity, so it cannot prove who it is")
            .next("give one: --identity FILE")),
    }
}

/// Proof that a process gives and asks for. `modes` are the weakest in which frames of mounts may be protected, in each network. Servers and
/// commands talk inside TLS, unless the mode of the network is `none`.
pub fn security(identity: Option<Arc<IdentityFile>>, modes: impl Into<Modes>, process: Process) -> Security {
    let modes = modes.into();
    let Some(identity) = identity else {
        let is_open = modes.strongest() == Mode::None || process != Process::Server;
        return if is_open { Security::none() } else { Security::own_host() };
    };
    let connects = modes.map(|mode| match process {
        _ if mode == Mode::None => Mode::None,
        Process::Mount => mode,
        Process::Server | Process::Command => Mode::Privacy,
    });
    Security {
        proving: Proving::Identity(identity),
        connects,
        accepts: modes,
        admits_strangers: false,
        removed: Arc::default(),
    }
}

/// Commands of this process are about the development cluster in `dir`: they use its identity, or none if it has none.
pub fn use_dev_cluster(dir: &Path) {
    let path = Some(dir.join(ADMIN_IDENTITY)).filter(|path| path.exists());
    // A command is about one cluster.
    drop(OF_DEV_CLUSTER.set(path));
}

/// Commands of this process are about the file system that is mounted there: if a development cluster has mounted it, at `DIR/mnt/HOST`,
/// they use the identity of that cluster.
pub fn use_mount(mount_point: &Path) {
    let dir = mount_point.parent().and_then(Path::parent).filter(|dir| dir.join(ADMIN_IDENTITY).exists());
    dir.into_iter().for_each(use_dev_cluster);
}

/// Connects as a command does. The identity is chosen when it connects: by then the cluster of the command is
/// known.
pub struct CommandTransport {
    seams: Seams,
}

impl CommandTransport {
    /// Must be used on a tokio runtime with I/O and time.
    pub fn new(seams: Seams) -> CommandTransport {
        CommandTransport { seams }
    }

    fn tcp(&self) -> Result<TcpTransport> {
        let identity = match OF_DEV_CLUSTER.get() {
            Some(Some(path)) => Some(IdentityFile::open(path)?),
            Some(None) => None,
            None => find(None)?,
        };
        let security = security(identity, Mode::Auth, Process::Command);
        Ok(TcpTransport::new(self.seams.clone()).from_reserved_port().secured(security))
    }
}

impl Transport for CommandTransport {
    fn connect(&self, nid: &Nid) -> BoxFuture<'static, std::result::Result<Connection, NetError>> {
        match self.tcp() {
            Ok(tcp) => tcp.connect(nid),
            Err(fault) => Box::pin(async move { Err(NetError::bad(fault)) }),
        }
    }

    /// Commands do not listen.
    fn listen(&self, _nid: &Nid) -> BoxFuture<'static, std::result::Result<Box<dyn Listener>, NetError>> {
        Box::pin(async { Err(NetError::bad(Fault::new(Code::Bug).why("a command was to listen"))) })
    }
}

#[cfg(test)]
mod tests {
    use brindle_auth::{Authority, ClusterId, HostKey, HostRole, Name, Roles};

    use super::*;

    #[test]
    fn files_that_are_written_at_once_keep_apart() {
        const ROUNDS: usize = 50;
        let dir = tempfile::tempdir().unwrap();
        let names = ["identity.pem", "identity.nodemaps", "identity.removed", "identity.pem"];
        std::thread::scope(|scope| {
            for name in names {
                let path = dir.path().join(name);
                scope.spawn(move || (0..ROUNDS).for_each(|_| write_secret(&path, name).unwrap()));
            }
        });
        for name in names {
            assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap(), name);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing else is left");
    }

    #[test]
    fn a_file_is_secret_and_read_again_when_it_has_changed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.pem");
        let authority = Authority::new(ClusterId(1), 1_800_000_000).unwrap();
        let write = |host: &str| {
            let name =
                Name { cluster: ClusterId(1), host: host.into(), roles: Roles::of(&[HostRole::Client]) };
            let key = HostKey::generate().unwrap();
            let certificate = authority.issue(&name, &key.public(), 1_800_000_000).unwrap();
            let identity = Identity::new(key, certificate, authority.certificate().to_vec()).unwrap();
            write_secret(&path, &identity.to_pem()).unwrap();
        };
        write("c1");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let file = IdentityFile::open(&path).unwrap();
        assert_eq!(file.host().unwrap(), "c1");
        write("c2");
        assert_eq!(file.host().unwrap(), "c2");
        std::fs::write(&path, "nothing").unwrap();
        let fault = file.current().err().unwrap();
        assert_eq!((fault.code, fault.subject.as_ref()), (Code::BadIdentity, path.to_str().unwrap()));
    }
}
