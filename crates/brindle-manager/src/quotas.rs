//! Usage and limits: all owners of a kind with the nearest to a limit first, and changes, whose effect is shown before they are
//! made.

use std::sync::Arc;

use brindle_admin::quota::{self, QuotaView, QuotasView, kind_name};
use brindle_stdx::Mono;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use brindle_wire::Cred;
use brindle_wire::mds::quota::{QuotaChange, QuotaOwner, QuotaShowResp, QuotaSubject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::Manager;
use crate::cluster::Managed;
use crate::names::Names;
use crate::plan::{PlanView, capital, quoted};
use crate::quota_report::is_near;

/// Owners that are asked for.
const ASKED_MAX: usize = 200_000;
/// How long a look is good enough for the next browser: less than the page's pause.
const FRESH_MS: u64 = 4_000;
/// Owners that are shown: those nearest to a limit, then those that use most.
const SHOWN_MAX: usize = 1_000;
/// Largest limit of space.
const SPACE_MAX_BYTES: u64 = 1 << 62;

/// Usage and limits of everybody of a kind.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuotaListView {
    /// As `brindle quota list -o json` has them, the default limits first, then whoever is nearest to a limit.
    #[serde(flatten)]
    pub quotas: QuotasView,
    /// How many there are that use something or have limits.
    pub owners: u64,
    /// How many of them are at a limit or over a soft one.
    pub over: u64,
    /// Owners that are not shown: they are farther from their limits.
    pub left_out: u64,
    /// There are so many owners that not all were asked for: those with high numbers are missing, and are not counted.
    pub has_more: bool,
    /// How many are near a limit, also of those that are not shown; for the report.
    #[serde(skip)]
    pub near: u64,
}

/// The last look at everybody of a kind, and when that was.
type Look = Option<(Mono, Arc<QuotaListView>)>;

/// The last looks, one for each kind.
#[derive(Default)]
pub struct Looks {
    users: Arc<Mutex<Look>>,
    groups: Arc<Mutex<Look>>,
    projects: Arc<Mutex<Look>>,
}

impl Looks {
    fn of(&self, kind: QuotaOwner) -> &Arc<Mutex<Look>> {
        match kind {
            QuotaOwner::User => &self.users,
            QuotaOwner::Group => &self.groups,
            QuotaOwner::Project => &self.projects,
        }
    }

    /// Forgets the last look, because limits have changed.
    pub async fn forget(&self, kind: QuotaOwner) {
        *self.of(kind).lock().await = None;
    }
}

/// Everybody of a kind, as of some seconds ago at most; one look at a time, however many browsers ask.
pub async fn looked_at(manager: &Arc<Manager>, kind: QuotaOwner) -> Result<Arc<QuotaListView>> {
    let mut look = manager.quota_looks.of(kind).clone().lock_owned().await;
    let now = manager.seams.now();
    if let Some((at, view)) = &*look
        && now.ms_since(*at) < FRESH_MS
    {
        return Ok(view.clone());
    }
    let manager = manager.clone();
    // On its own: of browsers that go away meanwhile none leaves a look of its own behind.
    let looking = tokio::spawn(async move {
        let view = Arc::new(list(&manager.managed, &manager.names, kind, &Cred::default()).await?);
        *look = Some((manager.seams.now(), view.clone()));
        Ok(view)
    });
    looking.await.unwrap_or_else(|e| Err(Fault::new(Code::Bug).why(e.to_string())))
}

/// A change of limits. What is not named stays.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaReq {
    /// Whose: the name or number of a user, group or project; none for the default limits of this kind.
    pub owner: Option<String>,
    /// Hard limit of space; 0 for none. Rounded up to KiB.
    pub space_hard_bytes: Option<u64>,
    /// Soft limit of space; 0 for none. Rounded up to KiB.
    pub space_soft_bytes: Option<u64>,
    /// Hard limit of inodes; 0 for none.
    pub inodes_hard: Option<u64>,
    /// Soft limit of inodes; 0 for none.
    pub inodes_soft: Option<u64>,
    /// How long soft limits of space may be exceeded; of the default only, for everybody of the kind.
    pub space_grace_seconds: Option<u32>,
    /// How long soft limits of inodes may be exceeded.
    pub inodes_grace_seconds: Option<u32>,
    /// The default limits from now on.
    #[serde(default)]
    pub to_default: bool,
    /// Says what would be, and changes nothing.
    pub dry_run: bool,
}

