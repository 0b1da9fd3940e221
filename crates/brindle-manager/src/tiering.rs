//! Archive, release, restore and cancel, for a file or everything below a directory: a plan first, then a task that watches each file.

use std::collections::VecDeque;
use std::sync::Arc;

use brindle_client::Client;
use brindle_hsm::policy::pages::{Pages, Wanted};
use brindle_stdx::Mono;
use brindle_types::hsm::{
    ARCHIVE_ID_MAX, HSM_ARCHIVED, HSM_DIRTY, HSM_NOARCHIVE, HSM_NORELEASE, HSM_RELEASED,
};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, FileType, Ino, Result};
use brindle_wire::Cred;
use brindle_wire::mds::hsm::{HsmActReq, HsmAsk, HsmStateReq, HsmStateResp};
use brindle_wire::mds::policy::PolicyFound;
use brindle_wire::mds::scan::{Term, Test};

use crate::api::tasks::Progress;
use crate::clients::{self, Named};
use crate::cluster::Managed;
use crate::plan::{PlanView, quoted};

/// Longest time for which a plan looks at files; files beyond that are acted on all the same.
const PLAN_LIMIT_MS: u64 = 5_000;
/// Most files that are requested and not done: a user who opens a released file meanwhile waits behind no more than these.
const PENDING_MAX: usize = 256;
/// Pause between two looks at pending files.
const LOOK_EVERY_MS: u64 = 300;
/// How long a task waits while nothing gets done, before it says so and ends.
const STALLED_LIMIT_MS: u64 = 15 * 60_000;
/// How long a task that was given up takes files from the queue.
const GIVE_UP_LIMIT_MS: u64 = 15_000;
/// Failures that are reported one by one.
const FAILURES_TOLD: u64 = 5;

/// Actions of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A copy is made in an archive.
    Archive,
    /// The bytes go from the OSTs.
    Release,
    /// The bytes come back.
    Restore,
    /// Takes an action that waits or is under way from the queue.
    Cancel,
}

impl Verb {
    /// The word of the command.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Archive => "archive",
            Verb::Release => "release",
            Verb::Restore => "restore",
            Verb::Cancel => "cancel",
        }
    }

    fn past(self) -> &'static str {
        match self {
            Verb::Archive => "archived",
            Verb::Release => "released",
            Verb::Restore => "restored",
            Verb::Cancel => "given up",
        }
    }

    /// Whether it is done when it is answered.
    fn is_immediate(self) -> bool {
        matches!(self, Verb::Release | Verb::Cancel)
    }

    /// Whether it has something to do for a file.
    fn concerns(self, found: &PolicyFound) -> bool {
        let has = |flags: u32| found.flags & flags != 0;
        match self {
            Verb::Archive => {
                !has(HSM_RELEASED | HSM_NOARCHIVE)
                    && (!has(HSM_ARCHIVED) || has(HSM_DIRTY))
                    && found.under_way.is_none()
            }
            Verb::Release => {
                has(HSM_ARCHIVED)
                    && !has(HSM_DIRTY | HSM_RELEASED | HSM_NORELEASE)
                    && found.attr.size_bytes > 0
            }
            Verb::Restore => has(HSM_RELEASED) && found.under_way.is_none(),
            Verb::Cancel => found.under_way.is_some(),
        }
    }

    /// Whether it is so of a file with these flags, on which nothing is under way.
    fn is_reached(self, flags: u32) -> bool {
        match self {
            Verb::Archive => flags & HSM_ARCHIVED != 0 && flags & HSM_DIRTY == 0,
            Verb::Restore => flags & HSM_RELEASED == 0,
            Verb::Release | Verb::Cancel => true,
        }
    }
}

impl std::str::FromStr for Verb {
    type Err = Fault;

    fn from_str(word: &str) -> Result<Verb> {
        let all = [Verb::Archive, Verb::Release, Verb::Restore, Verb::Cancel];
        all.into_iter().find(|verb| verb.word() == word).ok_or_else(|| {
            Fault::new(Code::UnknownResource)
                .what("tiering has no action called")
                .subject(word.to_owned())
                .next("archive, release, restore, cancel")
        })
    }
}

/// Request of a person.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Action.
    pub verb: Verb,
    /// Object of the action.
    pub what: What,
    /// The archive; 0 for the one that a file has, or the first.
    pub archive: u32,
}

