//! Yardsticks of this machine: ext4 on a loop device and on the root disk, and libfuse's passthrough over the former.

use super::packages;
use super::place::SystemPlace;
use super::scale::Scale;
use super::system::{Role, System};
use crate::run::capture;

/// Examples of libfuse as Debian ships them.
const EXAMPLES: &str = "/usr/share/doc/libfuse3-dev/examples";
/// Descriptors that one may hold: the most that Linux allows unless told otherwise (`fs.nr_open`).
const OPEN_FILES_MAX: u32 = 1 << 20;
/// Descriptors of passthrough_ll that are not of inodes which the kernel knows.
const OPEN_FILES_OTHER: u32 = 1000;

/// Definitions that libfuse's own build makes on Linux. Without them, writes of times are refused, of which
/// the writeback cache makes many.
const DEFINED: &str = "-DHAVE_UTIMENSAT -DHAVE_POSIX_FALLOCATE -DHAVE_FDATASYNC -DHAVE_SETXATTR";

/// Text in an example, and its replacement for the measurement.
type Change = (&'static str, &'static str);

/// passthrough_ll: requests come in buffers that are not aligned, so O_DIRECT must not go down to ext4.
const HELD: &[Change] = &[
    ("(fi->flags | O_CREAT) & ~O_NOFOLLOW", "(fi->flags | O_CREAT) & ~(O_NOFOLLOW | O_DIRECT)"),
    ("fi->flags & ~O_NOFOLLOW", "fi->flags & ~(O_NOFOLLOW | O_DIRECT)"),
];
/// passthrough_fh, made to do what passthrough_ll has options for: names and attributes cached for a second, and the
/// writeback cache, which reads around what is written and knows itself where a file ends.
const BY_PATH: &[Change] = &[
    ("cfg->entry_timeout = 0;", "cfg->entry_timeout = 1;"),
    ("cfg->attr_timeout = 0;", "cfg->attr_timeout = 1;"),
    ("(void) conn;", "conn->want |= conn->capable & FUSE_CAP_WRITEBACK_CACHE;"),
    ("open(path, fi->flags", "open(path, (fi->flags & ~(O_ACCMODE | O_APPEND | O_DIRECT)) | O_RDWR"),
];

fn kernel() -> String {
    let release = capture("uname", &["-r"]).unwrap_or_default();
    release.trim().split('-').next().unwrap_or("unknown").to_owned()
}

/// ext4 on an image of the same kind as those of the servers.
pub struct Loop;

impl System for Loop {
    fn name(&self) -> &'static str {
        "ext4"
    }

    fn role(&self) -> Role {
        Role::Local
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers", &[], &[])
    }

    fn version(&self) -> String {
        format!("ext4 of Linux {}", kernel())
    }

    fn settings(&self) -> String {
        "on one image of the kind that all servers have".to_owned()
    }

    fn clients(&self) -> usize {
        0
    }

    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
        // The disk takes the place of a client's mount point.
        place.disk("client0", scale.data_bytes).map(drop)
    }

    fn mount(&self, _place: &mut SystemPlace, _number: usize) -> Result<(), String> {
        Ok(())
    }
}

/// The disk that the images lie on.
pub struct Root;

impl System for Root {
    fn name(&self) -> &'static str {
        "ext4-root"
    }

    fn role(&self) -> Role {
        Role::Shown
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers", &[], &[])
    }

    fn version(&self) -> String {
        let kind = crate::bench::machine::file_system(std::path::Path::new("/var/tmp"));
        format!("{kind} of Linux {}", kernel())
    }

    fn settings(&self) -> String {
        "a directory on the disk that holds the images".to_owned()
    }

    fn clients(&self) -> usize {
        0
    }

    fn up(&self, place: &mut SystemPlace, _scale: &Scale) -> Result<(), String> {
        place.mkdir("client0").map(drop)
    }

    fn mount(&self, _place: &mut SystemPlace, _number: usize) -> Result<(), String> {
        Ok(())
    }
}

/// libfuse's passthrough: one FUSE daemon, no server, no network.
pub struct Passthrough {
    /// Whether it opens what it needs by its path. The other one holds a descriptor for each inode that the kernel knows,
    /// which is faster, and takes part wherever a process may hold as many.
    pub by_path: bool,
}

