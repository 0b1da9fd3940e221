//! Mounts, and the lines of their logs, for administrators.

use brindle_types::{Code, Ino, SessionId};
use brindle_wire::Op;
use brindle_wire::log_level::{LogLevelReq, MountLogLevelReq};
use brindle_wire::log_lines::{ListMountsReq, LogLinesReq, MountLogLinesReq, Severity};

use super::rig::*;
use crate::ops::mount_logs;

fn list(rig: &Rig, after: u64, host: &str) -> Vec<SessionId> {
    let request = ListMountsReq { after, host: host.to_owned() };
    let answer = mount_logs::handle_list(&rig.mdt, &request);
    assert!(!answer.has_more);
    answer.mounts.iter().map(|mount| mount.session).collect()
}

#[test]
fn mounts_are_listed_and_asked_for_their_lines() {
    run(async {
        let rig = Rig::new().await;
        let all = list(&rig, 0, "");
        assert!(all.contains(&A) && all.contains(&B) && all.is_sorted(), "{all:?}");
        assert_eq!(list(&rig, all[0].0, ""), all[1..], "those behind the first");
        assert_eq!(list(&rig, 0, "no-such-host"), []);
        let lines = LogLinesReq { after: 5, lines_max: 10, severity: Severity::Info, text: String::new() };
        let asked = MountLogLinesReq { session: B, lines };
        let answer = mount_logs::handle_lines(&rig.mdt, asked.clone()).await.expect("answered");
        assert_eq!((answer.process, answer.lines[0].number), (7, 6));
        assert_eq!(answer.lines[0].text, format!("a line of {B}"));
        assert_eq!(rig.clients.take_asked(), [(B, Op::LogLinesNotice, Ino(5))]);
        let level = LogLevelReq { level: Some("debug".to_owned()) };
        let asked_level = MountLogLevelReq { session: B, level };
        let answer = mount_logs::handle_level(&rig.mdt, asked_level, "root".to_owned()).await;
        let answer = answer.expect("answered");
        assert_eq!((answer.level, answer.before), ("debug".to_owned(), B.to_string()));
        rig.clients.silent.lock().push(B);
        let fault = mount_logs::handle_lines(&rig.mdt, asked.clone()).await.expect_err("not connected");
        assert_eq!(fault.code, Code::Disconnected);
        // A mount that is silent is not ended for it: its log is no lease.
        rig.clients.silent.lock().clear();
        rig.clients.cut_off.lock().push(B);
        let fault = mount_logs::handle_lines(&rig.mdt, asked).await.expect_err("no answer");
        assert!(fault.to_string().contains("it has not answered for 3 s"), "{fault}");
        assert!(rig.mdt.live().is_alive(B));
    });
}
