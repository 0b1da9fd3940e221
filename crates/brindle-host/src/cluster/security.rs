//! Identities of the hosts of a development cluster.
//!
//! `DIR/authority.pem` is the cluster's authority, `DIR/identities/HOST.pem` the identity of each host, `DIR/identity.pem` that of commands in
//! the ordinary shell. Root alone may read them.

use std::path::{Path, PathBuf};

use brindle_auth::{Authority, ClusterId, HostKey, HostRole, Identity, Mode, Name, Roles};
use brindle_types::{Code, Fault, Result};

use super::On;
use super::state::Cluster;
use crate::identity::write_secret;

/// The identity of commands, in the cluster's directory.
pub const ADMIN_IDENTITY: &str = "identity.pem";
/// Name under which commands of the ordinary shell are known.
const ADMIN_HOST: &str = "administrator";
const AUTHORITY: &str = "authority.pem";

/// Path of the identity of a host; `None` in a cluster that asks for no proof.
pub fn identity_of(dir: &Path, cluster: &Cluster, host: &str) -> Option<PathBuf> {
    (cluster.security != Mode::None).then(|| dir.join("identities").join(format!("{host}.pem")))
}

impl On<'_> {
    /// Gives every host and the commands identities; at each start anew, so that none is out of date.
    pub(super) fn issue_identities(&self, cluster: &Cluster) -> Result<()> {
        if cluster.security == Mode::None {
            return Ok(());
        }
        let authority = self.authority()?;
        let dir = self.dir.join("identities");
        std::fs::create_dir_all(&dir)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot make", dir.display().to_string(), &e))?;
        for host in &cluster.hosts {
            let serves = cluster.servers_on(&host.name).next().is_some();
            let role = if serves { HostRole::Server } else { HostRole::Client };
            self.issue(&authority, &host.name, role, &dir.join(format!("{}.pem", host.name)))?;
        }
        self.issue(&authority, ADMIN_HOST, HostRole::Admin, &self.dir.join(ADMIN_IDENTITY))
    }

    fn issue(&self, authority: &Authority, host: &str, role: HostRole, path: &Path) -> Result<()> {
        let name = Name { cluster: authority.cluster(), host: host.to_owned(), roles: Roles::of(&[role]) };
        let key = HostKey::generate()?;
        let certificate = authority.issue(&name, &key.public(), self.host.seams().wall().secs)?;
        let identity = Identity::new(key, certificate, authority.certificate().to_vec())?;
        write_secret(path, &identity.to_pem())
    }

    /// The authority of the cluster; made at the first start.
    fn authority(&self) -> Result<Authority> {
        let path = self.dir.join(AUTHORITY);
        match std::fs::read_to_string(&path) {
            Ok(text) => Authority::from_pem(&text).map_err(|fault| fault.subject(path.display().to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let seams = self.host.seams();
                let authority = Authority::new(ClusterId(seams.rng.next_u64()), seams.wall().secs)?;
                write_secret(&path, &authority.to_pem())?;
                Ok(authority)
            }
            Err(e) => Err(Fault::io(Code::BadIdentity, "cannot read", path.display().to_string(), &e)),
        }
    }
}
