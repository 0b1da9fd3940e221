//! Compute nodes: the work on them, and the two ways to reach them.
//!
//! | node | who carries an order out |
//! |---|---|
//! | the orchestrator's own host, or a namespace of it | the orchestrator ([`Places`]) |
//! | another host | its agent ([`agent`]), which the orchestrator reaches through its [`hub`] |
//!
//! Orchestrator and agent carry out the same orders with the same code, and every order can be repeated. The mounts are read from the
//! kernel and written down nowhere. An agent keeps one thing: the revision of the last order of each buffer ([`revisions`]).

pub mod agent;
pub mod hub;
mod revisions;
pub(super) mod roster;
mod stage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use brindle_auth::Mode;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::{NodeMount, NodeOrder, NodeOrderReq, NodeSwapOff};

use self::hub::Hub;
use super::beneath::Dir;
use super::orchestrator::short;
use super::{PRIVATE, SWAP, make_dir, private_name, swap, swap_name, unmount};
use crate::{Host, mounts, requirements, system};

/// Mount options: files that root of another node has put into a buffer give nobody rights on this one.
const SAFE: &str = "-onosuid,nodev";

/// Longest name of a mount.
const NAME_MAX: usize = 128;

/// A way to a compute node.
pub enum Node<'a> {
    /// The node is this host, or shows its mounts here.
    Local(Places<'a>),
    /// The node is another host, which has an agent.
    Remote {
        /// The agents.
        hub: &'a Hub,
        /// The present process.
        host: &'a Host,
        /// Name of the node.
        name: &'a str,
    },
}

impl Node<'_> {
    /// Has an order carried out, in bounded time.
    ///
    /// Returns why something that programs wrote may have been thrown away, if it was.
    pub fn carry_out(&self, order: &NodeOrderReq) -> Result<Option<String>> {
        match self {
            Node::Local(places) => places.carry_out(&order.job, &order.order),
            Node::Remote { hub, host, name } => hub.order(host, name, order),
        }
    }
}

/// A compute node whose mounts this process makes.
pub struct Places<'a> {
    /// The `brindle` program.
    pub program: &'a Path,
    /// Name of the node.
    pub node: &'a str,
    /// Directory of its mounts.
    pub root: PathBuf,
    /// Directory of the logs of its mounts.
    pub logs: PathBuf,
    /// The identity that its mounts show; `None` for the usual one.
    pub identity: Option<&'a Path>,
}

