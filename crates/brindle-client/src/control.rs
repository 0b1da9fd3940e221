//! Control of a running mount by commands: a Unix socket, one JSON request a line, one JSON answer a line (of a scan: one
//! a page).
//!
//! Served by the mount daemon at a path that it chooses; asked by `lfs` and `brindle` through [`ask`] and
//! [`ask_scan`]. Never part of a simulation. Requests that change something, or tell names, run with the
//! rights of the process at the other end.

mod peer;
mod quota;
mod scan;

use std::path::Path;
use std::sync::Arc;

pub use scan::{FoundLine, PathText, RefusedLine, ScanAsk, ScanPage, SumLine};

use brindle_types::{Code, Fault, Fid, Ino, Layout, LayoutPolicy};
use brindle_wire::Cred;
use brindle_wire::map::Map;
use brindle_wire::mds::hsm::{HsmActReq, HsmAsk, HsmRemoveReq, HsmSetReq, HsmStateReq, HsmStateResp};
use brindle_wire::mds::migrate::{MigrateReq, MigrateResp};
use brindle_wire::mds::project::Project;
use brindle_wire::mds::quota::{
    QuotaChange, QuotaListResp, QuotaOwner, QuotaShowResp, QuotaSubject, QuotaUseResp,
};
use brindle_wire::mds::waits::MdtWaitsReq;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::WriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::{Client, Ctx};

/// Longest line of a request or an answer.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest line of a page of a scan: what JSON can make of the largest page.
const PAGE_LINE_BYTES_MAX: u64 = 4 << 20;
/// Connections at once.
const CONNECTIONS_MAX: usize = 64;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Source of the mount, and state of the servers.
    Status,
    /// Layout of a file, or the default of a directory.
    Getstripe {
        /// Inode number.
        ino: u64,
    },
    /// Chooses the layout of an empty file, or a directory's default.
    Setstripe {
        /// Inode number.
        ino: u64,
        /// The wanted policy; `null` deletes a directory's default.
        policy: Option<LayoutPolicy>,
    },
    /// Moves one piece of a file to other OSTs.
    Migrate {
        /// Inode number.
        ino: u64,
        /// Offset at which the piece begins.
        offset: u64,
        /// The wanted layout; `null`: the one that the file has.
        policy: Option<LayoutPolicy>,
        /// OSTs that it is to leave.
        avoid: Vec<u16>,
        /// Most bytes to copy.
        copy_max_bytes: u64,
    },
    /// Asks for the FID of an inode.
    Path2fid {
        /// Inode number.
        ino: u64,
    },
    /// Asks for the paths of the inode of a FID, from the root of the file system.
    Fid2path {
        /// The FID.
        fid: String,
    },
    /// Calls that wait, here and at the MDT.
    Waits,
    /// Space of each target.
    Df,
    /// Usage and limits of a user, group or project.
    Quota {
        /// Owner whose usage is asked for.
        owner: QuotaOwner,
        /// Number of the user, group or project.
        id: u32,
    },
    /// Limit what a user, group or project may use.
    SetQuota {
        /// Owner whose limits are set.
        owner: QuotaOwner,
        /// Number of the user, group or project.
        id: u32,
        /// Most inodes; 0 for no limit, nothing to leave it as it is.
        inodes_max: Option<u64>,
        /// Most allocated bytes; likewise.
        bytes_max: Option<u64>,
    },
    /// Usage, limits and grace times of an owner, or the defaults of a kind of owner.
    QuotaShow {
        /// Subject of the question.
        subject: QuotaSubject,
    },
    /// Change limits or grace times, or say what would be.
    QuotaChange {
        /// Subject of the change.
        subject: QuotaSubject,
        /// Change to make.
        change: QuotaChange,
        /// Only say what would be.
        dry_run: bool,
    },
    /// Owners that use something or have limits, a page at a time.
    QuotaList {
        /// Kind of owner.
        owner: QuotaOwner,
        /// Owners behind this number.
        behind: Option<u32>,
    },
    /// The project of a file or directory.
    Project {
        /// Inode number.
        ino: u64,
    },
    /// Set the project of a file or directory, or the flag by which it is inherited.
    SetProject {
        /// Inode number.
        ino: u64,
        /// Number of the project; 0 for none, nothing to leave it as it is.
        id: Option<u32>,
        /// Whether what is made in the directory gets its project; likewise.
        inherits: Option<bool>,
    },
    /// State of a file's copies in archives.
    HsmState {
        /// Inode number.
        ino: u64,
    },
    /// Archive, release, restore, remove, or give up what is under way.
    HsmAct {
        /// Inode number.
        ino: u64,
        /// Action to ask for.
        ask: HsmAsk,
    },
    /// Let the copies of a file in one archive go, also of a file that was removed.
    HsmRemove {
        /// Inode number.
        ino: u64,
        /// Number of the archive.
        archive: u32,
    },
    /// Set and clear flags of tiering.
    HsmSet {
        /// Inode number.
        ino: u64,
        /// Flags to set.
        set: u32,
        /// Flags to clear.
        clear: u32,
        /// Number of the archive, if it is to be another one.
        archive: Option<u32>,
    },
    /// The map that this mount goes by, for commands that find no MGS.
    Map,
    /// Make everything durable.
    Sync,
    /// Entries below a directory that match a predicate; answered with pages, until one is the last.
    Scan(ScanAsk),
}

