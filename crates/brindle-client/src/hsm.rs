//! Tiering: waiting until a released file is here, and what an agent asks of the MDT (design note 028).

use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::Message;
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::hsm::{
    HsmActReq, HsmDoneReq, HsmExtentsReq, HsmImportReq, HsmProgressReq, HsmRecallReq, HsmRecallResp,
    HsmStateReq, HsmTakeReq,
};
use brindle_wire::mds::hsm_span::{HsmDivideReq, HsmSpanDoneReq, HsmSpanTakeReq};
use brindle_wire::mds::note_access::NoteAccessReq;
use brindle_wire::mds::path::PathOfReq;
use brindle_wire::mds::policy::{PolicyRemoveReq, PolicyScanReq};
use brindle_wire::mds::quota::QuotaUseReq;

use crate::{Client, Ctx};

/// Requests that an agent or the policy engine may send to the MDT.
pub trait AgentAsk: Message {}

impl AgentAsk for HsmTakeReq {}
impl AgentAsk for HsmProgressReq {}
impl AgentAsk for HsmExtentsReq {}
impl AgentAsk for HsmDoneReq {}
impl AgentAsk for HsmDivideReq {}
impl AgentAsk for HsmSpanTakeReq {}
impl AgentAsk for HsmSpanDoneReq {}
impl AgentAsk for HsmActReq {}
impl AgentAsk for HsmImportReq {}
impl AgentAsk for HsmStateReq {}
impl AgentAsk for PolicyScanReq {}
impl AgentAsk for PolicyRemoveReq {}
impl AgentAsk for QuotaUseReq {}
impl AgentAsk for NoteAccessReq {}
impl AgentAsk for GetattrReq {}
impl AgentAsk for PathOfReq {}

impl Client {
    /// Brings a released file back, and waits until it is here. A hundred who wait for one file cause one restore.
    pub(crate) async fn recall(&self, ctx: &Ctx, ino: Ino) -> Result<()> {
        if !self.config.switches.recall {
            let fault = Fault::new(Code::Released).subject(ino.fid().to_string());
            return Err(self.not_recalled(fault, "this mount has the option no_recall"));
        }
        let mut waits_for = None;
        loop {
            let request = HsmRecallReq { ino, waits_for, cred: ctx.cred.clone() };
            // An interrupted caller leaves; the restore goes on.
            let Some(answer) = ctx.cancel.until(self.mds.ask(&request)).await else {
                return Err(Fault::new(Code::Interrupted));
            };
            match answer? {
                HsmRecallResp::Here => return Ok(()),
                HsmRecallResp::Waiting(cookie) => waits_for = Some(cookie),
                HsmRecallResp::Failed(fault) => return Err(fault),
            }
        }
    }

    /// Fault for a caller that does not want to wait for a released file.
    pub fn not_recalled(&self, fault: Fault, why: &'static str) -> Fault {
        if fault.code != Code::Released {
            return fault;
        }
        let next = "bring it back: lfs hsm_restore FILE; or open it through a mount that recalls";
        Fault::new(Code::NotRecalled).subject(fault.subject.into_owned()).why(why).next(next)
    }

    /// Asks the MDT on behalf of an agent or the policy engine.
    pub async fn ask_as_agent<M: AgentAsk>(&self, request: &M) -> Result<M::Resp> {
        self.mds.ask(request).await
    }
}
