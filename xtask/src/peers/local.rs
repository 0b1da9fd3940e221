//! Yardsticks of this machine: ext4 on a loop device and on the root disk, and libfuse's passthrough over the former.

use super::packages;
use super::place::Place;
use super::scale::Scale;
use super::system::{Role, System};
use crate::run::capture;

/// The example of libfuse as Debian ships it, and where what it includes lies.
const EXAMPLE: &str = "/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c";
const EXAMPLES: &str = "/usr/share/doc/libfuse3-dev/examples";
/// Descriptors that it may hold: the most that Linux allows unless told otherwise (`fs.nr_open`).
const OPEN_FILES_MAX: u32 = 1 << 20;
/// How it opens files. Requests come in buffers that are not aligned, so O_DIRECT must not go down to ext4.
const OPEN_FLAGS: &str = "fi->flags & ~O_NOFOLLOW";
const OPEN_FLAGS_BUFFERED: &str = "fi->flags & ~(O_NOFOLLOW | O_DIRECT)";
const CREATE_FLAGS: &str = "(fi->flags | O_CREAT) & ~O_NOFOLLOW";
const CREATE_FLAGS_BUFFERED: &str = "(fi->flags | O_CREAT) & ~(O_NOFOLLOW | O_DIRECT)";

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

    fn up(&self, place: &mut Place, scale: &Scale) -> Result<(), String> {
        // Where others have the mount point of a client.
        place.disk("client0", scale.data_bytes).map(drop)
    }

    fn mount(&self, _place: &mut Place, _number: usize) -> Result<(), String> {
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

    fn up(&self, place: &mut Place, _scale: &Scale) -> Result<(), String> {
        place.mkdir("client0").map(drop)
    }

    fn mount(&self, _place: &mut Place, _number: usize) -> Result<(), String> {
        Ok(())
    }
}

/// libfuse's passthrough_ll: one FUSE daemon, no server, no network.
pub struct Passthrough;

impl System for Passthrough {
    fn name(&self) -> &'static str {
        "passthrough"
    }

    fn role(&self) -> Role {
        Role::Passthrough
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers-passthrough", &[], &[])
    }

    fn version(&self) -> String {
        let version = capture("pkg-config", &["--modversion", "fuse3"]).unwrap_or_default();
        format!("libfuse {} passthrough_ll", version.trim())
    }

    fn settings(&self) -> String {
        "over ext4 on one image; writeback cache, attributes cached for a second; O_DIRECT goes as far as the daemon, not to ext4: \
         its random writes reach the disk with the fsync at the end of the phase"
            .to_owned()
    }

    fn clients(&self) -> usize {
        1
    }

    fn up(&self, place: &mut Place, scale: &Scale) -> Result<(), String> {
        place.disk("data0", scale.data_bytes)?;
        let example = std::fs::read_to_string(EXAMPLE).map_err(|e| format!("cannot read {EXAMPLE}: {e}"))?;
        let source = place.write("passthrough_ll.c", &buffered(&example)?)?;
        let script = format!(
            "cc -O2 -I {EXAMPLES} {} $(pkg-config --cflags --libs fuse3) -o {}",
            source.display(),
            place.path("passthrough_ll")
        );
        place.run("cc", place.inside("sh").args(["-c", &script])).map(drop)
    }

    fn mount(&self, place: &mut Place, number: usize) -> Result<(), String> {
        let options = format!("source={},writeback,cache=auto,timeout=1,allow_other", place.path("data0"));
        // It holds a descriptor for each inode that the kernel knows. Where the limit may not be raised, large trees fail.
        let raised = format!(
            "ulimit -n {OPEN_FILES_MAX} 2>/dev/null || ulimit -n \"$(ulimit -Hn)\"; exec \"$0\" \"$@\""
        );
        let command =
            place.inside("sh").args(["-c", &raised]).arg(place.path("passthrough_ll")).args(["-o", &options]);
        place.run("passthrough_ll", command.arg(place.client(number))).map(drop)
    }
}

/// The example with files opened without O_DIRECT.
fn buffered(example: &str) -> Result<String, String> {
    if !example.contains(OPEN_FLAGS) || !example.contains(CREATE_FLAGS) {
        return Err(format!(
            "{EXAMPLE} opens files in another way than was expected\n  \
             next: look for O_NOFOLLOW in it and bring {} up to date, or leave it out: --systems",
            file!()
        ));
    }
    let opened = example.replace(CREATE_FLAGS, CREATE_FLAGS_BUFFERED);
    Ok(opened.replace(OPEN_FLAGS, OPEN_FLAGS_BUFFERED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_loses_its_direct_io() {
        let example = "openat(fd, name,\n(fi->flags | O_CREAT) & ~O_NOFOLLOW, mode);\nopen(buf, fi->flags & ~O_NOFOLLOW);";
        let made = buffered(example).unwrap();
        assert_eq!(made.matches("~(O_NOFOLLOW | O_DIRECT)").count(), 2);
        assert!(buffered("int main() {}").unwrap_err().contains("next:"));
    }
}
