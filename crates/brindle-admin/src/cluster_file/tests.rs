//! The file of a cluster: read, compared, written.

use brindle_wire::mgs::hosts::Assignment;

use super::*;
use crate::known::fixture::{cluster, shared, with_copies};

#[test]
fn a_cluster_that_was_exported_has_nothing_to_apply() {
    let known = with_copies(shared());
    let file = export(&known);
    assert!(file.targets.iter().any(|target| target.device.as_deref() == Some("/dev/lun7")));
    assert!(file.targets.iter().any(|target| target.copies.len() == 1));
    assert_eq!(plan(&file, &known), Ok(Plan::default()));
}

#[test]
fn copies_are_made_and_never_taken_away() {
    let known = with_copies(cluster());
    let mut file = export(&known);
    let view = |file: &ClusterFile, known: &Known| plan(file, known).map(|plan| plan.view(false));
    let mut without = known.clone();
    without.replicas.sets.clear();
    let made = "make OST0003 with copies on oss1 in /data/r, on oss2 in /data/r";
    assert_eq!(view(&file, &without).unwrap().changes, [made]);
    // A target with one copy gets another one.
    let copy = CopySection { host: "oss2".into(), dir: "/data/a2".into() };
    file.targets[0].copies.push(copy.clone());
    assert_eq!(view(&file, &known).unwrap().changes, ["give OST0000 a copy on oss2 in /data/a2"]);
    file.targets[0].copies.clear();
    let at = file.targets.len() - 1;
    let others = std::mem::take(&mut file.targets[at].copies);
    assert_eq!(view(&file, &known).unwrap().left_alone, ["copy of OST0003 on oss2"]);
    file.targets[at].dir = "/elsewhere".into();
    let why = view(&file, &known).unwrap_err().why;
    assert_eq!(
        why,
        ["it is on oss1 in /data/r and on oss2 in /data/r, and the file says on oss1 in /elsewhere"]
    );
    file.targets[at].copies = [others.clone(), others].concat();
    assert_eq!(view(&file, &known).unwrap_err().why, ["each copy needs a host of its own"]);
    // A new MDT may have them, too.
    file.targets[at].copies.truncate(1);
    file.targets[at].dir = "/data/m".into();
    file.targets[at].copies[0].dir = "/data/m".into();
    file.targets[at].name = "MDT0001".into();
    let made = "make MDT0001 with copies on oss1 in /data/m, on oss2 in /data/m";
    assert_eq!(view(&file, &known).unwrap().changes, [made]);
    // A copy on a host that has not joined is told before anything is begun.
    let mut file = export(&known);
    let host = "oss9".to_owned();
    file.targets[0].copies.push(CopySection { host, dir: "/data/x".into() });
    let missing = view(&file, &known).unwrap().missing;
    assert_eq!(missing, ["target OST0000 needs the host oss9, which has not joined"]);
}

#[test]
fn racks_are_set_and_never_taken_away_by_silence() {
    let mut known = with_copies(cluster());
    known.map.note_host("oss1");
    known.map.hosts.iter_mut().filter(|h| h.name == "oss1").for_each(|h| h.failure_domain = "R1".into());
    let mut file = export(&known);
    assert_eq!(plan(&file, &known), Ok(Plan::default()));
    for host in &mut file.hosts {
        host.rack = (host.name == "oss2").then(|| "R1".to_owned());
    }
    let view = plan(&file, &known).unwrap().view(false);
    assert_eq!(view.changes, ["put oss2 into the rack R1"], "the rack of oss1 is left alone");
    let mut both = known.clone();
    both.map.note_host("oss2");
    both.map.hosts.iter_mut().for_each(|h| h.failure_domain = "R1".into());
    let section = export(&both).targets.into_iter().find(|t| !t.copies.is_empty()).unwrap();
    assert!(section.same_rack, "what was made so can be made again");
}