/// A file, or everything below a directory.
#[derive(Clone, Debug)]
pub enum What {
    /// By its path.
    Path(Named),
    /// By its number, as the queue tells it; as a person writes it.
    File(Ino, String),
}

impl Asked {
    fn subject(&self) -> String {
        match &self.what {
            What::Path(named) => named.below_root.clone(),
            What::File(_, fid) => fid.clone(),
        }
    }

    fn ask(&self) -> HsmAsk {
        match self.verb {
            Verb::Archive => HsmAsk::Archive(self.archive),
            Verb::Release => HsmAsk::Release,
            Verb::Restore => HsmAsk::Restore,
            Verb::Cancel => HsmAsk::Cancel,
        }
    }

    fn command(&self, is_tree: bool, mount: &str) -> String {
        let verb = self.verb.word();
        let archive = match (self.verb, self.archive) {
            (Verb::Archive, 1..) => format!(" --archive {}", self.archive),
            _ => String::new(),
        };
        match &self.what {
            What::File(_, fid) => {
                let mount = quoted(mount);
                format!("brindle hsm {verb} \"$(lfs fid2path {mount} '{fid}' | head -n 1)\"")
            }
            What::Path(named) if !is_tree => format!("brindle hsm {verb}{archive} {}", quoted(&named.shown)),
            What::Path(named) if self.verb == Verb::Restore => {
                format!("brindle hsm restore -r {}", quoted(&named.shown))
            }
            What::Path(named) => {
                format!("find {} -type f -exec brindle hsm {verb}{archive} {{}} +", quoted(&named.shown))
            }
        }
    }

    /// The body of the request.
    fn request(&self) -> String {
        let body = match &self.what {
            What::Path(named) => {
                serde_json::json!({ "path": named.below_root, "archive": self.archive, "dry_run": false })
            }
            What::File(_, fid) => {
                serde_json::json!({ "fid": fid, "archive": self.archive, "dry_run": false })
            }
        };
        format!("POST /api/v1/hsm/{} {body}", self.verb.word())
    }
}

/// Refuses an archive that there cannot be.
pub fn check_archive(archive: u32) -> Result<()> {
    if archive <= ARCHIVE_ID_MAX {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what("there is no archive")
        .subject(archive.to_string())
        .why(format!("archives have the numbers 1 to {ARCHIVE_ID_MAX}"))
        .data("nothing was changed"))
}

async fn start(client: &Client, what: &What) -> Result<Ino> {
    match what {
        What::Path(named) => clients::found(client, named).await,
        What::File(ino, _) => Ok(*ino),
    }
}

/// Files of a tree, page by page; the start of a scan is its first entry.
fn scan(client: &Arc<Client>, start: Ino) -> Pages {
    let predicate = vec![Term::Test(Test::Kind(vec![FileType::Regular, FileType::Directory]))];
    Pages::new(client.clone(), Wanted { start, predicate, xattrs: Vec::new() })
}

/// Result of a look at the files.
#[derive(Debug, Default)]
struct Sum {
    files: u64,
    bytes: u64,
    others: u64,
    is_tree: bool,
    is_whole: bool,
}

async fn look(client: &Arc<Client>, asked: &Asked) -> Result<Sum> {
    let began = client.seams().now();
    let mut pages = scan(client, start(client, &asked.what).await?);
    let mut sum = Sum::default();
    while let Some(page) = pages.next().await? {
        for found in &page.found {
            match found.attr.kind {
                FileType::Directory => sum.is_tree = true,
                _ if asked.verb.concerns(found) => {
                    sum.files += 1;
                    sum.bytes = sum.bytes.saturating_add(found.attr.size_bytes);
                }
                _ => sum.others += 1,
            }
        }
        if client.seams().now().ms_since(began) > PLAN_LIMIT_MS {
            return Ok(sum);
        }
    }
    sum.is_whole = true;
    Ok(sum)
}

