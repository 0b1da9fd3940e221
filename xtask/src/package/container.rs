//! `make container`: an OCI image of the binary and the libraries that it needs, built by buildah without a daemon.
//!
//! The image has no shell and no other program, so it is built from nothing (`deploy/Containerfile`). The image's store lies below the
//! output directory and is removed afterwards: images of the machine are left alone.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Wanted;
use crate::report::Report;
use crate::run::{Cmd, capture};
use crate::{Session, setup};

/// Directory of images, below the repository.
pub const OUT: &str = "target/container";
/// Directories of the image that hold no file of ours, with permissions.
const EMPTY: &[(&str, u32)] = &[
    ("data", 0o755),
    ("etc/brindle", 0o755),
    ("run/brindle", 0o755),
    ("tmp", 0o1777),
    ("var/lib/brindle", 0o755),
];
/// Ports of the servers in the image, one for each target: below those that the kernel gives to connections, so none of these takes one meanwhile.
const PORTS: std::ops::Range<u16> = 22_000..30_000;
const PORT_COUNT: u16 = 3;
/// The users of the image.
const PASSWD: &str = "root:x:0:0:root:/:/usr/bin/brindle\nnobody:x:65534:65534:nobody:/:/usr/bin/brindle\n";
/// Groups of the users.
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
/// Links to the binary.
const LINKS: &[&str] = &["lfs", "lctl", "mount.brindle"];
/// Longest time of one command of buildah.
const BUILDAH_SECS_MAX: u64 = 300;
/// Longest wait until the servers of an image answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Time between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// `cargo xtask container`.
pub fn run(session: &Session) -> Result<(), String> {
    let wanted = Wanted::parse(session, "container", OUT)?;
    setup::need("container")?;
    let binary = wanted.binary(session)?;
    let image = Image::build(session, &binary, &wanted.out)?;
    let archive = image.archive()?;
    println!("{}", archive.display());
    println!("  load it: podman load -i {}", archive.display());
    println!("  how to go on: deploy/Containerfile, docs/operations/install.md");
    Ok(())
}

/// An image of the release binary: its commands run, and a file system that it serves is healthy.
pub fn test(session: &Session) -> Report {
    let out = session.logs().join("container");
    let _ = std::fs::remove_dir_all(&out);
    let built = Image::build(session, &session.brindle(), &out);
    let tried = built.and_then(|image| {
        image.archive()?;
        image.serves(session)
    });
    Report::check("package::container", tried)
}

/// A built image in a store of its own.
struct Image {
    name: String,
    out: PathBuf,
}

impl Image {
    fn build(session: &Session, binary: &Path, out: &Path) -> Result<Image, String> {
        let version = capture(&binary.display().to_string(), &["--version"]);
        let version = version.as_deref().and_then(|text| text.split_whitespace().nth(1).map(str::to_owned));
        let version = version.ok_or_else(|| format!("{} does not tell its version", binary.display()))?;
        let root = out.join("root");
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
        let out = out.canonicalize().map_err(|e| format!("{}: {e}", out.display()))?;
        stage(binary, &out)?;
        let image = Image { name: format!("brindle:{version}"), out };
        let file = session.root.join("deploy/Containerfile").display().to_string();
        let context = image.out.display().to_string();
        image.buildah("build", &["bud", "--file", &file, "--tag", &image.name, &context])?;
        Ok(image)
    }

    /// Writes the image into one file; its path.
    fn archive(&self) -> Result<PathBuf, String> {
        let path = self.out.join(format!("{}.tar", self.name.replace(':', "_")));
        let _ = std::fs::remove_file(&path);
        self.buildah(
            "push",
            &["push", &self.name, &format!("oci-archive:{}:{}", path.display(), self.name)],
        )?;
        Ok(path)
    }

