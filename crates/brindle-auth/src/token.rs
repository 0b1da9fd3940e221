//! Tokens: the right to join, once, until it expires.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brindle_types::{Code, Fault, Nid, Result};
use serde::{Deserialize, Serialize};

use crate::name::sha256;
use crate::{ClusterId, Roles};

/// Beginning of every token.
const PREFIX: &str = "brindle-token-1-";
/// Longest text that is taken for a token.
const TEXT_MAX: usize = 4096;
/// Bytes of the check sum behind the contents.
const CHECK_BYTES: usize = 4;

/// Secret part of a token: 32 random bytes. The MGS keeps its hash only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new secret, from the system's random numbers.
    pub fn generate() -> Result<Secret> {
        let mut bytes = [0; 32];
        let random = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&random, &mut bytes).map_err(|_| {
            Fault::new(Code::Bug).what("cannot make a token").why("the system gives no random numbers")
        })?;
        Ok(Secret(bytes))
    }

    /// SHA-256 of the secret, for the MGS to keep.
    pub fn hash(&self) -> [u8; 32] {
        sha256(&self.0)
    }

    /// Number of the token, by which the MGS finds its hash.
    pub fn id(&self) -> [u8; 8] {
        let id = sha256(&[b"brindle token number", &self.hash()[..]].concat());
        id[..8].try_into().expect("SHA-256 has 32 bytes")
    }

    /// Shows that the caller has the secret, for a host of this name with this public key, without revealing the secret: the server
    /// that is asked may be another than the MGS.
    pub fn proof(&self, host: &str, public_key: &[u8; 32]) -> [u8; 32] {
        let tag = ring::hmac::sign(&proof_key(&self.hash()), &proof_text(host, public_key));
        tag.as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
    }
}

/// Whether a proof was made with the secret of this hash, for this host and key.
pub fn is_proof(hash: &[u8; 32], host: &str, public_key: &[u8; 32], proof: &[u8; 32]) -> bool {
    ring::hmac::verify(&proof_key(hash), &proof_text(host, public_key), proof).is_ok()
}

fn proof_key(hash: &[u8; 32]) -> ring::hmac::Key {
    ring::hmac::Key::new(ring::hmac::HMAC_SHA256, hash)
}

fn proof_text(host: &str, public_key: &[u8; 32]) -> Vec<u8> {
    [b"brindle join\0", host.as_bytes(), b"\0", public_key].concat()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Contents of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The cluster.
    pub cluster: ClusterId,
    /// SHA-256 of the authority's certificate: so the host knows the MGS before it has any certificate.
    pub authority: [u8; 32],
    /// Secret that the host shows to the MGS.
    pub secret: Secret,
    /// Roles that the host gets.
    pub roles: Roles,
    /// Addresses of the MGS.
    pub mgs: Vec<Nid>,
    /// Seconds since 1970, for messages: the MGS decides by its own clock.
    pub expires_s: i64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = postcard::to_stdvec(self).expect("plain fields always serialise");
        let check = sha256(&bytes);
        bytes.extend_from_slice(&check[..CHECK_BYTES]);
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Token {
    type Err = Fault;

    /// Reads a token as it was printed, with blanks around it.
    fn from_str(text: &str) -> Result<Token> {
        let bad = |why: &'static str| Fault::new(Code::BadToken).why(why).data("nothing was changed");
        let text = text.trim();
        let body = text.strip_prefix(PREFIX).filter(|_| text.len() <= TEXT_MAX);
        let body = body.ok_or_else(|| bad("it is not a token: those begin with brindle-token-1-"))?;
        let damaged = || bad("it is damaged: copy it again, whole");
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| damaged())?;
        let at = bytes.len().checked_sub(CHECK_BYTES).ok_or_else(damaged)?;
        let (contents, check) = bytes.split_at(at);
        if sha256(contents)[..CHECK_BYTES] != *check {
            return Err(damaged());
        }
        postcard::from_bytes(contents).map_err(|_| damaged())
    }
}