/// Plan of an action; nothing is changed.
pub async fn plan(managed: &Managed, asked: &Asked) -> Result<PlanView> {
    let place = managed.place()?;
    let look = async |client| clients::in_time(look(&client, asked)).await;
    let sum = managed.with_client(&place, look).await?;
    let mount = managed.mount_word(&place);
    Ok(PlanView {
        target: asked.subject(),
        action: asked.verb.word().to_owned(),
        would: would(asked, &sum),
        effects: effects(asked.verb),
        changes: sum.files > 0 || !sum.is_whole,
        command: asked.command(sum.is_tree, &mount),
        request: asked.request(),
        task: None,
    })
}

fn would(asked: &Asked, sum: &Sum) -> String {
    let least = if sum.is_whole { "" } else { "At least " };
    let where_to = match (asked.verb, asked.archive) {
        (Verb::Archive, 0) => " into the archive that each has, or archive 1".to_owned(),
        (Verb::Archive, number) => format!(" into archive {number}"),
        _ => String::new(),
    };
    let others = match sum.others {
        0 => String::new(),
        1 => "; for 1 other there is nothing to do".to_owned(),
        n => format!("; for {n} others there is nothing to do"),
    };
    if sum.files == 0 && sum.is_whole {
        return format!("Nothing there is to be {}{others}", asked.verb.past());
    }
    let size = match asked.verb {
        Verb::Cancel => String::new(),
        _ => format!(", {}", format_bytes(sum.bytes)),
    };
    format!("{least}{}{size} would be {}{where_to}{others}", files(sum.files), asked.verb.past())
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn effects(verb: Verb) -> Vec<String> {
    let texts: &[&str] = match verb {
        Verb::Archive => &[
            "Agents copy the files in the background; programs go on reading and writing them.",
            "A file that changes while it is copied is not archived; ask again later.",
        ],
        Verb::Release => &[
            "The bytes go from the OSTs and lie in the archive only. Names, sizes and times stay.",
            "A program that opens such a file waits until it has come back.",
            "Files that are open somewhere are left alone.",
        ],
        Verb::Restore => &[
            "The bytes come back to the OSTs, as if somebody opened the files.",
            "The copies in the archive stay.",
        ],
        Verb::Cancel => {
            &["A file stays as it is. A program that waits for a restore that is given up gets an error."]
        }
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A file that was asked for.
struct Pending {
    ino: Ino,
    path: String,
    size_bytes: u64,
}

/// Result of an action, in a sentence.
#[derive(Default)]
struct Done {
    files: u64,
    bytes: u64,
    failed: u64,
}

/// How far the actions under way are; an agent that changes it is at work.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct UnderWay {
    running: u64,
    bytes: u64,
}

struct Work<'a> {
    client: Arc<Client>,
    asked: &'a Asked,
    progress: &'a Progress,
    pending: VecDeque<Pending>,
    done: Done,
    /// As the last look found it.
    under_way: UnderWay,
    moved: Mono,
}

/// Does it, file by file; ends when everything is done, was given up, or does not go on.
pub async fn carry_out(managed: &Managed, asked: &Asked, progress: &Progress) -> Result<String> {
    let place = managed.place()?;
    let work = async |client: Arc<Client>| {
        let (pending, done, under_way) = (VecDeque::new(), Done::default(), UnderWay::default());
        let moved = client.seams().now();
        let mut work = Work { client, asked, progress, pending, done, under_way, moved };
        // A server that does not answer keeps nobody from giving it up.
        let is_through = tokio::select! {
            through = work.everything() => through.map(|()| true),
            () = progress.cancelled() => Ok(false),
        };
        if is_through? { work.outcome() } else { Ok(work.given_up().await) }
    };
    managed.with_client(&place, work).await
}

impl Work<'_> {
    /// Asks for all files, and waits for them.
    async fn everything(&mut self) -> Result<()> {
        let start = start(&self.client, &self.asked.what).await?;
        let mut pages = scan(&self.client, start);
        while let Some(page) = pages.next().await? {
            for found in page.found.into_iter().filter(|found| found.attr.kind == FileType::Regular) {
                if self.asked.verb.concerns(&found) {
                    self.begin(found).await?;
                }
            }
        }
        while !self.pending.is_empty() {
            self.look().await?;
        }
        Ok(())
    }

    /// Asks for a file, when there is room among those that are pending.
    async fn begin(&mut self, found: PolicyFound) -> Result<()> {
        let path = String::from_utf8_lossy(&found.path).into_owned();
        let pending = Pending { ino: found.attr.ino, path, size_bytes: found.attr.size_bytes };
        while self.pending.len() >= PENDING_MAX {
            self.look().await?;
        }
        let ino = pending.ino;
        // Pending before it is asked for: given up between the request and its answer, it is looked after, too.
        self.pending.push_back(pending);
        loop {
            let asked = self.ask(ino, self.asked.ask()).await;
            if matches!(&asked, Ok(()) if !self.asked.verb.is_immediate()) {
                return Ok(());
            }
            let Some(pending) = self.pending.pop_back() else { return Ok(()) };
            match asked {
                // The queue is full: others wait, too.
                Err(fault) if fault.code == Code::Overloaded => {
                    self.look().await?;
                    self.pending.push_back(pending);
                }
                Err(fault) => {
                    self.failed(&pending, &fault.why.join("; "), fault.code);
                    return Ok(());
                }
                Ok(()) => {
                    self.count(&pending);
                    return Ok(());
                }
            }
        }
    }

    async fn ask(&self, ino: Ino, ask: HsmAsk) -> Result<()> {
        self.client.ask_as_agent(&HsmActReq { ino, ask, cred: Cred::default() }).await.map(drop)
    }

    /// Waits for a moment and looks what has ended.
    async fn look(&mut self) -> Result<()> {
        self.client.seams().sleep_ms(LOOK_EVERY_MS).await;
        let mut under_way = UnderWay::default();
        for _ in 0..self.pending.len() {
            let Some(ino) = self.pending.front().map(|pending| pending.ino) else { break };
            let state = self.client.ask_as_agent(&HsmStateReq { ino }).await;
            let Some(pending) = self.pending.pop_front() else { break };
            match state {
                Ok(HsmStateResp { under_way: Some(action), .. }) => {
                    under_way.running += u64::from(action.running);
                    under_way.bytes = under_way.bytes.saturating_add(action.moved_bytes);
                    self.pending.push_back(pending);
                }
                Ok(state) if self.asked.verb.is_reached(state.flags) => self.count(&pending),
                Ok(_) => self.failed(&pending, "its action has failed, or was given up", Code::NotRecalled),
                // The file was removed meanwhile, and nobody misses it.
                Err(fault) if fault.code == Code::NotFound => self.moved = self.client.seams().now(),
                Err(fault) => return Err(fault),
            }
        }
        self.progress.tell(format!(
            "{} {}, {}; {} wait or are under way",
            files(self.done.files),
            self.asked.verb.past(),
            format_bytes(self.done.bytes),
            self.pending.len()
        ));
        if self.under_way != under_way {
            (self.under_way, self.moved) = (under_way, self.client.seams().now());
        }
        if self.client.seams().now().ms_since(self.moved) > STALLED_LIMIT_MS {
            return Err(Fault::new(Code::NotRecalled)
                .what(format!("cannot {}", self.asked.verb.word()))
                .subject(self.asked.subject())
                .why(format!("nothing was done for {} minutes", STALLED_LIMIT_MS / 60_000))
                .data(format!(
                    "{} stay queued, and are done when an agent takes them",
                    files(self.pending.len() as u64)
                ))
                .next("see whether an agent serves the archive: brindle hsm status"));
        }
        Ok(())
    }

    fn count(&mut self, pending: &Pending) {
        self.done.files += 1;
        self.done.bytes = self.done.bytes.saturating_add(pending.size_bytes);
        self.moved = self.client.seams().now();
    }

    fn failed(&mut self, pending: &Pending, why: &str, code: Code) {
        self.done.failed += 1;
        self.moved = self.client.seams().now();
        if self.done.failed <= FAILURES_TOLD {
            let path = if pending.path.is_empty() { self.asked.subject() } else { pending.path.clone() };
            self.progress.tell(format!("failed: {path}: {why} ({code})"));
        }
    }

    /// Ends a task that was given up: archives that wait are taken from the queue. Restores stay in it, as programs may wait for them.
    async fn given_up(mut self) -> String {
        let pending = std::mem::take(&mut self.pending);
        let mut ended = Ended::default();
        if self.asked.verb == Verb::Archive {
            let taking = async {
                for one in &pending {
                    match self.ask(one.ino, HsmAsk::Cancel).await {
                        Err(fault) if fault.code != Code::NotFound => ended.failed += 1,
                        _ => ended.taken += 1,
                    }
                }
            };
            // Archives that could not be taken from the queue in time stay in it, and the answer counts them.
            let _ = self.client.seams().timeout_ms(GIVE_UP_LIMIT_MS, taking).await;
        }
        let pending = if self.asked.verb.is_immediate() { 0 } else { pending.len() as u64 };
        ended.left = pending - ended.taken - ended.failed;
        given_up(self.asked.verb, &self.done, &ended)
    }

    fn outcome(self) -> Result<String> {
        let Done { files: count, bytes, failed } = self.done;
        let size = match self.asked.verb {
            Verb::Cancel => String::new(),
            _ => format!(", {}", format_bytes(bytes)),
        };
        let text = format!("{} {}{size}", files(count), self.asked.verb.past());
        if failed == 0 {
            return Ok(text);
        }
        Err(Fault::new(Code::HsmRefused)
            .what(format!("could not {} all of", self.asked.verb.word()))
            .subject(self.asked.subject())
            .why(format!("{} failed; {text}", files(failed)))
            .data("files that failed are as they were")
            .next("brindle hsm status and the agents' logs say why"))
    }
}

