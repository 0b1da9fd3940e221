//! Damage that nobody has read yet: the scrub finds it on any copy, repairs it from a whole copy, and names damage without a whole copy.
//! Under load, with hosts that hang and die, the scrub reports only real damage, and it continues where it was.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brindle_tests::cluster::{Cluster, Options};
use serde_json::Value;

use crate::bare_hosts::{said, sh, until};
use crate::damage::objects;
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};
use crate::replicas::{disk_for, made, set, until_served};
use crate::work::Work;

/// Longest time for a pass over what these tests write.
const PASS_LIMIT: Duration = Duration::from_secs(60);
/// Time for which passes follow each other under load.
const UNDER_LOAD: Duration = Duration::from_secs(25);
const OBJECTS: &str = "/var/lib/brindle/ost0/objects";

/// An OST with copies on h2 and h3, mounted on h4.
fn mirrored(name: &str) -> (Cluster, Vec<Child>) {
    let (cluster, daemons) = made(name);
    done(&cluster, "h1", "target add --copies 2 --node h2 --node h3 --dir /var/lib/brindle/ost0");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    (cluster, daemons)
}

/// The scrub of the only OST.
fn status(cluster: &Cluster) -> Value {
    status_of(cluster, "OST0000")
}

/// The scrub of a target.
pub(crate) fn status_of(cluster: &Cluster, target: &str) -> Value {
    let shown = brindle(cluster, "h1", &format!("target scrub status {target} -o json"));
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
    shown["targets"][0].clone()
}

/// Seconds since 1970.
fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs().cast_signed())
}

pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

/// Begins a pass, and waits for its end; what it found, mended, and could not mend.
fn pass(cluster: &Cluster) -> (u64, u64, u64) {
    pass_of(cluster, "OST0000")
}

