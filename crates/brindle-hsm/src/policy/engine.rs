//! Scans and usage: from the file system to facts, and from facts to plans.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::Client;
use brindle_policy::entry::Xattr;
use brindle_policy::filter::{Filter, filter};
use brindle_policy::plan::{Chooser, Judge};
use brindle_policy::trigger::{On, Target, Usage, Usages};
use brindle_policy::versions::Seen;
use brindle_policy::{Entry, Names, Plan, Policy, Program};
use brindle_types::attr::Time;
use brindle_types::{Code, Fault, FileType, Ino, Result};
use brindle_wire::Cred;
use brindle_wire::mds::note_access::NoteAccessReq;
use brindle_wire::mds::policy::{PolicyFound, PolicyScanReq, XattrFound};
use brindle_wire::mds::quota::{QuotaOwner, QuotaUseReq};

/// Options of an engine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// User and group that commands run as; none: commands are refused.
    pub command_user: Option<(u32, u32)>,
    /// Mount point of the file system, for the paths that commands get.
    pub mount: Option<String>,
}

/// A policy that is to run.
#[derive(Clone, Debug)]
pub struct Due {
    /// Index of the policy in the program.
    pub policy: usize,
    /// Goal of the run.
    pub target: Target,
}

/// Result of a scan.
pub struct Planned {
    /// A plan for each policy that was due.
    pub plans: Vec<Plan>,
    /// Entries that the MDT told of.
    pub looked_at: u64,
    /// Duration of the scan.
    pub took_ms: u64,
}

/// An engine for a program.
pub struct Engine {
    pub(super) client: Arc<Client>,
    pub(super) names: Arc<dyn Names>,
    pub(super) options: Options,
}

pub(super) fn root() -> Cred {
    Cred::default()
}

impl Engine {
    /// An engine with a client of its own.
    pub fn new(client: Arc<Client>, names: Arc<dyn Names>, options: Options) -> Engine {
        Engine { client, names, options }
    }

    /// Since when the file system keeps access times, if a text goes by them; an error where it keeps none.
    pub async fn access_times(&self, program: &Program) -> Result<Option<Time>> {
        if !program.goes_by_access() {
            return Ok(None);
        }
        let since = access_times_since(&self.client).await?;
        since.map(Some).ok_or_else(|| {
            Fault::new(Code::NoAccessTime)
                .what("cannot use last_access")
                .why("the MDT is of a release that keeps no access times: files in daily use would look unused")
                .data("nothing was carried out")
        })
    }

    /// Tells every entry that a filter lets through, with the clock by which ages are meant.
    async fn scan(
        &self,
        program: &Program,
        filter: Filter,
        each: &mut (dyn FnMut(&Entry, Time) + Send),
    ) -> Result<u64> {
        let since = self.access_times(program).await?;
        let xattrs = &program.xattrs;
        let mut request = PolicyScanReq {
            start: self.client.root(),
            predicate: filter.predicate,
            flags: filter.flags,
            xattrs: xattrs.iter().map(|name| name.clone().into_bytes()).collect(),
            cursor: None,
            cred: root(),
        };
        let mut told = 0;
        loop {
            let page = self.client.ask_as_agent(&request).await?;
            for found in page.found {
                told += 1;
                each(&entry(found, xattrs, since), page.began);
            }
            request.cursor = page.cursor;
            if request.cursor.is_none() {
                return Ok(told);
            }
        }
    }

    /// Versions of the classes that keep some.
    async fn seen(&self, program: &Program) -> Result<BTreeMap<String, Seen>> {
        let classes = program.classes.iter();
        let with_versions =
            classes.filter_map(|(name, class)| Some((name.clone(), Seen::new(class.versions.clone()?))));
        let mut seen: BTreeMap<String, Seen> = with_versions.collect();
        if seen.is_empty() {
            return Ok(seen);
        }
        let definitions = program.definitions();
        let filter = filter(program, &[], &*self.names, true);
        let names = &*self.names;
        let mut add = |entry: &Entry, now: Time| {
            let context =
                brindle_policy::condition::Context { now, names, classes: &definitions, superseded: None };
            for (class, seen) in &mut seen {
                // An undecided entry counts as in the class: it may be a newer version.
                if definitions[class].eval(entry, &context) != Some(false) {
                    seen.add(&entry.path);
                }
            }
        };
        self.scan(program, filter, &mut add).await?;
        Ok(seen)
    }

    /// Looks at the whole file system for all policies that are due, in one scan.
    pub async fn plan(&self, program: &Program, due: &[Due]) -> Result<Planned> {
        let began = self.client.seams().now();
        let seen = self.seen(program).await?;
        let policies: Vec<&Policy> = due.iter().map(|due| &program.policies[due.policy]).collect();
        let filter = filter(program, &policies, &*self.names, false);
        let chooser = |due: &Due| {
            let judge = Judge::new(program, &program.policies[due.policy], &*self.names, &seen);
            Chooser::new(judge, due.target.clone())
        };
        let mut choosers: Vec<Chooser<'_>> = due.iter().map(chooser).collect();
        let mut offer =
            |entry: &Entry, now: Time| choosers.iter_mut().for_each(|chooser| chooser.offer(entry, now));
        let looked_at = self.scan(program, filter, &mut offer).await?;
        let plans = choosers.into_iter().map(Chooser::finish).collect();
        Ok(Planned { plans, looked_at, took_ms: self.client.seams().now().ms_since(began) })
    }

