//! MooseFS: a master and two chunkservers.

use std::time::Duration;

use super::packages;
use super::place::{ADDRESS, SystemPlace};
use super::scale::Scale;
use super::system::{Role, System};
use crate::run::capture;

/// Ports of the chunkservers, one after the other.
const CHUNK_PORT: u16 = 9500;
/// Longest time until the master knows the room of the chunkservers.
const REPORT_PATIENCE: Duration = Duration::from_secs(90);
/// An empty namespace, as the package brings it.
const EMPTY: &str = "/var/lib/mfs/metadata.mfs.empty";

/// MooseFS in one of two ways.
pub struct MooseFs {
    /// Whether fsync of a client reaches the disks, which is not how it is shipped.
    pub synced: bool,
}

impl MooseFs {
    fn master_config(&self, place: &SystemPlace) -> String {
        format!(
            "{COMMON}DATA_PATH = {data}\nEXPORTS_FILENAME = {exports}\nTOPOLOGY_FILENAME = {topology}\n\
             MATOML_LISTEN_HOST = {ADDRESS}\nMATOCS_LISTEN_HOST = {ADDRESS}\nMATOCL_LISTEN_HOST = {ADDRESS}\n\
             CHANGELOG_SAVE_MODE = 0\n",
            data = place.path("metadata/mfs"),
            exports = place.path("mfsexports.cfg"),
            topology = place.path("mfstopology.cfg"),
        )
    }

    fn chunk_config(&self, place: &SystemPlace, number: u16) -> String {
        format!(
            "{COMMON}DATA_PATH = {data}\nHDD_CONF_FILENAME = {disks}\nHDD_FSYNC_BEFORE_CLOSE = {sync}\n\
             MASTER_HOST = {ADDRESS}\nBIND_HOST = {ADDRESS}\nCSSERV_LISTEN_HOST = {ADDRESS}\nCSSERV_LISTEN_PORT = {port}\n",
            data = place.path(&format!("chunkserver{number}")),
            disks = place.path(&format!("mfshdd{number}.cfg")),
            sync = u8::from(self.synced),
            port = CHUNK_PORT + number,
        )
    }
}

/// Options of all daemons: no priority over other processes, no locked memory, no protection from the
/// kernel's killer.
const COMMON: &str =
    "WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\nLOCK_MEMORY = 0\nDISABLE_OOM_KILLER = 0\n";

impl System for MooseFs {
    fn name(&self) -> &'static str {
        if self.synced { "moosefs" } else { "moosefs-shipped" }
    }

    fn role(&self) -> Role {
        if self.synced { Role::Peer } else { Role::Shown }
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers-moosefs", &[], &["moosefs-master", "moosefs-chunkserver"])
    }

    fn version(&self) -> String {
        let said = capture("mfsmaster", &["-v"]).unwrap_or_default();
        let version = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        format!("MooseFS {}", version.unwrap_or("of unknown version"))
    }

    fn settings(&self) -> String {
        let sync = if self.synced {
            "HDD_FSYNC_BEFORE_CLOSE 1 (shipped: 0), so that chunks are fsynced when chunkservers close them"
        } else {
            "HDD_FSYNC_BEFORE_CLOSE 0 as shipped: chunkservers never fsync"
        };
        format!(
            "master and 2 chunkservers with a disk each, 1 copy; {sync}; the master writes its changelog without fsync, as \
             shipped; no trash (shipped: 1 day); no process with a priority of its own (shipped: nice -19)"
        )
    }

    fn clients(&self) -> usize {
        2
    }

    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
        place.disk("metadata", scale.metadata_bytes)?;
        let data = place.mkdir("metadata/mfs")?;
        std::fs::copy(EMPTY, data.join("metadata.mfs")).map_err(|e| format!("cannot copy {EMPTY}: {e}"))?;
        place.write("mfsexports.cfg", "* / rw,alldirs,admin,maproot=0\n")?;
        place.write("mfstopology.cfg", "")?;
        let config = place.write("mfsmaster.cfg", &self.master_config(place))?;
        place.run("mfsmaster", place.inside("mfsmaster").arg("-c").arg(config).arg("start"))?;
        for number in 0..2 {
            // The chunkservers delete some chunks a second, in rounds of minutes: chunks removed by earlier
            // phases still lie there.
            let disk = place.disk(&format!("data{number}"), 2 * scale.data_bytes)?;
            place.mkdir(&format!("chunkserver{number}"))?;
            // No limit beside the disk: with one, this version reports no room, and writes hang.
            place.write(&format!("mfshdd{number}.cfg"), &format!("{}\n", disk.display()))?;
            let config =
                place.write(&format!("mfschunkserver{number}.cfg"), &self.chunk_config(place, number))?;
            place.run("mfschunkserver", place.inside("mfschunkserver").arg("-c").arg(config).arg("start"))?;
        }
        Ok(())
    }

    fn mount(&self, place: &mut SystemPlace, number: usize) -> Result<(), String> {
        let command =
            place.inside("mfsmount").arg(place.client(number)).args(["-H", ADDRESS, "-o", "mfsnice=0"]);
        place.run("mfsmount", command).map(drop)
    }

    fn mounted(&self, place: &mut SystemPlace) -> Result<(), String> {
        let (client, disk) = (place.client(0), place.dir().join("data0"));
        place.wait("both chunkservers report their room", REPORT_PATIENCE, |_| {
            SystemPlace::room(&client) > SystemPlace::room(&disk)
        })?;
        let command = place.inside("mfssettrashtime").arg("0").arg(place.client(0));
        place.run("mfssettrashtime", command).map(drop)
    }

    fn processes(&self) -> &'static [&'static str] {
        // A helper of the master, which does not name its configuration.
        &["mfsmaster (data writer)"]
    }
}
