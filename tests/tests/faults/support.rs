//! Support from afar: the level of a log at runtime, and a bundle without names of files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use brindle_tests::cluster::{Cluster, Options};

/// A name that must be in no bundle.
const NAME: &str = "a-name-nobody-may-know";

fn tar(args: &[&str], bundle: &Path) -> String {
    let done = Command::new("tar").args(args).arg(bundle).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn logs_get_another_level_and_bundles_keep_names_to_themselves() {
    let cluster = Cluster::up("support", &Options { osts: 1, mounts: 1, ..Options::default() });
    let dir = cluster.dir().display().to_string();
    let level = |words: &[&str]| cluster.brindle(&[&["log", "level", "--dir", &dir], words].concat());
    let before = level(&["dev-OST0000"]);
    assert!(before.ok() && before.text.starts_with("dev-OST0000 on "), "{before}");
    let before = before.stdout.trim().rsplit(' ').next().unwrap().to_owned();
    let changed = level(&["OST0000", "trace"]);
    assert!(changed.ok() && changed.text.ends_with(&format!(": {before} -> trace\n")), "{changed}");
    let wrong = level(&["OST0000", "brindle=loud"]);
    assert!(!wrong.ok() && wrong.text.contains("data: nothing was changed"), "{wrong}");
    let unknown = level(&["OST0009", "info"]);
    assert!(!unknown.ok() && unknown.text.contains("dev-OST0000"), "{unknown}");
    let all = level(&["all"]);
    assert!(all.ok() && all.stdout.lines().count() == 3 && all.text.contains(": trace\n"), "{all}");
    let log = fs::read_to_string(cluster.process("ost0").log).unwrap();
    assert!(log.contains("the level of this log was changed"), "{log}");

    // `brindle log show` has that line, too, once for each process.
    let show = |words: &[&str]| cluster.brindle(&[&["log", "show", "--dir", &dir], words].concat());
    let shown = show(&["--text", "THE LEVEL of this log was changed"]);
    assert!(shown.ok() && shown.stdout.lines().count() == 1, "{shown}");
    assert!(shown.text.contains(" warn  the level of this log was changed  by="), "{shown}");
    let shown = show(&["OST0000", "--level", "trace", "--lines", "3", "-o", "json"]);
    let view: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(view["lines"].as_array().unwrap().len(), 3, "{view}");
    assert!(
        view["left_out"].as_u64().unwrap() > 0 && view["lines"][0]["targets"][0] == "dev-OST0000",
        "{view}"
    );

    // Mounts are asked by their MDT; who may see their lines, and what a bundle keeps of them, is as for servers.
    let shown = show(&["--mounts", "--level", "info", "-o", "json"]);
    let view: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let lines = view["lines"].as_array().unwrap();
    let mount = cluster.a().display().to_string();
    assert!(shown.ok() && lines.iter().any(|line| line["mount"] == mount.as_str()), "{shown}");
    assert!(lines.iter().any(|line| line["targets"][0] == "dev-OST0000"), "{shown}");
    assert!(lines.is_sorted_by_key(|line| line["at"].as_str().unwrap().to_owned()), "{shown}");
    let host = lines.iter().find(|line| line["mount"] == mount.as_str()).unwrap()["host"].as_str().unwrap();
    let shown = show(&["--client", host, "--level", "info"]);
    assert!(shown.ok() && shown.stdout.lines().count() > 0, "{shown}");
    assert!(shown.stdout.lines().all(|line| line.contains(&format!(" {mount}: "))), "{shown}");
    let changed = level(&["--mounts", host, "debug"]);
    assert!(
        changed.ok() && changed.stdout.trim() == format!("{mount} on {host}: info -> debug"),
        "{changed}"
    );
    let wrong = level(&["--mounts", host, "brindle=loud"]);
    assert!(!wrong.ok() && wrong.text.contains("data: nothing was changed"), "{wrong}");
    let now = level(&["--mounts", "all"]);
    assert!(now.ok() && now.stdout.trim() == format!("{mount} on {host}: debug"), "{now}");
    let log = fs::read_to_string(cluster.process("client0").log).unwrap();
    assert!(log.contains("\"the level of this log was changed\" by="), "{log}");
    let unknown = level(&["--mounts", "no-such-host"]);
    assert!(!unknown.ok() && unknown.text.contains("no mount has a session from host"), "{unknown}");
    let unknown = show(&["--client", "no-such-host"]);
    assert!(
        !unknown.ok() && unknown.text.contains("no mount has a session from host no-such-host"),
        "{unknown}"
    );
    cluster.kill(&["ost0"]);
    let silent = show(&["--text", "no such text"]);
    assert_eq!(silent.code, 7, "{silent}");
    assert!(silent.text.contains("dev-OST0000 on ") && silent.text.contains("tells nothing: "), "{silent}");
    cluster.start(&["ost0"]);

    // A file that a log has to tell of: its name is in no bundle unless it is asked for.
    let mount = cluster.process("client0");
    fs::write(cluster.a().join(NAME), "x").unwrap();
    let line = format!(
        "ts=2026-01-01T00:00:00.0Z level=warn target=brindle_fuse msg=\"cannot read {NAME}\" code=E4003\n"
    );
    let mut file = fs::File::options().append(true).open(&mount.log).unwrap();
    std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    for (name, option) in [("short.tar.gz", None), ("whole.tar.gz", Some("--with-names"))] {
        let bundle = cluster.outside().join(name);
        let to = bundle.display().to_string();
        let words: Vec<&str> =
            ["support", "bundle", "--dir", &dir, "--to", &to].into_iter().chain(option).collect();
        let made = cluster.brindle(&words);
        assert!(made.ok() && made.stdout.trim() == to, "{made}");
        assert_eq!(fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
        let listed = tar(&["-tzf"], &bundle);
        for part in [
            "version.txt",
            "state.json",
            "notes.txt",
            "logs/ost0.log",
            "logs/servers.log",
            "logs/mounts.log",
            "logs/client0.log",
            "metrics/mdt0.txt",
        ] {
            assert!(listed.contains(&format!("brindle-support/{part}\n")), "{part}: {listed}");
        }
        let text = tar(&["--to-stdout", "-xzf"], &bundle);
        assert!(text.contains("code=E4003") && text.contains("brindle_oss_"), "{name}");
        assert_eq!(text.contains(NAME), option.is_some(), "{name}");
        let again = cluster.brindle(&words);
        assert!(!again.ok() && again.text.contains("there is such a file already"), "{again}");
    }
    cluster.assert_sound();
}

#[test]
fn agents_tell_their_lines_to_administrators() {
    let cluster = Cluster::up("agents", &Options { osts: 1, mounts: 1, archive: true, ..Options::default() });
    let dir = cluster.dir().display().to_string();
    let shown = cluster.brindle(&["log", "show", "--dir", &dir, "--mounts", "--level", "info", "-o", "json"]);
    let view: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let lines = view["lines"].as_array().unwrap();
    let of =
        |start: &str| lines.iter().filter(|line| line["mount"].as_str().unwrap().starts_with(start)).count();
    assert!(shown.ok() && of("agent of ") > 0 && of(&cluster.a().display().to_string()) > 0, "{shown}");
    let level = cluster.brindle(&["log", "level", "--dir", &dir, "--mounts", "all", "debug"]);
    assert!(level.ok() && level.stdout.lines().count() == 3, "{level}");
    assert!(level.stdout.contains("agent of ") && level.stdout.contains("policy engine on "), "{level}");
    assert!(level.stdout.lines().all(|line| line.ends_with(": info -> debug")), "{level}");
    // Without the MDT the lines of the other servers are shown.
    cluster.kill(&["mdt0"]);
    let without = cluster.brindle(&["log", "show", "--dir", &dir, "--mounts", "--level", "info"]);
    assert!(without.code == 7 && without.stdout.lines().count() > 0, "{without}");
    assert!(without.text.contains("the list of mounts of dev-MDT0000 on "), "{without}");
    cluster.start(&["mdt0"]);
    // Another user gets none of them.
    let program = cluster.outside().join("brindle");
    fs::copy(brindle_tests::cluster::binary(), &program).unwrap();
    let mgs = cluster.process("mgs").socket();
    for words in [
        &["log", "show", "--mgs", &mgs, "--mounts", "--level", "info"][..],
        &["log", "level", "--mgs", &mgs, "--mounts", "all", "error"],
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=64001", "--regid=64001", "--clear-groups"]).arg(&program);
        let denied = command.args(words).output().unwrap();
        let said = String::from_utf8_lossy(&denied.stderr);
        assert!(!denied.status.success() && said.contains("administrator"), "{said}");
        assert!(denied.stdout.is_empty(), "nothing is shown");
    }
    cluster.assert_sound();
}
