//! L1: a program that makes, fills, links, renames, looks at and removes files and directories in a directory of its
//! own.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_tests::history::Span;

use crate::dice::Dice;
use crate::load::{Ground, Worker, unexpected};
use crate::names::{self, Change, Entry, Tree, View, crc_of, difference, expected};

/// Entries at which it starts to remove more than it makes.
const ENTRIES: usize = 60;
/// Largest file: up to here content lies in the MDT, so that it is part of the same log.
const FILE_MAX: u64 = 7000;
/// Most time of changes of names that a power cut takes in the default mode, in nanoseconds.
const SUFFIX_MAX_NS: u64 = 1_000_000_000;

/// A change that was answered.
struct Done {
    change: Change,
    span: Span,
}

/// The worker.
pub struct TreeWorker {
    name: String,
    ground: Ground,
    dice: Dice,
    /// Directory of the worker on its mount.
    root: PathBuf,
    /// Tree that must be there.
    tree: Tree,
    /// The tree before the first entry of `done`.
    base: Tree,
    done: Vec<Done>,
    /// Number of entries of `done` that an fsync made durable.
    durable: usize,
    /// The change that was under way at the cut, and whether the servers answered it with success after they were back.
    unknown: Option<(Change, bool)>,
    cuts: u64,
    ids: u64,
}

/// Remains of a worker's changes after a cut.
pub struct WorkerRemains {
    /// For each number of changes that may have been kept: the earliest and the latest moment at which the log can have
    /// ended.
    pub ends: Vec<(u64, u64)>,
}

impl TreeWorker {
    /// A worker in a new directory `name` of `mount`.
    pub fn new(ground: &Ground, mount: &Path, name: &str, dice: Dice) -> TreeWorker {
        let root = mount.join(name);
        std::fs::create_dir(&root).expect("the worker's directory can be made");
        let synced = File::open(&root).and_then(|dir| dir.sync_all());
        synced.expect("the worker's directory can be synced");
        TreeWorker {
            name: name.to_owned(),
            ground: ground.clone(),
            dice,
            root,
            tree: Tree::new(),
            base: Tree::new(),
            done: Vec::new(),
            durable: 0,
            unknown: None,
            cuts: ground.cuts(),
            ids: 0,
        }
    }

    /// Does one change and remembers it.
    fn change(&mut self, change: Change, work: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), String> {
        let (root, ground) = (self.root.clone(), self.ground.clone());
        let (span, result) = ground.history.record(&self.name, format!("{change:?}"), || work(&root));
        match result {
            Ok(()) => {
                change.apply(&mut self.tree);
                self.done.push(Done { change, span });
                Ok(())
            }
            Err(_) if ground.cuts() > self.cuts => {
                self.unknown = Some((change, false));
                Ok(())
            }
            Err(e) => Err(format!("{change:?}: {e}")),
        }
    }

    fn create(&mut self) -> Result<(), String> {
        let path = self.free_name();
        self.ids += 1;
        let id = self.ids;
        let at = self.root.join(&path);
        let mut file = None;
        self.change(Change::Create { path, id }, |_| {
            file = Some(File::create_new(&at)?);
            Ok(())
        })?;
        let Some(mut file) = file else { return Ok(()) };
        if self.ground.cuts() > self.cuts {
            return Ok(());
        }
        let len = if self.dice.once_in(4) { 0 } else { 1 + self.dice.below(FILE_MAX) as usize };
        let synced = self.dice.once_in(8);
        if len == 0 {
            return if synced { self.sync("fsync of a file", &file) } else { Ok(()) };
        }
        let content = brindle_tests::bytes(self.dice.next(), len);
        let change = Change::Fill { id, len, crc: crc_of(&content) };
        // Until the file is synced or closed, the bytes may be in the mount's buffer only.
        self.change(change, |_| {
            file.write_all(&content)?;
            if synced {
                file.sync_all()?;
            }
            close(file)
        })?;
        if synced && self.unknown.is_none() && self.ground.cuts() == self.cuts {
            self.durable = self.done.len();
        }
        Ok(())
    }

    /// An fsync that returned makes everything durable that was answered before.
    fn sync(&mut self, what: &str, file: &File) -> Result<(), String> {
        let before = self.done.len();
        let (_, result) = self.ground.history.record(&self.name, what, || file.sync_all());
        match result {
            Ok(()) if self.ground.cuts() == self.cuts => self.durable = before,
            Err(e) if self.ground.cuts() == self.cuts => return Err(format!("{what}: {e}")),
            _ => {}
        }
        Ok(())
    }