/// Effect of a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuotaPlanView {
    /// In words.
    #[serde(flatten)]
    pub plan: PlanView,
    /// Usage and limits before it.
    pub before: QuotaView,
    /// Usage and limits after it.
    pub after: QuotaView,
}

/// A kind by the word of the command: `users`, `groups` or `projects`.
pub fn kind_of(word: &str) -> Result<QuotaOwner> {
    match word {
        "users" => Ok(QuotaOwner::User),
        "groups" => Ok(QuotaOwner::Group),
        "projects" => Ok(QuotaOwner::Project),
        _ => Err(Fault::new(Code::UnknownResource)
            .what("there are no limits of")
            .subject(word.to_owned())
            .next("users, groups, projects")),
    }
}

/// Everybody of a kind.
pub async fn list(
    managed: &Managed,
    names: &Arc<Names>,
    kind: QuotaOwner,
    cred: &Cred,
) -> Result<QuotaListView> {
    let place = managed.place()?;
    let listed = quota::list(&managed.servers, &place, kind, cred, ASKED_MAX).await?;
    let owners = listed.owners.len();
    let view = |id: u32, shown: &QuotaShowResp| QuotaView::new(kind, Some((id, id.to_string())), shown);
    let mut quotas: Vec<QuotaView> = listed.owners.iter().map(|(id, shown)| view(*id, shown)).collect();
    let near = quotas.iter().filter(|quota| is_near(quota)).count();
    let over = quotas.iter().filter(|quota| is_over(quota)).count();
    quotas.sort_by_key(|quota| {
        std::cmp::Reverse((is_over(quota), quota.nearness(), quota.space_bytes.used, quota.inodes.used))
    });
    quotas.truncate(SHOWN_MAX);
    let known = names.of(kind, quotas.iter().filter_map(|quota| quota.id).collect()).await?;
    for quota in &mut quotas {
        quota.name = quota.id.and_then(|id| known.get(&id).cloned());
    }
    let left_out = owners - quotas.len();
    quotas.insert(0, QuotaView::new(kind, None, &listed.default));
    Ok(QuotaListView {
        quotas: QuotasView { dry_run: false, quotas },
        owners: owners as u64,
        over: over as u64,
        left_out: left_out as u64,
        has_more: listed.has_more,
        near: near as u64,
    })
}

fn is_over(quota: &QuotaView) -> bool {
    quota.space_bytes.state != "ok" || quota.inodes.state != "ok"
}

/// A change that can be made.
#[derive(Debug)]
pub struct Change {
    kind: QuotaOwner,
    subject: QuotaSubject,
    owner: Option<(u32, String)>,
    change: QuotaChange,
}

