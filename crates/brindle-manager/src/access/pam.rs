//! Passwords that the host knows: PAM, asked by a process of its own. Modules of PAM are foreign code that may block, fork and fail; in a
//! helper process they cannot take the manager with them.
//!
//! The helper is this same binary, called as `brindle pam-check --service SERVICE NAME` with the password on its standard input. Exit
//! code 0: the password fits and the account may be used; 1: the password does not fit, or the account may not be used; others: PAM
//! cannot be asked, with the reason on standard error.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use brindle_types::{Code, Fault, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Name of the hidden command that asks PAM.
pub const COMMAND: &str = "pam-check";
/// Exit code of the helper: the password does not fit.
pub const REFUSED: u8 = 1;
/// Exit code of the helper: PAM cannot be asked.
pub const UNAVAILABLE: u8 = 2;
/// Longest time for an answer: some modules wait for servers, and after a wrong password all wait a little.
const LIMIT: Duration = Duration::from_secs(30);

/// How PAM is asked.
#[derive(Clone, Debug)]
pub struct Pam {
    /// The helper.
    pub program: PathBuf,
    /// Name of the file in `/etc/pam.d` with the rules.
    pub service: String,
}

impl Pam {
    /// Whether the host knows this user with this password.
    pub async fn has_password(&self, name: &str, password: &str) -> Result<bool> {
        let cannot = |why: String| {
            Fault::new(Code::LogInRefused)
                .what("cannot ask PAM for the user")
                .subject(name.to_owned())
                .why(why)
                .next(format!("look at /etc/pam.d/{} on the manager's host, and at its log", self.service))
        };
        let mut command = Command::new(&self.program);
        command.args([COMMAND, "--service", &self.service, "--", name]).env_clear().kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| cannot(e.to_string()))?;
        let told = async {
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(password.as_bytes()).await?;
            }
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(LIMIT, told)
            .await
            .map_err(|_| cannot(format!("there was no answer in {} s", LIMIT.as_secs())))?
            .map_err(|e| cannot(e.to_string()))?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(code) if code == i32::from(REFUSED) => Ok(false),
            _ => Err(cannot(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A helper of these lines. A shell writes it: a file that this process had open could not be run while another test forks.
    fn helper(dir: &std::path::Path, script: &str) -> Pam {
        let program = dir.join("helper");
        let write = "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written =
            std::process::Command::new("sh").args(["-c", write]).arg(&program).arg(script).status().unwrap();
        assert!(written.success());
        Pam { program, service: "brindle".to_owned() }
    }

    #[tokio::test]
    async fn the_helpers_word_counts_and_a_broken_one_is_no_yes() {
        let dir = tempfile::tempdir().unwrap();
        let pam =
            helper(dir.path(), "[ \"$*\" = 'pam-check --service brindle -- ada' ] && [ \"$(cat)\" = good ]");
        assert!(pam.has_password("ada", "good").await.unwrap());
        assert!(!pam.has_password("ada", "bad").await.unwrap());
        assert!(!pam.has_password("eve", "good").await.unwrap());
        let pam = helper(dir.path(), "cat >/dev/null; echo 'no libpam' >&2; exit 2");
        let fault = pam.has_password("ada", "good").await.unwrap_err();
        assert!(fault.to_string().contains("no libpam"), "{fault}");
        let gone = Pam { program: dir.path().join("gone"), service: "brindle".to_owned() };
        gone.has_password("ada", "good").await.unwrap_err();
    }
}