#[test]
fn a_second_mgs_is_not_in_the_file() {
    let mut known = cluster();
    let mgt = known.hosts.hosts[1].assignments[0].clone();
    known.hosts.hosts[1].assignments.push(Assignment { target: TargetId::MGT, ..mgt });
    assert_eq!(plan(&export(&known), &known), Ok(Plan::default()));
}

#[test]
fn a_target_that_two_hosts_share_is_made_stopped_and_never_moved() {
    let mut file = export(&shared());
    let changes = |file: &ClusterFile, known: &Known| plan(file, known).map(|plan| plan.view(false).changes);
    let made = "make OST0007 on oss1 and c1 from /dev/lun7 in /srv/ost7";
    assert_eq!(changes(&file, &cluster()), Ok(vec![made.to_owned()]));
    let at = file.targets.len() - 1;
    file.targets[at].stopped = true;
    assert_eq!(changes(&file, &shared()), Ok(vec!["stop OST0007 on oss1".to_owned()]));
    file.targets[at].device = Some("/dev/lun8".into());
    assert!(changes(&file, &shared()).unwrap_err().why[0].contains("from /dev/lun7"));
    file.targets[at].device = None;
    assert_eq!(changes(&file, &shared()).unwrap_err().why, ["'standby' and 'device' go together"]);
}

#[test]
fn what_is_missing_is_made_and_what_is_not_named_is_left_alone() {
    let known = cluster();
    let mut file = export(&known);
    file.hosts[0] = HostSection { name: "oss2".into(), roles: vec!["server".into()], rack: None };
    file.targets[1].stopped = true;
    file.targets.remove(0);
    let target = |name: &str, host: &str| TargetSection {
        name: name.into(),
        host: host.into(),
        dir: "/data/c".into(),
        standby: None,
        device: None,
        standby_device: None,
        stopped: false,
        same_rack: false,
        copies: Vec::new(),
    };
    file.targets.push(target("OST0002", "oss1"));
    file.targets.push(target("OST0003", "oss2"));
    file.pools[0].osts = vec!["OST0001".into(), "OST0002".into(), "OST0003".into()];
    file.pools.push(PoolSection { name: "disk".into(), osts: Vec::new() });
    let view = plan(&file, &known).unwrap().view(false);
    assert_eq!(
        view.changes,
        [
            "stop OST0001 on oss1",
            "make OST0002 on oss1 in /data/c",
            "add OST0001, OST0002 to the pool flash",
            "take OST0000 out of the pool flash; files stay where they are",
            "make the pool disk"
        ]
    );
    assert_eq!(
        view.missing,
        [
            "host oss2 has not joined: brindle cluster token --role server --host oss2 | ssh oss2 brindle join",
            "target OST0003 needs the host oss2, which has not joined",
            "pool flash needs OST0003, which is not there"
        ]
    );
    assert_eq!(view.left_alone, ["host c1", "target OST0000"]);
}

#[test]
fn a_file_that_contradicts_the_cluster_or_itself_is_refused() {
    let known = cluster();
    let good = export(&known);
    let refused = |change: fn(&mut ClusterFile)| {
        let mut file = good.clone();
        change(&mut file);
        plan(&file, &known).unwrap_err().why.join("; ")
    };
    assert_eq!(refused(|f| f.fs = "other".into()), "the cluster has the file system scratch");
    assert_eq!(
        refused(|f| f.targets[0].dir = "/elsewhere".into()),
        "it is on oss1 in /data/a, and the file says on oss1 in /elsewhere"
    );
    assert_eq!(refused(|f| f.targets[1].name = "OST0000".into()), "the file names the target twice");
    assert_eq!(refused(|f| f.targets[0].name = "MGT0000".into()), "the MGT is made by brindle cluster init");
    assert_eq!(refused(|f| f.pools[0].osts = vec!["MDT0000".into()]), "the pool flash has OSTs only");
    assert_eq!(refused(|f| f.hosts[1].name = "c1".into()), "the file names the host twice");
}