    /// Formats three targets in a container, serves them, and asks from outside whether all is well.
    fn serves(&self, session: &Session) -> Result<(), String> {
        let data = self.out.join("data");
        std::fs::create_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))?;
        let port = free_ports()?;
        let (port, address) = (port.to_string(), format!("127.0.0.1:{port}"));
        let container = self.buildah("from", &["from", &self.name])?.trim().to_owned();
        let volume = format!("{}:/data", data.display());
        let inside = ["run", "--volume", &volume, &container, "--", "/usr/bin/brindle"];
        let formats: [&[&str]; 3] = [
            &["--mgs", "/data/mgt"],
            &["--mdt", "--mgsnode", &address, "/data/mdt0"],
            &["--ost", "--index", "0", "--mgsnode", &address, "/data/ost0"],
        ];
        for format in formats {
            self.buildah("format", &[&inside[..], &["format", "--fsname", "box"], format].concat())?;
        }
        let dirs = ["--dir", "/data/mgt", "--dir", "/data/mdt0", "--dir", "/data/ost0"];
        let serve = [&inside[..], &["serve", "--listen", "127.0.0.1", "--port", &port], &dirs].concat();
        let mut command = Command::new("buildah");
        command.args(self.store()).args(serve).env("BUILDAH_ISOLATION", "chroot");
        let log = |e: std::io::Error| format!("cannot serve: {e}");
        let file = std::fs::File::create(self.out.join("serve.log")).map_err(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone().map_err(log)?).stderr(file).process_group(0);
        let mut child = command.spawn().map_err(log)?;
        let healthy = self.until_healthy(session, &address, &mut child);
        // SAFETY: kill has no memory effects; the group is the one that the child was started in, and is not reaped yet.
        unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGTERM) };
        // buildah itself ends by the signal, so its status says nothing of the servers.
        child.wait().map_err(log)?;
        healthy
    }

    fn until_healthy(&self, session: &Session, address: &str, servers: &mut Child) -> Result<(), String> {
        let binary = session.brindle().display().to_string();
        let since = Instant::now();
        while capture(&binary, &["status", "--exit-code", "--mgs", address]).is_none() {
            if since.elapsed() > ANSWER_MAX || !matches!(servers.try_wait(), Ok(None)) {
                let said = std::fs::read_to_string(self.out.join("serve.log")).unwrap_or_default();
                return Err(format!("the servers of the image are not healthy:\n{said}"));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn store(&self) -> Vec<String> {
        let path = |name: &str| self.out.join(name).display().to_string();
        [
            "--storage-driver=vfs".to_owned(),
            format!("--root={}", path("store")),
            format!("--runroot={}", path("store-run")),
        ]
        .into()
    }

    fn buildah(&self, step: &str, args: &[&str]) -> Result<String, String> {
        let log = self.out.join(format!("{step}.log"));
        let command = Cmd::new("buildah").args(self.store()).args(args).limit_secs(BUILDAH_SECS_MAX);
        let finished = command.env("BUILDAH_ISOLATION", "chroot").run(&log);
        if finished.ok() { Ok(finished.output()) } else { Err(finished.explain()) }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for dir in ["store", "store-run", "root"] {
            let _ = std::fs::remove_dir_all(self.out.join(dir));
        }
    }
}

/// The tree of the image in `out/root`.
fn stage(binary: &Path, out: &Path) -> Result<(), String> {
    let root = out.join("root");
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| format!("{path}: {e}")
    };
    let bin = root.join("usr/bin");
    std::fs::create_dir_all(&bin).map_err(failed(&bin))?;
    let stripped = bin.join("brindle");
    let strip = Cmd::new("strip").args(["--strip-debug", "-o"]).arg(&stripped).arg(binary);
    let finished = strip.run(&out.join("strip.log"));
    if !finished.ok() {
        return Err(finished.explain());
    }
    for link in LINKS {
        std::os::unix::fs::symlink("brindle", bin.join(link)).map_err(failed(&bin))?;
    }
    let needed = capture("ldd", &[&binary.display().to_string()])
        .ok_or_else(|| format!("ldd does not know {}", binary.display()))?;
    for library in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        let dir = to.parent().unwrap_or(&root);
        std::fs::create_dir_all(dir).map_err(failed(dir))?;
        std::fs::copy(library, &to).map_err(failed(&to))?;
    }
    for (dir, mode) in EMPTY {
        let dir = root.join(dir);
        std::fs::create_dir_all(&dir).map_err(failed(&dir))?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(*mode)).map_err(failed(&dir))?;
    }
    for (name, text) in [("passwd", PASSWD), ("group", GROUP)] {
        let path = root.join("etc").join(name);
        std::fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}

/// The first of as many ports beside each other as the servers need, on which nobody listens.
fn free_ports() -> Result<u16, String> {
    let is_free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut starts = PORTS.step_by(usize::from(PORT_COUNT));
    starts.find(|start| (*start..start + PORT_COUNT).all(is_free)).ok_or_else(|| "no free ports".to_owned())
}
