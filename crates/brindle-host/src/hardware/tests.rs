//! A host made of files, with disks that are programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::programs::Programs;
use super::smart::{SmartState, SmartView, understand};
use super::sysfs::{ArrayView, arrays};
use super::{Sources, look};

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("it has one")).expect("made");
    fs::write(path, text).expect("written");
}

/// A program of these lines. A shell writes it: a file that this process had open could not be run while another test forks.
fn program(root: &Path, name: &str, script: &str) -> PathBuf {
    let path = root.join(name);
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let written = std::process::Command::new("sh").args(["-c", write]).arg(&path).arg(script).status();
    assert!(written.expect("run").success());
    path
}

/// Two disks, one of which has met errors, a device of memory, an array, a file system and two links.
fn host(root: &Path) {
    put(root, "sys/block/sda/device/model", "DISK 1000  \n");
    put(root, "sys/block/sda/device/ioerr_cnt", "0x1f\n");
    put(root, "sys/block/sda/size", "2048\n");
    put(root, "sys/block/nvme0n1/device/model", "FLASH\n");
    put(root, "sys/block/zram0/size", "8\n");
    put(root, "sys/fs/ext4/sda1/errors_count", "3\n");
    put(root, "sys/fs/ext4/features/lazy_itable_init", "supported\n");
    put(root, "sys/class/net/lo/statistics/rx_errors", "0\n");
    put(root, "sys/class/net/eth0/statistics/rx_errors", "7\n");
    put(root, "sys/class/net/eth0/speed", "25000\n");
    put(root, "sys/class/net/eth0/operstate", "up\n");
    put(root, "proc/mdstat", MDSTAT);
}

const MDSTAT: &str = "Personalities : [raid1] [raid6]\n\
    md1 : active (auto-read-only) raid1 sdb1[1] sda1[0](F)\n      1048512 blocks super 1.2 [2/1] [_U]\n      \
    [=>...................]  recovery = 12.6% (132480/1048512) finish=0.1min speed=132480K/sec\n      bitmap: 1/1 pages [4KB], 65536KB chunk\n\n\
    md7 : active raid6 sde[4](S) sdd[3] sdc[2] sdb[1] sda[0]\n      2096128 blocks super 1.2 level 6, 512k chunk, algorithm 2 [4/4] [UUUU]\n      \n\
    md9 : inactive sdx[0](S)\n      1046528 blocks super 1.2\n\nunused devices: <none>\n";

#[tokio::test]
async fn the_kernel_and_the_disks_are_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    host(root);
    let smartctl = program(
        root,
        "smartctl",
        "case \"$*\" in *--nocheck=standby*/dev/sda) echo '{\"smart_status\":{\"passed\":false},\"serial_number\":\"S1\"}'; exit 8;; \
         *) echo '{\"smartctl\":{\"messages\":[{\"string\":\"Unable to detect device type\"}]}}'; exit 1;; esac",
    );
    let site = program(root, "site", "echo '{\"fans\": [1, 2]}'");
    let sources = Sources { root: root.to_owned(), smartctl: Some(smartctl), site: Some(site) };
    let view = look(&Programs::default(), &sources).await;
    let names: Vec<&str> = view.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!((names, &view.troubles), (vec!["nvme0n1", "sda"], &Vec::new()));
    let [flash, disk] = view.disks.as_slice() else { panic!("{view:?}") };
    assert_eq!((disk.model.as_str(), disk.bytes, disk.io_errors), ("DISK 1000", 1 << 20, Some(0x1f)));
    assert_eq!((disk.smart.state, disk.smart.serial.as_str()), (SmartState::Failing, "S1"));
    assert_eq!((flash.io_errors, flash.smart.state), (None, SmartState::Unknown));
    assert_eq!(flash.smart.why, "Unable to detect device type (a virtual disk, or one behind a controller)");
    assert_eq!((view.file_systems[0].device.as_str(), view.file_systems[0].errors), ("sda1", Some(3)));
    assert_eq!(view.file_systems.len(), 1);
    let [link] = view.links.as_slice() else { panic!("{:?}", view.links) };
    assert_eq!((link.name.as_str(), link.receive_errors, link.transmit_errors), ("eth0", Some(7), None));
    assert_eq!((link.state.as_str(), link.bits_per_second), ("up", Some(25_000_000_000)));
    assert_eq!(view.arrays.len(), 3);
    assert_eq!(view.site.expect("asked").answer.expect("answered")["fans"][1], 2);
}