    fn any(&mut self, wanted: impl Fn(&Entry) -> bool) -> Option<String> {
        let some: Vec<&String> = self.tree.iter().filter(|(_, e)| wanted(e)).map(|(p, _)| p).collect();
        self.dice.choose(&some).map(|path| (*path).clone())
    }

    fn free_name(&mut self) -> String {
        let dir = if self.dice.once_in(3) { None } else { self.any(|e| *e == Entry::Dir) };
        let name = format!("n{}", self.dice.below(40));
        let path = dir.map_or(name.clone(), |dir| format!("{dir}/{name}"));
        if self.tree.contains_key(&path) || path.matches('/').count() > 4 {
            self.ids += 1;
            return format!("x{}", self.ids);
        }
        path
    }

    fn is_empty_dir(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.tree.keys().any(|other| other.starts_with(&below))
    }

    fn remove(&mut self) -> Result<(), String> {
        let Some(path) = self.any(|_| true) else { return Ok(()) };
        let at = self.root.join(&path);
        match self.tree.get(&path) {
            Some(Entry::Dir) if self.is_empty_dir(&path) => {
                self.change(Change::Rmdir { path }, |_| std::fs::remove_dir(at))
            }
            Some(Entry::Dir) => match std::fs::remove_dir(at) {
                Err(e) if e.raw_os_error() == Some(libc::ENOTEMPTY) || self.ground.cuts() > self.cuts => {
                    Ok(())
                }
                other => Err(format!("rmdir of {path}, which is not empty: {other:?}")),
            },
            _ => self.change(Change::Unlink { path }, |_| std::fs::remove_file(at)),
        }
    }

    fn rename(&mut self) -> Result<(), String> {
        let Some(from) = self.any(|_| true) else { return Ok(()) };
        let is_dir = self.tree.get(&from) == Some(&Entry::Dir);
        let over = if !is_dir && self.dice.once_in(3) { self.any(|e| *e != Entry::Dir) } else { None };
        let to = over.unwrap_or_else(|| self.free_name());
        if to.starts_with(&format!("{from}/")) || to == from {
            return Ok(());
        }
        let (a, b) = (self.root.join(&from), self.root.join(&to));
        self.change(Change::Rename { from, to }, |_| std::fs::rename(a, b))
    }

    fn link(&mut self) -> Result<(), String> {
        let Some(from) = self.any(|e| *e != Entry::Dir) else { return Ok(()) };
        let to = self.free_name();
        let (a, b) = (self.root.join(&from), self.root.join(&to));
        self.change(Change::Link { from, to }, |_| std::fs::hard_link(a, b))
    }

    /// Looks at one name, one directory or one file's content.
    fn look(&mut self) -> Result<(), String> {
        let wanted = expected(&self.tree);
        let Some(path) = self.any(|_| true) else { return Ok(()) };
        let at = self.root.join(&path);
        let found = std::fs::symlink_metadata(&at).and_then(|found| {
            if found.is_dir() {
                return Ok(names::Seen::Dir);
            }
            let bytes = std::fs::read(&at)?;
            Ok(names::Seen::File { len: bytes.len(), crc: crc_of(&bytes), links: found.nlink() })
        });
        if self.ground.cuts() > self.cuts {
            return Ok(());
        }
        let found = unexpected(format!("look at {path}"), found)?;
        if wanted.get(&path) != Some(&found) {
            return Err(format!("{path} is {found:?}, should be {:?}", wanted.get(&path)));
        }
        let absent = self.root.join("never-there");
        match std::fs::symlink_metadata(absent) {
            Err(e) if e.kind() == io::ErrorKind::NotFound || self.ground.cuts() > self.cuts => Ok(()),
            other => Err(format!("a name that was never made: {other:?}")),
        }
    }