impl Change {
    /// Change that a request asks for; only names are looked up.
    pub async fn of(kind: QuotaOwner, request: &QuotaReq) -> Result<Change> {
        let owner = match &request.owner {
            Some(text) => Some((Names::number(kind, text).await?, text.clone())),
            None => None,
        };
        let subject = match &owner {
            Some((id, _)) => QuotaSubject::Owner { owner: kind, id: *id },
            None => QuotaSubject::Default(kind),
        };
        let change = QuotaChange {
            inodes_max: request.inodes_hard,
            bytes_max: request.space_hard_bytes.map(to_kib).transpose()?,
            inodes_soft: request.inodes_soft,
            bytes_soft: request.space_soft_bytes.map(to_kib).transpose()?,
            inodes_grace_secs: request.inodes_grace_seconds,
            bytes_grace_secs: request.space_grace_seconds,
            to_default: request.to_default,
        };
        let has_limit = [change.inodes_max, change.bytes_max, change.inodes_soft, change.bytes_soft]
            .iter()
            .any(Option::is_some);
        let has_grace = change.inodes_grace_secs.is_some() || change.bytes_grace_secs.is_some();
        let refused = |why: &'static str| {
            Err(Fault::new(Code::BadArgument).what("cannot set limits").why(why).data("nothing was changed"))
        };
        match (change.to_default, has_limit, has_grace) {
            (false, false, false) => refused("no limit is named"),
            (true, true, _) | (true, _, true) => refused("the default limits come without others"),
            (true, ..) if owner.is_none() => refused("the default limits are those of somebody"),
            (_, true, true) => refused("grace times are set by themselves"),
            (_, _, true) if owner.is_some() => refused("grace times are those of everybody of a kind"),
            _ => Ok(Change { kind, subject, owner, change }),
        }
    }

    /// Owner, for the audit log and titles.
    pub fn who(&self) -> String {
        match &self.owner {
            Some((_, name)) => format!("{} {name}", kind_name(self.kind)),
            None => format!("every {}", kind_name(self.kind)),
        }
    }

    fn view(&self, shown: &QuotaShowResp) -> QuotaView {
        QuotaView::new(self.kind, self.owner.clone(), shown)
    }

    /// Makes the change, or only says what it would do.
    pub async fn make(&self, managed: &Managed, cred: &Cred, dry_run: bool) -> Result<QuotaPlanView> {
        let (servers, place) = (&managed.servers, managed.place()?);
        let before = self.view(&quota::show(servers, &place, self.subject, cred).await?);
        let after = quota::change(servers, &place, self.subject, self.change, dry_run, cred).await?;
        let after = self.view(&after);
        let changes = limits(&before) != limits(&after);
        let plan = PlanView {
            target: self.who(),
            action: "quota".to_owned(),
            would: capital(&self.would(changes)),
            effects: self.effects(&after),
            changes,
            command: self.command(&managed.mount_word(&place)),
            request: self.request(),
            task: None,
        };
        Ok(QuotaPlanView { plan, before, after })
    }

    fn would(&self, changes: bool) -> String {
        let who = self.who();
        match (changes, self.change.to_default) {
            (false, _) => format!("{who} has these limits already"),
            (true, true) => format!("{who} would have the default limits from now on"),
            (true, false) => format!("{who} would have other limits from now on"),
        }
    }

    fn effects(&self, after: &QuotaView) -> Vec<String> {
        let mut effects = Vec::new();
        let count: fn(u64) -> String = |n| n.to_string();
        let limits = [
            ("space", &after.space_bytes, format_bytes as fn(u64) -> String),
            ("inodes", &after.inodes, count),
        ];
        for (what, limit, show) in limits {
            if limit.hard > 0 && limit.used >= limit.hard {
                effects.push(format!(
                    "{} in use are at the hard limit of {what}, {}: programs that want more get EDQUOT at once. Nothing is removed.",
                    show(limit.used),
                    show(limit.hard)
                ));
            } else if limit.soft > 0 && limit.used > limit.soft {
                effects.push(format!(
                    "{} in use are over the soft limit of {what}, {}: the grace time runs from now on.",
                    show(limit.used),
                    show(limit.soft)
                ));
            }
        }
        if self.owner.is_none() {
            effects.push("It holds for everybody of the kind who has no limits of his own.".to_owned());
        }
        effects.push("Mounts hear of it within 2 s. What root writes is never limited.".to_owned());
        effects
    }

    fn command(&self, mount: &str) -> String {
        let change = &self.change;
        let kind = kind_name(self.kind);
        let verb = if change.inodes_grace_secs.is_some() || change.bytes_grace_secs.is_some() {
            format!("grace {kind}s")
        } else {
            match &self.owner {
                Some((_, name)) => format!("set --{kind} {}", quoted(name)),
                None => format!("set --default {kind}s"),
            }
        };
        let mut words = vec![format!("brindle quota {verb}")];
        let space = [("--space", change.bytes_max), ("--space-soft", change.bytes_soft)];
        words.extend(
            space.iter().filter_map(|(option, bytes)| Some(format!("{option} {}", space_word((*bytes)?)))),
        );
        let inodes = [("--inodes", change.inodes_max), ("--inodes-soft", change.inodes_soft)];
        words.extend(inodes.iter().filter_map(|(option, count)| Some(format!("{option} {}", (*count)?))));
        let grace = [("--space", change.bytes_grace_secs), ("--inodes", change.inodes_grace_secs)];
        words.extend(grace.iter().filter_map(|(option, secs)| Some(format!("{option} {}", (*secs)?))));
        if change.to_default {
            words.push("--to-default".to_owned());
        }
        words.push(format!("--path {}", quoted(mount)));
        words.join(" ")
    }

    fn request(&self) -> String {
        let change = &self.change;
        let mut body = serde_json::Map::new();
        let mut add = |key: &str, value: Option<serde_json::Value>| {
            if let Some(value) = value {
                body.insert(key.to_owned(), value);
            }
        };
        add("owner", self.owner.as_ref().map(|(_, name)| name.clone().into()));
        add("space_hard_bytes", change.bytes_max.map(Into::into));
        add("space_soft_bytes", change.bytes_soft.map(Into::into));
        add("inodes_hard", change.inodes_max.map(Into::into));
        add("inodes_soft", change.inodes_soft.map(Into::into));
        add("space_grace_seconds", change.bytes_grace_secs.map(Into::into));
        add("inodes_grace_seconds", change.inodes_grace_secs.map(Into::into));
        add("to_default", change.to_default.then(|| true.into()));
        add("dry_run", Some(false.into()));
        format!("POST /api/v1/quotas/{}s {}", kind_name(self.kind), serde_json::Value::Object(body))
    }
}