#[test]
fn arrays_are_read_as_the_kernel_writes_them() {
    let found = arrays(MDSTAT);
    let degraded = ArrayView {
        name: "md1".to_owned(),
        state: "active (auto-read-only)".to_owned(),
        level: "raid1".to_owned(),
        members: vec!["sdb1".to_owned(), "sda1(F)".to_owned()],
        disks: Some(2),
        missing: 1,
        progress: "recovery = 12.6%".to_owned(),
    };
    assert_eq!(found[0], degraded);
    assert_eq!((found[1].disks, found[1].missing, found[1].members[0].as_str()), (Some(4), 0, "sde(S)"));
    assert_eq!((found[2].state.as_str(), found[2].level.as_str(), found[2].disks), ("inactive", "", None));
    assert!(arrays("nonsense\n[2/1] blocks\nmad : x\n: :\n").is_empty());
}

#[tokio::test]
async fn what_is_not_there_is_said_in_words() {
    let dir = tempfile::tempdir().expect("a directory");
    host(dir.path());
    let nowhere = dir.path().join("none");
    let sources =
        Sources { root: dir.path().to_owned(), smartctl: Some(nowhere.clone()), site: Some(nowhere.clone()) };
    let view = look(&Programs::default(), &sources).await;
    assert_eq!(view.disks[0].smart.why, "smartctl is not installed: apt-get install smartmontools");
    assert!(view.site.expect("asked").why.starts_with("cannot run "));
    let sources = Sources { root: nowhere, smartctl: None, site: None };
    let view = look(&Programs::default(), &sources).await;
    assert_eq!((view.troubles.len(), view.disks.len(), view.arrays.len()), (2, 0, 0), "{:?}", view.troubles);
    let bad = program(dir.path(), "bad", "echo no JSON; echo why >&2; exit 3");
    let sources = Sources { root: dir.path().to_owned(), smartctl: Some(bad.clone()), site: Some(bad) };
    let view = look(&Programs::default(), &sources).await;
    assert!(view.disks[0].smart.why.starts_with("smartctl ended with 3"), "{:?}", view.disks[0]);
    assert_eq!(view.site.expect("asked").why, "it ended with exit status: 3: why");
}

#[tokio::test]
async fn a_program_that_hangs_is_left_behind_and_begun_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let (programs, began) = (Programs::default(), dir.path().join("began"));
    let fifo = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("run").success());
    // Nobody ever writes into the pipe that it reads.
    let hangs =
        program(dir.path(), "hangs", &format!("echo x >>{}; exec cat {}", began.display(), fifo.display()));
    let late = programs.run("disk", &hangs, &[], Duration::from_millis(300)).await.expect_err("it hangs");
    assert!(late.contains("has not ended within 300 ms"), "{late}");
    let held = programs.turn("other").expect("nobody has it");
    let refused =
        programs.run("other", &hangs, &[], Duration::from_millis(300)).await.expect_err("it goes on");
    assert!(refused.contains("the last look has not ended"), "{refused}");
    drop(held);
    assert_eq!(fs::read_to_string(&began).expect("read"), "x\n", "begun once");
    let much = program(dir.path(), "much", "exec yes");
    let refused = programs.run("much", &much, &[], Duration::from_secs(60)).await.expect_err("endless");
    assert!(refused.contains("writes more than"), "{refused}");
    let well = program(dir.path(), "well", "echo {}");
    let ended = programs.run("well", &well, &[], Duration::from_secs(60)).await.expect("it ends");
    assert!(ended.is_success && ended.stdout == b"{}\n");
}

