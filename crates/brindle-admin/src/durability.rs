//! The durability of targets: the moment at which changes are answered, and what a power cut may take.

use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::session::TargetInfoResp;
use brindle_wire::mgs::durability::{COUNTER, ChangeDurabilityReq, Mode, WatchDurabilityReq};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// Longest time until a serving target uses its mode.
const TOLD_LIMIT_MS: u64 = 20_000;
/// Interval between two looks at a target.
const LOOK_EVERY_MS: u64 = 200;

/// Targets with the moments at which they answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DurabilityView {
    /// Targets that were changed, or are as they were wanted.
    pub targets: Vec<TargetDurabilityView>,
    /// Whether this was only a look at what would be done.
    pub dry_run: bool,
}
document!(DurabilityView, "brindle.target.set", 1);

/// A target.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetDurabilityView {
    /// Full name.
    pub name: String,
    /// `relaxed`, `sync` or `scratch`.
    pub durability: &'static str,
    /// The one before.
    pub before: &'static str,
    /// Whether anything was changed, or would be.
    pub changed: bool,
    /// Whether its server goes by it; one that is away does when it is back.
    pub in_force: bool,
}

/// The mode that a target says that it uses; `None` for a target of an earlier release.
pub fn told(info: &TargetInfoResp) -> Option<Mode> {
    let counter = info.counters.iter().find(|(name, _)| name == COUNTER)?;
    Mode::from_number(u8::try_from(counter.1).ok()?)
}

/// Gives targets a mode, and waits for a bounded time until their servers go by it.
pub async fn set(
    servers: &Servers,
    place: &FsLocation,
    map: &Map,
    (targets, mode): (&[TargetId], Mode),
    is_dry_run: bool,
) -> Result<DurabilityView> {
    let known = |target: &&TargetId| map.target(**target).is_none();
    if let Some(unknown) = targets.iter().find(known) {
        return Err(Fault::new(Code::UnknownTarget)
            .subject(map.fs.target(*unknown))
            .data("nothing was changed")
            .next("list them: brindle target list"));
    }
    // A refusal of one of them comes before anything is changed.
    for target in targets {
        servers.change_durability(place, *target, mode, true).await?;
    }
    let mut views = Vec::new();
    for target in targets {
        let (changed, before) = servers.change_durability(place, *target, mode, is_dry_run).await?;
        let in_force = !is_dry_run && until_told(servers, map, *target, mode).await;
        let name = map.fs.target(*target);
        views.push(TargetDurabilityView {
            name,
            durability: mode.name(),
            before: before.name(),
            changed,
            in_force,
        });
    }
    Ok(DurabilityView { targets: views, dry_run: is_dry_run })
}

async fn until_told(servers: &Servers, map: &Map, target: TargetId, mode: Mode) -> bool {
    let seams = servers.seams().clone();
    let deadline = seams.now().plus_ms(TOLD_LIMIT_MS);
    let Some(entry) = map.target(target) else { return false };
    loop {
        match servers.info(map, entry).await {
            Ok(info) if told(&info) == Some(mode) => return true,
            Ok(_) if seams.now() < deadline => seams.sleep_ms(LOOK_EVERY_MS).await,
            // A target that is away hears of the mode when it starts.
            Ok(_) | Err(_) => return false,
        }
    }
}

impl Servers {
    /// Gives a target a mode. Whether that is news, and the mode before.
    pub async fn change_durability(
        &self,
        place: &FsLocation,
        target: TargetId,
        mode: Mode,
        is_dry_run: bool,
    ) -> Result<(bool, Mode)> {
        let answer = self.ask_the_mgs(place, &ChangeDurabilityReq { target, mode, is_dry_run }).await?;
        Ok((answer.changed, answer.before))
    }

    /// Modes of all targets that are not relaxed.
    pub async fn durability(&self, place: &FsLocation) -> Result<Vec<(TargetId, Mode)>> {
        let answer = self.ask_the_mgs(place, &WatchDurabilityReq { known_version: 0, wait_ms: 0 }).await?;
        Ok(answer.modes.unwrap_or_default().targets)
    }
}
