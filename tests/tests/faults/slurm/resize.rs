//! Buffers that become larger and smaller while jobs use them.

use super::*;

/// Rounds of the test that kills.
const ROUNDS: usize = 4;

/// A job that does something, then waits for `go`.
fn waits_after(line: &str) -> String {
    format!("{line}\n{WAITS}")
}

fn grow(size: &str) -> String {
    format!("{} bb grow $DW_JOB_STRIPED {size}", binary().display())
}

#[test]
fn a_job_grows_its_buffer_and_an_operator_takes_back_what_is_free() {
    let slurm = Slurm::up("resize");
    let fills = "head -c 120M /dev/urandom > $DW_JOB_STRIPED/big; echo $?. > wrote";
    let job = slurm.submit(&waits_after(&format!("{} > grown 2>&1; {fills}", grow("160MiB"))));
    assert_eq!(slurm.wait_file("wrote"), "0.\n", "{}", slurm.state());
    let grown = slurm.wait_file("grown");
    assert!(grown.contains("has 160.0 MiB now"), "{grown}");
    assert_eq!(slurm.free_mib(), POOL_MIB - 160);
    let resize = |size: &str| slurm.brindle(&["bb", "resize", &job, size]);
    // Each refusal says why, and changes nothing.
    let refused = resize("64MiB");
    assert!(refused.contains("E7013") && refused.contains("64.0 MiB are asked for"), "{refused}");
    let full = resize("1GiB");
    assert!(full.contains("E7003") && full.contains("224.0 MiB are free"), "{full}");
    let (uid, gid) = GAMES;
    let mut stranger = slurm.command(&binary().display().to_string());
    let other = slurm.say(stranger.args(["bb", "grow", &job, "200MiB"]).uid(uid).gid(gid));
    assert!(other.contains("E7004"), "{other}");
    assert_eq!(slurm.free_mib(), POOL_MIB - 160);
    // Every node sees the new size.
    let node = |n: usize| slurm.dir.join(format!("nodes/n{n}")).join(&job);
    let size = |n| rustix::fs::statvfs(node(n)).map(|s| (s.f_blocks * s.f_frsize) >> 20).unwrap();
    slurm.until(&["1"], || u64::from([1, 2].iter().all(|n| (150..=200).contains(&size(*n)))).to_string());
    std::fs::remove_file(node(2).join("global/big")).unwrap();
    slurm.until(&["has 64.0 MiB now"], || resize("64MiB"));
    assert_eq!(slurm.free_mib(), POOL_MIB - 64);
    slurm.until(&["1"], || u64::from((55..=110).contains(&size(1))).to_string());
    // The buffer grows again, on the targets that are there.
    let again = resize("128MiB");
    assert!(again.contains("has 128.0 MiB now"), "{again}");
    std::fs::write(slurm.work.join("go"), "").unwrap();
    slurm.completed(&job);
    slurm.wait_empty();
}

#[test]
fn a_buffer_that_fills_grows_by_itself_up_to_its_limit() {
    let slurm = Slurm::up("grow-auto");
    let line = "#DW jobdw capacity=32MiB grow=auto:200MiB access_mode=striped type=scratch";
    let misspelt = slurm.sbatch_as((NOBODY, NOBODY), &[], "#DW jobdw capacity=32MiB grow=200MiB\ntrue");
    assert!(misspelt.contains("E7001") && misspelt.contains("grow=auto:SIZE"), "{misspelt}");
    let fills = format!(
        "head -c 140M /dev/urandom > $DW_JOB_STRIPED/a; echo $? > w; {} >> w 2>&1\n\
         head -c 140M /dev/urandom > $DW_JOB_STRIPED/b; echo $?. >> w; sha1sum < $DW_JOB_STRIPED/a >> w; mv w wrote",
        grow("300MiB")
    );
    let job = slurm.submit_plain(&format!("{line}\n{}", waits_after(&fills)));
    let said = slurm.wait_file("wrote");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0] == "0" && said.contains("\n1.\n"), "{said}\n{}", slurm.state());
    assert!(said.contains("E7014") && said.contains("grow=auto:200.0 MiB"), "{said}");
    // 200 MiB are 12 granules and a half.
    assert_eq!(slurm.free_mib(), POOL_MIB - 192);
    std::fs::write(slurm.work.join("go"), "").unwrap();
    slurm.completed(&job);
    slurm.wait_empty();
}

#[test]
fn room_is_counted_exactly_however_often_resizing_is_killed() {
    let mut dice = Dice::new(seed("resize"));
    let slurm = Slurm::up("resize-kills");
    for name in ["a", "b"] {
        let said = slurm.brindle(&["bb", "create", "--capacity=64MiB", "--user=65534", name]);
        assert!(said.contains("created"), "{said}");
    }
    for _ in 0..ROUNDS {
        let sizes = [(); 2].map(|()| format!("{}MiB", 16 * (1 + dice.below(14))));
        std::thread::scope(|scope| {
            for (name, size) in ["a", "b"].iter().zip(&sizes) {
                let slurm = &slurm;
                // The command may be refused, or find no orchestrator.
                scope.spawn(move || slurm.brindle(&["bb", "resize", name, size]));
            }
            std::thread::sleep(dice.millis(0, 700));
            slurm.restart_orchestrator();
        });
        slurm.until(&["default"], || slurm.brindle(&["bb", "pool"]));
        let buffers = slurm.buffers();
        let used: u64 = buffers.iter().map(|b| b["bytes"].as_u64().unwrap() >> 20).sum();
        assert_eq!((buffers.len(), used + slurm.free_mib()), (2, POOL_MIB), "{}", slurm.state());
    }
    // The interrupted resizing is finished, and both buffers get the wanted size.
    for name in ["a", "b"] {
        slurm.until(&["has 128.0 MiB"], || slurm.brindle(&["bb", "resize", name, "128MiB"]));
        let serial = slurm.buffers().iter().find(|b| b["job"] == name).unwrap()["serial"].to_string();
        let mount = slurm.dir.join("bb/stage").join(serial);
        let size = || rustix::fs::statvfs(&mount).map_or(0, |s| (s.f_blocks * s.f_frsize) >> 20);
        slurm.until(&[&format!("{name} is large")], || match size() {
            120.. => format!("{name} is large"),
            mib => format!("{name} has {mib} MiB"),
        });
        let said = slurm.brindle(&["bb", "destroy", "--yes", name]);
        assert!(said.contains("128.0 MiB of pool default are free again"), "{said}");
    }
    slurm.wait_empty();
}
