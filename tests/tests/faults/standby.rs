//! Targets on devices that two hosts reach. When the owner dies, hangs, or releases a target, the other host serves it, and no program sees
//! an error. The devices are images that each host attaches and mounts for itself; a host that is killed loses its unwritten pages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use brindle_tests::cluster::{Cluster, binary};

use crate::bare_hosts::{said, sh, until};
use crate::dice::seed;
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};
use crate::work::Work;

/// Fences hosts when the MGS asks for it, as a remote-controlled power switch would: kills them from outside.
struct Switch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// The switch, and the program that an MGS calls.
    fn new(cluster: &Cluster) -> (Switch, PathBuf) {
        let dir = shared_dir(cluster);
        let program = dir.join("fence");
        let script = format!(
            "#!/bin/sh\ncd '{}' && echo > asked.$1\nfor i in $(seq 300); do test -e fenced.$1 && rm fenced.$1 && exit 0; sleep 0.1; done\nexit 1\n",
            dir.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let (stop, state) = (Arc::new(AtomicBool::new(false)), format!("--dir={}", cluster.dir().display()));
        let ends = stop.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Acquire) {
                for host in ["h2", "h3"] {
                    let asked = dir.join(format!("asked.{host}"));
                    if asked.exists() {
                        fs::remove_file(&asked).unwrap();
                        let mut kill = std::process::Command::new(binary());
                        assert!(kill.args(["dev", "host", "kill", &state, host]).status().unwrap().success());
                        fs::write(dir.join(format!("fenced.{host}")), "").unwrap();
                    }
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        (Switch { stop, thread: Some(thread) }, program)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the switch has failed");
        }
    }
}

/// A directory that all hosts see.
fn shared_dir(cluster: &Cluster) -> PathBuf {
    let dir = cluster.outside().join("shared");
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn image(cluster: &Cluster, name: &str) -> PathBuf {
    let path = shared_dir(cluster).join(name);
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    path
}

/// The MGS on h1; h2 and h3 share an MDT and an OST that h2 owns, and an OST that h3 owns; h4 is a client.
fn made(name: &str, fence: Option<&Path>, cluster: Cluster) -> (Cluster, Vec<Child>) {
    seed(name);
    done(&cluster, "h1", "cluster init --fs scratch");
    if let Some(fence) = fence {
        said(&cluster, "h1", &format!("echo 'fence = \"{}\"' >> /etc/brindle/serve.toml", fence.display()));
    }
    let mut daemons = vec![serve(&cluster, "h1")];
    for host in ["h2", "h3"] {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
    }
    for (what, device, [owner, other]) in
        [("--mdt", "mdt0", ["h2", "h3"]), ("", "ost0", ["h2", "h3"]), ("", "ost1", ["h3", "h2"])]
    {
        let device_path = image(&cluster, device);
        let added = done(
            &cluster,
            "h1",
            &format!(
                "target add {what} --node {owner} --standby {other} --device {} --dir /var/lib/brindle/{device}",
                device_path.display()
            ),
        );
        assert!(added.ends_with(&format!("serving on {owner}")), "{added}");
    }
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    (cluster, daemons)
}

/// Host that owns a target, and its state.
fn owner(cluster: &Cluster, target: &str) -> (String, String) {
    let listed = brindle(cluster, "h1", "node list -o json");
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
    let shared = listed["shared"].as_array().cloned().unwrap_or_default();
    let name = format!("scratch-{target}");
    let found = shared.iter().find(|shared| shared["name"] == name.as_str()).cloned().unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("owner"), text("state"))
}

fn until_served_by(cluster: &Cluster, host: &str) {
    let here = (host.to_owned(), "serving".to_owned());
    for target in ["MDT0000", "OST0000", "OST0001"] {
        until(&format!("{host} serving {target}"), || owner(cluster, target) == here);
    }
}

#[test]
fn a_partner_takes_over_from_a_host_that_dies_hangs_or_gives_up_and_no_program_sees_an_error() {
    let cluster = Cluster::up_bare("standby", 4);
    let (switch, fence) = Switch::new(&cluster);
    let (cluster, mut daemons) = made("standby", Some(&fence), cluster);
    let work = Work::begin(&cluster, "h4");
    // Dead.
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    until_served_by(&cluster, "h3");
    work.goes_on();
    daemons.remove(1).wait().unwrap();
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    daemons.insert(1, serve(&cluster, "h2"));
    until("h2 standing by", || {
        brindle(&cluster, "h1", "node show h2").text.matches(": standby;").count() == 3
    });
    assert_eq!(owner(&cluster, "MDT0000").0, "h3", "nothing goes back by itself");
    // By hand.
    for target in ["MDT0000", "OST0000"] {
        let back = done(&cluster, "h1", &format!("target failback {target}"));
        assert!(back.ends_with("serving on h2"), "{back}");
    }
    let over = done(&cluster, "h1", "target failover OST0001");
    assert!(over.ends_with("serving on h2"), "{over}");
    work.goes_on();
    // Hung: it might write again, so it is fenced.
    assert!(cluster.dev(&["host", "freeze", "h2"]).ok());
    until_served_by(&cluster, "h3");
    work.goes_on();
    work.end(&cluster);
    drop(switch);
    end(cluster, daemons);
}

