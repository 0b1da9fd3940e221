//! Usage of the file system, by one scan of all of it: sizes, ages, states of tiering, the largest directories and files. A scan is
//! made when somebody asks for it, and kept in the manager's directory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_hsm::policy::pages::{Pages, Wanted};
use brindle_policy::Entry;
use brindle_policy::condition::status;
use brindle_types::{Code, Fault, FileType, Ino, Result};
use brindle_wire::mds::quota::QuotaOwner;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::tasks::Progress;
use crate::cluster::Managed;
use crate::names::Names;
use crate::plan::PlanView;

/// Name of the file.
const FILE: &str = "usage.json";
/// Directories, files and users that are kept.
const TOP_MAX: usize = 50;
/// Files with several names that are counted once; of more, some count for each name.
const LINKED_MAX: usize = 1_000_000;
/// Most users that are counted separately; files of further users count as nobody's.
const USERS_MAX: usize = 100_000;
/// Pages between two lines of progress.
const TELL_EVERY_PAGES: u64 = 20;
/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Bounds of sizes: a file belongs to the first that it does not exceed.
const SIZES: [u64; 11] =
    [0, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30, 16 << 30, 256 << 30, 4 << 40, u64::MAX];
/// Bounds of ages in days: since the last change of contents.
const AGES_DAYS: [i64; 8] = [1, 7, 30, 90, 180, 365, 730, i64::MAX];

/// Contents of the file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageView {
    /// When it was looked at, seconds since 1970.
    pub at_s: i64,
    /// How long that took.
    pub took_seconds: f64,
    /// Files; one with several names counts once.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, devices and others.
    pub others: u64,
    /// Sum of the sizes of files.
    pub bytes: u64,
    /// Bytes that they take on OSTs and MDTs.
    pub allocated_bytes: u64,
    /// By size, the smallest first.
    pub sizes: Vec<SizeBin>,
    /// By time since the last change of contents, the youngest first.
    pub ages: Vec<AgeBin>,
    /// By state of tiering.
    pub states: Vec<StateBin>,
    /// Users with the most bytes.
    pub users: Vec<UserUse>,
    /// Directories with the most bytes directly in them.
    pub largest_directories: Vec<DirectoryUse>,
    /// Directories with the most bytes at any depth below them, without the root.
    pub largest_trees: Vec<DirectoryUse>,
    /// Largest files.
    pub largest_files: Vec<FileUse>,
}

