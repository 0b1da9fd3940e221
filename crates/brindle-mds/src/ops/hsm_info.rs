//! hsm_info and hsm_switch: what is queued and who works (`lctl get_param mdt.*.hsm*`), and whether actions are given out.

use brindle_types::{HsmControl, Ino, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::hsm::{ACTIONS_MAX, HsmInfoReq, HsmInfoResp, HsmStatus, HsmSwitch, HsmSwitchReq};

use crate::hsm::{self, HsmEvent};
use crate::mdt::{Call, Event, Mdt};
use crate::store::hsm::put_control;

/// Actions that one batch of a purge gives up.
const PURGE_ACTIONS: usize = 256;

/// Lists the queue and the agents.
pub async fn handle_info(mdt: &Mdt, _call: &Call, req: HsmInfoReq) -> Result<HsmInfoResp> {
    hsm::root_only(&req.cred, "cannot list the actions of tiering")?;
    mdt.read(|t| {
        let queue = &t.live().hsm;
        let actions = queue.shown_actions(req.behind, ACTIONS_MAX);
        let next = actions.last().filter(|_| actions.len() == ACTIONS_MAX).map(|last| last.ino);
        Ok(HsmInfoResp {
            control: queue.control,
            queued: queue.actions.len() as u64,
            agents: queue.shown_agents(),
            finished: if req.behind.is_none() { queue.shown_finished() } else { Vec::new() },
            actions,
            next,
        })
    })
    .await
}

/// Sets whether actions are given out, or gives all of them up.
pub async fn handle_switch(mdt: &Mdt, call: &Call, req: HsmSwitchReq) -> Result<Empty> {
    hsm::root_only(&req.cred, "cannot switch tiering")?;
    match req.switch {
        HsmSwitch::Control(control) => set(mdt, call, control).await?,
        HsmSwitch::Purge => purge(mdt, call, &req).await?,
    }
    mdt.synced().await?;
    Ok(Empty {})
}

async fn set(mdt: &Mdt, call: &Call, control: HsmControl) -> Result<()> {
    mdt.step(call, |t| {
        t.frees_space();
        put_control(t, control);
        t.after(move |live| {
            live.hsm.control = control;
            live.events.fire(Event::HsmWork);
        });
        Ok(())
    })
    .await
}

/// Gives up what is queued or under way now; what is asked for meanwhile stays.
async fn purge(mdt: &Mdt, call: &Call, req: &HsmSwitchReq) -> Result<()> {
    let all: Vec<Ino> = mdt.live().hsm.files(usize::MAX).into_iter().collect();
    for some in all.chunks(PURGE_ACTIONS) {
        mdt.step(call, |t| {
            t.frees_space();
            let actions = &t.live().hsm.actions;
            for ino in some.iter().filter(|ino| actions.contains_key(ino)) {
                hsm::end_action(t, *ino, HsmStatus::Cancelled);
                hsm::tell(t, HsmEvent::Cancel, *ino, Some(&req.cred), false);
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}
