//! Counters of the kernel: errors of block devices and of ext4, md arrays, links of the network.
//!
//! A file that is not there, or that has something else in it, is a number that is not known. Only what the kernel has is shown.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::smart::SmartView;
use super::{DiskView, HardwareView};

/// Most disks, arrays, file systems and links of a host, each.
pub const PARTS_MAX: usize = 256;
/// Bytes of the unit in which the kernel tells sizes.
const SECTOR_BYTES: u64 = 512;

/// An array of the driver md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayView {
    /// Name: `md0`.
    pub name: String,
    /// `active` or `inactive`, and what the kernel says beside it.
    pub state: String,
    /// Level: `raid6`; empty while it is inactive.
    pub level: String,
    /// Members: `sda1`; with `(F)` where one has failed, and `(S)` where it is a spare one.
    pub members: Vec<String>,
    /// Disks that it was made of; none where the level has no such number.
    pub disks: Option<u32>,
    /// Disks that it is without.
    pub missing: u32,
    /// Work under way: `recovery = 12.6%`; empty where there is none.
    pub progress: String,
}

/// A file system of the kind ext4.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ext4View {
    /// Device: `sda1`.
    pub device: String,
    /// Errors since it was checked last.
    pub errors: Option<u64>,
}

/// A link of the network. The numbers count since the driver was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkView {
    /// Name: `eth0`.
    pub name: String,
    /// `up`, `down` or another state of the kernel.
    pub state: String,
    /// Speed, in bits per second; none where it has none now.
    pub bits_per_second: Option<u64>,
    /// How often it was lost or came back.
    pub carrier_changes: Option<u64>,
    /// Packets that came with an error.
    pub receive_errors: Option<u64>,
    /// Packets that could not be sent.
    pub transmit_errors: Option<u64>,
    /// Packets that came and were dropped.
    pub receive_dropped: Option<u64>,
    /// Packets that were to be sent and were dropped.
    pub transmit_dropped: Option<u64>,
    /// Packets that came with a wrong checksum.
    pub crc_errors: Option<u64>,
}

/// Looks at all of it, below `root`.
pub fn look(root: &Path) -> HardwareView {
    let mut view = HardwareView::default();
    view.disks = parts(&mut view.troubles, &root.join("sys/block"), disk);
    view.file_systems = parts(&mut Vec::new(), &root.join("sys/fs/ext4"), ext4);
    view.links = parts(&mut view.troubles, &root.join("sys/class/net"), link);
    // Without the driver there is no such file, and no array.
    view.arrays = fs::read_to_string(root.join("proc/mdstat")).map(|text| arrays(&text)).unwrap_or_default();
    view
}

/// The parts of a directory, by name.
fn parts<T>(troubles: &mut Vec<String>, dir: &Path, of: fn(&Path, String) -> Option<T>) -> Vec<T> {
    let listed = match fs::read_dir(dir) {
        Ok(listed) => listed,
        Err(e) => {
            troubles.push(format!("cannot read {}: {e}", dir.display()));
            return Vec::new();
        }
    };
    let names = listed.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let found: BTreeMap<String, T> =
        names.filter_map(|name| Some((name.clone(), of(&dir.join(&name), name)?))).collect();
    if found.len() > PARTS_MAX {
        troubles.push(format!(
            "{} has {} parts; the first {PARTS_MAX} are shown",
            dir.display(),
            found.len()
        ));
    }
    found.into_values().take(PARTS_MAX).collect()
}

fn word(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: PathBuf) -> Option<u64> {
    let text = word(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A disk; a device that is made of others, or of memory, is none, nor is one for compact discs.
fn disk(dir: &Path, name: String) -> Option<DiskView> {
    if !dir.join("device").exists() || name.starts_with("sr") {
        return None;
    }
    Some(DiskView {
        name,
        model: word(dir.join("device/model")).unwrap_or_default(),
        bytes: number(dir.join("size")).unwrap_or(0).saturating_mul(SECTOR_BYTES),
        io_errors: number(dir.join("device/ioerr_cnt")),
        smart: SmartView::default(),
    })
}

fn ext4(dir: &Path, device: String) -> Option<Ext4View> {
    // Beside the file systems there is a directory that says what the driver can.
    let errors = dir.join("errors_count");
    errors.exists().then(|| Ext4View { device, errors: number(errors) })
}

fn link(dir: &Path, name: String) -> Option<LinkView> {
    let count = |file: &str| number(dir.join("statistics").join(file));
    if name == "lo" || !dir.join("statistics").is_dir() {
        return None;
    }
    Some(LinkView {
        state: word(dir.join("operstate")).unwrap_or_default(),
        // A link that is down says -1, or nothing.
        bits_per_second: number(dir.join("speed")).map(|megabits| megabits.saturating_mul(1_000_000)),
        carrier_changes: number(dir.join("carrier_changes")),
        receive_errors: count("rx_errors"),
        transmit_errors: count("tx_errors"),
        receive_dropped: count("rx_dropped"),
        transmit_dropped: count("tx_dropped"),
        crc_errors: count("rx_crc_errors"),
        name,
    })
}

/// The arrays of `/proc/mdstat`.
pub fn arrays(text: &str) -> Vec<ArrayView> {
    let mut found: Vec<ArrayView> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [name, ":", state, rest @ ..] = words.as_slice() {
            if name.starts_with("md") && found.len() < PARTS_MAX {
                found.push(array(name, state, rest));
            }
        } else if let Some(array) = found.last_mut() {
            detail(array, line, &words);
        }
    }
    found
}

/// `md0 : active (auto-read-only) raid1 sdb1[1] sda1[0](F)`
fn array(name: &str, state: &str, rest: &[&str]) -> ArrayView {
    let remarks = rest.iter().take_while(|word| word.starts_with('(')).count();
    let (remarks, rest) = rest.split_at(remarks);
    let level = rest.first().filter(|word| !word.contains('['));
    let members = rest.iter().filter(|word| word.contains('['));
    let member = |word: &str| {
        let (device, flags) = word.split_once('[').unwrap_or((word, ""));
        format!("{device}{}", flags.split_once(']').map_or("", |(_, flags)| flags))
    };
    ArrayView {
        name: name.to_owned(),
        state: [&[state], remarks].concat().join(" "),
        level: level.map(|word| (*word).to_owned()).unwrap_or_default(),
        members: members.map(|word| member(word)).collect(),
        ..ArrayView::default()
    }
}

/// `1048576 blocks super 1.2 [2/1] [U_]`, or `[=>...]  recovery = 12.6% (1/8) finish=0.1min speed=1K/sec`
fn detail(array: &mut ArrayView, line: &str, words: &[&str]) {
    let counts = words.iter().find_map(|word| {
        let (all, working) = word.strip_prefix('[')?.strip_suffix(']')?.split_once('/')?;
        Some((all.parse::<u32>().ok()?, working.parse::<u32>().ok()?))
    });
    if let Some((all, working)) = counts.filter(|_| line.contains(" blocks")) {
        (array.disks, array.missing) = (Some(all), all.saturating_sub(working));
    }
    for kind in ["recovery", "resync", "reshape", "check"] {
        if let Some((_, rest)) = line.split_once(&format!("{kind} = ")) {
            let part = rest.split_whitespace().next().unwrap_or_default();
            array.progress = format!("{kind} = {part}");
        }
    }
}
