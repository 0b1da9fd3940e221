//! The program that switches hosts off: a site's own, for IPMI, a PDU, or persistent reservations of SCSI.
//!
//! The program is called with the name of the host as its only argument, and ends with 0 when the host
//! cannot write any more. Anything else is up to the site.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use brindle_mgs::shared::Fence;
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Result};

/// Longest time that the program may take.
pub const FENCE_TIMEOUT_S: u64 = 60;
/// Last words of the program that are kept, bytes.
const WORDS_MAX_BYTES: usize = 400;

/// A fence that is a program.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// The program at `path`, which must be there.
    pub fn new(path: PathBuf) -> Result<Program> {
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() && path.is_absolute() => Ok(Program { path }),
            Ok(_) => Err(Program::refuse(&path).why("it is not the absolute path of a file")),
            Err(e) => Err(Program::refuse(&path).why(e.to_string())),
        }
    }

    fn refuse(path: &std::path::Path) -> Fault {
        Fault::new(Code::BadConfigValue)
            .what("cannot use the program that fences hosts:")
            .subject(path.display().to_string())
    }

    async fn run(&self, host: &str) -> Result<()> {
        let failed = || {
            Fault::new(Code::CommandFailed)
                .what("could not fence")
                .subject(host.to_owned())
                .why(format!("{} {host}", self.path.display()))
        };
        let command = tokio::process::Command::new(&self.path)
            .arg(host)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ended = tokio::time::timeout(Duration::from_secs(FENCE_TIMEOUT_S), command).await;
        let output = ended
            .map_err(|_| failed().why(format!("it has not ended within {FENCE_TIMEOUT_S} s")))?
            .map_err(|e| failed().why(e.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let words: String = words.chars().rev().take(WORDS_MAX_BYTES).collect();
        let words: String = words.chars().rev().collect();
        Err(failed().why(format!("it ended with {}", output.status)).why(words))
    }
}

impl Fence for Program {
    fn fence<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.run(host))
    }
}
