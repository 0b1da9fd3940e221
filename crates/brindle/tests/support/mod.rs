//! Runs the binary in a directory of its own and compares what it prints with committed texts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory of its own for each test, removed at the end.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs `brindle` in the directory and gives what it printed, with its exit code.
    pub fn run(&self, arguments: &[&str]) -> String {
        self.run_as("brindle", arguments)
    }

    pub fn run_as(&self, name: &str, arguments: &[&str]) -> String {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(env!("CARGO_BIN_EXE_brindle"));
        command.arg0(name).args(arguments).current_dir(self.path()).stdin(Stdio::null());
        for variable in ["BRINDLE_LOG", "BRINDLE_DIR", "BRINDLE_LISTEN", "BRINDLE_PORT", "COLUMNS"] {
            command.env_remove(variable);
        }
        let out = command.output().unwrap();
        let mut text = format!("$ {name} {}\n", arguments.join(" "));
        text.push_str(&String::from_utf8_lossy(&out.stdout));
        text.push_str(&String::from_utf8_lossy(&out.stderr));
        text.push_str(&format!("[exit code {}]\n", out.status.code().unwrap_or(-1)));
        self.normal(&text)
    }

    pub fn normal(&self, text: &str) -> String {
        text.replace(self.path().to_str().unwrap(), "DIR")
    }
}

/// Compares with the committed text.
pub fn check(name: &str, found: &str) {
    let path = PathBuf::from(format!("{}/tests/snapshots/{name}.txt", env!("CARGO_MANIFEST_DIR")));
    if std::env::var_os("BRINDLE_SNAPSHOTS").is_some_and(|v| v == "update") {
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "the text of '{name}' changed; if that is meant, run with BRINDLE_SNAPSHOTS=update\n--- committed\n{wanted}\n--- now\n{found}"
    );
}
