//! Health of disks by their own word (SMART of ATA and SCSI, the health log of NVMe), as `smartctl --json` tells it.

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::programs::Programs;

/// Longest time for one disk.
const LIMIT: Duration = Duration::from_secs(15);
/// Bit of the exit code of `smartctl`: the disk says that it fails.
const EXIT_FAILING: i32 = 1 << 3;
/// Attributes of ATA disks.
const REALLOCATED: u64 = 5;
const PENDING: u64 = 197;
const UNCORRECTABLE: u64 = 198;

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
    /// Why the state is not known, in words; empty where it is.
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

/// Asks a disk. One that sleeps is not woken.
pub async fn ask(programs: &Programs, smartctl: &Path, name: &str) -> SmartView {
    // The kernel writes '!' in sysfs where a name has '/'.
    let device = format!("/dev/{}", name.replace('!', "/"));
    let arguments = ["--json=c", "--info", "--health", "--attributes", "--nocheck=standby", &device];
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
    let answer: Value = match serde_json::from_slice(text) {
        Ok(answer) => answer,
        Err(e) => {
            return SmartView::unknown(format!(
                "smartctl ended with {code}, and its output is not JSON: {e}"
            ));
        }
    };
    let text =
        |path: &str| answer.pointer(path).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    let number = |path: &str| answer.pointer(path).and_then(Value::as_u64);
    let percent = |path: &str| answer.pointer(path).and_then(Value::as_f64).map(|n| n / 100.0);
    let attribute = |id: u64| {
        let table = answer.pointer("/ata_smart_attributes/table")?.as_array()?;
        let row = table.iter().find(|row| row["id"].as_u64() == Some(id))?;
        // The upper bytes have other numbers at some vendors.
        row["raw"]["value"].as_u64().map(|raw| raw & 0xffff_ffff)
    };
    let nvme = "/nvme_smart_health_information_log";
    let mut view = SmartView {
        state: SmartState::Unknown,
        why: String::new(),
        model: Some(text("/model_name"))
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| text("/scsi_model_name")),
        serial: text("/serial_number"),
        temperature_celsius: answer.pointer("/temperature/current").and_then(Value::as_f64),
        power_on_hours: number("/power_on_time/hours"),
        reallocated_sectors: attribute(REALLOCATED).or_else(|| number("/scsi_grown_defect_list")),
        pending_sectors: attribute(PENDING),
        uncorrectable_errors: attribute(UNCORRECTABLE)
            .or_else(|| number(&format!("{nvme}/media_errors")))
            .or_else(|| number("/scsi_error_counter_log/read/total_uncorrected_errors")),
        used_ratio: percent(&format!("{nvme}/percentage_used")),
        spare_ratio: percent(&format!("{nvme}/available_spare")),
    };
    let passed = answer.pointer("/smart_status/passed").and_then(Value::as_bool);
    let is_worn = view.unreadable().is_some_and(|n| n > 0.0);
    view.state = match passed {
        _ if code & EXIT_FAILING != 0 => SmartState::Failing,
        Some(false) => SmartState::Failing,
        Some(true) if is_worn => SmartState::Worn,
        Some(true) => SmartState::Passed,
        None => SmartState::Unknown,
    };
    if view.state == SmartState::Unknown {
        view.why = messages(&answer);
    }
    view
}

/// Messages of `smartctl` about an answer without a state.
fn messages(answer: &Value) -> String {
    let all = answer.pointer("/smartctl/messages").and_then(Value::as_array);
    let words: Vec<&str> = all.into_iter().flatten().filter_map(|one| one["string"].as_str()).collect();
    match words.is_empty() {
        true => "the disk tells no state (a virtual disk, or one behind a controller)".to_owned(),
        false => words.join("; "),
    }
}
