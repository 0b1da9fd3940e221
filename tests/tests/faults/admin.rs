//! Tests of messages to an administrator in the night, on a real cluster: without the MGS, with a dead OST,
//! with a disk that became read-only, about a mount point that is taken, after a killed mount daemon.

use std::process::Command;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;

/// Longest time of a status, however many servers are away.
const STATUS_LIMIT: Duration = Duration::from_secs(8);

/// Targets on small disks of their own: how full the disk of this machine is must not be part of what is compared.
fn small_disks() -> Options {
    Options { osts: 2, mounts: 1, ost_size: Some("64MiB"), mdt_size: Some("128MiB"), ..Options::default() }
}

#[test]
fn status_without_the_mgs_says_who_is_away_and_what_to_do() {
    seed("admin-status");
    let cluster = Cluster::up("admin-status", &small_disks());
    cluster.kill(&["mgs", "ost1"]);
    let since = Instant::now();
    let at = cluster.a().display().to_string();
    let status = cluster.brindle(&["status", "--exit-code", &at]);
    assert!(since.elapsed() < STATUS_LIMIT, "status took {:?}", since.elapsed());
    assert_eq!(status.code, 8, "{status}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    let head = status.stdout.split("config:").next().unwrap().to_owned();
    let told = |target: &str, data: &str| {
        format!(
            "status: does not answer: {target} on {host}\n   \
             why: connection refused (the host is up, the service is not)\n  data: {data}\n\
             action: on {host}: systemctl status brindle-serve\n   see: brindle explain E5005\n"
        )
    };
    let mgs = told("dev-MGT0000", "files are not concerned; new mounts and restarted servers wait for it");
    let ost = told("dev-OST0001", "files on it wait until it is back; others go on");
    assert_eq!(head, format!("    fs: dev\n state: DEGRADED\n{mgs}{ost}"));
    let df = cluster.brindle(&["lfs", "df", &at]);
    assert!(df.stdout.contains("dev-OST0001_UUID    : inactive device"), "{df}");
    cluster.start(&["mgs", "ost1"]);
    cluster.assert_sound();
}

#[test]
fn a_disk_that_refuses_writes_is_in_the_status() {
    seed("admin-disk");
    let cluster = Cluster::up("admin-disk", &small_disks());
    let path = cluster.a().join("f");
    cluster.lfs(&["setstripe", "-c", "1", "-i", "1", &path.display().to_string()]);
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let untouched = cluster.a().join("untouched");
    cluster.lfs(&["setstripe", "-c", "1", "-i", "1", &untouched.display().to_string()]);
    std::fs::write(&untouched, vec![9; 1 << 20]).unwrap();
    let at = cluster.a().display().to_string();
    assert!(cluster.brindle(&["sync", &at]).ok());
    // From here on the OST has only requested bytes in its memory.
    cluster.kill(&["ost1"]);
    cluster.start(&["ost1"]);
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
    assert_eq!(cluster.brindle(&["status", "--exit-code", &at]).code, 0);
    become_read_only(&cluster.process("ost1").data);
    let refused = std::fs::OpenOptions::new().write(true).open(&path).and_then(|mut file| {
        std::io::Write::write_all(&mut file, &[8; 1 << 20])?;
        file.sync_all()
    });
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EIO));
    let status = cluster.brindle(&["status", "--exit-code", &at]);
    assert_eq!(status.code, 8, "{status}");
    assert!(status.stdout.contains("status: the disk returns errors: dev-OST0001"), "{status}");
    assert!(status.stdout.contains("Read-only file system"), "{status}");
    // Bytes written before are still read.
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
    assert_eq!(std::fs::read(&untouched).unwrap(), vec![9; 1 << 20]);
    cluster.down();
}

/// Makes the file system read-only, as the kernel does when the disk below fails.
fn become_read_only(dir: &std::path::Path) {
    let source = Command::new("findmnt").args(["-no", "SOURCE"]).arg(dir).output().unwrap();
    let device = String::from_utf8(source.stdout).unwrap();
    let device = device.trim().trim_start_matches("/dev/");
    let remounted = Command::new("mount").args(["-o", "remount,errors=remount-ro"]).arg(dir).status();
    assert!(remounted.unwrap().success());
    std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
}

#[test]
fn a_mount_in_use_is_not_taken_and_a_dead_one_is_replaced() {
    seed("admin-mount");
    let cluster = Cluster::up("admin-mount", &Options { osts: 1, mounts: 1, ..Options::default() });
    std::fs::write(cluster.a().join("f"), "here").unwrap();
    let at = cluster.a().display().to_string();
    let mgs = cluster.process("mgs").socket();
    let source = format!("{mgs}:/dev");
    let log = format!("-olog={}", cluster.outside().join("mount.log").display());
    let taken = cluster.brindle(&["mount", &log, &source, &at]);
    assert_eq!(
        taken.text,
        format!(
            "error: cannot mount on {at}\n  why:  {source} is mounted there\n  data: nothing was changed\n  \
             next: use it, or unmount it first: umount {at}\n  code: E1011 (brindle explain E1011)\n"
        )
    );
    assert_eq!(std::fs::read_to_string(cluster.a().join("f")).unwrap(), "here");
    cluster.kill(&["client0"]);
    let dead = std::fs::read(cluster.a().join("f")).unwrap_err().raw_os_error();
    assert!(matches!(dead, Some(libc::ENOTCONN | libc::ECONNABORTED)), "a dead mount answers {dead:?}");
    let again = cluster.brindle(&["mount", &log, &source, &at]);
    assert!(again.ok(), "{again}");
    assert_eq!(std::fs::read_to_string(cluster.a().join("f")).unwrap(), "here");
    let gone = cluster.brindle(&["umount", &at]);
    assert!(gone.ok(), "{gone}");
    let twice = cluster.brindle(&["umount", &at]);
    assert!(twice.text.contains("why:  nothing is mounted there"), "{twice}");
    cluster.assert_sound();
}

#[test]
fn a_ruined_checkpoint_is_named_by_fsck_and_at_the_start() {
    seed("admin-checkpoint");
    let cluster = Cluster::up("admin-checkpoint", &Options { osts: 1, mounts: 1, ..Options::default() });
    std::fs::write(cluster.a().join("f"), "here").unwrap();
    let checkpoint = cluster.process("mdt0").data.join("store/checkpoint.redb");
    cluster.down();
    ruin(&checkpoint);
    let found = cluster.fsck();
    assert_eq!(found.code, 8, "{found}");
    let up =
        cluster.brindle(&["dev".to_owned(), "up".to_owned(), format!("--dir={}", cluster.dir().display())]);
    assert_ne!(up.code, 0, "{up}");
    for said in [found, up] {
        assert!(
            said.text.contains(&format!("cannot use the metadata store {}", checkpoint.display())),
            "{said}"
        );
        assert!(said.text.contains("E3023") && !said.text.contains("panic"), "{said}");
        assert!(!said.text.contains("bug in itself"), "{said}");
    }
}

/// Turns over a byte in every second page but the first ones, which say where the others are.
fn ruin(file: &std::path::Path) {
    let mut bytes = std::fs::read(file).unwrap();
    for at in (8192..bytes.len()).step_by(8192) {
        bytes[at + 100] ^= 0xff;
    }
    std::fs::write(file, bytes).unwrap();
}
