//! The cluster's certificate authority: issues certificates of hosts.

use brindle_types::{Code, Fault, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SignatureAlgorithm,
};
use time::OffsetDateTime;

use crate::name::sha256;
use crate::{ClusterId, HostRole, Name};

/// Lifetime of a host's certificate, in days. Daemons renew it when half of that has passed.
pub const CERTIFICATE_DAYS: i64 = 90;
/// Lifetime of the authority's own certificate, in days.
const AUTHORITY_DAYS: i64 = 20 * 365;
/// Certificates hold from this long before they were issued, so that a host whose clock is slow can use its own.
const BACKDATED_S: i64 = 24 * 3600;
const DAY_S: i64 = 24 * 3600;

/// Labels of the parts of its file.
const KEY_LABEL: &str = "PRIVATE KEY";
pub(crate) const CERTIFICATE_LABEL: &str = "CERTIFICATE";

/// The authority of one cluster. Whoever owns it can certify any host.
pub struct Authority {
    cluster: ClusterId,
    key: KeyPair,
    certificate: Vec<u8>,
}

/// A host's public key, as certificates name it.
struct HostPublicKey<'a>(&'a [u8]);

impl PublicKeyData for HostPublicKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl Authority {
    /// The authority of a new cluster. `now_s`: seconds since 1970.
    pub fn new(cluster: ClusterId, now_s: i64) -> Result<Authority> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(cannot)?;
        let certificate = params(cluster, now_s)?.self_signed(&key).map_err(cannot)?.der().to_vec();
        Ok(Authority { cluster, key, certificate })
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Certificate of the authority, DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// SHA-256 of its certificate: tokens carry it.
    pub fn fingerprint(&self) -> [u8; 32] {
        sha256(&self.certificate)
    }

    /// A certificate for a host whose public key is `public_key` (Ed25519, 32 bytes), DER. `now_s`: seconds since 1970.
    pub fn issue(&self, name: &Name, public_key: &[u8], now_s: i64) -> Result<Vec<u8>> {
        self.issue_until(name, public_key, now_s, now_s + CERTIFICATE_DAYS * DAY_S)
    }

    /// A certificate that ends at `until_s`.
    pub(crate) fn issue_until(
        &self,
        name: &Name,
        public_key: &[u8],
        now_s: i64,
        until_s: i64,
    ) -> Result<Vec<u8>> {
        if public_key.len() != 32 || name.cluster != self.cluster || name.roles.is_empty() {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot issue a certificate for")
                .subject(name.to_string())
                .why("its key, cluster or roles are not possible"));
        }
        crate::check_host_name(&name.host)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&name.host);
        let uri = name.to_string().try_into().map_err(cannot)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        if name.roles.has(HostRole::Server) {
            let dns = self.cluster.server_name().try_into().map_err(cannot)?;
            params.subject_alt_names.push(SanType::DnsName(dns));
        }
        params.not_before = at(now_s - BACKDATED_S)?;
        params.not_after = at(until_s)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        // The authority's name and key are all that an issuer's certificate is needed for.
        let own = self::params(self.cluster, now_s)?;
        let issuer = Issuer::from_params(&own, &self.key);
        let issued = params.signed_by(&HostPublicKey(public_key), &issuer).map_err(cannot)?;
        Ok(issued.der().to_vec())
    }

    /// The file of the authority: PEM, to be kept secret.
    pub fn to_pem(&self) -> String {
        let note = format!(
            "Certificate authority of the Brindle cluster {}. Keep it secret: whoever has it can join as any host.\n",
            self.cluster
        );
        let key = pem::encode(&pem::Pem::new(KEY_LABEL, self.key.serialize_der()));
        note + &pem::encode(&pem::Pem::new(CERTIFICATE_LABEL, self.certificate.clone())) + &key
    }

    /// Reads the file of an authority.
    pub fn from_pem(text: &str) -> Result<Authority> {
        let parts = pem::parse_many(text).map_err(|e| damaged(e.to_string()))?;
        let part = |label: &str| {
            let found = parts.iter().find(|part| part.tag() == label);
            found.ok_or_else(|| damaged(format!("it has no {}", label.to_lowercase())))
        };
        let certificate = part(CERTIFICATE_LABEL)?.contents().to_vec();
        let der = rustls::pki_types::PrivatePkcs8KeyDer::from(part(KEY_LABEL)?.contents());
        let key =
            KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).map_err(|e| damaged(e.to_string()))?;
        let cluster = cluster_of(&certificate)
            .ok_or_else(|| damaged("its certificate is not that of an authority".to_owned()))?;
        Ok(Authority { cluster, key, certificate })
    }
}

/// The cluster that an authority's certificate names.
pub(crate) fn cluster_of(certificate: &[u8]) -> Option<ClusterId> {
    let der = rustls::pki_types::CertificateDer::from(certificate);
    let parsed = webpki::EndEntityCert::try_from(&der).ok()?;
    let id = parsed.valid_uri_names().find_map(|uri| uri.strip_prefix("brindle://")?.strip_suffix("/"))?;
    u64::from_str_radix(id, 16).ok().map(ClusterId)
}

/// Contents of the authority's own certificate. Certificates of hosts repeat its name only.
fn params(cluster: ClusterId, now_s: i64) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("Brindle cluster {cluster}"));
    let uri = format!("brindle://{cluster}/").try_into().map_err(cannot)?;
    params.subject_alt_names = vec![SanType::URI(uri)];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.not_before = at(now_s - BACKDATED_S)?;
    params.not_after = at(now_s + AUTHORITY_DAYS * DAY_S)?;
    Ok(params)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn at(seconds: i64) -> Result<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|e| {
        Fault::new(Code::BadArgument)
            .what("cannot use the time")
            .subject(seconds.to_string())
            .why(e.to_string())
    })
}

fn cannot(e: rcgen::Error) -> Fault {
    Fault::new(Code::Bug).what("cannot make a certificate").why(e.to_string())
}

fn damaged(why: String) -> Fault {
    Fault::new(Code::BadIdentity).what("cannot use the file of the cluster's authority").why(why)
}