/// A target in a [`Answer::Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Full name.
    pub name: String,
    /// Whether this client is connected to it.
    pub connected: bool,
    /// Time since `connected` has its value, in milliseconds.
    pub since_ms: u64,
    /// Addresses of the target in the map.
    pub nids: Vec<String>,
    /// Requests in flight.
    pub requests_in_flight: u64,
    /// Reason why the last connection ended.
    pub last_error: Option<String>,
}

/// Space of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpace {
    /// Full name.
    pub name: String,
    /// Whether it answered.
    pub answered: bool,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes available to users.
    pub available_bytes: u64,
    /// Inodes (objects) in all.
    pub total_inodes: u64,
    /// Inodes free.
    pub free_inodes: u64,
    /// Device it lies on.
    pub device_id: u64,
}

/// A call that takes long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitLine {
    /// The call that waits.
    pub what: String,
    /// Name of the target that the call waits for.
    pub target: String,
    /// Waiting time, in milliseconds.
    pub ms: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Answer to [`Request::Status`].
    Status {
        /// File system.
        fs: String,
        /// Mount point.
        mount: String,
        /// Session at the MDT.
        session: String,
        /// Open files.
        open_files: u64,
        /// The targets that this client talks to.
        targets: Vec<TargetStatus>,
    },
    /// Answer to [`Request::Getstripe`].
    Stripe {
        /// Layout; of a regular file only.
        layout: Option<Layout>,
        /// Policy; only of a directory that has a default of its own.
        policy: Option<LayoutPolicy>,
        /// Policy of a new file here.
        effective: LayoutPolicy,
        /// Number of layout changes so far.
        layout_gen: u32,
    },
    /// Answer to [`Request::Migrate`].
    Migrated {
        /// Offset of the next piece; `null` when all is done.
        next: Option<u64>,
        /// Bytes of the file that were copied.
        copied_bytes: u64,
        /// Size of the file.
        size_bytes: u64,
    },
    /// Answer to [`Request::Path2fid`].
    Fid(String),
    /// Answer to [`Request::Fid2path`].
    Paths(Vec<Vec<u8>>),
    /// Answer to [`Request::Waits`].
    Waits(Vec<WaitLine>),
    /// Answer to [`Request::Df`].
    Df(Vec<TargetSpace>),
    /// Answer to [`Request::Quota`] and [`Request::SetQuota`].
    Quota(QuotaUseResp),
    /// Answer to [`Request::QuotaShow`] and [`Request::QuotaChange`].
    QuotaShow(QuotaShowResp),
    /// Answer to [`Request::QuotaList`].
    QuotaList(QuotaListResp),
    /// Answer to [`Request::Project`] and [`Request::SetProject`].
    Project(Project),
    /// Answer to [`Request::HsmState`].
    HsmState(HsmStateResp),
    /// Answer to [`Request::Map`].
    Map(Map),
    /// Answer to [`Request::Scan`]; there are several.
    Scan(ScanPage),
    /// Done.
    Done,
    /// The fault.
    Fault(Fault),
}