    /// Verdict of every policy on one entry, in words.
    pub async fn why(&self, program: &Program, ino: Ino, path: &str) -> Result<Vec<String>> {
        let seen = self.seen(program).await?;
        let since = self.access_times(program).await?;
        let mut request = PolicyScanReq {
            start: ino,
            predicate: Vec::new(),
            flags: Vec::new(),
            xattrs: program.xattrs.iter().map(|name| name.clone().into_bytes()).collect(),
            cursor: None,
            cred: root(),
        };
        // The start of a scan is its first entry.
        let page = self.client.ask_as_agent(&request).await?;
        request.cursor = None;
        let Some(first) = page.found.into_iter().next() else { return Ok(Vec::new()) };
        let entry = Entry { path: path.to_owned(), ..entry(first, &program.xattrs, since) };
        let judges = program.policies.iter().map(|policy| Judge::new(program, policy, &*self.names, &seen));
        Ok(judges.flat_map(|judge| judge.explain(&entry, page.began)).collect())
    }

    /// Usage of everything that the triggers watch.
    pub async fn usages(&self, program: &Program) -> Result<Usages> {
        let spaces = self.client.spaces().await?;
        let space = self.client.statfs().await?;
        let mut usages = Usages {
            global: Usage {
                used_bytes: space.total_bytes.saturating_sub(space.available_bytes),
                total_bytes: space.total_bytes,
                used_count: space.total_inodes.saturating_sub(space.free_inodes),
                total_count: space.total_inodes,
            },
            ..Usages::default()
        };
        for (id, space) in &spaces.osts {
            let Some(space) = space else { continue };
            let used_bytes = space.total_bytes.saturating_sub(space.available_bytes);
            let usage = Usage { used_bytes, total_bytes: space.total_bytes, ..Usage::default() };
            usages.osts.insert(id.index, usage);
        }
        usages.pools =
            self.client.map().pools.iter().map(|pool| (pool.name.to_string(), pool.osts.clone())).collect();
        for trigger in program.policies.iter().flat_map(|policy| &policy.triggers) {
            match &trigger.on {
                On::User(users) => {
                    for uid in users.iter().filter_map(|name| self.names.uid(name)) {
                        usages.users.insert(uid, self.usage_of(QuotaOwner::User, uid).await?);
                    }
                }
                On::Group(groups) => {
                    for gid in groups.iter().filter_map(|name| self.names.gid(name)) {
                        usages.groups.insert(gid, self.usage_of(QuotaOwner::Group, gid).await?);
                    }
                }
                _ => {}
            }
        }
        Ok(usages)
    }

    async fn usage_of(&self, owner: QuotaOwner, id: u32) -> Result<Usage> {
        let used = self.client.ask_as_agent(&QuotaUseReq { owner, id, cred: root() }).await?;
        Ok(Usage { used_bytes: used.bytes, used_count: used.inodes, ..Usage::default() })
    }

    /// Names of users and groups.
    pub fn names(&self) -> &dyn Names {
        &*self.names
    }
}

/// Since when the file system keeps access times; `None` where its MDT is of a release that keeps none.
pub(super) async fn access_times_since(client: &Client) -> Result<Option<Time>> {
    match client.ask_as_agent(&NoteAccessReq { files: Vec::new() }).await {
        Ok(kept) => Ok(Some(kept.since)),
        Err(fault) if fault.code == Code::UnknownOp => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// An entry. `since`: from when on the file system keeps access times. Reading is told of files only, so of everything else it is not known when it
/// was read.
pub(super) fn entry(found: PolicyFound, xattrs: &[String], since: Option<Time>) -> Entry {
    let text = String::from_utf8_lossy(&found.path);
    let is_exact = matches!(text, std::borrow::Cow::Borrowed(_));
    let value = |value: XattrFound| match value {
        XattrFound::None => Xattr::None,
        XattrFound::TooLong => Xattr::Unknown,
        XattrFound::Value(bytes) => String::from_utf8(bytes).map_or(Xattr::Unknown, Xattr::Value),
    };
    let attr = found.attr;
    Entry {
        path: format!("/{text}"),
        is_exact,
        ino: attr.ino,
        kind: attr.kind,
        size_bytes: attr.size_bytes,
        allocated_bytes: attr.allocated_bytes,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        atime: attr.atime,
        unread_since: since
            .filter(|_| attr.kind == FileType::Regular)
            .map(|since| since.max(attr.atime).max(attr.btime)),
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: attr.btime,
        flags: found.flags,
        archive: found.archive,
        under_way: found.under_way,
        pools: found.pools.iter().map(ToString::to_string).collect(),
        osts: found.osts,
        is_empty_dir: found.is_empty_dir,
        xattrs: xattrs.iter().cloned().zip(found.xattrs.into_iter().map(value)).collect(),
    }
}
