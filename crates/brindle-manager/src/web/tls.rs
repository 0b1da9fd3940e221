//! The certificate of the manager: given, or made by itself and kept.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_host::identity::write_secret;
use brindle_stdx::cast::to_i64;
use brindle_types::{Code, Fault, Result};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::validity;

/// Name of the file with a certificate that the manager has made, and its key.
const FILE: &str = "certificate.pem";
/// Validity of such a certificate in days; browsers accept no more.
const DAYS: i64 = 397;
/// A certificate that ends in fewer days is replaced at the start.
const RENEW_DAYS: i64 = 30;
const SECONDS_A_DAY: i64 = 86_400;

/// How browsers reach the manager.
#[derive(Clone, Debug)]
pub enum Protection {
    /// By a certificate that the manager makes and signs itself.
    SelfSigned,
    /// By a certificate and its key, in PEM files.
    Given {
        /// The certificate, and those of the authorities between.
        certificate: PathBuf,
        /// Key of the certificate.
        key: PathBuf,
    },
    /// Not at all.
    InsecureHttp,
}

/// A certificate in use.
pub struct Tls {
    /// For the handshakes.
    pub config: Arc<ServerConfig>,
    /// SHA-256 of the certificate, as browsers show it.
    pub fingerprint: String,
    /// When the certificate ends, seconds since 1970.
    pub ends_s: Option<i64>,
}

/// The certificate to use; one that the manager makes is kept in `dir` and is for these names and addresses.
pub fn load(protection: &Protection, dir: &Path, names: &[String], now_s: i64) -> Result<Option<Tls>> {
    match protection {
        Protection::InsecureHttp => Ok(None),
        Protection::Given { certificate, key } => read(certificate, key).map(Some),
        Protection::SelfSigned => {
            let path = dir.join(FILE);
            match read(&path, &path) {
                Ok(tls) if is_fresh(&path, now_s) => Ok(Some(tls)),
                _ => {
                    write_secret(&path, &make(names, now_s)?)
                        .map_err(|fault| fault.what("cannot write the certificate to"))?;
                    read(&path, &path).map(Some)
                }
            }
        }
    }
}

/// Whether a certificate of ours was made not long ago: its file says when.
fn is_fresh(path: &Path, now_s: i64) -> bool {
    let made = std::fs::metadata(path).and_then(|file| file.modified()).ok();
    let made_s = made
        .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok())
        .map(|since| to_i64(since.as_secs()));
    made_s.is_some_and(|made_s| now_s - made_s < (DAYS - RENEW_DAYS) * SECONDS_A_DAY)
}

/// A certificate and its key as PEM.
fn make(names: &[String], now_s: i64) -> Result<String> {
    let bug = |why: String| Fault::new(Code::Bug).what("cannot make a certificate").why(why);
    let mut params = CertificateParams::new(names).map_err(|e| bug(e.to_string()))?;
    let at = |s: i64| time::OffsetDateTime::from_unix_timestamp(s).map_err(|e| bug(e.to_string()));
    params.not_before = at(now_s - SECONDS_A_DAY)?;
    params.not_after = at(now_s + DAYS * SECONDS_A_DAY)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "Brindle manager");
    let key = KeyPair::generate().map_err(|e| bug(e.to_string()))?;
    let certificate = params.self_signed(&key).map_err(|e| bug(e.to_string()))?;
    let certificate = pem::encode(&pem::Pem::new("CERTIFICATE", certificate.der().to_vec()));
    Ok(certificate + &pem::encode(&pem::Pem::new("PRIVATE KEY", key.serialize_der())))
}

fn read(certificate: &Path, key: &Path) -> Result<Tls> {
    let wrong = |path: &Path, why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot use the certificate or key in")
            .subject(path.display().to_string())
            .why(why)
            .next("give PEM files: --certificate FILE --key FILE")
    };
    let chain: Vec<CertificateDer> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| wrong(certificate, e.to_string()))?;
    let first = chain.first().ok_or_else(|| wrong(certificate, "it holds no certificate".to_owned()))?;
    let (fingerprint, ends_s) = (fingerprint(first), validity::ends_s(first));
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|e| wrong(certificate, e.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Tls { config: Arc::new(config), fingerprint, ends_s })
}

fn fingerprint(certificate: &CertificateDer) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

/// Names and addresses that a certificate of ours is for.
pub fn names(host: &str, listen: IpAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !host.is_empty() && host.is_ascii() {
        names.push(host.to_owned());
    }
    if !listen.is_unspecified() && !listen.is_loopback() {
        names.push(listen.to_string());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_renewed_in_time() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let now_s = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        let names = names("node1", "10.0.0.1".parse().unwrap());
        let load = |now_s| load(&Protection::SelfSigned, dir.path(), &names, now_s).unwrap().unwrap();
        let first = load(now_s()).fingerprint;
        let path = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load(now_s()).fingerprint, first);
        assert_ne!(load(now_s() + (DAYS - RENEW_DAYS) * SECONDS_A_DAY).fingerprint, first);
        std::fs::write(&path, "nothing").unwrap();
        assert_ne!(load(now_s()).fingerprint, first);
        let given = Protection::Given { certificate: "/nowhere".into(), key: "/nowhere".into() };
        assert_eq!(super::load(&given, dir.path(), &names, 0).err().unwrap().code, Code::BadArgument);
    }
}