/// Serves a mount's socket at `path` (replaced if it is there) until the mount goes down. Call it within a tokio
/// runtime.
pub async fn serve(client: Arc<Client>, path: &Path) -> Result<(), Fault> {
    let failed =
        |e: std::io::Error| Fault::io(Code::MountFailed, "cannot listen at", path.display().to_string(), &e);
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Every user may connect; each request checks the rights of its caller.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(path, everybody).map_err(failed)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accepting = client.clone();
    client.seams.spawn("control", async move {
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else { continue };
            if accepting.session.is_ended() {
                return;
            }
            let client = accepting.clone();
            accepting.seams.spawn("control.conn", async move {
                // The caller may have gone; there is nobody to tell.
                let _ = converse(&client, stream).await;
                drop(permit);
            });
        }
    });
    Ok(())
}

/// Asks the mount whose socket is at `path`.
pub async fn ask(path: &Path, request: &Request) -> Result<Answer, Fault> {
    Asked::new(path, request).await?.answer(LINE_BYTES_MAX).await
}

/// Asks the mount whose socket is at `path` for a scan; `each` gets the pages.
pub async fn ask_scan(
    path: &Path,
    ask: ScanAsk,
    each: &mut (dyn FnMut(ScanPage) -> Result<(), Fault> + Send),
) -> Result<(), Fault> {
    let mut asked = Asked::new(path, &Request::Scan(ask)).await?;
    loop {
        let page = match asked.answer(PAGE_LINE_BYTES_MAX).await? {
            Answer::Scan(page) => page,
            other => return Err(asked.failed(&std::io::Error::other(format!("it answered {other:?}")))),
        };
        let is_last = page.is_last;
        each(page)?;
        if is_last {
            return Ok(());
        }
    }
}

/// A question on its way.
struct Asked<'a> {
    path: &'a Path,
    reader: BufReader<UnixStream>,
}

impl<'a> Asked<'a> {
    async fn new(path: &'a Path, request: &Request) -> Result<Asked<'a>, Fault> {
        let mut stream = UnixStream::connect(path).await.map_err(|e| ask_failed(path, &e))?;
        let mut line = serde_json::to_vec(request).expect("requests are plain data");
        line.push(b'\n');
        stream.write_all(&line).await.map_err(|e| ask_failed(path, &e))?;
        Ok(Asked { path, reader: BufReader::new(stream) })
    }

    async fn answer(&mut self, line_bytes_max: u64) -> Result<Answer, Fault> {
        let mut line = Vec::new();
        let mut reader = (&mut self.reader).take(line_bytes_max);
        reader.read_until(b'\n', &mut line).await.map_err(|e| ask_failed(self.path, &e))?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Fault(fault)) => Err(fault),
            Ok(answer) => Ok(answer),
            Err(e) => Err(self.failed(&std::io::Error::other(e))),
        }
    }

    fn failed(&self, e: &std::io::Error) -> Fault {
        ask_failed(self.path, e)
    }
}

fn ask_failed(path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::NotABrindlePath, "cannot ask the mount at", path.display().to_string(), e)
}

