//! The parameters `mdt.*.hsm_control`, `mdt.*.hsm.agents` and `mdt.*.hsm.actions`, in Lustre's text.

use brindle_admin::hsm::uuid_text;
use brindle_types::{HsmControl, HsmKind};
use brindle_wire::mds::hsm::{HsmAction, HsmInfoResp, HsmStatus, HsmSwitch};

/// Value of `hsm_control`.
pub fn switch(text: &str) -> Result<HsmSwitch, String> {
    match text {
        "enabled" => Ok(HsmSwitch::Control(HsmControl::Enabled)),
        "disabled" => Ok(HsmSwitch::Control(HsmControl::Disabled)),
        "shutdown" => Ok(HsmSwitch::Control(HsmControl::Stopped)),
        "purge" => Ok(HsmSwitch::Purge),
        _ => {
            Err("it is enabled, disabled (what is asked for waits), shutdown (it is refused) or purge"
                .to_owned())
        }
    }
}

/// The archives of an agent.
pub fn archives_text(archives: &[u32]) -> String {
    match archives {
        [] => "ANY".to_owned(),
        some => some.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    }
}

/// `hsm.agents`.
pub fn agents(info: &HsmInfoResp) -> String {
    let line = |a: &brindle_wire::mds::hsm::HsmAgent| {
        format!(
            "uuid={} archive_id={} requests=[current:{} ok:{} errors:{}]",
            uuid_text(&a.agent),
            archives_text(&a.archives),
            a.current,
            a.ok,
            a.errors
        )
    };
    info.agents.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `hsm.actions`: what waits and is under way, and what has ended a moment ago.
pub fn actions(info: &HsmInfoResp) -> String {
    let all = info.actions.iter().chain(&info.finished);
    all.enumerate().map(|(n, action)| line(n + 1, action)).collect::<Vec<_>>().join("\n")
}

fn line(number: usize, action: &HsmAction) -> String {
    let status = match action.status {
        HsmStatus::Waiting => "WAITING",
        HsmStatus::Started => "STARTED",
        HsmStatus::Succeeded => "SUCCEED",
        HsmStatus::Failed(_) => "FAILED",
        HsmStatus::Cancelled => "CANCELED",
    };
    let fid = action.ino.fid();
    // Files are always archived as a whole.
    let extent = match action.kind {
        HsmKind::Remove => "0x0-0x0",
        _ => "0x0-0xffffffffffffffff",
    };
    format!(
        "lrh=[type=10680000 len=136 idx={}/{number}] fid={fid} dfid={fid} compound/cookie=0x0/{:#x} action={} archive#={} \
         flags=0x0 extent={extent} gid=0x0 datalen=0 status={status} data=[]",
        action.cookie.term, action.cookie.counter, action.kind, action.archive
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::{Ino, Pair};
    use brindle_wire::mds::hsm::HsmAgent;

    #[test]
    fn they_look_as_in_lustre() {
        let action = HsmAction {
            ino: Ino(7),
            cookie: Pair { term: 3, counter: 0x5f },
            kind: HsmKind::Archive,
            archive: 1,
            uid: 0,
            asked_secs: 5,
            moved_bytes: 0,
            status: HsmStatus::Succeeded,
        };
        let agent = HsmAgent {
            agent: *b"0123456789abcdef",
            host: "oss1".into(),
            archives: vec![1, 2],
            current: 1,
            ok: 2,
            errors: 0,
        };
        let any = HsmAgent { archives: Vec::new(), ..agent.clone() };
        let info = HsmInfoResp {
            control: HsmControl::Enabled,
            queued: 0,
            agents: vec![agent, any],
            actions: Vec::new(),
            finished: vec![action],
            next: None,
        };
        assert_eq!(
            agents(&info),
            "uuid=30313233-3435-3637-3839-616263646566 archive_id=1,2 requests=[current:1 ok:2 errors:0]\n\
             uuid=30313233-3435-3637-3839-616263646566 archive_id=ANY requests=[current:1 ok:2 errors:0]"
        );
        assert_eq!(
            actions(&info),
            format!(
                "lrh=[type=10680000 len=136 idx=3/1] fid={0} dfid={0} compound/cookie=0x0/0x5f action=ARCHIVE archive#=1 flags=0x0 \
                 extent=0x0-0xffffffffffffffff gid=0x0 datalen=0 status=SUCCEED data=[]",
                Ino(7).fid()
            )
        );
    }

    #[test]
    fn control_takes_lustres_words() {
        assert_eq!(switch("purge"), Ok(HsmSwitch::Purge));
        assert_eq!(switch("shutdown"), Ok(HsmSwitch::Control(HsmControl::Stopped)));
        assert!(switch("on").is_err() && switch("").is_err());
    }
}