#[test]
fn a_target_that_cannot_be_opened_has_no_host_switched_off() {
    let cluster = Cluster::up_bare("standby-broken", 4);
    let (switch, fence) = Switch::new(&cluster);
    let (cluster, mut daemons) = made("standby-broken", Some(&fence), cluster);
    said(&cluster, "h2", "cd /var/lib/brindle/ost0 && mv objects away");
    // Each command may report that the target is broken.
    brindle(&cluster, "h1", "target stop OST0000");
    brindle(&cluster, "h1", "target start OST0000");
    // The other host tries it, and cannot open it either.
    until("h3 trying it", || owner(&cluster, "OST0000").0 == "h3");
    until("the reason", || {
        brindle(&cluster, "h1", "status").text.contains("it was moved for that reason less than")
    });
    for daemon in &mut daemons {
        assert!(daemon.try_wait().unwrap().is_none(), "its host was switched off");
    }
    assert_eq!(owner(&cluster, "MDT0000"), ("h2".to_owned(), "serving".to_owned()));
    // An administrator mends it.
    brindle(&cluster, "h1", "target stop OST0000");
    let mend = format!(
        "mkdir -p /mnt/m && mount -o loop '{}' /mnt/m && mv /mnt/m/away /mnt/m/objects && umount /mnt/m",
        shared_dir(&cluster).join("ost0").display()
    );
    until("the device being free", || sh(&cluster, "h3", &mend).ok());
    brindle(&cluster, "h1", "target start OST0000");
    until("h3 serving", || owner(&cluster, "OST0000") == ("h3".to_owned(), "serving".to_owned()));
    drop(switch);
    end(cluster, daemons);
}

#[test]
fn a_silent_owner_that_cannot_be_fenced_keeps_its_targets_until_an_administrator_vouches_for_it() {
    let cluster = Cluster::up_bare("standby-fence", 4);
    let (cluster, mut daemons) = made("standby-fence", None, cluster);
    said(&cluster, "h4", &format!("cd {MOUNT} && echo kept > f && sync"));
    let refused = brindle(&cluster, "h1", "target failover OST0000 --owner-is-off");
    assert!(!refused.ok() && refused.text.contains("h2 is not off"), "{refused}");
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    daemons.remove(1).wait().unwrap();
    let told = |needle: &str| brindle(&cluster, "h1", "node list").text.contains(needle);
    until("the reason", || told("E5013") && told("target failover MDT0000 --owner-is-off"));
    assert_eq!(owner(&cluster, "MDT0000").0, "h2", "it may still write");
    let status = brindle(&cluster, "h1", "status").text;
    assert!(status.contains("action: start h2 again; or make sure that h2 is off"), "{status}");
    assert!(status.contains("h2 is silent") && status.contains("no program that fences hosts"), "{status}");
    for target in ["MDT0000", "OST0000"] {
        let over = done(&cluster, "h1", &format!("target failover {target} --owner-is-off"));
        assert!(over.ends_with("serving on h3"), "{over}");
    }
    assert_eq!(said(&cluster, "h4", &format!("cd {MOUNT} && cat f")), "kept");
    // The device of another target, and one that holds something, are refused by name.
    let other = shared_dir(&cluster).join("other");
    fs::File::create(&other).unwrap().set_len(1 << 28).unwrap();
    said(&cluster, "h1", &format!("mkfs.ext4 -q -F '{}'", other.display()));
    let begun =
        format!("target add --node h3 --standby h1 --device {} --dir /var/lib/brindle/ost9", other.display());
    let added = brindle(&cluster, "h1", &begun);
    assert!(!added.ok() && added.text.contains("it holds something: ext4"), "{added}");
    done(&cluster, "h1", "target remove OST0002");
    assert!(sh(&cluster, "h1", &format!("tune2fs -l '{}'", other.display())).ok(), "it was not touched");
    end(cluster, daemons);
}
