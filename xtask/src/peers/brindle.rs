//! Brindle itself: one MDT and two OSTs, each on an image, two clients.

use super::packages;
use super::place::SystemPlace;
use super::scale::Scale;
use super::system::{Role, System};
use crate::run::{Cmd, capture};

/// Longest time of `brindle dev up` and `down`.
const DEV_SECS_MAX: u64 = 120;

/// Brindle, from this binary.
pub struct Brindle {
    /// The binary.
    pub program: String,
}

impl Brindle {
    fn command(&self, place: &SystemPlace, args: &[&str]) -> Cmd {
        place.inside(&self.program).args(args).limit_secs(DEV_SECS_MAX)
    }

    /// Source that a client mounts: host, port and file system.
    fn source(&self, place: &mut SystemPlace) -> Result<String, String> {
        let dir = place.path("dev");
        let command = self.command(place, &["dev", "status", "-o", "json", "--dir", &dir]);
        let status = place.run("dev-status", command)?;
        source_of(&status).ok_or_else(|| format!("'brindle dev status --dir {dir}' names no MGS"))
    }
}

/// Name and version of a program of Brindle.
pub fn version_of(program: &str) -> String {
    let said = capture(program, &["--version"]).unwrap_or_default();
    said.lines().next().unwrap_or("brindle of unknown version").to_owned()
}

/// The source in the output of `brindle dev status -o json`.
fn source_of(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let mgs = status["processes"].as_array()?.iter().find(|p| p["kind"] == "mgs")?;
    let address = mgs["addresses"].as_array()?.first()?.as_str()?.split('@').next()?.to_owned();
    Some(format!("{address}:/{}", status["fs"].as_str()?))
}

impl System for Brindle {
    fn name(&self) -> &'static str {
        "brindle"
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers", &[], &[])
    }

    fn version(&self) -> String {
        version_of(&self.program)
    }

    fn settings(&self) -> String {
        "MGS, 1 MDT and 2 OSTs with a disk each, layout as by default, 1 copy; fsync reaches the disk; processors kept awake while it is busy (cpu-latency auto)"
            .to_owned()
    }

    fn clients(&self) -> usize {
        2
    }

    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
        let (dir, data, metadata) =
            (place.path("dev"), scale.data_bytes.to_string(), scale.metadata_bytes.to_string());
        let args =
            ["dev", "up", "--no-mount", "--osts", "2", "--dir", &dir, "--ost-size", &data, "--mdt-size"];
        let command = self.command(place, &args).arg(&metadata);
        place.run("dev-up", command).map(drop)
    }

    fn mount(&self, place: &mut SystemPlace, number: usize) -> Result<(), String> {
        let source = self.source(place)?;
        let log = place.path(&format!("client{number}.log"));
        let command = self.command(place, &["mount", "--log", &log, &source]).arg(place.client(number));
        place.run("mount", command).map(drop)
    }

    fn down(&self, place: &mut SystemPlace) -> Result<(), String> {
        let dir = place.path("dev");
        if !place.dir().join("dev/state.json").exists() {
            return Ok(());
        }
        let command = self.command(place, &["dev", "down", "--dir", &dir]).even_when_interrupted();
        place.run("dev-down", command).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_that_of_the_mgs() {
        let status = "{\"fs\":\"dev\",\"processes\":[{\"kind\":\"ost\",\"addresses\":[\"127.0.0.1:1@tcp\"]},\
                      {\"kind\":\"mgs\",\"addresses\":[\"127.0.0.1:40437@tcp\"]}]}";
        assert_eq!(source_of(status).as_deref(), Some("127.0.0.1:40437:/dev"));
        assert_eq!(source_of("{}"), None);
    }
}
