//! An identity as `rustls` needs it, and what a handshake proves.

use std::sync::Arc;
use std::time::Duration;

use brindle_types::{Code, Fault, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error,
    RootCertStore, ServerConfig, SignatureScheme, WantsVerifier,
};

use crate::name::sha256;
use crate::{CERTIFICATE_DAYS, ClusterId, Identity, KeyId, Mode, Roles, identity};

/// Host that a handshake has proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Name of the host, as its certificate has it.
    pub host: String,
    /// Roles of the host, as its certificate has them.
    pub roles: Roles,
    /// Key of the host.
    pub key: KeyId,
    /// Protection of the connection from there on.
    pub mode: Mode,
}

/// An identity, ready for handshakes.
pub struct Credentials {
    identity: Identity,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
}

impl Credentials {
    /// Prepares an identity.
    pub fn new(identity: Identity) -> Result<Credentials> {
        let mut roots = RootCertStore::empty();
        roots.add(identity.authority().clone()).map_err(|e| cannot(&e))?;
        Ok(Credentials { identity, provider: Arc::new(provider::default_provider()), roots: Arc::new(roots) })
    }

    /// The identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the certificate holds at a time, seconds since 1970.
    pub fn holds_at(&self, time_s: u64) -> bool {
        let Ok(parsed) = webpki::EndEntityCert::try_from(self.identity.certificate()) else { return false };
        let algorithms = self.provider.signature_verification_algorithms.all;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time_s));
        let usage = webpki::KeyUsage::client_auth();
        parsed.verify_for_usage(algorithms, &self.roots.roots, &[], time, usage, None, None).is_ok()
    }

    /// Whether it is time for a new certificate: half of the time of this one has passed.
    pub fn wants_renewal(&self, now_s: i64) -> bool {
        let half_s = CERTIFICATE_DAYS * 24 * 3600 / 2;
        !u64::try_from(now_s + half_s).is_ok_and(|time_s| self.holds_at(time_s))
    }

    /// The connecting side of a handshake with a server of the cluster, in `least` or a stronger mode.
    pub fn connecting(&self, least: Mode) -> Result<rustls::ClientConnection> {
        let chain = self.chain();
        let config = client_builder(self.provider.clone())?
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(chain, self.identity.private_key())
            .map_err(|e| cannot(&e))?;
        client(config, least, self.identity.name().cluster)
    }

    /// The accepting side of a handshake, in `least` or a stronger mode. With `admits_strangers` the other side may have no certificate:
    /// it means to join, and must be given nothing else.
    pub fn accepting(&self, least: Mode, admits_strangers: bool) -> Result<rustls::ServerConnection> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone());
        let verifier = if admits_strangers { verifier.allow_unauthenticated() } else { verifier };
        let verifier =
            verifier.build().map_err(|e| Fault::new(Code::BadIdentity).why(format!("the authority: {e}")))?;
        let builder = ServerConfig::builder_with_provider(self.provider.clone());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(|e| cannot(&e))?;
        let mut config = builder
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain(), self.identity.private_key())
            .map_err(|e| cannot(&e))?;
        config.alpn_protocols = least.protocols_from();
        // The server sends no tickets behind the handshake: the client may expect plain frames there.
        config.send_tls13_tickets = 0;
        rustls::ServerConnection::new(Arc::new(config)).map_err(|e| cannot(&e))
    }

    /// The host's certificate, and the authority's: a host that joins has only its fingerprint.
    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.identity.certificate().clone(), self.identity.authority().clone()]
    }
}

/// The connecting side speaks TLS 1.3 and nothing older.
fn client_builder(provider: Arc<CryptoProvider>) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>> {
    let builder = ClientConfig::builder_with_provider(provider);
    builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(|e| cannot(&e))
}

fn client(mut config: ClientConfig, least: Mode, cluster: ClusterId) -> Result<rustls::ClientConnection> {
    config.alpn_protocols = least.protocols_from();
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from(cluster.server_name())
        .map_err(|e| Fault::new(Code::Bug).why(format!("the name of servers: {e}")))?;
    rustls::ClientConnection::new(Arc::new(config), name).map_err(|e| cannot(&e))
}