async fn converse(client: &Client, mut stream: UnixStream) -> std::io::Result<()> {
    let cred = peer::cred(&stream)?;
    let (reading, mut writing) = stream.split();
    let mut reader = BufReader::new(reading);
    loop {
        let mut line = Vec::new();
        if (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(Request::Scan(ask)) => match answer_pages(client, &cred, ask, &mut writing).await? {
                Ok(()) => continue,
                Err(fault) => Err(fault),
            },
            Ok(request) => client.control(&Ctx::of(cred.clone()), request).await,
            Err(e) => {
                Err(Fault::new(Code::InvalidArgument).what("cannot read the request").why(e.to_string()))
            }
        };
        write_line(&mut writing, &answer.unwrap_or_else(Answer::Fault)).await?;
    }
}

async fn write_line(writing: &mut WriteHalf<'_>, answer: &Answer) -> std::io::Result<()> {
    let mut out = serde_json::to_vec(answer).expect("answers are plain data");
    out.push(b'\n');
    writing.write_all(&out).await
}

/// Writes the pages of a scan as fast as they are read; the next one is on its way meanwhile.
async fn answer_pages(
    client: &Client,
    cred: &Cred,
    ask: ScanAsk,
    writing: &mut WriteHalf<'_>,
) -> std::io::Result<Result<(), Fault>> {
    let mut request = ask.request(cred.clone());
    let mut next = client.scan_page(&request).await;
    loop {
        let mut page = match next {
            Ok(page) => page,
            Err(fault) => return Ok(Err(fault)),
        };
        request.cursor = page.cursor.take();
        let answer = Answer::Scan(ScanPage::new(page, request.cursor.is_none()));
        if request.cursor.is_none() {
            return write_line(writing, &answer).await.map(Ok);
        }
        let (written, following) = tokio::join!(write_line(writing, &answer), client.scan_page(&request));
        written?;
        next = following;
    }
}

impl Client {
    /// Answers one question with the rights of `ctx`.
    pub async fn control(&self, ctx: &Ctx, request: Request) -> Result<Answer, Fault> {
        match request {
            Request::Status => Ok(self.status()),
            Request::Getstripe { ino } => {
                let stripe = self.get_stripe(Ino(ino)).await?;
                Ok(Answer::Stripe {
                    layout: stripe.layout,
                    policy: stripe.policy,
                    effective: stripe.effective,
                    layout_gen: stripe.layout_gen,
                })
            }
            Request::Setstripe { ino, policy } => {
                self.set_stripe(ctx, Ino(ino), policy).await.map(|()| Answer::Done)
            }
            Request::Migrate { ino, offset, policy, avoid, copy_max_bytes } => {
                let cred = ctx.cred.clone();
                let request = MigrateReq { ino: Ino(ino), offset, policy, avoid, copy_max_bytes, cred };
                let MigrateResp { next, copied_bytes, size_bytes } = self.migrate(request).await?;
                Ok(Answer::Migrated { next, copied_bytes, size_bytes })
            }
            Request::Path2fid { ino } => Ok(Answer::Fid(Ino(ino).fid().to_string())),
            Request::Fid2path { fid } => self.fid_to_path(ctx, &fid).await.map(Answer::Paths),
            Request::Waits => self.list_waits().await.map(Answer::Waits),
            Request::Df => self.list_space().await.map(Answer::Df),
            Request::Quota { .. }
            | Request::SetQuota { .. }
            | Request::QuotaShow { .. }
            | Request::QuotaChange { .. }
            | Request::QuotaList { .. }
            | Request::Project { .. }
            | Request::SetProject { .. } => quota::answer(self, ctx, request).await,
            Request::HsmState { ino } => {
                self.mds.ask(&HsmStateReq { ino: Ino(ino) }).await.map(Answer::HsmState)
            }
            Request::HsmAct { ino, ask } => {
                let request = HsmActReq { ino: Ino(ino), ask, cred: ctx.cred.clone() };
                self.mds.ask(&request).await.map(|_| Answer::Done)
            }
            Request::HsmRemove { ino, archive } => {
                let request = HsmRemoveReq { ino: Ino(ino), archive, cred: ctx.cred.clone() };
                self.mds.ask(&request).await.map(|_| Answer::Done)
            }
            Request::HsmSet { ino, set, clear, archive } => {
                let request = HsmSetReq { ino: Ino(ino), set, clear, archive, cred: ctx.cred.clone() };
                self.mds.ask(&request).await.map(|_| Answer::Done)
            }
            Request::Map => Ok(Answer::Map(Map::clone(&self.map()))),
            Request::Sync => self.sync_all().await.map(|()| Answer::Done),
            Request::Scan(_) => Err(scan::not_one_answer()),
        }
    }