/// State of pending files when a task was given up.
#[derive(Default)]
struct Ended {
    taken: u64,
    failed: u64,
    left: u64,
}

fn given_up(verb: Verb, done: &Done, ended: &Ended) -> String {
    let mut text = format!("given up: {} {} before", files(done.files), verb.past());
    let parts = [
        (ended.taken, "taken from the queue"),
        (ended.failed, "could not be taken from it"),
        (ended.left, "stay queued"),
    ];
    for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(verb: Verb, archive: u32) -> Asked {
        let named = Named { below_root: "/p".to_owned(), shown: "/mnt/a b/p".to_owned() };
        Asked { verb, what: What::Path(named), archive }
    }

    #[test]
    fn plans_say_how_much_there_is_to_do() {
        let sum = Sum { files: 2, bytes: 3 << 20, others: 1, is_tree: true, is_whole: true };
        assert_eq!(
            would(&asked(Verb::Archive, 2), &sum),
            "2 files, 3.0 MiB would be archived into archive 2; for 1 other there is nothing to do"
        );
        let part = Sum { files: 1, bytes: 0, others: 0, is_tree: true, is_whole: false };
        assert_eq!(would(&asked(Verb::Cancel, 0), &part), "At least 1 file would be given up");
        let none = Sum { others: 7, is_whole: true, ..Sum::default() };
        assert_eq!(
            would(&asked(Verb::Restore, 0), &none),
            "Nothing there is to be restored; for 7 others there is nothing to do"
        );
    }

    #[test]
    fn giving_up_says_what_stays_queued() {
        let done = Done { files: 3, ..Done::default() };
        let restores = Ended { left: 5, ..Ended::default() };
        assert_eq!(
            given_up(Verb::Restore, &done, &restores),
            "given up: 3 files restored before, 5 stay queued"
        );
        let archives = Ended { taken: 2, failed: 1, left: 0 };
        assert_eq!(
            given_up(Verb::Archive, &done, &archives),
            "given up: 3 files archived before, 2 taken from the queue, 1 could not be taken from it"
        );
    }

    #[test]
    fn commands_do_the_same() {
        let command = |verb, archive, is_tree| asked(verb, archive).command(is_tree, "/mnt/a b");
        assert_eq!(command(Verb::Archive, 2, false), "brindle hsm archive --archive 2 '/mnt/a b/p'");
        assert_eq!(command(Verb::Restore, 0, true), "brindle hsm restore -r '/mnt/a b/p'");
        assert_eq!(
            command(Verb::Release, 0, true),
            "find '/mnt/a b/p' -type f -exec brindle hsm release {} +"
        );
        let ino = Ino::new(0, 1);
        let file = Asked { verb: Verb::Cancel, what: What::File(ino, ino.fid().to_string()), archive: 0 };
        assert_eq!(
            file.command(false, "/mnt/b"),
            format!("brindle hsm cancel \"$(lfs fid2path /mnt/b '{}' | head -n 1)\"", ino.fid())
        );
        assert!(check_archive(32).is_ok() && check_archive(33).is_err());
        assert!("remove".parse::<Verb>().is_err(), "a copy is not removed by a click");
    }
}
