//! Brindle with one, two or three copies of everything, on hosts of its own.

use super::brindle::version_of;
use super::packages;
use super::place::SystemPlace;
use super::scale::Scale;
use super::system::{Role, System};
use crate::run::Cmd;

/// Longest time of `brindle dev up` and `down`: the cluster is made with the commands of an administrator.
const DEV_SECS_MAX: u64 = 240;
/// Both clients, behind the servers.
const CLIENTS: usize = 2;
/// Image of all disks: room for three copies of what two disks of the others take.
const DISKS: u64 = 6;

/// Directory of the cluster, on the image.
const DEV: &str = "disk/dev";

/// Brindle on hosts: network namespaces with a link each.
pub struct Copies {
    /// The binary.
    pub program: String,
    /// Copies of the MDT and of each of two OSTs: 1 to 3.
    pub copies: usize,
}

impl Copies {
    /// Server hosts: the MGS has one of its own, each copy another, and two OSTs need two.
    fn servers(&self) -> usize {
        1 + self.copies.max(2)
    }

    fn dev(&self, place: &SystemPlace, args: &[&str]) -> Cmd {
        let command = Cmd::new(&self.program).arg("dev").args(args).args(["--dir", &place.path(DEV)]);
        command.dir(std::path::Path::new("/")).limit_secs(DEV_SECS_MAX)
    }
}

/// A host in the output of `brindle dev host list -o json`: its network namespace and its address.
fn host_of(listed: &str, name: &str) -> Option<(String, String)> {
    let listed: serde_json::Value = serde_json::from_str(listed).ok()?;
    let host = listed["hosts"].as_array()?.iter().find(|host| host["name"] == name)?;
    Some((host["namespace"].as_str()?.to_owned(), host["address"].as_str()?.to_owned()))
}

impl System for Copies {
    fn name(&self) -> &'static str {
        match self.copies {
            1 => "brindle-1",
            2 => "brindle-2",
            _ => "brindle-3",
        }
    }

    fn role(&self) -> Role {
        Role::Shown
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers", &[], &[])
    }

    fn version(&self) -> String {
        version_of(&self.program)
    }

    fn settings(&self) -> String {
        format!(
            "MGS, 1 MDT and 2 or more OSTs on {} hosts (network namespaces with links, TCP), {} of everything, all on one image; TLS \
             handshakes (mode auth); fsync reaches the disk of every copy",
            self.servers(),
            match self.copies {
                1 => "1 copy".to_owned(),
                n => format!("{n} copies"),
            }
        )
    }

    fn clients(&self) -> usize {
        CLIENTS
    }

    fn starts_first(&self) -> bool {
        true
    }

    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
        place.disk("disk", DISKS * scale.data_bytes)?;
        let (servers, clients, copies) =
            (self.servers().to_string(), CLIENTS.to_string(), self.copies.to_string());
        let args = ["up", "--hosts", &servers, "--clients", &clients, "--copies", &copies];
        let command = self.dev(place, &args);
        place.run("dev-up", command).map(drop)
    }

    fn mount(&self, place: &mut SystemPlace, number: usize) -> Result<(), String> {
        let command = self.dev(place, &["host", "list", "-o", "json"]);
        let listed = place.run("host-list", command)?;
        let host = format!("h{}", self.servers() + 1 + number);
        let (Some((namespace, _)), Some((_, mgs))) = (host_of(&listed, &host), host_of(&listed, "h1")) else {
            return Err(format!("'brindle dev host list' does not name {host} and h1"));
        };
        let identity = place.path(&format!("{DEV}/hosts/{host}/etc/identity.pem"));
        let log = place.path(&format!("client{number}.log"));
        let command = Cmd::new("nsenter").arg(format!("--net={namespace}")).arg(&self.program);
        let command = command.args(["mount", "--identity", &identity, "--log", &log]);
        let command = command.arg(format!("{mgs}:/dev")).arg(place.client(number));
        place.run("mount", command.dir(std::path::Path::new("/")).limit_secs(DEV_SECS_MAX)).map(drop)
    }

    fn down(&self, place: &mut SystemPlace) -> Result<(), String> {
        if !place.dir().join(DEV).join("state.json").exists() {
            return Ok(());
        }
        let command = self.dev(place, &["down"]).even_when_interrupted();
        place.run("dev-down", command).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_its_name() {
        let listed =
            "{\"hosts\":[{\"name\":\"h1\",\"namespace\":\"/run/netns/a-h1\",\"address\":\"10.1.0.1\"}]}";
        assert_eq!(host_of(listed, "h1"), Some(("/run/netns/a-h1".to_owned(), "10.1.0.1".to_owned())));
        assert_eq!(host_of(listed, "h2"), None);
        assert_eq!(host_of("", "h1"), None);
    }
}
