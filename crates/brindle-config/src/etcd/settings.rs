//! Location of a cluster's configuration in etcd: the file [`FILE`] beside each MGT of the cluster.
//!
//! The file holds the private key that etcd knows this cluster by, so only root may read it; it is never logged.

use std::fmt;
use std::io;

use brindle_stdx::disk::read_file;
use brindle_stdx::{Disk, Seams};
use brindle_types::{Code, Fault, FsName, Result};
use serde::{Deserialize, Serialize};

use super::{Address, EtcdStore, TlsFiles};

/// Name of the file, in the directory of an MGT. An MGT that has it keeps nothing in a config store of its own.
pub const FILE: &str = "etcd.toml";
/// Largest file that is read.
const FILE_MAX_BYTES: usize = 256 << 10;

/// The file's contents.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The members: `etcd://a:2379,b:2379`.
    pub address: String,
    /// Prefix of every key.
    pub root: String,
    /// Files for TLS; `None`: the members are asked in plain HTTP.
    pub tls: Option<TlsTexts>,
}

/// Certificates and key for TLS, PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsTexts {
    /// Certificates of the authority that made the members' certificates.
    pub authority: String,
    /// Certificate that is shown to the members.
    pub certificate: String,
    /// Private key of the client.
    pub key: String,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { address, root, tls } = self;
        write!(f, "{address} below {root}, {}", if tls.is_some() { "TLS" } else { "no TLS" })
    }
}

impl Settings {
    /// The configuration of a file system in the etcd at `address`.
    pub fn new(address: &Address, fs: &FsName, tls: Option<TlsTexts>) -> Settings {
        Settings { address: address.to_string(), root: format!("brindle/{fs}/"), tls }
    }

    /// Reads the file beside an MGT; `None` where there is none, so that the configuration lies in the MGT itself.
    pub fn read(disk: &dyn Disk, dir: &str) -> Result<Option<Settings>> {
        let path = format!("{dir}/{FILE}");
        match read_file(disk, &path, FILE_MAX_BYTES) {
            Ok(bytes) => Settings::from_toml(&String::from_utf8_lossy(&bytes))
                .map(Some)
                .map_err(|fault| fault.subject(path)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Fault::io(Code::BadConfigValue, "cannot read", path, &e)),
        }
    }

    /// Reads the text of the file.
    pub fn from_toml(text: &str) -> Result<Settings> {
        toml::from_str(text).map_err(|e| {
            // The whole error would show the line, and that may be the key.
            Fault::new(Code::BadConfigValue)
                .what("cannot read")
                .why(e.message().to_owned())
                .next("copy the file from another MGS host of the cluster")
        })
    }

    /// The text of the file: a secret, where there is a key in it.
    pub fn to_toml(&self) -> Result<String> {
        let body = toml::to_string(self).map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?;
        Ok(format!(
            "# Where the configuration of this cluster lies. Keep it secret: whoever has the key may change it.\n{body}"
        ))
    }

    /// The store. Asks nothing yet.
    pub fn open(&self, seams: Seams) -> Result<EtcdStore> {
        let tls = self.tls.as_ref().map(|tls| TlsFiles {
            authority: tls.authority.clone().into_bytes(),
            certificate: tls.certificate.clone().into_bytes(),
            key: tls.key.clone().into_bytes(),
        });
        EtcdStore::new(seams, self.address.parse()?, tls.as_ref(), &self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_and_no_secret_is_shown() {
        let tls = TlsTexts { authority: "a".into(), certificate: "c".into(), key: "hush".into() };
        let address = "etcd://a,b:4001".parse().unwrap();
        let settings = Settings::new(&address, &"scratch".parse().unwrap(), Some(tls));
        assert_eq!(Settings::from_toml(&settings.to_toml().unwrap()), Ok(settings.clone()));
        assert_eq!(format!("{settings:?}"), "etcd://a:2379,b:4001 below brindle/scratch/, TLS");
        let fault = Settings::from_toml("address = 3\nkey = 'hush'").unwrap_err();
        assert!(!fault.to_string().contains("hush"), "{fault}");
    }
}