/// The same for a target.
pub(crate) fn pass_of(cluster: &Cluster, target: &str) -> (u64, u64, u64) {
    let before = status_of(cluster, target)["last"]["ended_at"].as_i64();
    // Times are in seconds: no two passes end in the same one.
    until("another second", || before.is_none_or(|ended_at| ended_at < now_s()));
    done(cluster, "h1", &format!("target scrub start {target} --rate 2GiB"));
    let since = Instant::now();
    loop {
        let now = status_of(cluster, target);
        if now["state"] == "waiting" && now["last"]["ended_at"].as_i64() != before {
            let last = &now["last"];
            return (number(last, "found"), number(last, "mended"), number(last, "unmended"));
        }
        assert!(since.elapsed() < PASS_LIMIT, "{now}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Makes a file with one object, with everything on the disks.
fn file(cluster: &Cluster, name: &str, mib: u64) {
    done(cluster, "h4", &format!("lfs setstripe -c 1 {MOUNT}/{name}"));
    let script = format!("head -c {} /dev/urandom > {MOUNT}/{name} && sync {MOUNT}/{name}", mib << 20);
    said(cluster, "h4", &script);
}

/// The largest object of a host.
fn object(cluster: &Cluster, host: &str) -> String {
    let largest = format!("find {OBJECTS} -type f -printf '%s %p\\n' | sort -n | tail -1 | cut -d' ' -f2");
    said(cluster, host, &largest).trim().to_owned()
}

/// Writes other bytes into a block of the first region of an object, behind the server's back.
fn damage(cluster: &Cluster, host: &str, block: u64) {
    let at = 2 * 4096 + block * 4096 + 77;
    let object = object(cluster, host);
    said(
        cluster,
        host,
        &format!(
            "head -c 64 /dev/zero | tr '\\0' 'Z' | dd of={object} bs=1 seek={at} conv=notrunc status=none && sync {object}"
        ),
    );
}

/// The bytes of the first region of the largest object.
fn bytes(cluster: &Cluster, host: &str) -> String {
    let object = object(cluster, host);
    said(cluster, host, &format!("dd if={object} bs=4096 skip=2 count=1024 status=none | md5sum"))
}

/// A number that the daemon of a host shows. The daemon listens on a free port of the host's own loopback.
pub(crate) fn metric(cluster: &Cluster, host: &str, series: &str) -> Option<f64> {
    let ports = "ss -Hltn src 127.0.0.1 | awk '{print $4}'";
    let text = said(
        cluster,
        host,
        &format!("for at in $({ports}); do curl -s --max-time 5 http://$at/metrics && break; done"),
    );
    let line = text.lines().find(|line| line.starts_with(series));
    line.and_then(|line| line.rsplit(' ').next()).and_then(|number| number.parse().ok())
}

#[test]
fn damage_on_any_copy_is_found_and_mended_and_what_no_copy_has_is_named() {
    let (cluster, daemons) = mirrored("scrub-damage");
    file(&cluster, "f", 12);
    assert_eq!(pass(&cluster), (0, 0, 0));
    let whole = bytes(&cluster, "h2");
    assert_eq!(bytes(&cluster, "h3"), whole);
    // On the member, then on the primary: two blocks each.
    for host in ["h3", "h2"] {
        damage(&cluster, host, 5);
        damage(&cluster, host, 700);
        assert_ne!(bytes(&cluster, host), whole);
        assert_eq!(pass(&cluster), (2, 2, 0), "{host}");
        assert_eq!(bytes(&cluster, host), whole, "{host}");
    }
    let shown = brindle(&cluster, "h1", "status").text;
    assert!(shown.contains("E4013") && shown.contains("scan: scratch-OST0000: scrubbed"), "{shown}");
    said(&cluster, "h4", &format!("cat {MOUNT}/f > /dev/null"));
    // A header: nothing of the object can be read on the member, which gets all of it anew.
    let header = object(&cluster, "h3");
    // Mended bytes are synced first: a sync writes the header anew, without the flag of unsynced changes (byte 7, bit 2).
    let flags = format!("od -A n -t u1 -j 7 -N 1 {header}");
    until("the header being clean", || said(&cluster, "h3", &flags).parse::<u8>().unwrap() & 4 == 0);
    // Objects with a mark are compared when another copy leads: that would find the damage before the scrub does.
    until("no marks", || metric(&cluster, "h2", "brindle_oss_replica_marked_objects{") == Some(0.0));
    said(
        &cluster,
        "h3",
        &format!("head -c 100 /dev/zero | dd of={header} bs=1 seek=20 conv=notrunc status=none"),
    );
    until_forgotten(&cluster);
    assert_eq!(pass(&cluster), (1, 1, 0));
    assert_eq!(bytes(&cluster, "h3"), whole);
    assert_eq!(pass(&cluster), (0, 0, 0), "nothing is left");
    // The block is damaged in both copies.
    damage(&cluster, "h2", 9);
    damage(&cluster, "h3", 9);
    let (found, mended, unmended) = pass(&cluster);
    assert_eq!((found, mended, unmended), (2, 0, 1));
    let shown = brindle(&cluster, "h1", "target scrub status").text;
    assert!(shown.contains("cannot be mended: the file ["), "{shown}");
    assert!(shown.contains("at offset 36864 (4096 bytes)"), "{shown}");
    let shown = brindle(&cluster, "h1", "status").text;
    assert!(shown.contains("E4003"), "{shown}");
    let events = brindle(&cluster, "h1", "events").text;
    assert!(events.contains("scrub.damage") && events.contains("scrub.done"), "{events}");
    said(&cluster, "h4", &format!("umount {MOUNT}"));
    mount(&cluster, "h4");
    let read =
        sh(&cluster, "h4", &format!("dd if={MOUNT}/f bs=4096 skip=9 count=1 status=none of=/dev/null"));
    assert!(!read.ok() && read.text.contains("Input/output error"), "{read}");
    said(&cluster, "h4", &format!("dd if={MOUNT}/f bs=4096 skip=10 count=200 status=none of=/dev/null"));
    // Written anew it is whole, everywhere.
    said(
        &cluster,
        "h4",
        &format!("head -c 4096 /dev/urandom | dd of={MOUNT}/f bs=4096 seek=9 conv=notrunc,fsync status=none"),
    );
    assert_eq!(pass(&cluster), (0, 0, 0));
    assert_eq!(bytes(&cluster, "h2"), bytes(&cluster, "h3"));
    end(cluster, daemons);
}

/// A block of the first region of the largest object of a host.
fn block(cluster: &Cluster, host: &str, block: u64) -> String {
    let object = object(cluster, host);
    said(cluster, host, &format!("dd if={object} bs=4096 skip={} count=1 status=none | md5sum", 2 + block))
}

/// A region of a file is overwritten while a block of it is damaged on the primary; then both hosts lose their power. The block is whole on the other
/// host, and stays so.
#[test]
fn a_power_cut_of_all_hosts_makes_no_damaged_block_a_right_one() {
    let dir = "/var/lib/brindle/ost0";
    let (cluster, mut daemons) = made("scrub-power");
    // A file system of its own is mounted anew after the cut: that is another boot for the store.
    for host in ["h2", "h3"] {
        disk_for(&cluster, host, dir);
    }
    done(&cluster, "h1", &format!("target add --copies 2 --node h2 --node h3 --dir {dir}"));
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    file(&cluster, "f", 4);
    until("no marks", || metric(&cluster, "h2", "brindle_oss_replica_marked_objects{") == Some(0.0));
    let whole = block(&cluster, "h3", 5);
    damage(&cluster, "h2", 5);
    // Not synced on the servers: the region has a write intent when the power goes.
    let overwrite = format!(
        "head -c 4096 /dev/urandom | dd of={MOUNT}/f bs=4096 seek=900 conv=notrunc oflag=direct status=none"
    );
    said(&cluster, "h4", &overwrite);
    let before = set(&cluster)["epoch"].as_u64();
    for host in ["h2", "h3"] {
        assert!(cluster.dev(&["host", "kill", host]).ok());
    }
    for (n, host) in [(1, "h2"), (2, "h3")] {
        daemons[n].wait().unwrap();
        assert!(cluster.dev(&["host", "start", host]).ok());
        said(
            &cluster,
            host,
            &format!(
                "! mountpoint -q {dir} || umount {dir}; mount -o loop,errors=remount-ro {dir}.img {dir}"
            ),
        );
        daemons[n] = serve(&cluster, host);
    }
    // The MGS shows what it knew before until it has heard of the power cut of both.
    until("a server of a later epoch", || {
        let now = set(&cluster);
        now["state"] == "serving" && now["epoch"].as_u64() > before
    });
    let primary = set(&cluster)["primary"].as_str().unwrap().to_owned();
    until_served(&cluster, &primary, "serving");
    until("the scrub", || !matches!(status(&cluster)["state"].as_str(), None | Some("unreachable")));
    // A difference that the takeover has not repaired shows as damage, not as a block with a right checksum.
    let (_, _, unmended) = pass(&cluster);
    assert_eq!(unmended, 0);
    for host in ["h2", "h3"] {
        assert_eq!(block(&cluster, host, 5), whole, "{host}, served on {primary}");
    }
    said(&cluster, "h4", &format!("cat {MOUNT}/f > /dev/null"));
    end(cluster, daemons);
}

/// Any user can make such a file with one write.
#[test]
fn a_sparse_file_of_terabytes_stops_no_takeover_no_fill_and_no_pass() {
    let (cluster, mut daemons) = mirrored("scrub-sparse");
    done(&cluster, "h4", &format!("lfs setstripe -c 1 {MOUNT}/sparse"));
    let end_at = 8u64 << 40;
    let write = |offset: u64| {
        let dd = format!("printf x | dd of={MOUNT}/sparse bs=1 seek={offset} conv=notrunc,fsync status=none");
        sh(&cluster, "h4", &dd).ok()
    };
    assert!(write(end_at) && write(3) && write(end_at / 2));
    // The object is marked, so that who takes over compares it.
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    until_served(&cluster, "h3", "degraded");
    assert!(write(end_at - 1));
    daemons[1].wait().unwrap();
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    daemons[1] = serve(&cluster, "h2");
    until_served(&cluster, "h3", "serving");
    assert_eq!(pass(&cluster), (0, 0, 0));
    for offset in [3, end_at / 2, end_at - 1, end_at] {
        let read = format!("dd if={MOUNT}/sparse bs=1 skip={offset} count=1 status=none");
        assert_eq!(said(&cluster, "h4", &read), "x", "at {offset}");
    }
    end(cluster, daemons);
}

/// A program writes a part of a block that is damaged where it is served.
#[test]
fn a_part_of_a_damaged_block_is_written_where_another_copy_is_whole() {
    let (cluster, daemons) = mirrored("scrub-part");
    file(&cluster, "f", 4);
    said(&cluster, "h4", &format!("cp {MOUNT}/f /tmp/scrub-part.f && umount {MOUNT}"));
    mount(&cluster, "h4");
    damage(&cluster, "h2", 5);
    damage(&cluster, "h3", 7);
    for at in [5 * 4096 + 100, 7 * 4096 + 100] {
        for to in [format!("{MOUNT}/f"), "/tmp/scrub-part.f".to_owned()] {
            said(
                &cluster,
                "h4",
                &format!("printf part | dd of={to} bs=1 seek={at} conv=notrunc,fsync status=none"),
            );
        }
    }
    said(&cluster, "h4", &format!("umount {MOUNT}"));
    mount(&cluster, "h4");
    said(&cluster, "h4", &format!("cmp {MOUNT}/f /tmp/scrub-part.f && rm /tmp/scrub-part.f"));
    assert_eq!(pass(&cluster), (0, 0, 0));
    assert_eq!(bytes(&cluster, "h2"), bytes(&cluster, "h3"));
    until_served(&cluster, "h2", "serving");
    end(cluster, daemons);
}

/// The server of h3 opens its objects anew.
fn until_forgotten(cluster: &Cluster) {
    done(cluster, "h1", "target replica promote OST0000 --node h3");
    done(cluster, "h1", "target replica promote OST0000 --node h2");
    until_served(cluster, "h2", "serving");
}

#[test]
fn nothing_is_mended_from_a_copy_that_lacks_changes() {
    let (cluster, mut daemons) = mirrored("scrub-stale");
    file(&cluster, "f", 4);
    assert!(cluster.dev(&["host", "kill", "h3"]).ok());
    daemons[2].wait().unwrap();
    // The member that is away has the former bytes of this block, with a right checksum.
    said(
        &cluster,
        "h4",
        &format!("head -c 4096 /dev/urandom | dd of={MOUNT}/f bs=4096 seek=3 conv=notrunc,fsync status=none"),
    );
    until_served(&cluster, "h2", "degraded");
    damage(&cluster, "h2", 3);
    assert_eq!(pass(&cluster), (1, 0, 1));
    assert!(cluster.dev(&["host", "start", "h3"]).ok());
    daemons[2] = serve(&cluster, "h3");
    let (_, mended, _) = pass(&cluster);
    assert_eq!(mended, 0);
    said(&cluster, "h4", &format!("umount {MOUNT}"));
    mount(&cluster, "h4");
    let read =
        sh(&cluster, "h4", &format!("dd if={MOUNT}/f bs=4096 skip=3 count=1 status=none of=/dev/null"));
    assert!(!read.ok() && read.text.contains("Input/output error"), "{read}");
    end(cluster, daemons);
}

#[test]
fn under_load_with_a_member_that_hangs_and_a_primary_that_dies_nothing_is_reported() {
    let (cluster, mut daemons) = mirrored("scrub-load");
    file(&cluster, "big", 24);
    let work = Work::begin(&cluster, "h4");
    let (since, mut passes) = (Instant::now(), 0);
    while since.elapsed() < UNDER_LOAD {
        assert_eq!(pass(&cluster), (0, 0, 0));
        passes += 1;
    }
    eprintln!("{passes} passes under load");
    // A member hangs in the middle of a pass, and is filled again.
    done(&cluster, "h1", "target scrub start --rate 4MiB");
    assert!(cluster.dev(&["host", "freeze", "h3"]).ok());
    work.goes_on();
    until_served(&cluster, "h2", "degraded");
    assert!(cluster.dev(&["host", "thaw", "h3"]).ok());
    until_served(&cluster, "h2", "serving");
    assert_eq!(pass(&cluster), (0, 0, 0));
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    work.goes_on();
    until_served(&cluster, "h3", "degraded");
    assert_eq!(pass(&cluster), (0, 0, 0));
    work.end(&cluster);
    daemons[1].wait().unwrap();
    end(cluster, daemons);
}

#[test]
fn a_pass_goes_on_after_a_stop_and_where_another_member_takes_over() {
    let (cluster, mut daemons) = mirrored("scrub-resume");
    for n in 0..6 {
        file(&cluster, &format!("f{n}"), 4);
    }
    assert!(!brindle(&cluster, "h1", "target scrub start --rate 1000").ok());
    assert!(!brindle(&cluster, "h1", "target scrub start OST0099").ok());
    assert_eq!(status(&cluster)["state"], "waiting");
    done(&cluster, "h1", "target scrub start --rate 1MiB --every 7");
    until("a part of a pass", || number(&status(&cluster)["pass"], "bytes") > 6 << 20);
    done(&cluster, "h1", "target scrub stop OST0000");
    until("the stop", || status(&cluster)["state"] == "stopped");
    let stopped = number(&status(&cluster)["pass"], "bytes");
    // The primary is lost: the other member knows how far it was.
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    until_served(&cluster, "h3", "degraded");
    let taken_over = status(&cluster);
    assert_eq!(taken_over["state"], "stopped", "{taken_over}");
    assert_eq!(number(&taken_over["pass"], "bytes"), stopped);
    done(&cluster, "h1", "target scrub start --rate 2GiB");
    until("the end", || status(&cluster)["state"] == "waiting");
    let ended = status(&cluster);
    let read = number(&ended["last"], "bytes");
    assert!((24 << 20..32 << 20).contains(&read), "nothing was read twice: {ended}");
    assert_eq!(number(&ended, "every_days"), 7);
    let days = (ended["next_at"].as_i64().unwrap() - ended["last"]["ended_at"].as_i64().unwrap()) / 86_400;
    assert_eq!(days, 7);
    daemons[1].wait().unwrap();
    end(cluster, daemons);
}

#[test]
fn damage_on_a_target_with_one_copy_is_named_before_somebody_reads_it() {
    let cluster = Cluster::up("scrub-one", &Options { osts: 1, ..Options::default() });
    let dir = cluster.dir().display().to_string();
    let path = cluster.a().join("f");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let ino = fs::metadata(&path).unwrap().ino();
    cluster.kill(&["ost0"]);
    let found = objects(&cluster.process("ost0").data, ino);
    let mut raw = fs::read(&found[0]).unwrap();
    raw[8192 + 20 * 4096] ^= 1;
    fs::write(&found[0], raw).unwrap();
    cluster.start(&["ost0"]);
    let said = cluster.brindle(&["target", "scrub", "start", "--dir", &dir]);
    assert!(said.ok(), "{said}");
    until("the end", || {
        let shown = cluster.brindle(&["target", "scrub", "status", "--dir", &dir]);
        shown.text.contains("1 damaged, 0 mended, 1 not") && shown.text.contains("waiting")
    });
    let shown = cluster.brindle(&["target", "scrub", "status", "--dir", &dir]).text;
    assert!(shown.contains("at offset 81920 (4096 bytes)"), "{shown}");
    assert!(shown.contains("/f [0x"), "{shown}");
    let status = cluster.brindle(&["status", "--dir", &dir]).text;
    assert!(status.contains("E4003") && status.contains("scan: "), "{status}");
}
