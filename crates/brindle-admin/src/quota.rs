//! Usage and limits of users, groups and projects, asked of the MDT that counts them: for the console, and the documents of `brindle quota`.

use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::Cred;
use brindle_wire::map::Map;
use brindle_wire::mds::quota::{
    QuotaChange, QuotaChangeReq, QuotaListReq, QuotaOwner, QuotaShowReq, QuotaShowResp, QuotaSubject,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// Usage and limits in JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QuotasView {
    /// The limits were not set (`--dry-run`).
    pub dry_run: bool,
    /// One for each owner.
    pub quotas: Vec<QuotaView>,
}
document!(QuotasView, "brindle.quotas", 1);

/// Usage and limits of one owner; a limit of 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotaView {
    /// `user`, `group` or `project`.
    pub kind: &'static str,
    /// Number; none of a default.
    pub id: Option<u32>,
    /// Name, or the number as text; none of a default.
    pub name: Option<String>,
    /// The limits are those of whoever has none of his own.
    pub is_default: bool,
    /// Space.
    pub space_bytes: LimitView,
    /// Inodes.
    pub inodes: LimitView,
}

/// Usage and limits of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LimitView {
    /// Bytes or inodes in use.
    pub used: u64,
    /// The most that may be.
    pub hard: u64,
    /// The most for longer than the grace time.
    pub soft: u64,
    /// How long that is, in seconds.
    pub grace_seconds: u32,
    /// Rest of the grace time, in seconds; 0 when it is over, none below the soft limit.
    pub grace_left_seconds: Option<u64>,
    /// `ok`, `grace` (over the soft limit), `full` (at the hard limit), or `expired` (over the soft limit, and the grace time is over).
    pub state: &'static str,
}

impl LimitView {
    /// Of what is used, the hard and the soft limit, the grace time and its end.
    pub fn new(
        used: u64,
        (hard, soft): (u64, u64),
        grace_seconds: u32,
        end: Option<i64>,
        now: i64,
    ) -> LimitView {
        let left = end.map(|end| end.saturating_sub(now).max(0).unsigned_abs());
        let state = match left {
            _ if hard > 0 && used >= hard => "full",
            Some(0) => "expired",
            Some(_) => "grace",
            None => "ok",
        };
        LimitView { used, hard, soft, grace_seconds, grace_left_seconds: left, state }
    }

    /// The share of the nearest limit that is used, in thousandths; 0 without a limit.
    pub fn nearness(&self) -> u64 {
        let limits = [self.hard, self.soft].into_iter().filter(|limit| *limit > 0);
        limits.min().map_or(0, |limit| {
            u64::try_from(u128::from(self.used) * 1000 / u128::from(limit)).unwrap_or(u64::MAX)
        })
    }
}

impl QuotaView {
    /// Of an owner and its name; `None` for whoever has no limits of its own.
    pub fn new(kind: QuotaOwner, owner: Option<(u32, String)>, shown: &QuotaShowResp) -> QuotaView {
        let (limits, grace, now) = (shown.limits, shown.grace, shown.now_secs);
        let space = (limits.bytes_max, limits.bytes_soft);
        let inodes = (limits.inodes_max, limits.inodes_soft);
        let (id, name) = owner.unzip();
        QuotaView {
            kind: kind_name(kind),
            id,
            name,
            is_default: shown.is_default,
            space_bytes: LimitView::new(shown.bytes, space, grace.bytes_secs, shown.bytes_grace_end, now),
            inodes: LimitView::new(shown.inodes, inodes, grace.inodes_secs, shown.inodes_grace_end, now),
        }
    }

    /// The nearer of both limits, in thousandths.
    pub fn nearness(&self) -> u64 {
        self.space_bytes.nearness().max(self.inodes.nearness())
    }
}

/// The word for a kind of owner.
pub fn kind_name(kind: QuotaOwner) -> &'static str {
    match kind {
        QuotaOwner::User => "user",
        QuotaOwner::Group => "group",
        QuotaOwner::Project => "project",
    }
}

/// Usage and limits of everybody of a kind.
#[derive(Debug)]
pub struct Listed {
    /// Limits of owners that have none of their own.
    pub default: QuotaShowResp,
    /// By number.
    pub owners: Vec<(u32, QuotaShowResp)>,
    /// Whether more than `most` owners exist.
    pub has_more: bool,
}

/// The MDT that counts. In this release a single MDT counts for all.
fn counter(map: &Map) -> Result<TargetId> {
    let mdt = map.targets.iter().map(|target| target.id).find(|id| id.role == Role::Mdt);
    mdt.ok_or_else(|| Fault::new(Code::UnknownTarget).what("no MDT is known of").subject(map.fs.to_string()))
}

/// Everybody of a kind who uses something or has limits, at most `most` of them.
pub async fn list(
    servers: &Servers,
    place: &FsLocation,
    owner: QuotaOwner,
    cred: &Cred,
    most: usize,
) -> Result<Listed> {
    let (map, _) = servers.map(place).await?;
    let mdt = counter(&map)?;
    let subject = QuotaSubject::Default(owner);
    let default = servers.ask(&map, mdt, &QuotaShowReq { subject, cred: cred.clone() }).await?;
    let mut listed = Listed { default, owners: Vec::new(), has_more: false };
    let mut behind = None;
    loop {
        let page = servers.ask(&map, mdt, &QuotaListReq { owner, behind, cred: cred.clone() }).await?;
        behind = page.owners.last().map(|(id, _)| *id);
        listed.owners.extend(page.owners);
        listed.has_more = page.has_more && behind.is_some();
        if !listed.has_more {
            return Ok(listed);
        }
        if listed.owners.len() >= most {
            return Ok(listed);
        }
    }
}

/// Usage and limits of an owner.
pub async fn show(
    servers: &Servers,
    place: &FsLocation,
    subject: QuotaSubject,
    cred: &Cred,
) -> Result<QuotaShowResp> {
    let (map, _) = servers.map(place).await?;
    servers.ask(&map, counter(&map)?, &QuotaShowReq { subject, cred: cred.clone() }).await
}

/// Sets limits, or only says what would be set; returns the new limits.
pub async fn change(
    servers: &Servers,
    place: &FsLocation,
    subject: QuotaSubject,
    change: QuotaChange,
    dry_run: bool,
    cred: &Cred,
) -> Result<QuotaShowResp> {
    let (map, _) = servers.map(place).await?;
    let request = QuotaChangeReq { subject, change, dry_run, cred: cred.clone() };
    servers.ask(&map, counter(&map)?, &request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_limit_counts() {
        let limit = |used, hard, soft| LimitView::new(used, (hard, soft), 0, None, 0).nearness();
        assert_eq!(limit(50, 100, 0), 500);
        assert_eq!(limit(50, 100, 60), 833, "the soft limit comes first");
        assert_eq!(limit(50, 0, 0), 0);
        assert_eq!(limit(u64::MAX, 1, 0), u64::MAX);
    }
}