/// Files of some size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizeBin {
    /// None of them is larger; none for the last.
    pub up_to_bytes: Option<u64>,
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Files of some age.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgeBin {
    /// All of them were changed within so many days; none for the last.
    pub within_days: Option<i64>,
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Files in a state of tiering.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateBin {
    /// `new`, `modified`, `archiving`, `synchro`, `released` or `retrieving`, as policies have it.
    pub state: String,
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Files of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserUse {
    /// Number.
    pub uid: u32,
    /// Name, or the number as text.
    pub name: String,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryUse {
    /// From the root of the file system.
    pub path: String,
    /// Number of its owner.
    pub uid: u32,
    /// Files directly in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files at any depth below it.
    pub files_below: u64,
    /// Their bytes.
    pub bytes_below: u64,
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileUse {
    /// From the root of the file system.
    pub path: String,
    /// Number of its owner.
    pub uid: u32,
    /// Size.
    pub bytes: u64,
    /// When its contents were changed last, seconds since 1970.
    pub changed_s: i64,
}

/// The last look.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LastUsageView {
    /// None where nobody has asked for one yet.
    pub usage: Option<Arc<UsageView>>,
}

/// The N largest of the offered entries.
struct Top<T> {
    kept: BTreeMap<(u64, u64), T>,
    offered: u64,
}

impl<T> Top<T> {
    fn new() -> Top<T> {
        Top { kept: BTreeMap::new(), offered: 0 }
    }

    fn offer(&mut self, key: u64, value: impl FnOnce() -> T) {
        let takes = self.kept.len() < TOP_MAX
            || self.kept.first_key_value().is_some_and(|((least, _), _)| *least < key);
        if key == 0 || !takes {
            return;
        }
        self.offered += 1;
        // Of equals the first stays.
        self.kept.insert((key, u64::MAX - self.offered), value());
        if self.kept.len() > TOP_MAX {
            self.kept.pop_first();
        }
    }

    fn finish(self) -> Vec<T> {
        self.kept.into_values().rev().collect()
    }
}

/// Sums over the entries of a scan, in which each directory comes before its entries.
struct Looking {
    view: UsageView,
    now_s: i64,
    linked: HashSet<Ino>,
    states: BTreeMap<&'static str, (u64, u64)>,
    users: HashMap<u32, (u64, u64)>,
    open: Vec<DirectoryUse>,
    directories: Top<DirectoryUse>,
    trees: Top<DirectoryUse>,
    files: Top<FileUse>,
}

impl Looking {
    fn new(now_s: i64) -> Looking {
        let size =
            |bound: u64| SizeBin { up_to_bytes: (bound < u64::MAX).then_some(bound), ..SizeBin::default() };
        let age = |days: i64| AgeBin { within_days: (days < i64::MAX).then_some(days), ..AgeBin::default() };
        let view = UsageView {
            sizes: SIZES.map(size).to_vec(),
            ages: AGES_DAYS.map(age).to_vec(),
            ..UsageView::default()
        };
        Looking {
            view,
            now_s,
            linked: HashSet::new(),
            states: BTreeMap::new(),
            users: HashMap::new(),
            open: Vec::new(),
            directories: Top::new(),
            trees: Top::new(),
            files: Top::new(),
        }
    }

    /// Takes in an entry, its path from the root of the file system.
    fn add(&mut self, entry: &Entry) {
        let depth = entry.path.split('/').filter(|part| !part.is_empty()).count();
        while self.open.len() > depth {
            self.close();
        }
        match entry.kind {
            FileType::Directory => {
                self.view.directories += 1;
                let dir =
                    DirectoryUse { path: entry.path.clone(), uid: entry.uid, ..DirectoryUse::default() };
                self.open.push(dir);
            }
            FileType::Regular => self.add_file(entry),
            _ => self.view.others += 1,
        }
    }

    fn add_file(&mut self, entry: &Entry) {
        if entry.nlink > 1 && self.linked.len() < LINKED_MAX && !self.linked.insert(entry.ino) {
            return;
        }
        let bytes = entry.size_bytes;
        self.view.files += 1;
        self.view.bytes = self.view.bytes.saturating_add(bytes);
        self.view.allocated_bytes = self.view.allocated_bytes.saturating_add(entry.allocated_bytes);
        let size = SIZES.iter().position(|bound| bytes <= *bound).unwrap_or(SIZES.len() - 1);
        let bin = &mut self.view.sizes[size];
        (bin.files, bin.bytes) = (bin.files + 1, bin.bytes.saturating_add(bytes));
        let days = self.now_s.saturating_sub(entry.mtime.secs) / DAY_S;
        let age = AGES_DAYS.iter().position(|bound| days < *bound).unwrap_or(AGES_DAYS.len() - 1);
        let bin = &mut self.view.ages[age];
        (bin.files, bin.bytes) = (bin.files + 1, bin.bytes.saturating_add(bytes));
        let count = |(files, all): &mut (u64, u64)| (*files, *all) = (*files + 1, all.saturating_add(bytes));
        count(self.states.entry(status(entry).unwrap_or("new")).or_default());
        if self.users.len() < USERS_MAX || self.users.contains_key(&entry.uid) {
            count(self.users.entry(entry.uid).or_default());
        }
        if let Some(dir) = self.open.last_mut() {
            (dir.files, dir.bytes) = (dir.files + 1, dir.bytes.saturating_add(bytes));
        }
        self.files.offer(bytes, || FileUse {
            path: entry.path.clone(),
            uid: entry.uid,
            bytes,
            changed_s: entry.mtime.secs,
        });
    }

    /// The innermost directory is behind the scan.
    fn close(&mut self) {
        let Some(mut dir) = self.open.pop() else { return };
        dir.files_below += dir.files;
        dir.bytes_below = dir.bytes_below.saturating_add(dir.bytes);
        if let Some(above) = self.open.last_mut() {
            above.files_below += dir.files_below;
            above.bytes_below = above.bytes_below.saturating_add(dir.bytes_below);
            self.trees.offer(dir.bytes_below, || dir.clone());
        }
        self.directories.offer(dir.bytes, || dir);
    }

    fn finish(mut self) -> UsageView {
        while !self.open.is_empty() {
            self.close();
        }
        let state = |(state, (files, bytes)): (&'static str, (u64, u64))| StateBin {
            state: state.to_owned(),
            files,
            bytes,
        };
        let mut users: Vec<UserUse> = self
            .users
            .into_iter()
            .map(|(uid, (files, bytes))| UserUse { uid, name: uid.to_string(), files, bytes })
            .collect();
        users.sort_by_key(|user| std::cmp::Reverse((user.bytes, user.files)));
        users.truncate(TOP_MAX);
        UsageView {
            states: self.states.into_iter().map(state).collect(),
            users,
            largest_directories: self.directories.finish(),
            largest_trees: self.trees.finish(),
            largest_files: self.files.finish(),
            ..self.view
        }
    }
}

/// The last look, in memory and in a file.
pub struct Usages {
    path: PathBuf,
    last: Mutex<Option<Arc<UsageView>>>,
}

impl Usages {
    /// Last look that an earlier manager has kept in a directory; none if the file cannot be read.
    pub fn load(dir: &Path) -> Usages {
        let path = dir.join(FILE);
        let read = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Usages { path, last: Mutex::new(read.map(Arc::new)) }
    }

    /// The last one.
    pub fn last(&self) -> LastUsageView {
        LastUsageView { usage: self.last.lock().clone() }
    }

    fn keep(&self, view: UsageView) -> Result<()> {
        let text = serde_json::to_vec(&view).expect("plain fields always serialise");
        *self.last.lock() = Some(Arc::new(view));
        let new = self.path.with_extension("json.new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.path));
        written.map_err(|e| Fault::io(Code::NotWritable, "cannot keep", self.path.display().to_string(), &e))
    }
}

/// Plan of a look.
pub fn plan(managed: &Managed) -> Result<PlanView> {
    let mount = managed.mount_word(&managed.place()?);
    Ok(PlanView {
        target: "the file system".to_owned(),
        action: "usage".to_owned(),
        would: "All names of the file system would be looked at, and nothing changed".to_owned(),
        effects: vec!["It takes a part of the MDT's time for as long as it goes on.".to_owned()],
        changes: true,
        command: format!(
            "brindle policy report --fs-info --status-info=lhsm --top-users --top-dirs --top-size {mount}"
        ),
        request: "POST /api/v1/usage {\"dry_run\": false}".to_owned(),
        task: None,
    })
}

/// Looks at everything.
pub async fn look(progress: &Progress) -> Result<String> {
    let manager = progress.manager();
    let (managed, began) = (&manager.managed, manager.seams.now());
    let at_s = manager.seams.wall().secs;
    let place = managed.place()?;
    let scan = async |client: Arc<brindle_client::Client>| {
        let wanted = Wanted { start: client.root(), predicate: Vec::new(), xattrs: Vec::new() };
        let mut pages = Pages::new(client, wanted);
        let mut looking = Looking::new(at_s);
        let mut count = 0;
        while let Some(page) = pages.next().await? {
            for found in page.found {
                looking.add(&pages.entry(found));
            }
            count += 1;
            if count % TELL_EVERY_PAGES == 0 {
                let UsageView { files, directories, .. } = &looking.view;
                progress.tell(format!("{files} files in {directories} directories so far"));
            }
        }
        Ok(Some(looking.finish()))
    };
    // A server that does not answer keeps nobody from giving the look up.
    let look = async |client| {
        tokio::select! {
            found = scan(client) => found,
            () = progress.cancelled() => Ok(None),
        }
    };
    let Some(mut view) = managed.with_client(&place, look).await? else {
        return Ok("given up; what was known before is shown as it was".to_owned());
    };
    view.at_s = at_s;
    view.took_seconds = manager.seams.now().ms_since(began) as f64 / 1000.0;
    name_users(&manager.names, &mut view).await?;
    let told = format!("{} files in {} directories", view.files, view.directories);
    manager.usages.keep(view)?;
    Ok(told)
}

async fn name_users(names: &Arc<Names>, view: &mut UsageView) -> Result<()> {
    let known = names.of(QuotaOwner::User, view.users.iter().map(|user| user.uid).collect()).await?;
    for user in &mut view.users {
        if let Some(name) = known.get(&user.uid) {
            user.name.clone_from(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::attr::Time;

    fn entry(path: &str, kind: FileType, size_bytes: u64, age_days: i64) -> Entry {
        let mtime = Time { secs: 1_000 * DAY_S - age_days * DAY_S, ..Time::default() };
        Entry {
            ino: Ino(path.len() as u64),
            kind,
            size_bytes,
            allocated_bytes: size_bytes,
            uid: 7,
            gid: 7,
            mtime,
            ..Entry::new(path)
        }
    }

    #[test]
    fn everything_is_counted_once_where_it_belongs() {
        let (dir, file) = (FileType::Directory, FileType::Regular);
        let mut looking = Looking::new(1_000 * DAY_S);
        looking.add(&entry("/", dir, 0, 0));
        looking.add(&entry("/a", dir, 0, 0));
        looking.add(&entry("/a/x", file, 100, 0));
        looking.add(&entry("/a/b", dir, 0, 0));
        looking.add(&entry("/a/b/big", file, 5 << 20, 400));
        let linked = Entry { nlink: 2, ino: Ino(99), ..entry("/a/b/one", file, 10, 8) };
        looking.add(&linked);
        looking.add(&Entry { path: "/c".to_owned(), ..linked });
        looking.add(&entry("/link", FileType::Symlink, 3, 0));
        looking.add(&entry("/empty", file, 0, -3));
        let view = looking.finish();
        assert_eq!((view.files, view.directories, view.others), (4, 3, 1));
        assert_eq!(view.bytes, (5 << 20) + 110);
        let sizes: Vec<u64> = view.sizes.iter().map(|bin| bin.files).collect();
        assert_eq!(sizes, [1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let ages: Vec<u64> = view.ages.iter().map(|bin| bin.files).collect();
        assert_eq!(ages, [2, 0, 1, 0, 0, 0, 1, 0], "a time in the future is young");
        assert_eq!(view.states, [StateBin { state: "new".to_owned(), files: 4, bytes: view.bytes }]);
        let paths = |all: &[DirectoryUse]| all.iter().map(|dir| dir.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&view.largest_directories), ["/a/b", "/a"]);
        assert_eq!(paths(&view.largest_trees), ["/a", "/a/b"]);
        assert_eq!(view.largest_trees[0].bytes_below, (5 << 20) + 110);
        assert_eq!(view.largest_files[0].path, "/a/b/big");
        assert_eq!(view.users[0].files, 4);
    }

    #[test]
    fn what_is_kept_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let usages = Usages::load(dir.path());
        assert!(usages.last().usage.is_none());
        usages.keep(Looking::new(0).finish()).unwrap();
        assert_eq!(Usages::load(dir.path()).last().usage, usages.last().usage);
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Usages::load(dir.path()).last().usage.is_none());
    }
}
