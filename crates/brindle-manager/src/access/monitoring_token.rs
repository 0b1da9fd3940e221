//! The token of a site's monitoring: 256 random bits in a file that root alone may read. The token opens the
//! addresses of [`crate::monitoring`] and nothing else, and lives until somebody removes the file and starts the
//! manager again.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use brindle_types::{Code, Fault, Result};

use super::secret::{self, Hashed};

/// Name of the file.
pub const FILE: &str = "monitoring-token";
/// Longest token that somebody may have written by hand.
const TOKEN_MAX_BYTES: usize = 1024;
/// Shortest token: whatever is shorter can be guessed.
const TOKEN_MIN_BYTES: usize = 32;

/// The token.
pub struct MonitoringToken(Hashed);

impl MonitoringToken {
    /// The token in a directory; a new one where there is none.
    pub fn load(dir: &Path) -> Result<MonitoringToken> {
        let path = dir.join(FILE);
        let cannot = |what: &'static str, e: &std::io::Error| {
            Fault::io(Code::NotWritable, what, path.display().to_string(), e)
        };
        let text = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let token = secret::new()?;
                let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
                let written = made.and_then(|mut file| {
                    file.write_all(token.as_bytes())?;
                    file.sync_data()
                });
                written.map_err(|e| cannot("cannot write", &e))?;
                token
            }
            read => read.map_err(|e| cannot("cannot read", &e))?,
        };
        let token = text.trim();
        if !(TOKEN_MIN_BYTES..=TOKEN_MAX_BYTES).contains(&token.len()) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot use the token of monitoring in")
                .subject(path.display().to_string())
                .why(format!(
                    "it has {} bytes, and needs {TOKEN_MIN_BYTES} to {TOKEN_MAX_BYTES}",
                    token.len()
                ))
                .next("remove the file: the next start makes a new token"));
        }
        Ok(MonitoringToken(secret::hashed(token)))
    }

    /// Whether this is the token.
    pub fn is(&self, shown: &str) -> bool {
        secret::hashed(shown) == self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_stays_and_nobody_else_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let first = MonitoringToken::load(dir.path()).unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let token = std::fs::read_to_string(&path).unwrap();
        assert!(first.is(&token) && !first.is("") && !first.is(&token[1..]));
        assert!(MonitoringToken::load(dir.path()).unwrap().is(&token), "after a restart");
        for bad in ["", "short", &"x".repeat(2000)] {
            std::fs::write(&path, bad).unwrap();
            assert_eq!(MonitoringToken::load(dir.path()).err().unwrap().code, Code::BadArgument);
        }
    }
}
