//! A host's key and certificate.

use brindle_types::{Code, Fault, Result};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::CertificateDer;

use crate::authority::CERTIFICATE_LABEL;
use crate::{KeyId, Name};

const KEY_LABEL: &str = "PRIVATE KEY";

/// A host's private key (Ed25519).
pub struct HostKey {
    pkcs8: Vec<u8>,
    public: [u8; 32],
}

impl HostKey {
    /// A new key, from the system's random numbers.
    pub fn generate() -> Result<HostKey> {
        let random = ring::rand::SystemRandom::new();
        let made = Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| {
            Fault::new(Code::Bug).what("cannot make a key").why("the system gives no random numbers")
        })?;
        HostKey::from_pkcs8(made.as_ref().to_vec())
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Result<HostKey> {
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|e| bad(format!("its key: {e}")))?;
        let public = pair.public_key().as_ref().try_into().expect("Ed25519 keys have 32 bytes");
        Ok(HostKey { pkcs8, public })
    }

    /// Public half of the key, 32 bytes.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// The file of a key that has no certificate yet.
    pub fn to_pem(&self) -> String {
        pem::encode(&pem::Pem::new(KEY_LABEL, self.pkcs8.clone()))
    }

    /// Reads the file of a key; a certificate in the file is passed over.
    pub fn from_pem(text: &str) -> Result<HostKey> {
        let parts = pem::parse_many(text).map_err(|e| bad(e.to_string()))?;
        let key = parts.into_iter().find(|part| part.tag() == KEY_LABEL);
        HostKey::from_pkcs8(key.ok_or_else(|| bad("it has no private key".to_owned()))?.into_contents())
    }
}

/// Name of a host, with the key and certificate that prove it.
pub struct Identity {
    name: Name,
    key_id: KeyId,
    key: HostKey,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
}

impl Identity {
    /// An identity from its parts (certificates in DER); refused unless they belong together.
    pub fn new(key: HostKey, certificate: Vec<u8>, authority: Vec<u8>) -> Result<Identity> {
        let certificate = CertificateDer::from(certificate);
        let authority = CertificateDer::from(authority);
        let (name, key_id) = named(&certificate)?;
        if key_id != KeyId::of(&subject_public_key_info(&key.public)) {
            return Err(bad("the key is not that of the certificate".to_owned()));
        }
        if crate::authority::cluster_of(&authority) != Some(name.cluster) {
            return Err(bad("the certificate of the authority is that of another cluster".to_owned()));
        }
        Ok(Identity { name, key_id, key, certificate, authority })
    }

    /// Cluster, host, roles.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Key of the host.
    pub fn key(&self) -> &HostKey {
        &self.key
    }

    /// The name of its key.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// Certificate of the host.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The authority's certificate.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    pub(crate) fn private_key(&self) -> rustls::pki_types::PrivateKeyDer<'static> {
        rustls::pki_types::PrivatePkcs8KeyDer::from(self.key.pkcs8.clone()).into()
    }

    /// Identity of the same host and key with a newer certificate, DER.
    pub fn renewed(&self, certificate: Vec<u8>) -> Result<Identity> {
        let renewed =
            Identity::new(HostKey::from_pem(&self.key.to_pem())?, certificate, self.authority.to_vec())?;
        if renewed.name.cluster != self.name.cluster {
            return Err(bad("the new certificate is of another cluster".to_owned()));
        }
        Ok(renewed)
    }

    /// Text of the identity's file: PEM, to be read by root alone.
    pub fn to_pem(&self) -> String {
        let note = format!(
            "Identity of the host {} in the Brindle cluster {}, roles: {}. Keep it secret: it holds the host's key.\n",
            self.name.host, self.name.cluster, self.name.roles
        );
        let certificate =
            |der: &CertificateDer<'_>| pem::encode(&pem::Pem::new(CERTIFICATE_LABEL, der.to_vec()));
        note + &certificate(&self.certificate) + &certificate(&self.authority) + &self.key.to_pem()
    }

    /// Reads an identity's file: the host's certificate, then the authority's, and the key.
    pub fn from_pem(text: &str) -> Result<Identity> {
        let parts = pem::parse_many(text).map_err(|e| bad(e.to_string()))?;
        let mut certificates = parts.iter().filter(|part| part.tag() == CERTIFICATE_LABEL);
        let (Some(own), Some(authority)) = (certificates.next(), certificates.next()) else {
            return Err(bad("it has not both certificates, the host's and the authority's".to_owned()));
        };
        Identity::new(HostKey::from_pem(text)?, own.contents().to_vec(), authority.contents().to_vec())
    }
}

/// The DER form of an Ed25519 public key (RFC 8410).
pub(crate) fn subject_public_key_info(public: &[u8; 32]) -> Vec<u8> {
    const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    [&PREFIX[..], public].concat()
}

/// The name in a certificate, and the name of its key. Says nothing of whether the certificate is good.
pub(crate) fn named(certificate: &CertificateDer<'_>) -> Result<(Name, KeyId)> {
    let parsed =
        webpki::EndEntityCert::try_from(certificate).map_err(|e| bad(format!("certificate: {e}")))?;
    let uri = parsed.valid_uri_names().next();
    let uri = uri.ok_or_else(|| bad("the certificate names no host of a cluster".to_owned()))?;
    Ok((uri.parse()?, KeyId::of(&parsed.subject_public_key_info())))
}

fn bad(why: String) -> Fault {
    Fault::new(Code::BadIdentity).why(why)
}