#[test]
fn ata_disks_are_understood() {
    let ata = r#"{"model_name":"A","serial_number":"1","smart_status":{"passed":true},"temperature":{"current":31},"power_on_time":{"hours":9},
        "ata_smart_attributes":{"table":[{"id":5,"name":"Reallocated_Sector_Ct","raw":{"value":30064771075,"string":"3 (0 7)"}},
        {"id":197,"raw":{"value":4294967297}},{"id":198,"raw":{"value":0}}]},
        "ata_device_statistics":{"pages":[null,{"number":7,"table":[{"name":"Percentage Used Endurance Indicator","value":12,"flags":{"valid":true}}]}]}}"#;
    let view = understand(ata.as_bytes(), 1 << 2);
    assert_eq!(
        (view.state, view.reallocated_sectors, view.pending_sectors, view.uncorrectable_errors),
        (SmartState::Worn, Some(3), Some(1), Some(0)),
        "a command that the disk does not have is no failure"
    );
    assert_eq!(
        (view.temperature_celsius, view.power_on_hours, view.used_ratio),
        (Some(31.0), Some(9), Some(0.12))
    );
    // Flash that counts what it has reported, and a number without a meaning. Errors and self-tests of the past are no failure.
    let flash = r#"{"smart_status":{"passed":true},"endurance_used":{"current_percent":85},"ata_smart_attributes":{"table":[
        {"id":187,"name":"Reported_Uncorrect","raw":{"value":0,"string":"0"}},{"id":197,"name":"Unknown_SSD_Attribute","raw":{"value":9,"string":"9"}}]},
        "ata_device_statistics":{"pages":[{"number":7,"table":[{"name":"Percentage Used Endurance Indicator","value":3,"flags":{"valid":false}}]}]}}"#;
    let view = understand(flash.as_bytes(), 1 << 5 | 1 << 6 | 1 << 7);
    assert_eq!(
        (view.state, view.pending_sectors, view.uncorrectable_errors),
        (SmartState::Passed, None, Some(0))
    );
    assert_eq!((view.used_ratio, view.why.as_str()), (Some(0.85), ""));
    // The disk passes its own check, and an attribute that foretells a failure does not.
    let table = |prefailure: bool| {
        format!(
            r#"{{"smart_status":{{"passed":true}},"ata_smart_attributes":{{"table":[{{"id":3,"name":"Spin_Up_Time","when_failed":"now","flags":{{"prefailure":{prefailure}}},"raw":{{"value":1}}}}]}}}}"#
        )
    };
    let view = understand(table(true).as_bytes(), 1 << 4);
    assert_eq!((view.state, view.why.as_str()), (SmartState::Failing, "Spin_Up_Time is at its threshold"));
    assert_eq!(understand(table(false).as_bytes(), 1 << 5).state, SmartState::Passed, "it is old");
}

#[test]
fn nvme_disks_are_understood() {
    let nvme = r#"{"smart_status":{"passed":true,"nvme":{"value":0}},"temperature":{"current":35},
        "nvme_smart_health_information_log":{"critical_warning":0,"media_errors":0,"percentage_used":103,"available_spare":100}}"#;
    let view = understand(nvme.as_bytes(), 0);
    assert_eq!((view.state, view.used_ratio, view.spare_ratio), (SmartState::Passed, Some(1.03), Some(1.0)));
    // A counter of 128 bits.
    let much = nvme.replace("\"media_errors\":0", "\"media_errors\":36893488147419103232");
    let view = understand(much.as_bytes(), 0);
    assert_eq!((view.state, view.uncorrectable_errors), (SmartState::Worn, Some(u64::MAX)));
    let warned = |value: u64| {
        let text = format!(
            r#"{{"smart_status":{{"passed":false,"nvme":{{"value":{value}}}}},"nvme_smart_health_information_log":{{"critical_warning":{value},"media_errors":0}}}}"#
        );
        let view = understand(text.as_bytes(), 1 << 3);
        (view.state, view.why)
    };
    let (state, why) = warned(0b1_1000);
    assert_eq!(state, SmartState::Failing);
    assert_eq!(why, "it can only be read; the backup of its volatile memory has failed");
    let hot = "its temperature is beyond its limits".to_owned();
    assert_eq!(warned(0b10), (SmartState::Passed, hot), "a hot disk is not to be replaced");
    assert_eq!(warned(0b11).0, SmartState::Failing);
    assert_eq!(warned(1 << 7), (SmartState::Failing, String::new()), "a bit of a later time");
}

