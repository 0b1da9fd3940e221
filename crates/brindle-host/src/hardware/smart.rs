//! Health of disks by their own word (SMART of ATA and SCSI, the health log of NVMe), as `smartctl --json` tells it.
//!
//! The exit code of `smartctl` is a set of bits. Only two of them say that the disk fails; with the others the JSON is as good as it can be:
//! a command that the disk does not have is a bit, too.

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::programs::Programs;

/// Longest time for one disk.
const LIMIT: Duration = Duration::from_secs(15);
/// Questions. The error counters of SCSI disks are in the log `error`, the wear of ATA and SCSI disks in the log `ssd`.
const ARGUMENTS: [&str; 7] = [
    "--json=c",
    "--info",
    "--health",
    "--attributes",
    "--log=error",
    "--log=ssd",
    // A disk that sleeps is not woken.
    "--nocheck=standby",
];
/// Bit of the exit code of `smartctl`: the disk says that it fails.
const EXIT_FAILING: i32 = 1 << 3;
/// Bit of the exit code of `smartctl`: an attribute that foretells a failure is at its threshold now.
const EXIT_ATTRIBUTE: i32 = 1 << 4;
/// Attributes of ATA disks.
const REALLOCATED: u64 = 5;
const REPORTED_UNCORRECTABLE: u64 = 187;
const PENDING: u64 = 197;
const UNCORRECTABLE: u64 = 198;
/// Page of the statistics of an ATA disk about flash.
const FLASH_PAGE: u64 = 7;
/// Statistic of that page.
const FLASH_USED: &str = "Percentage Used Endurance Indicator";
/// Health log of an NVMe disk.
const NVME: &str = "/nvme_smart_health_information_log";
/// Bits of the critical warning of an NVMe disk, and what they say.
const NVME_WARNINGS: [(u64, &str); 6] = [
    (1 << 0, "its spare blocks are below the threshold"),
    (NVME_TEMPERATURE, "its temperature is beyond its limits"),
    (1 << 2, "it is not reliable any more"),
    (1 << 3, "it can only be read"),
    (1 << 4, "the backup of its volatile memory has failed"),
    (1 << 5, "its persistent memory can only be read, or is not reliable"),
];
/// A disk that is too hot loses nothing by that.
const NVME_TEMPERATURE: u64 = 1 << 1;

/// State of a disk, as it says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SmartState {
    /// The disk says that it is well.
    Passed,
    /// The disk says that it is well, and has sectors that it cannot read.
    Worn,
    /// The disk says that it fails.
    Failing,
    /// The disk tells nothing, or was not asked.
    #[default]
    Unknown,
}

/// Health of a disk by its own word. Numbers that a disk does not have are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SmartView {
    /// State.
    pub state: SmartState,
    /// Why the state is not known, or what is wrong by the disk's own word; empty where there is nothing to say.
    pub why: String,
    /// Model, as it says itself.
    pub model: String,
    /// Serial number, by which it is found in its case.
    pub serial: String,
    /// Temperature.
    pub temperature_celsius: Option<f64>,
    /// Hours for which it has run.
    pub power_on_hours: Option<u64>,
    /// Sectors that were replaced by spare ones.
    pub reallocated_sectors: Option<u64>,
    /// Sectors that could not be read and wait to be written.
    pub pending_sectors: Option<u64>,
    /// Sectors, or errors, that no correction could mend.
    pub uncorrectable_errors: Option<u64>,
    /// Part of the writes that it was made for that is used up: 1 is all. It may be more.
    pub used_ratio: Option<f64>,
    /// Part of the spare blocks that is left.
    pub spare_ratio: Option<f64>,
}

impl SmartView {
    /// A disk of which nothing is known.
    pub fn unknown(why: impl Into<String>) -> SmartView {
        SmartView { why: why.into(), ..SmartView::default() }
    }

    /// Sectors, or errors, at which something could not be read; none where the disk counts neither.
    pub fn unreadable(&self) -> Option<f64> {
        let known: Vec<u64> =
            [self.pending_sectors, self.uncorrectable_errors].into_iter().flatten().collect();
        (!known.is_empty()).then(|| known.iter().map(|n| *n as f64).sum())
    }
}

