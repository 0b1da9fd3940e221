//! Secrets that a browser shows: 256 random bits, of which the manager keeps only the hash.

use brindle_admin::target::hex;
use brindle_types::{Code, Fault, Result};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a secret.
const BYTES: usize = 32;

/// Hash of a secret. Comparing hashes tells nothing of how much of a guess was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hashed([u8; 32]);

impl Hashed {
    /// In hexadecimal digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// A new secret, as text.
pub fn new() -> Result<String> {
    let mut bytes = [0; BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Fault::new(Code::Bug).what("cannot get random numbers from").subject("the kernel"))?;
    Ok(hex(&bytes))
}

/// The hash of what somebody shows.
pub fn hashed(shown: &str) -> Hashed {
    Hashed(*blake3::hash(shown.as_bytes()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_256_bits_and_differ() {
        let (one, other) = (new().unwrap(), new().unwrap());
        assert_eq!(one.len(), 64);
        assert_ne!(one, other);
        assert_eq!(hashed(&one), hashed(&one));
        assert_ne!(hashed(&one), hashed(&other));
    }
}