#[test]
fn scsi_disks_are_understood() {
    let scsi = r#"{"scsi_model_name":"S","smart_status":{"passed":true},"scsi_grown_defect_list":4,"temperature":{"current":33,"drive_trip":68},
        "scsi_percentage_used_endurance_indicator":11,"scsi_pending_defects":{"count":2},
        "scsi_error_counter_log":{"read":{"total_uncorrected_errors":1},"write":{"total_uncorrected_errors":535}}}"#;
    let view = understand(scsi.as_bytes(), 0);
    assert_eq!((view.state, view.model.as_str()), (SmartState::Worn, "S"));
    assert_eq!((view.reallocated_sectors, view.pending_sectors), (Some(4), Some(2)));
    assert_eq!((view.uncorrectable_errors, view.used_ratio), (Some(536), Some(0.11)));
    assert_eq!(understand(scsi.as_bytes(), 1 << 3).state, SmartState::Failing, "the exit code says so");
    let failing = r#"{"smart_status":{"passed":false,"scsi":{"asc":93,"ascq":16,"ie_string":"FIRMWARE IMPENDING FAILURE"}}}"#;
    let view = understand(failing.as_bytes(), 1 << 3);
    assert_eq!((view.state, view.why.as_str()), (SmartState::Failing, "FIRMWARE IMPENDING FAILURE"));
    // A volume of a controller.
    let volume = r#"{"model_name":"Raid 1 Volume","temperature":{"current":0,"drive_trip":0}}"#;
    let view = understand(volume.as_bytes(), 1 << 2);
    assert_eq!((view.state, view.temperature_celsius), (SmartState::Unknown, None));
    assert!(view.why.contains("behind a controller"), "{view:?}");
}

#[test]
fn answers_without_a_state_say_why() {
    let message = |text: &str| format!(r#"{{"smartctl":{{"messages":[{{"string":"{text}"}}]}}}}"#);
    for (answer, code, why) in [
        (message("Device is in STANDBY mode, exit(2)"), 2, "the disk sleeps, and is not woken"),
        (message("Smartctl open device: /dev/sdq failed: No such device"), 2, "open device: /dev/sdq failed"),
        (r#"{"smart_support":{"available":true,"enabled":false}}"#.to_owned(), 0, "--smart=on"),
        (r#"{"smart_support":{"available":false}}"#.to_owned(), 4, "the disk has no SMART"),
        (r#"{"smart_support":true}"#.to_owned(), 0, "the disk tells no state"),
    ] {
        let view = understand(answer.as_bytes(), code);
        assert!(view.state == SmartState::Unknown && view.why.contains(why), "{answer}: {view:?}");
    }
    for nonsense in ["", "[]", "7", "{\"smart_status\":7}", "{\"ata_smart_attributes\":{\"table\":[1]}}"] {
        let view = understand(nonsense.as_bytes(), 1);
        assert!(view.state == SmartState::Unknown && !view.why.is_empty(), "{nonsense}: {view:?}");
        assert_ne!(view, SmartView::default());
    }
}

/// The program of smartmontools itself, of a device that is no disk: our options are its options, and its answer is JSON.
#[tokio::test]
async fn smartctl_itself_takes_our_questions() {
    let smartctl = Path::new("/usr/sbin/smartctl");
    if !smartctl.exists() {
        eprintln!("not tested: smartmontools is not installed");
        return;
    }
    let view = super::smart::ask(&Programs::default(), smartctl, "null").await;
    assert_eq!(view.state, SmartState::Unknown);
    assert!(view.why.contains("Unable to detect device type"), "{view:?}");
    let view = super::smart::ask(&Programs::default(), smartctl, "no-such-disk").await;
    assert!(view.state == SmartState::Unknown && view.why.contains("no-such-disk"), "{view:?}");
}