    /// Compares the tree after a power cut with every number of changes that may have been kept. The worker
    /// goes on from the found state. `cut_at` is just before the cut, `back_at` when the servers were started
    /// again.
    pub fn after_cut(&mut self, cut_at: u64, back_at: u64) -> Result<WorkerRemains, String> {
        let view = names::scan(&self.root)?;
        if let Some(last) = self.done.pop_if(|done| done.span.answered > cut_at) {
            self.unknown = Some((last.change, last.span.answered > back_at));
        }
        let mut tree = self.base.clone();
        let mut ends = Vec::new();
        let mut kept: Option<Tree> = None;
        for count in 0..=self.done.len() {
            if count > 0 {
                self.done[count - 1].change.apply(&mut tree);
            }
            let with_unknown = self.unknown.as_ref().and_then(|(change, _)| {
                let mut more = tree.clone();
                change.apply(&mut more).then_some(more)
            });
            let must_have = self.unknown.as_ref().is_some_and(|(_, answered)| *answered);
            let without = (!must_have).then(|| tree.clone());
            for candidate in [without, with_unknown].into_iter().flatten() {
                if self.may_end_at(count, cut_at) && difference(&view, &expected(&candidate)).is_none() {
                    ends.push(self.end_of_log(count));
                    kept = Some(candidate);
                }
            }
        }
        let Some(kept) = kept else { return Err(self.explain(&view, cut_at)) };
        self.start_again(kept);
        Ok(WorkerRemains { ends })
    }

    /// Whether a cut at `cut_at` may keep only the first `count` changes.
    fn may_end_at(&self, count: usize, cut_at: u64) -> bool {
        let young = |done: &Done| done.span.answered + SUFFIX_MAX_NS >= cut_at;
        count >= self.durable && self.done[count..].iter().all(young)
    }

    /// Times at which the log can have ended, if it holds exactly the first `count` changes.
    fn end_of_log(&self, count: usize) -> (u64, u64) {
        let from = count.checked_sub(1).map_or(0, |last| self.done[last].span.asked);
        (from, self.done.get(count).map_or(u64::MAX, |lost| lost.span.answered))
    }

    fn explain(&self, view: &View, cut_at: u64) -> String {
        let allowed = (0..=self.done.len()).filter(|count| self.may_end_at(*count, cut_at));
        let first = allowed.clone().next().unwrap_or(self.done.len());
        let mut tree = self.base.clone();
        for done in &self.done[..first] {
            done.change.apply(&mut tree);
        }
        let least = difference(view, &expected(&tree)).unwrap_or_default();
        let most = difference(view, &expected(&self.tree)).unwrap_or_default();
        format!(
            "what is there after the cut is none of the states that may be: {} changes, {} durable, {} may be lost; \
             beside the oldest allowed: {least}; beside the newest: {most}",
            self.done.len(),
            self.durable,
            self.done.len() - first
        )
    }

    fn start_again(&mut self, tree: Tree) {
        self.base = tree.clone();
        self.tree = tree;
        self.done.clear();
        self.durable = 0;
        self.unknown = None;
        self.cuts = self.ground.cuts();
    }
}

impl Worker for TreeWorker {
    fn name(&self) -> &str {
        &self.name
    }

    fn step(&mut self) -> Result<(), String> {
        let more = if self.tree.len() > ENTRIES { 6 } else { 0 };
        match self.dice.below(20 + more) {
            0..6 => self.create(),
            6..8 => {
                let path = self.free_name();
                let at = self.root.join(&path);
                self.change(Change::Mkdir { path }, |_| std::fs::create_dir(at))
            }
            8..11 => self.rename(),
            11 => self.link(),
            12..16 => self.look(),
            16 => {
                let dir = unexpected("open the directory", File::open(&self.root));
                if self.ground.cuts() > self.cuts {
                    Ok(())
                } else {
                    self.sync("fsync of the directory", &dir?)
                }
            }
            _ => self.remove(),
        }
    }

    fn goes_on_through_cuts(&self) -> bool {
        false
    }

    fn settle(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn verify(&self, mount: &Path) -> Result<(), String> {
        let view = names::scan(&mount.join(&self.name))?;
        difference(&view, &expected(&self.tree)).map_or(Ok(()), Err)
    }
}

/// Closes a file, and says whether that went well.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was that of this file alone, which is not used any more.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A log has a single end: there must be a moment that fits what every worker found.
pub fn one_end(all: &[WorkerRemains]) -> Result<(), String> {
    let moments = all.iter().flat_map(|kept| kept.ends.iter().map(|end| end.0));
    let fits = |moment: u64| {
        all.iter().all(|kept| kept.ends.iter().any(|(from, to)| (*from..=*to).contains(&moment)))
    };
    if moments.clone().any(fits) {
        return Ok(());
    }
    let shown: Vec<String> = all.iter().map(|kept| format!("{:?}", kept.ends)).collect();
    Err(format!("what was kept is no suffix-free part of one log: {}", shown.join(" | ")))
}
