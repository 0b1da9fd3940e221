//! Health of this host's hardware, as its daemon shows it: numbers among its metrics, and all of it as JSON beside them.

use std::path::PathBuf;
use std::sync::Arc;

use brindle_host::hardware::smart::{SmartState, SmartView};
use brindle_host::hardware::sysfs::LinkView;
use brindle_host::hardware::{Hardware, HardwareView, PATH, Sources, watch};
use brindle_telemetry::{Endpoint, Kind, Registry};

use super::options::Options;

/// Begins to look after the hardware, and shows it: nobody could see it without the endpoint.
pub fn shown(options: &Options, registry: &Registry, endpoint: Endpoint) -> Endpoint {
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    let sources = Sources {
        root: options.hardware_root.clone(),
        smartctl: Some(&options.smartctl).filter(|name| *name != "none").map(PathBuf::from),
        site: options.hardware_program.clone(),
    };
    let hardware = watch(&seams, sources);
    numbers(&registry.service("host"), &hardware);
    endpoint.with_json(PATH, Arc::new(move || hardware.json()))
}

/// Series of one family: the value of the label, and the number.
type Series = Vec<(String, f64)>;

fn numbers(registry: &Registry, hardware: &Hardware) {
    let list = |name: &str, help: &str, kind, label, get: fn(&HardwareView) -> Series| {
        let hardware = hardware.clone();
        registry.list(name, help, kind, label, move || get(&hardware.last()));
    };
    let read = |name: &str, help: &str, get: fn(&HardwareView) -> f64| {
        let hardware = hardware.clone();
        registry.read(name, help, Kind::Gauge, move || get(&hardware.last()));
    };
    list(
        "disks",
        "Disks of this host, by their state as they tell it themselves",
        Kind::Gauge,
        "state",
        by_state,
    );
    read("arrays_degraded", "Arrays of the driver md that are without a disk", |view| {
        view.arrays.iter().filter(|array| array.missing > 0).count() as f64
    });
    read("file_systems_damaged", "File systems of the kind ext4 that have met errors", |view| {
        view.file_systems.iter().filter(|fs| fs.errors.unwrap_or(0) > 0).count() as f64
    });
    let help =
        "When the hardware of this host was looked at last, seconds since 1970; 0 before the first look";
    read("hardware_timestamp_seconds", help, |view| view.at_s as f64);
    let help = "1 for a disk that says of itself that it fails";
    list("disk_failing", help, Kind::Gauge, "disk", |view| {
        of_disks(view, |smart| {
            Some(smart.state != SmartState::Unknown).filter(|known| *known)?;
            Some(u64::from(smart.state == SmartState::Failing) as f64)
        })
    });
    let help = "Sectors or blocks of a disk that it cannot read";
    list("disk_unreadable_sectors", help, Kind::Gauge, "disk", |view| of_disks(view, SmartView::unreadable));
    let help = "Sectors of a disk that were replaced by spare ones";
    list("disk_reallocated_sectors", help, Kind::Gauge, "disk", |view| {
        of_disks(view, |smart| smart.reallocated_sectors.map(|n| n as f64))
    });
    list("disk_temperature_celsius", "Temperature of a disk", Kind::Gauge, "disk", |view| {
        of_disks(view, |smart| smart.temperature_celsius)
    });
    let help = "Part of the writes that a disk was made for that is used up";
    list("disk_used_ratio", help, Kind::Gauge, "disk", |view| of_disks(view, |smart| smart.used_ratio));
    let help = "Commands of a disk that ended with an error, since the host was started";
    list("disk_io_errors", help, Kind::Counter, "disk", |view| {
        view.disks.iter().filter_map(|disk| Some((disk.name.clone(), disk.io_errors? as f64))).collect()
    });
    list(
        "array_missing_disks",
        "Disks that an array of the driver md is without",
        Kind::Gauge,
        "array",
        |view| view.arrays.iter().map(|array| (array.name.clone(), f64::from(array.missing))).collect(),
    );
    let help = "Errors of a file system of the kind ext4, since it was checked last";
    list("ext4_errors", help, Kind::Gauge, "device", |view| {
        view.file_systems.iter().filter_map(|fs| Some((fs.device.clone(), fs.errors? as f64))).collect()
    });
    links(registry, hardware);
}

fn by_state(view: &HardwareView) -> Series {
    let states = [
        ("passed", SmartState::Passed),
        ("worn", SmartState::Worn),
        ("failing", SmartState::Failing),
        ("unknown", SmartState::Unknown),
    ];
    let count = |state| view.disks.iter().filter(|disk| disk.smart.state == state).count() as f64;
    states.into_iter().map(|(name, state)| (name.to_owned(), count(state))).collect()
}

fn of_disks(view: &HardwareView, get: fn(&SmartView) -> Option<f64>) -> Series {
    view.disks.iter().filter_map(|disk| Some((disk.name.clone(), get(&disk.smart)?))).collect()
}

fn links(registry: &Registry, hardware: &Hardware) {
    let add = |name: &str, help: &str, get: fn(&LinkView) -> Option<u64>| {
        let hardware = hardware.clone();
        let list = move || {
            let view = hardware.last();
            view.links.iter().filter_map(|link| Some((link.name.clone(), get(link)? as f64))).collect()
        };
        registry.list(name, help, Kind::Counter, "link", list);
    };
    add("link_receive_errors", "Packets that came with an error, by link", |link| link.receive_errors);
    add("link_transmit_errors", "Packets that could not be sent, by link", |link| link.transmit_errors);
    add("link_receive_dropped", "Packets that came and were dropped, by link", |link| link.receive_dropped);
    add("link_transmit_dropped", "Packets that were to be sent and were dropped, by link", |link| {
        link.transmit_dropped
    });
    add("link_crc_errors", "Packets that came with a wrong checksum, by link", |link| link.crc_errors);
    add("link_carrier_changes", "How often a link was lost or came back", |link| link.carrier_changes);
}
