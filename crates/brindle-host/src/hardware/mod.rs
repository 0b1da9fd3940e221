//! Health of this host's disks, arrays, file systems and links, as the kernel and `smartctl` tell it.
//!
//! [`watch`] looks once a minute. `brindle serve` calls it, and shows what it has found with its metrics; the manager asks there.
//!
//! | module | asks |
//! |---|---|
//! | [`sysfs`] | the kernel: errors of block devices and of ext4, md arrays, counters of links |
//! | [`smart`] | the disks themselves, by `smartctl --json` of smartmontools |
//! | [`programs`] | programs, each for a bounded time and amount of text |
//!
//! Invariant: nothing that hangs here holds anything else up. A program that does not end is not started again until it has ended.

pub mod programs;
pub mod smart;
pub mod sysfs;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::Seams;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use programs::Programs;
use smart::SmartView;
use sysfs::{ArrayView, Ext4View, LinkView};

/// Where a daemon shows it, beside its metrics.
pub const PATH: &str = "/hardware";
/// Pause between two looks.
const LOOK_EVERY_MS: u64 = 60_000;
/// Longest time for the counters of the kernel, which are files that a driver answers for.
const KERNEL_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for the site's program.
const SITE_LIMIT: Duration = Duration::from_secs(20);
/// Disks whose state is asked for at once.
const DISKS_AT_ONCE: usize = 8;

/// Where the health of this host is found.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Directory with `sys` and `proc` of this host: `/`, or where a container has them.
    pub root: PathBuf,
    /// The program `smartctl`; `None` where disks are not asked.
    pub smartctl: Option<PathBuf>,
    /// The site's own program, whose output is shown.
    pub site: Option<PathBuf>,
}

/// Health of the hardware of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HardwareView {
    /// When the look has ended, seconds since 1970; 0 before the first one.
    pub at_s: i64,
    /// Why something of it could not be had, for people.
    pub troubles: Vec<String>,
    /// Disks, by name.
    pub disks: Vec<DiskView>,
    /// Arrays of the driver md, by name.
    pub arrays: Vec<ArrayView>,
    /// File systems of the kind ext4 that are mounted, by device.
    pub file_systems: Vec<Ext4View>,
    /// Links of the network, by name.
    pub links: Vec<LinkView>,
    /// Answer of the site's program.
    pub site: Option<SiteView>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskView {
    /// Name: `sda`.
    pub name: String,
    /// Model, as the kernel has it; empty where it has none.
    pub model: String,
    /// Size.
    pub bytes: u64,
    /// Commands that have ended with an error since the host was started; none where the driver does not count.
    pub io_errors: Option<u64>,
    /// Health of the disk by its own word.
    pub smart: SmartView,
}

/// Answer of the site's program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SiteView {
    /// The program.
    pub program: String,
    /// Output; none where it has failed.
    pub answer: Option<serde_json::Value>,
    /// Why there is no answer; empty where there is one.
    pub why: String,
}

/// The last look, as it is shared.
#[derive(Clone, Default)]
pub struct Hardware(Arc<Mutex<Arc<HardwareView>>>);

impl Hardware {
    /// The last look.
    pub fn last(&self) -> Arc<HardwareView> {
        self.0.lock().clone()
    }

    /// The last look, as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(&*self.last()).expect("plain fields always serialise")
    }
}

/// Looks now, and then once a minute for as long as the process lives.
pub fn watch(seams: &Seams, sources: Sources) -> Hardware {
    let hardware = Hardware::default();
    let (shared, own) = (hardware.clone(), seams.clone());
    seams.spawn("hardware.watch", async move {
        let programs = Programs::default();
        loop {
            let mut view = look(&programs, &sources).await;
            view.at_s = own.wall().secs;
            *shared.0.lock() = Arc::new(view);
            own.sleep_ms(LOOK_EVERY_MS).await;
        }
    });
    hardware
}

/// One look at everything.
pub async fn look(programs: &Programs, sources: &Sources) -> HardwareView {
    let root = sources.root.clone();
    let found =
        programs.on_a_thread("the counters of the kernel", KERNEL_LIMIT, move || sysfs::look(&root)).await;
    let mut view =
        found.unwrap_or_else(|why| HardwareView { troubles: vec![why], ..HardwareView::default() });
    ask_disks(programs, sources, &mut view).await;
    if let Some(program) = &sources.site {
        view.site = Some(site(programs, program).await);
    }
    view
}

async fn ask_disks(programs: &Programs, sources: &Sources, view: &mut HardwareView) {
    let Some(smartctl) = &sources.smartctl else {
        view.disks
            .iter_mut()
            .for_each(|disk| disk.smart = SmartView::unknown("disks are not asked: smartctl = \"none\""));
        return;
    };
    for disks in view.disks.chunks_mut(DISKS_AT_ONCE) {
        let mut asking = JoinSet::new();
        for (at, disk) in disks.iter().enumerate() {
            let (programs, smartctl, name) = (programs.clone(), smartctl.clone(), disk.name.clone());
            asking.spawn(async move { (at, smart::ask(&programs, &smartctl, &name).await) });
        }
        while let Some(answered) = asking.join_next().await {
            // One that panics has told of itself in the log; its disk stays unknown.
            if let Ok((at, smart)) = answered {
                disks[at].smart = smart;
            }
        }
    }
}

async fn site(programs: &Programs, program: &std::path::Path) -> SiteView {
    let name = program.display().to_string();
    let ended = programs.run("the site's program", program, &[], SITE_LIMIT).await;
    let answer = ended.and_then(|ended| {
        if !ended.is_success {
            return Err(format!("it ended with {}: {}", ended.status, ended.last_words()));
        }
        serde_json::from_slice(&ended.stdout).map_err(|e| format!("its output is not JSON: {e}"))
    });
    match answer {
        Ok(answer) => SiteView { program: name, answer: Some(answer), why: String::new() },
        Err(why) => SiteView { program: name, answer: None, why },
    }
}