impl Places<'_> {
    /// Carries an order out. Returns why something that programs wrote may have been thrown away, if it was.
    pub fn carry_out(&self, job: &str, order: &NodeOrder) -> Result<Option<String>> {
        check(job, order)?;
        match order {
            NodeOrder::Mount { mounts, private, swap } => {
                mounts.iter().try_for_each(|mount| self.mount(mount, &[SAFE]))?;
                if *private {
                    self.bind_private(job)?;
                }
                swap.as_ref().map_or(Ok(()), |source| self.swap_on(job, source))?;
                Ok(None)
            }
            NodeOrder::Unmount { names, swap } => self.unmount(job, names, swap.as_ref()),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Removes the logs of mounts that have ended.
    fn drop_logs(&self, job: &str, names: &[String]) {
        for name in names.iter().chain([&swap_name(job)]) {
            // The log need not exist.
            let _ = std::fs::remove_file(self.log(name));
        }
    }

    /// The note of a mount that ends.
    fn note(&self, name: &str) -> PathBuf {
        self.logs.join(format!("end-{}-{name}.json", self.node))
    }

    /// Unmounts what nobody needs any more.
    fn end(&self, name: &str) -> Result<()> {
        unmount::give_up(&self.at(name), &self.note(name))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("node-{}-{name}.log", self.node))
    }

    fn about_node(&self, fault: Fault) -> Fault {
        fault.why(format!("on node {}", self.node))
    }

    fn mount(&self, mount: &NodeMount, options: &[&str]) -> Result<()> {
        let at = self.at(&mount.name);
        let is_ours = |line: &mounts::MountLine| line.source == mount.source;
        if mounts::find(&at).is_some_and(|line| is_ours(&line)) && !mounts::is_dead(&at) {
            return Ok(());
        }
        requirements::free_mount_point(&at)?;
        unmount::forget(&self.note(&mount.name));
        make_dir(&at)?;
        let mut command = Command::new(self.program);
        command.arg("mount").arg(format!("--log={}", self.log(&mount.name).display())).args(options);
        if let Some(identity) = self.identity {
            command.arg(format!("--identity={}", identity.display()));
            command.arg(format!("--security={}", Mode::Auth));
        }
        command.arg(&mount.source).arg(&at);
        system::run(&mut command, "brindle").map_err(|fault| self.about_node(fault))
    }

    /// Shows the node its own directory.
    fn bind_private(&self, job: &str) -> Result<()> {
        let at = self.at(&private_name(job));
        if mounts::find(&at).is_some() {
            // A mount that an earlier try has left may be of a daemon that has died.
            unmount::unbind(&at)?;
        }
        let own = Dir::root(&self.at(job))?.enter(PRIVATE)?.enter(self.node)?;
        make_dir(&at)?;
        rustix::mount::mount_bind(own.path(), &at).map_err(|e| {
            let at = at.display().to_string();
            self.about_node(Fault::io(Code::MountFailed, "cannot mount", at, &e.into()))
        })
    }

    /// The swap file of the node.
    fn swap_file(&self, job: &str) -> PathBuf {
        self.at(&swap_name(job)).join(SWAP).join(self.node)
    }

    /// Turns swap on, in a mount of its own whose daemon keeps its memory locked: what the job does with its files never delays a page.
    fn swap_on(&self, job: &str, source: &str) -> Result<()> {
        let name = swap_name(job);
        if mounts::is_dead(&self.at(&name)) {
            // A daemon that has died; who had pages there has lost them, and has been told with SIGBUS.
            swap::turn_off(&self.swap_file(job), self.node)?;
        }
        let mount = NodeMount { name, source: source.to_owned() };
        self.mount(&mount, &["--lock-memory", "-onosuid,nodev,write-behind=off"])?;
        Dir::root(&self.at(&swap_name(job)))?.enter(SWAP)?.check_file(self.node)?;
        swap::turn_on(&self.swap_file(job)).map_err(|fault| self.about_node(fault))
    }

    /// Swap last: a page is a process's memory, and the rest is not.
    fn unmount(&self, job: &str, names: &[String], swap: Option<&NodeSwapOff>) -> Result<Option<String>> {
        let private = private_name(job);
        unmount::unbind(&self.at(&private))?;
        for name in names {
            unmount::unmount(&self.at(name), &self.note(name))?;
        }
        let mut lost = None;
        for name in names {
            lost = lost.or(unmount::lost(&self.note(name))?);
        }
        for name in names.iter().chain([&private]) {
            // A directory that is not there, or that somebody put something into, is none of the buffer.
            let _ = std::fs::remove_dir(self.at(name));
        }
        let Some(off) = swap else { return Ok(lost) };
        self.swap_off(job, off).map_err(|fault| {
            let mend = if fault.code == Code::SwapLost {
                "mend it, or give the pages up: brindle bb destroy --yes"
            } else {
                "free memory on the node"
            };
            let end = format!("when brindle bb list says 'unmounted', end the job: scancel --hurry {job}");
            fault.next(format!("{mend}; it is tried again every few seconds; {end}"))
        })?;
        Ok(lost)
    }

    /// Turns swap off. Pages that lie in it have to be read: the servers run, or whoever asks is told.
    fn swap_off(&self, job: &str, off: &NodeSwapOff) -> Result<()> {
        let (file, at) = (self.swap_file(job), self.at(&swap_name(job)));
        let used_bytes = swap::used_bytes(&file)?;
        if let Some(why) = off.servers_down.as_ref().filter(|_| used_bytes > 0 && !mounts::is_dead(&at)) {
            if !off.gives_up {
                return Err(Fault::new(Code::SwapLost)
                    .what("swap stays on: node")
                    .subject(self.node.to_owned())
                    .why(format!("{} of pages are in it", format_bytes(used_bytes)))
                    .why(why.clone())
                    .data("the buffer is kept"));
            }
            // Without its daemon every read is an error, instead of waiting for a server.
            tracing::warn!(why, job, node = self.node, used_bytes, "pages in swap are given up");
            unmount::end_daemon(&at)?;
        }
        swap::turn_off(&file, self.node)?;
        self.end(&swap_name(job))?;
        // A directory that is not there, or has contents, does not belong to the buffer.
        let _ = std::fs::remove_dir(&at);
        Ok(())
    }

    /// Whether anything is in the directory of mounts.
    pub fn holds_something(&self) -> bool {
        std::fs::read_dir(&self.root).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Whether anything is mounted in the directory of mounts.
    pub fn holds_mounts(&self) -> bool {
        mounts::ours().any(|line| line.mount_point.parent() == Some(&*self.root))
    }

    /// Unmounts what is in the directory of mounts and has none of these names. All that can be is unmounted; the first fault.
    pub fn keep_only(&self, kept: &BTreeSet<String>) -> Result<()> {
        let mut surplus = BTreeSet::new();
        for line in mounts::ours().filter(|line| line.mount_point.parent() == Some(&*self.root)) {
            let name = line.mount_point.file_name().map(|name| name.to_string_lossy().into_owned());
            surplus.extend(name.filter(|name| !kept.contains(name)));
        }
        let (swap_end, private_end) = (swap_name(""), private_name(""));
        let mut first = Ok(());
        // Directories of nodes lie on the mounts of their jobs.
        for name in surplus.iter().filter(|name| name.ends_with(&private_end)) {
            first = first.and(unmount::unbind(&self.at(name)));
        }
        for name in surplus.iter().filter(|name| !name.ends_with(&private_end)) {
            tracing::warn!(node = self.node, name, "no living buffer has this mount: it ends");
            let gone = "the buffer is there no more".to_owned();
            let ended = match name.strip_suffix(&swap_end) {
                Some(job) => self.swap_off(job, &NodeSwapOff { servers_down: Some(gone), gives_up: true }),
                None => self.end(name),
            };
            first = first.and(ended);
        }
        for entry in std::fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if !kept.contains(&*entry.file_name().to_string_lossy()) {
                // A directory with contents was not made for a mount.
                let _ = std::fs::remove_dir(entry.path());
            }
        }
        self.drop_surplus_logs(kept);
        first
    }

    /// Removes logs and notes of mounts that are not kept, and that have ended.
    fn drop_surplus_logs(&self, kept: &BTreeSet<String>) {
        let (log, note) = (format!("node-{}-", self.node), format!("end-{}-", self.node));
        for entry in std::fs::read_dir(&self.logs).into_iter().flatten().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let of_log = file.strip_prefix(&log).and_then(|name| name.strip_suffix(".log"));
            let name =
                of_log.or_else(|| file.strip_prefix(&note).and_then(|name| name.strip_suffix(".json")));
            if name.is_some_and(|name| !kept.contains(name) && mounts::find(&self.at(name)).is_none()) {
                // The next look finds it again.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Whether mount(8) takes a word as the source of a buffer, and not as an option.
fn is_source(word: &str) -> bool {
    !word.starts_with('-') && word.contains(":/")
}

/// Refuses words that would lead out of the directory of mounts, or be taken for options.
fn check(job: &str, order: &NodeOrder) -> Result<()> {
    let (names, sources): (Vec<&String>, Vec<&String>) = match order {
        NodeOrder::Mount { mounts, swap, .. } => {
            let sources = mounts.iter().map(|mount| &mount.source).chain(swap);
            (mounts.iter().map(|mount| &mount.name).collect(), sources.collect())
        }
        NodeOrder::Unmount { names, .. } => (names.iter().collect(), Vec::new()),
    };
    let refused = |word: &str, why: &'static str| {
        Fault::new(Code::BadArgument)
            .what("cannot carry out an order with")
            .subject(word.escape_debug().to_string())
            .why(why)
            .data("nothing was changed")
    };
    let is_plain = |name: &str| {
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        (1..=NAME_MAX).contains(&name.len()) && plain && !name.starts_with(['.', '-'])
    };
    if let Some(name) =
        std::iter::once(job).chain(names.into_iter().map(String::as_str)).find(|n| !is_plain(n))
    {
        return Err(refused(name, "it is no name of a mount"));
    }
    match sources.into_iter().find(|source| !is_source(source)) {
        Some(source) => Err(refused(source, "it is no source of a mount")),
        None => Ok(()),
    }
}

/// A node whose agent cannot be asked.
pub(super) fn away(node: &str, why: String) -> Fault {
    Fault::new(Code::NodeAway)
        .what("waiting for node")
        .subject(node.to_owned())
        .why(why)
        .data("the buffer is kept")
        .next(format!("start its agent; or, if the node is dead: brindle bb node forget --yes {node}"))
}

/// The fault of several nodes: the first one, with the names of the others.
pub(super) fn of_several(faults: Vec<(String, Fault)>) -> Result<()> {
    let mut faults = faults.into_iter();
    let Some((_, first)) = faults.next() else { return Ok(()) };
    let others: Vec<String> = faults.map(|(node, fault)| format!("{node} ({})", short(&fault))).collect();
    Err(if others.is_empty() { first } else { first.why(format!("also {}", others.join(", "))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_that_lead_elsewhere_are_refused() {
        let mount = |name: &str, source: &str| {
            let mounts = vec![NodeMount { name: name.to_owned(), source: source.to_owned() }];
            NodeOrder::Mount { mounts, private: false, swap: None }
        };
        assert!(check("7", &mount("7", "10.0.0.1:9880:/bb")).is_ok());
        assert!(check("7", &mount("7_persistent_a-b", "10.0.0.1:9880:/bb")).is_ok());
        for (job, name, source) in [
            ("..", "7", "h:/bb"),
            ("7", "..", "h:/bb"),
            ("7", "a/b", "h:/bb"),
            ("7", "", "h:/bb"),
            ("-7", "7", "h:/bb"),
            ("7", "7", "--log=/etc/passwd:/"),
            ("7", "7", "bb"),
        ] {
            assert_eq!(check(job, &mount(name, source)).unwrap_err().code, Code::BadArgument, "{job} {name}");
        }
        let off = NodeOrder::Unmount { names: vec!["../etc".to_owned()], swap: None };
        assert_eq!(check("7", &off).unwrap_err().code, Code::BadArgument);
    }
}