impl Passthrough {
    fn example(&self) -> &'static str {
        if self.by_path { "passthrough_fh" } else { "passthrough_ll" }
    }
}

/// A shell's command that raises the limit of open files as far as it may be.
fn raise_limit() -> String {
    format!("ulimit -n {OPEN_FILES_MAX} 2>/dev/null || ulimit -n \"$(ulimit -Hn)\"")
}

impl System for Passthrough {
    fn name(&self) -> &'static str {
        if self.by_path { "passthrough-path" } else { "passthrough" }
    }

    fn role(&self) -> Role {
        Role::Passthrough
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers-passthrough", &[], &[])
    }

    fn version(&self) -> String {
        let version = capture("pkg-config", &["--modversion", "fuse3"]).unwrap_or_default();
        format!("libfuse {} {}", version.trim(), self.example())
    }

    fn settings(&self) -> String {
        let takes_part = match self.by_path {
            true => "in rows with more files than a process may have open here",
            false => "where a process may have as many files open as there are",
        };
        format!(
            "over ext4 on one image, {takes_part}; writeback cache, attributes cached for a second; O_DIRECT goes as far as the \
             daemon, not to ext4: its random writes reach the disk with the fsync at the end of the phase"
        )
    }

    fn clients(&self) -> usize {
        1
    }

    fn takes(&self, inodes: u32) -> bool {
        let limit = capture("sh", &["-c", &format!("{}; ulimit -n", raise_limit())]);
        let limit = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(OPEN_FILES_MAX);
        self.by_path == (inodes + OPEN_FILES_OTHER > limit)
    }

    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
        place.disk("data0", scale.data_bytes)?;
        let path = format!("{EXAMPLES}/{}.c", self.example());
        let example = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {path}: {e}"))?;
        let made = changed(&path, &example, if self.by_path { BY_PATH } else { HELD })?;
        let source = place.write(&format!("{}.c", self.example()), &made)?;
        let script = format!(
            "cc -O2 {DEFINED} -I {EXAMPLES} {} $(pkg-config --cflags --libs fuse3) -o {}",
            source.display(),
            place.path(self.example())
        );
        place.run("cc", place.inside("sh").args(["-c", &script])).map(drop)
    }

    fn mount(&self, place: &mut SystemPlace, number: usize) -> Result<(), String> {
        let under = place.path("data0");
        let options = match self.by_path {
            true => format!("modules=subdir,subdir={under},allow_other"),
            false => format!("source={under},writeback,cache=auto,timeout=1,allow_other"),
        };
        let script = format!("{}; exec \"$0\" \"$@\"", raise_limit());
        let command =
            place.inside("sh").args(["-c", &script]).arg(place.path(self.example())).args(["-o", &options]);
        place.run(self.example(), command.arg(place.client(number))).map(drop)
    }
}

/// An example with all changes made.
fn changed(path: &str, example: &str, changes: &[Change]) -> Result<String, String> {
    changes.iter().try_fold(example.to_owned(), |text, (there, instead)| {
        if !text.contains(there) {
            return Err(format!(
                "{path} is not what was expected: '{there}' is not in it\n  \
                 next: bring {} up to date, or leave the system out: --systems",
                file!()
            ));
        }
        Ok(text.replace(there, instead))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_loses_its_direct_io() {
        let example = "openat(fd, name,\n(fi->flags | O_CREAT) & ~O_NOFOLLOW, mode);\nopen(buf, fi->flags & ~O_NOFOLLOW);";
        let made = changed("x.c", example, HELD).unwrap();
        assert_eq!(made.matches("~(O_NOFOLLOW | O_DIRECT)").count(), 2);
        assert!(changed("x.c", "int main() {}", HELD).unwrap_err().contains("next:"));
    }

    #[test]
    fn one_passthrough_takes_part_in_each_row() {
        for inodes in [0, 700, 100_000, 1 << 22] {
            assert_ne!(
                Passthrough { by_path: false }.takes(inodes),
                Passthrough { by_path: true }.takes(inodes)
            );
        }
    }
}
