//! Damage in the store of an MDT that nobody has read yet. The scrub finds it at any copy and has it mended, while clients change names all the
//! time: no program sees an error, and every name is where it was put.

use brindle_tests::cluster::{Cluster, Options};

use crate::bare_hosts::{said, sh, until};
use crate::enrolment::{MOUNT, brindle, done, end};
use crate::mdt_replicas::{Names, made_on};
use crate::replicas::until_served;
use crate::scrub::{metric, number, pass_of, status_of};
use crate::work::Work;

const STORE: &str = "/var/lib/brindle/mdt0/store";
/// Files with names that are easily found in the checkpoint; enough to fill pages of their own.
const MARKED: u32 = 400;

/// An MDT with copies on h2 and h3, mounted on h4, with names in the checkpoints of both.
fn mirrored(name: &str) -> (Cluster, Vec<std::process::Child>) {
    let mdt = "target add --mdt --dir /var/lib/brindle/mdt0 --copies 2 --node h2 --node h3";
    let (cluster, daemons) = made_on(name, mdt, (&["h2", "h3"], "h4"), |_| {});
    let make = format!(
        "mkdir {MOUNT}/marked && cd {MOUNT}/marked && seq {MARKED} | sed s/^/scrubmark-/ | xargs touch"
    );
    said(&cluster, "h4", &make);
    // The pass writes checkpoints.
    assert_eq!(pass_of(&cluster, "MDT0000"), (0, 0, 0));
    (cluster, daemons)
}

/// Changes a byte of a page of the checkpoint that holds names, behind the server's back.
fn damage_checkpoint(cluster: &Cluster, host: &str) {
    let file = format!("{STORE}/checkpoint.redb");
    // The last of them by offset; copies of pages that are free again hold older ones.
    let script = format!(
        "at=$(grep -abo scrubmark-{n} {file} | tail -1 | cut -d: -f1); test -n \"$at\" && \
         printf Z | dd of={file} bs=1 seek=$at conv=notrunc status=none && sync {file}",
        n = MARKED / 2
    );
    said(cluster, host, &script);
}

/// Changes a byte of the first record of the newest segment of the log.
fn damage_log(cluster: &Cluster, host: &str) {
    let script = format!(
        "file=$(ls {STORE}/log-0* | tail -1); test -n \"$file\" && \
         printf Z | dd of=$file bs=1 seek=4141 conv=notrunc status=none && sync $file"
    );
    said(cluster, host, &script);
}

fn names_are_there(cluster: &Cluster) {
    let count = said(cluster, "h4", &format!("ls {MOUNT}/marked | wc -l"));
    assert_eq!(count.trim(), MARKED.to_string());
}