/// The limits of somebody, without usage.
fn limits(quota: &QuotaView) -> (bool, [u64; 4], [u32; 2]) {
    let (space, inodes) = (&quota.space_bytes, &quota.inodes);
    (
        quota.is_default,
        [space.hard, space.soft, inodes.hard, inodes.soft],
        [space.grace_seconds, inodes.grace_seconds],
    )
}

fn to_kib(bytes: u64) -> Result<u64> {
    if bytes > SPACE_MAX_BYTES {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot set a limit of")
            .subject(format!("{bytes} bytes"))
            .why("it is more than can be stored")
            .data("nothing was changed"));
    }
    Ok(bytes.div_ceil(1024) * 1024)
}

/// Space as `brindle quota set` takes it.
fn space_word(bytes: u64) -> String {
    let units = [(50, 'p'), (40, 't'), (30, 'g'), (20, 'm')];
    let unit = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| (bytes / 1024).to_string(), |(shift, letter)| format!("{}{letter}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> QuotaReq {
        QuotaReq { owner: Some("0".to_owned()), dry_run: true, ..QuotaReq::default() }
    }

    #[tokio::test]
    async fn commands_name_what_changes_and_nothing_else() {
        let asked = QuotaReq { space_hard_bytes: Some(10 << 40), inodes_soft: Some(5), ..request() };
        let change = Change::of(QuotaOwner::Project, &asked).await.unwrap();
        assert_eq!(
            change.command("/mnt/b"),
            "brindle quota set --project 0 --space 10t --inodes-soft 5 --path /mnt/b"
        );
        let asked = QuotaReq { owner: None, space_grace_seconds: Some(60), ..request() };
        let change = Change::of(QuotaOwner::User, &asked).await.unwrap();
        assert_eq!(change.command("MNT"), "brindle quota grace users --space 60 --path MNT");
        let asked = QuotaReq { to_default: true, ..request() };
        let change = Change::of(QuotaOwner::User, &asked).await.unwrap();
        assert_eq!(change.command("MNT"), "brindle quota set --user 0 --to-default --path MNT");
        assert_eq!(space_word(0), "0");
        assert_eq!(to_kib(1).map(space_word), Ok("1".to_owned()));
    }

    #[tokio::test]
    async fn requests_that_contradict_themselves_are_refused() {
        let of =
            async |request: QuotaReq| Change::of(QuotaOwner::User, &request).await.map(|_| ()).unwrap_err();
        let bad = [
            request(),
            QuotaReq { to_default: true, space_hard_bytes: Some(1), ..request() },
            QuotaReq { to_default: true, owner: None, ..request() },
            QuotaReq { space_grace_seconds: Some(1), ..request() },
            QuotaReq { owner: None, space_grace_seconds: Some(1), inodes_hard: Some(1), ..request() },
            QuotaReq { space_hard_bytes: Some(u64::MAX), ..request() },
            QuotaReq { owner: Some("4294967295".to_owned()), inodes_hard: Some(1), ..request() },
            QuotaReq { owner: Some("no such user here".to_owned()), inodes_hard: Some(1), ..request() },
        ];
        for request in bad {
            let shown = format!("{request:?}");
            assert_eq!(of(request).await.code, Code::BadArgument, "{shown}");
        }
    }
}