    fn status(&self) -> Answer {
        let now = self.seams.now();
        let map = self.map();
        let status = |caller: &brindle_targets::Caller| {
            let state = caller.peer().state();
            let nids = map.target(caller.target()).map(|t| t.nids.clone()).unwrap_or_default();
            TargetStatus {
                name: map.fs.target(caller.target()),
                connected: state.connected,
                since_ms: now.ms_since(state.since),
                nids: nids.iter().map(ToString::to_string).collect(),
                requests_in_flight: state.requests_in_flight as u64,
                last_error: state.last_error.map(|f| f.to_string()),
            }
        };
        Answer::Status {
            fs: map.fs.to_string(),
            mount: self.config.mount.clone(),
            session: self.session.identity().session.to_string(),
            open_files: self.handles.all().len() as u64,
            targets: self.callers().iter().map(status).collect(),
        }
    }

    async fn fid_to_path(&self, ctx: &Ctx, fid: &str) -> Result<Vec<Vec<u8>>, Fault> {
        if ctx.cred.uid != 0 {
            return Err(Fault::new(Code::NotPermitted).what("cannot tell paths of").subject(fid.to_owned()));
        }
        let wrong = |why: String| Fault::new(Code::InvalidArgument).what("cannot look for").subject(why);
        let parsed: Fid = fid.parse().map_err(wrong)?;
        let ino = parsed.ino().ok_or_else(|| Fault::new(Code::NotFound).subject(fid.to_owned()))?;
        self.path_of(ino).await
    }

    async fn list_waits(&self) -> Result<Vec<WaitLine>, Fault> {
        let fs = &self.config.fs;
        let own = self.targets.waits().list(self.seams.now()).into_iter();
        let own =
            own.map(|w| WaitLine { what: w.op.name().to_owned(), target: fs.target(w.target), ms: w.ms });
        let mut lines: Vec<WaitLine> = own.collect();
        // An MDT that is away is in the list already, and must not make the list wait.
        let asking = self.mds.ask(&MdtWaitsReq {});
        if let Some(Ok(answer)) = self.seams.timeout_ms(1_000, asking).await {
            let theirs = answer.waits.into_iter();
            lines.extend(theirs.map(|(what, target, ms)| WaitLine { what, target, ms }));
        }
        Ok(lines)
    }

    async fn list_space(&self) -> Result<Vec<TargetSpace>, Fault> {
        let spaces = self.spaces().await?;
        let fs = &self.config.fs;
        let mut lines = vec![TargetSpace {
            name: fs.target(self.mds.target()),
            answered: true,
            total_bytes: spaces.mdt.total_bytes,
            available_bytes: spaces.mdt.available_bytes,
            total_inodes: spaces.mdt.inodes_used.saturating_add(spaces.mdt.inodes_free),
            free_inodes: spaces.mdt.inodes_free,
            device_id: spaces.mdt.device_id,
        }];
        lines.extend(spaces.osts.into_iter().map(|(id, space)| TargetSpace {
            name: fs.target(id),
            answered: space.is_some(),
            total_bytes: space.as_ref().map_or(0, |s| s.total_bytes),
            available_bytes: space.as_ref().map_or(0, |s| s.available_bytes),
            total_inodes: space.as_ref().map_or(0, |s| s.total_inodes),
            free_inodes: space.as_ref().map_or(0, |s| s.free_inodes),
            device_id: space.as_ref().map_or(0, |s| s.device_id),
        }));
        Ok(lines)
    }
}