#[test]
fn damage_in_a_copy_that_follows_is_found_under_load_and_mended() {
    let (cluster, daemons) = mirrored("mdt-scrub");
    let (work, names) = (Work::begin(&cluster, "h4"), Names::begin(&cluster, "h4"));
    assert_eq!(pass_of(&cluster, "MDT0000"), (0, 0, 0), "nothing is reported that is not so");
    // The log: mended where it is, and the copy stays in the set.
    work.goes_on();
    let epoch = |cluster: &Cluster| crate::replicas::set(cluster)["epoch"].clone();
    let before = epoch(&cluster);
    damage_log(&cluster, "h3");
    assert_eq!(pass_of(&cluster, "MDT0000"), (1, 1, 0));
    assert_eq!(epoch(&cluster), before);
    // The checkpoint: the copy is filled anew.
    damage_checkpoint(&cluster, "h3");
    assert_eq!(pass_of(&cluster, "MDT0000"), (1, 1, 0));
    until_served(&cluster, "h2", "serving");
    assert!(epoch(&cluster) != before, "it was put out and came back");
    assert_eq!(pass_of(&cluster, "MDT0000"), (0, 0, 0), "nothing is left");
    work.goes_on();
    let mended = metric(&cluster, "h2", "brindle_mds_scrub_damage_mended_total{").unwrap_or_default();
    assert!((mended - 2.0).abs() < 0.1, "{mended}");
    // What was mended is whole: that copy serves.
    done(&cluster, "h1", "target replica promote MDT0000 --node h3");
    until_served(&cluster, "h3", "serving");
    names_are_there(&cluster);
    let events = brindle(&cluster, "h1", "events").text;
    assert!(events.contains("scrub.damage") && events.contains("scrub.done"), "{events}");
    names.end(&cluster, "h4");
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn damage_in_the_copy_that_serves_has_another_one_take_over_and_is_mended() {
    let (cluster, daemons) = mirrored("mdt-scrub-primary");
    let (work, names) = (Work::begin(&cluster, "h4"), Names::begin(&cluster, "h4"));
    damage_log(&cluster, "h2");
    assert_eq!(pass_of(&cluster, "MDT0000"), (1, 1, 0));
    until_served(&cluster, "h2", "serving");
    damage_checkpoint(&cluster, "h2");
    assert_eq!(pass_of(&cluster, "MDT0000"), (1, 1, 0));
    until_served(&cluster, "h3", "serving");
    work.goes_on();
    assert_eq!(pass_of(&cluster, "MDT0000"), (0, 0, 0), "nothing is left");
    assert!(!sh(&cluster, "h2", &format!("test -e {STORE}.damaged")).ok());
    let shown = brindle(&cluster, "h1", "status").text;
    assert!(shown.contains("scan: ") && !shown.contains("E3023"), "{shown}");
    names_are_there(&cluster);
    names.end(&cluster, "h4");
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn damage_in_the_only_copy_is_named_with_what_to_do() {
    let cluster = Cluster::up("mdt-scrub-one", &Options { osts: 1, ..Options::default() });
    let dir = cluster.dir().display().to_string();
    let names = (0..MARKED).map(|n| cluster.a().join(format!("scrubmark-{n}")));
    names.for_each(|name| drop(std::fs::File::create(name).unwrap()));
    let scrubbed = |wanted: &str| {
        let started = cluster.brindle(&["target", "scrub", "start", "MDT0000", "--dir", &dir]);
        assert!(started.ok(), "{started}");
        until("the end", || {
            let shown = cluster.brindle(&["target", "scrub", "status", "MDT0000", "--dir", &dir]);
            shown.text.contains(wanted) && shown.text.contains("waiting")
        });
    };
    scrubbed("no damage");
    let file = cluster.process("mdt0").data.join("store/checkpoint.redb");
    let mut bytes = std::fs::read(&file).unwrap();
    let wanted = format!("scrubmark-{}", MARKED / 2);
    let at = bytes.windows(wanted.len()).rposition(|w| w == wanted.as_bytes()).expect("a name");
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    scrubbed("1 damaged, 0 mended, 1 not");
    let shown = cluster.brindle(&["target", "scrub", "status", "MDT0000", "--dir", &dir]).text;
    assert!(shown.contains("cannot be mended: checkpoint.redb at offset "), "{shown}");
    let status = cluster.brindle(&["status", "--dir", &dir]).text;
    assert!(status.contains("E3023") && status.contains("brindle mdt backup"), "{status}");
}

#[test]
fn a_pass_goes_on_where_another_member_takes_over() {
    let (cluster, mut daemons) = mirrored("mdt-scrub-resume");
    done(&cluster, "h1", "target scrub start MDT0000 --rate 1MiB --every 7");
    until("a part of a pass", || number(&status_of(&cluster, "MDT0000")["pass"], "bytes") > 2 << 20);
    done(&cluster, "h1", "target scrub stop MDT0000");
    until("the stop", || status_of(&cluster, "MDT0000")["state"] == "stopped");
    let pass = status_of(&cluster, "MDT0000")["pass"].clone();
    let stopped = number(&pass, "bytes");
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    until_served(&cluster, "h3", "degraded");
    until("an answer", || status_of(&cluster, "MDT0000")["state"] == "stopped");
    let now = status_of(&cluster, "MDT0000");
    assert_eq!((number(&now["pass"], "bytes"), number(&now, "every_days")), (stopped, 7));
    done(&cluster, "h1", "target scrub start MDT0000 --rate 2GiB");
    until("the end", || status_of(&cluster, "MDT0000")["state"] == "waiting");
    let last = status_of(&cluster, "MDT0000")["last"].clone();
    assert_eq!(last["began_at"], pass["began_at"], "the same pass");
    assert!(
        number(&last, "bytes") >= stopped && number(&last, "objects") >= number(&pass, "objects"),
        "{last}"
    );
    names_are_there(&cluster);
    daemons[1].wait().unwrap();
    end(cluster, daemons);
}