/// Asks a disk.
pub async fn ask(programs: &Programs, smartctl: &Path, name: &str) -> SmartView {
    // The kernel writes '!' in sysfs where a name has '/'.
    let device = format!("/dev/{}", name.replace('!', "/"));
    let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([&*device]).collect();
    match programs.run(&format!("smartctl {device}"), smartctl, &arguments, LIMIT).await {
        Ok(ended) => understand(&ended.stdout, ended.code.unwrap_or(0)),
        Err(why) if why.contains("No such file") => {
            SmartView::unknown("smartctl is not installed: apt-get install smartmontools")
        }
        Err(why) => SmartView::unknown(why),
    }
}

/// Understands the answer of `smartctl`, which ended with `code`.
pub fn understand(text: &[u8], code: i32) -> SmartView {
    match serde_json::from_slice(text) {
        Ok(answer) => Answer(answer).view(code),
        Err(e) => SmartView::unknown(format!("smartctl ended with {code}, and its output is not JSON: {e}")),
    }
}

/// An answer of `smartctl`.
struct Answer(Value);

impl Answer {
    fn view(&self, code: i32) -> SmartView {
        let mut view = SmartView {
            state: SmartState::Unknown,
            why: String::new(),
            model: self.text("/model_name").or_else(|| self.text("/scsi_model_name")).unwrap_or_default(),
            serial: self.text("/serial_number").unwrap_or_default(),
            temperature_celsius: self.temperature(),
            power_on_hours: self.number("/power_on_time/hours"),
            reallocated_sectors: self
                .attribute(REALLOCATED)
                .or_else(|| self.number("/scsi_grown_defect_list")),
            pending_sectors: self.attribute(PENDING).or_else(|| self.number("/scsi_pending_defects/count")),
            uncorrectable_errors: self.uncorrectable(),
            used_ratio: self.used_percent().map(|percent| percent / 100.0),
            spare_ratio: self.float(&format!("{NVME}/available_spare")).map(|percent| percent / 100.0),
        };
        let is_worn = view.unreadable().is_some_and(|n| n > 0.0);
        let well = if is_worn { SmartState::Worn } else { SmartState::Passed };
        let passed = self.0.pointer("/smart_status/passed").and_then(Value::as_bool);
        let fails = passed == Some(false) || code & EXIT_FAILING != 0;
        let warnings = self.nvme_warnings();
        (view.state, view.why) = match passed {
            _ if fails && warnings == NVME_TEMPERATURE => (well, self.words_of_failure()),
            _ if fails || code & EXIT_ATTRIBUTE != 0 => (SmartState::Failing, self.words_of_failure()),
            Some(_) => (well, String::new()),
            None => (SmartState::Unknown, self.silence()),
        };
        view
    }