/// Host that the certificate of the other side names, after a handshake that has checked it; `None` if the
/// other side showed no certificate.
pub fn proof_of(tls: &rustls::CommonState) -> Result<Option<Proof>> {
    let Some(certificate) = tls.peer_certificates().and_then(<[_]>::first) else { return Ok(None) };
    let (name, key) = identity::named(certificate)?;
    let mode = tls.alpn_protocol().and_then(Mode::of_protocol).ok_or_else(|| {
        Fault::new(Code::Insecure).why("the other side did not say how the connection is to be protected")
    })?;
    Ok(Some(Proof { host: name.host, roles: name.roles, key, mode }))
}

/// Knows the authority by the fingerprint in a token only.
#[derive(Debug)]
pub struct Pinned {
    authority: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    /// The connecting side of a handshake of a host that has no certificate yet; all of it inside TLS.
    pub fn connecting(cluster: ClusterId, authority: [u8; 32]) -> Result<rustls::ClientConnection> {
        let provider = Arc::new(provider::default_provider());
        let pinned = Pinned { authority, provider: provider.clone() };
        let builder =
            client_builder(provider)?.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
        client(builder.with_no_client_auth(), Mode::Privacy, cluster)
    }

    fn verifier(&self, root: &CertificateDer<'_>) -> std::result::Result<Arc<WebPkiServerVerifier>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|e| Error::General(e.to_string()))
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        let root = intermediates.iter().find(|certificate| sha256(certificate) == self.authority);
        let root = root.ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        self.verifier(root)?.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A failed handshake in words: which side objected, and to what.
pub fn refusal(e: &Error) -> Fault {
    match e {
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::NoCertificatesPresented => {
            Fault::new(Code::NotEnrolled).why("the other side shows no certificate")
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::NoApplicationProtocol => {
            Fault::new(Code::Insecure).why("the other side asks for a weaker mode than this one allows")
        }
        other => Fault::new(Code::BadFrame).what("the handshake failed").why(other.to_string()),
    }
}

fn of_certificate(why: &CertificateError) -> Fault {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Fault::new(Code::CertificateExpired)
                .why("the certificate of the other side has ended, by the clock of this host")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Fault::new(Code::CertificateExpired)
                .why("the certificate of the other side is not valid yet, by the clock of this host")
                .next("compare the clocks of both hosts: date")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            Fault::new(Code::ForeignCertificate)
                .why("another authority signed the certificate of the other side")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Fault::new(Code::ForeignCertificate)
                .what("the other side is no server of this cluster")
                .why("its certificate is that of a client, or of another cluster")
        }
        other => Fault::new(Code::ForeignCertificate)
            .what("the certificate of the other side cannot be used")
            .why(other.to_string()),
    }
}

/// The objection of the other side, by the alert that it sent (RFC 8446, section 6).
fn of_alert(alert: AlertDescription) -> Fault {
    match alert {
        AlertDescription::CertificateExpired => Fault::new(Code::CertificateExpired)
            .what("the certificate of this host is out of date, by the clock of the other side"),
        AlertDescription::UnknownCA | AlertDescription::DecryptError => Fault::new(Code::ForeignCertificate)
            .what("the other side is of another cluster")
            .why("its authority has not signed the certificate of this host"),
        AlertDescription::CertificateRequired => {
            Fault::new(Code::NotEnrolled).why("the other side wants a certificate, and this host has none")
        }
        AlertDescription::NoApplicationProtocol => {
            Fault::new(Code::Insecure).why("the other side allows only stronger modes than this one asks for")
        }
        other => Fault::new(Code::ForeignCertificate)
            .what("the other side refuses the certificate of this host")
            .why(format!("{other:?}")),
    }
}

fn cannot(e: &Error) -> Fault {
    Fault::new(Code::BadIdentity).why(e.to_string())
}
