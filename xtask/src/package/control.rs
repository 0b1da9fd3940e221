//! Control data of a package: its version, and the requirements of the binary.

use std::path::Path;

use crate::run::capture;

/// Shared libraries of the binary, and the packages that have them. Any other library is an error: somebody has to decide.
const LIBRARIES: &[(&str, &str)] =
    &[("libc.so.6", "libc6"), ("libm.so.6", "libc6"), ("libgcc_s.so.1", "libgcc-s1")];
/// Provided by the kernel, or by the C library that is named anyway.
const OF_THE_SYSTEM: &[&str] = &["linux-vdso.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];

/// Version of the workspace: that of the packages, too.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Debian's name of this machine's architecture.
pub fn architecture() -> Result<String, String> {
    let said = capture("dpkg", &["--print-architecture"]).ok_or("'dpkg --print-architecture' failed")?;
    Ok(said.trim().to_owned())
}

/// `libc6 (>= 2.34), libgcc-s1`: what the binary is linked with.
pub fn depends(binary: &Path) -> Result<String, String> {
    let text = binary.to_str().ok_or("the path of the binary is not UTF-8")?;
    let said = capture("ldd", &[text]).ok_or_else(|| format!("'ldd {text}' failed"))?;
    let bytes = std::fs::read(binary).map_err(|e| format!("cannot read {text}: {e}"))?;
    let (major, minor) = newest_glibc(&bytes).ok_or("the binary names no version of the C library")?;
    let mut packages = Vec::new();
    for library in said.lines().filter_map(|line| line.split_whitespace().next()) {
        let name = library.rsplit('/').next().unwrap_or(library);
        if OF_THE_SYSTEM.contains(&name) {
            continue;
        }
        let known = LIBRARIES.iter().find(|(known, _)| *known == name);
        let (_, package) =
            known.ok_or_else(|| format!("the binary needs {name}: add its package to LIBRARIES"))?;
        if !packages.contains(package) {
            packages.push(*package);
        }
    }
    packages.sort_unstable();
    let with_version = |package: &&str| match *package {
        "libc6" => format!("libc6 (>= {major}.{minor})"),
        other => other.to_owned(),
    };
    Ok(packages.iter().map(with_version).collect::<Vec<_>>().join(", "))
}

/// The newest version of the C library that the binary has a symbol of.
fn newest_glibc(binary: &[u8]) -> Option<(u32, u32)> {
    const NAME: &[u8] = b"GLIBC_";
    let starts = binary.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    let versions = starts.filter_map(|(at, _)| {
        let rest = &binary[at + NAME.len()..];
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let mut numbers = std::str::from_utf8(&rest[..end]).ok()?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

/// The file `control`.
pub fn text(depends: &str, architecture: &str, installed_kib: u64) -> String {
    let version = version();
    format!(
        "Package: brindle\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: Brindle developers <brindle@example.org>\n\
         Installed-Size: {installed_kib}\n\
         Depends: {depends}\n\
         Suggests: bash-completion, chrony\n\
         Conflicts: lustre-client-utils, lustre-server-utils, lustre-utils\n\
         Section: admin\n\
         Priority: optional\n\
         Homepage: https://example.org/brindle\n\
         Description: parallel file system for HPC and AI clusters, in user space\n \
         Files are striped over object storage targets, names and attributes live on a\n \
         metadata target, and programs use it all through an ordinary mount with POSIX\n \
         semantics. No kernel module is needed.\n \
         .\n \
         The package is the same for servers and clients: the program brindle, its other\n \
         names (lfs, lctl, mount.brindle), the unit of the daemon, man pages and\n \
         completions. How to go on: /usr/share/doc/brindle/operations/install.md\n"
    )
}

/// The file `changelog.gz` before it is compressed: Debian's form of one entry. The changes are in NEWS.
pub fn changelog(date: &str) -> String {
    let version = version();
    format!(
        "brindle ({version}) stable; urgency=medium\n\n  * Release {version}: see NEWS.md.gz.\n\n \
         -- Brindle developers <brindle@example.org>  {date}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts_and_not_the_longest() {
        let binary = b"..GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_2.28";
        assert_eq!(newest_glibc(binary), Some((2, 34)));
        assert_eq!(newest_glibc(b"no such library"), None);
    }
}