    fn text(&self, path: &str) -> Option<String> {
        let text = self.0.pointer(path)?.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A number. Counters of NVMe have 128 bits: one that is larger than JSON's whole numbers is the largest of ours.
    fn number(&self, path: &str) -> Option<u64> {
        let value = self.0.pointer(path)?;
        value.as_u64().or_else(|| value.as_f64().filter(|n| *n >= u64::MAX as f64).map(|_| u64::MAX))
    }

    fn float(&self, path: &str) -> Option<f64> {
        self.0.pointer(path)?.as_f64()
    }

    /// Temperature. Volumes of controllers tell 0 with a limit of 0.
    fn temperature(&self) -> Option<f64> {
        let now = self.float("/temperature/current")?;
        (now != 0.0 || self.float("/temperature/drive_trip") != Some(0.0)).then_some(now)
    }

    /// Rows of the table of attributes of an ATA disk.
    fn attributes(&self) -> impl Iterator<Item = &Value> {
        self.0.pointer("/ata_smart_attributes/table").and_then(Value::as_array).into_iter().flatten()
    }

    /// Number of an attribute of an ATA disk. One that `smartctl` has no name for may mean anything.
    fn attribute(&self, id: u64) -> Option<u64> {
        let row = self.attributes().find(|row| row["id"].as_u64() == Some(id))?;
        if row["name"].as_str().is_some_and(|name| name.starts_with("Unknown")) {
            return None;
        }
        // `smartctl` knows how vendors divide the six bytes, and shows the number first: `3 (0 7)`.
        let shown = row["raw"]["string"].as_str().and_then(|shown| {
            let end = shown.find(|c: char| !c.is_ascii_digit()).unwrap_or(shown.len());
            shown[..end].parse::<u64>().ok()
        });
        // The upper bytes have other numbers at vendors that it does not know.
        shown.or_else(|| row["raw"]["value"].as_u64()).map(|raw| raw & 0xffff_ffff)
    }

    /// Sectors, or errors, that no correction could mend.
    fn uncorrectable(&self) -> Option<u64> {
        let of_ata = self.attribute(UNCORRECTABLE).or_else(|| self.attribute(REPORTED_UNCORRECTABLE));
        of_ata.or_else(|| self.number(&format!("{NVME}/media_errors"))).or_else(|| {
            let of = |kind| self.number(&format!("/scsi_error_counter_log/{kind}/total_uncorrected_errors"));
            ["read", "write", "verify"].into_iter().filter_map(of).reduce(u64::saturating_add)
        })
    }

    /// Percent of the writes that the disk was made for which are used up.
    fn used_percent(&self) -> Option<f64> {
        let paths = [&*format!("{NVME}/percentage_used"), "/scsi_percentage_used_endurance_indicator"];
        let told = paths.into_iter().find_map(|path| self.float(path));
        told.or_else(|| self.flash_statistic()).or_else(|| self.float("/endurance_used/current_percent"))
    }

    /// Wear of the flash by the statistics of an ATA disk.
    fn flash_statistic(&self) -> Option<f64> {
        let pages = self.0.pointer("/ata_device_statistics/pages")?.as_array()?;
        let page = pages.iter().find(|page| page["number"].as_u64() == Some(FLASH_PAGE))?;
        let row = page["table"].as_array()?.iter().find(|row| row["name"].as_str() == Some(FLASH_USED))?;
        row["value"].as_f64().filter(|_| row["flags"]["valid"].as_bool() == Some(true))
    }

    /// Bits of the critical warning of an NVMe disk; 0 of others.
    fn nvme_warnings(&self) -> u64 {
        let told = self.number("/smart_status/nvme/value");
        told.or_else(|| self.number(&format!("{NVME}/critical_warning"))).unwrap_or(0)
    }

    /// Reasons of the failure in words, as the disk gives them; empty where it gives none.
    fn words_of_failure(&self) -> String {
        let warnings = self.nvme_warnings();
        let of_nvme = NVME_WARNINGS.into_iter().filter(|(bit, _)| warnings & bit != 0);
        let mut words: Vec<String> = of_nvme.map(|(_, words)| words.to_owned()).collect();
        words.extend(self.text("/smart_status/scsi/ie_string"));
        // Attributes that do not foretell a failure may be at their threshold by age.
        let is_failed =
            |row: &&Value| row["when_failed"] == "now" && row["flags"]["prefailure"].as_bool() == Some(true);
        let failed = self.attributes().filter(is_failed).filter_map(|row| row["name"].as_str());
        words.extend(failed.map(|name| format!("{name} is at its threshold")));
        words.join("; ")
    }

    /// Why an answer has no state.
    fn silence(&self) -> String {
        let support = |word| self.0.pointer(&format!("/smart_support/{word}")).and_then(Value::as_bool);
        let all = self.0.pointer("/smartctl/messages").and_then(Value::as_array);
        let told: Vec<&str> = all.into_iter().flatten().filter_map(|one| one["string"].as_str()).collect();
        let virtual_disk = "a virtual disk, or one behind a controller";
        match (support("available"), support("enabled")) {
            (Some(false), _) => "the disk has no SMART".to_owned(),
            (_, Some(false)) => "SMART is off in the disk: smartctl --smart=on switches it on".to_owned(),
            _ if told.iter().any(|one| one.contains("STANDBY")) => {
                "the disk sleeps, and is not woken".to_owned()
            }
            _ if told.iter().any(|one| one.contains("Unable to detect device type")) => {
                format!("{} ({virtual_disk})", told.join("; "))
            }
            _ if told.is_empty() => format!("the disk tells no state ({virtual_disk})"),
            _ => told.join("; "),
        }
    }
}
