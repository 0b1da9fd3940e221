//! Traces: one record for each request that a server has answered, for as long as a command reads them (`brindle trace`).

use brindle_types::{Ino, ObjectId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::mds::close::CloseReq;
use crate::mds::open_ahead::OpenAheadReq;
use crate::mds::report::ReportReq;
use crate::{Name, Op, message};

/// Most operations, and most files, that a filter names.
pub const CHOSEN_MAX: usize = 64;
/// Longest name of a job, client or file in a filter, bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// Most bytes of the records of an answer.
pub const ANSWER_BYTES_MAX: usize = 512 << 10;

/// File or directory that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSubject {
    /// The inode; the directory where `name` is not empty.
    pub ino: u64,
    /// Name in the directory; empty where the request has none.
    pub name: Name,
    /// First byte, where the request is about bytes.
    pub offset: Option<u64>,
    /// Further files of the same request.
    pub others: u32,
}

/// Choice of requests. An empty field chooses all of them, but for those that mounts and servers make by themselves all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFilter {
    /// Numbers of the operations.
    pub ops: Vec<u16>,
    /// Requests that took so long at the server, or longer: queue included.
    pub slower_us: u64,
    /// Only requests that ended with an error.
    pub errors_only: bool,
    /// Name of the job.
    pub job: String,
    /// User of the job.
    pub uid: Option<u32>,
    /// Host of the mount.
    pub client: String,
    /// Files and directories: by inode, and by directory and name.
    pub files: Vec<(u64, Name)>,
}

/// Asks for records since the last question of this trace. The first question begins it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReq {
    /// Number that the reader chose for its trace.
    pub trace: u64,
    /// Choice of requests.
    pub filter: TraceFilter,
    /// The last question: the server forgets the trace.
    pub ends: bool,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// Arrival by the clock of the server, nanoseconds since 1970.
    pub at_ns: i64,
    /// Host of the caller.
    pub client: String,
    /// Number of the operation.
    pub op: u16,
    /// File of the request; `None` where it is about none.
    pub subject: Option<TraceSubject>,
    /// Job; empty where the request names none.
    pub job: String,
    /// User of the job.
    pub uid: Option<u32>,
    /// Bytes of files that went out.
    pub read_bytes: u64,
    /// Bytes of files that came in.
    pub written_bytes: u64,
    /// Time in the queue of the client: until it was connected and had the credits for the request.
    pub client_queue_us: u64,
    /// Time on the network of the client's request before this one over the same connection; 0 if it is not known.
    pub network_us: u64,
    /// Time in the queue of the server, for its turn and by limits.
    pub queue_us: u64,
    /// Time from its turn to the answer.
    pub service_us: u64,
    /// Part of `service_us` that was spent on disks: of an OST in its object store, of an MDT in its log.
    pub disk_us: u64,
    /// Part of `service_us` that was spent waiting for other clients and operations: leases, locks, archives.
    pub others_us: u64,
    /// Number of the code of the error; 0 where there was none.
    pub code: u16,
}

/// Records, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceResp {
    /// The trace was not known: this question began it. For a reader that asked before, the server was started anew.
    pub has_begun: bool,
    /// Records.
    pub records: Vec<TraceRecord>,
    /// Chosen requests since the last answer for which there was no space.
    pub dropped: u64,
    /// There are further records: ask at once.
    pub has_more: bool,
}

/// [`TraceReq`] to an MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtTraceReq(pub TraceReq);
message!(MdtTraceReq => TraceResp, MdtTrace);

/// [`TraceReq`] to an OST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstTraceReq(pub TraceReq);
message!(OstTraceReq => TraceResp, OstTrace);

impl TraceFilter {
    /// Whether a request is chosen, as far as is known when it arrives.
    pub fn has_request(
        &self,
        op: Op,
        client: &str,
        job: Option<(&str, u32)>,
        subject: Option<&TraceSubject>,
    ) -> bool {
        let is_op = match self.ops.as_slice() {
            [] => !is_by_itself(op, job.is_some()),
            ops => ops.contains(&(op as u16)),
        };
        let is_job = self.job.is_empty() || job.is_some_and(|(name, _)| name == self.job);
        let is_user = self.uid.is_none_or(|uid| job.is_some_and(|(_, of_job)| of_job == uid));
        let is_client = self.client.is_empty() || self.client == client;
        let is_file = self.files.is_empty() || subject.is_some_and(|subject| self.has_file(subject));
        is_op && is_job && is_user && is_client && is_file
    }

    /// Whether a chosen request is shown, once it is answered.
    pub fn has_outcome(&self, total_us: u64, code: u16) -> bool {
        total_us >= self.slower_us && (code != 0 || !self.errors_only)
    }

    fn has_file(&self, subject: &TraceSubject) -> bool {
        let is_same = |(ino, name): &(u64, Name)| match name.is_empty() {
            true => *ino == subject.ino,
            false => *ino == subject.ino && *name == subject.name,
        };
        self.files.iter().any(is_same)
    }

    /// Reason why a server refuses the filter.
    pub fn excess(&self) -> Option<String> {
        if self.ops.len() > CHOSEN_MAX || self.files.len() > CHOSEN_MAX {
            return Some(format!("more than {CHOSEN_MAX} operations or files"));
        }
        let names = self.files.iter().map(|(_, name)| name.len());
        let longest = names.chain([self.job.len(), self.client.len()]).max().unwrap_or(0);
        (longest > TEXT_BYTES_MAX).then(|| format!("a name with more than {TEXT_BYTES_MAX} bytes"))
    }
}

/// Whether mounts and servers ask for this by themselves, all the time: renewals, and free space that no program asks for. Traced only by name.
fn is_by_itself(op: Op, has_job: bool) -> bool {
    match op {
        Op::SessionRenew | Op::FenceTable => true,
        Op::OstStatfs | Op::MdtStatfs => !has_job,
        _ => false,
    }
}

/// The beginning of a request body: its first fields.
fn front<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    postcard::take_from_bytes(body).ok().map(|(front, _)| front)
}

fn entry(body: &[u8]) -> Option<TraceSubject> {
    let (dir, name): (Ino, Name) = front(body)?;
    Some(TraceSubject { ino: dir.0, name, ..TraceSubject::default() })
}

fn inode(body: &[u8]) -> Option<TraceSubject> {
    let ino: Ino = front(body)?;
    Some(TraceSubject { ino: ino.0, ..TraceSubject::default() })
}

fn inode_bytes(body: &[u8]) -> Option<TraceSubject> {
    let (ino, offset): (Ino, u64) = front(body)?;
    Some(TraceSubject { ino: ino.0, offset: Some(offset), ..TraceSubject::default() })
}

fn object(body: &[u8]) -> Option<TraceSubject> {
    let (object, offset): (ObjectId, u64) = front(body)?;
    Some(TraceSubject { ino: object.ino.0, offset: Some(offset), ..TraceSubject::default() })
}

fn of_many(inodes: impl ExactSizeIterator<Item = Ino>) -> Option<TraceSubject> {
    let others = u32::try_from(inodes.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let mut inodes = inodes;
    Some(TraceSubject { ino: inodes.next()?.0, others, ..TraceSubject::default() })
}

/// The file or directory that a request of a client or server is about, from its body in the newest form.
pub fn subject(op: Op, body: &[u8]) -> Option<TraceSubject> {
    match op {
        // They begin with a directory and a name.
        Op::Lookup | Op::Create | Op::Mkdir | Op::Mknod | Op::Symlink => entry(body),
        Op::Unlink | Op::Rmdir | Op::Rename => entry(body),
        Op::Link => front(body).map(|(_, dir, name): (Ino, Ino, Name)| TraceSubject {
            ino: dir.0,
            name,
            ..TraceSubject::default()
        }),
        // They begin with an inode.
        Op::Getattr | Op::Setattr | Op::Tmpfile | Op::Readlink | Op::Readdir | Op::Getxattr => inode(body),
        Op::Listxattr | Op::Setxattr | Op::Removexattr | Op::Open | Op::Fsync => inode(body),
        Op::InlineRead | Op::InlineWrite | Op::LayoutGet | Op::AppendReserve | Op::AppendDone => inode(body),
        Op::GetLock | Op::SetLock | Op::CancelLock | Op::SetStripe | Op::GetStripe => inode(body),
        Op::PathOf | Op::ProjectGet | Op::ProjectSet => inode(body),
        Op::Invalidate | Op::Convert | Op::Spill | Op::Migrate => inode_bytes(body),
        // They begin with an object and an offset (or length).
        Op::Read | Op::Write | Op::Punch | Op::Allocate | Op::TruncateObject | Op::Seek => object(body),
        Op::SyncObjects | Op::StatObjects | Op::DestroyObjects => {
            let objects: Vec<ObjectId> = front(body)?;
            of_many(objects.into_iter().map(|object| object.ino))
        }
        Op::Close => of_many(front::<CloseReq>(body)?.closes.into_iter().map(|close| close.ino)),
        Op::OpenAhead => of_many(front::<OpenAheadReq>(body)?.opens.into_iter().map(|(ino, _)| ino)),
        Op::Report => of_many(front::<ReportReq>(body)?.items.into_iter().map(|(ino, _)| ino)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use brindle_types::Pair;

    use super::*;
    use crate::frame::encode_body;
    use crate::mds::close::Close;
    use crate::mds::getattr::GetattrReq;
    use crate::mds::invalidate::{Holders, InvalidateReq};
    use crate::mds::link::LinkReq;
    use crate::mds::lookup::LookupReq;
    use crate::mds::mkdir::MkdirReq;
    use crate::oss::sync::SyncObjectsReq;
    use crate::oss::truncate::TruncateObjectReq;
    use crate::{Cred, Message};

    fn of<M: Message>(request: &M) -> TraceSubject {
        subject(M::OP, &encode_body(request)).unwrap_or_else(|| panic!("{} has no subject", M::OP.name()))
    }

    fn file(ino: u64) -> TraceSubject {
        TraceSubject { ino, ..TraceSubject::default() }
    }

    fn named(dir: u64, name: &str) -> TraceSubject {
        TraceSubject { name: name.into(), ..file(dir) }
    }

    #[test]
    fn the_file_of_a_request_is_found_in_its_body() {
        let name: Name = b"f".into();
        assert_eq!(of(&LookupReq { parent: Ino(7), name: name.clone() }), named(7, "f"));
        let cred = Cred::default();
        let made = MkdirReq { parent: Ino(7), name: name.clone(), mode: 1, umask: 2, cred: cred.clone() };
        assert_eq!(of(&made), named(7, "f"));
        assert_eq!(of(&LinkReq { ino: Ino(3), parent: Ino(7), name, cred }), named(7, "f"));
        assert_eq!(of(&GetattrReq { ino: Ino(9), report: None }), file(9));
        let truncate_epoch = Pair { term: 1, counter: 1 };
        let object = |ino| ObjectId { ino: Ino(ino), generation: truncate_epoch, stripe: 2 };
        let cut = TruncateObjectReq {
            object: object(5),
            len_bytes: 99,
            truncate_epoch,
            make: false,
            must_exist: false,
        };
        assert_eq!(of(&cut), TraceSubject { offset: Some(99), ..file(5) });
        let synced = SyncObjectsReq { objects: vec![object(5), object(6), object(7)] };
        assert_eq!(of(&synced), TraceSubject { others: 2, ..file(5) });
        let told = InvalidateReq { ino: Ino(4), offset: 8, len_bytes: 1, holders: Holders::AllReaders };
        assert_eq!(of(&told), TraceSubject { offset: Some(8), ..file(4) });
        let close = |ino| Close { ino: Ino(ino), handle: 1, report: None };
        assert_eq!(of(&CloseReq { closes: vec![close(4), close(5)] }), TraceSubject { others: 1, ..file(4) });
        assert_eq!(subject(Op::Close, &encode_body(&CloseReq { closes: Vec::new() })), None);
        assert_eq!(subject(Op::Lookup, b""), None, "garbage has no subject");
        assert_eq!(subject(Op::SessionRenew, b""), None);
    }

    #[test]
    fn a_filter_shows_what_it_chooses_and_hides_the_rest() {
        let all = TraceFilter::default();
        let by =
            |filter: &TraceFilter, op| filter.has_request(op, "n1", Some(("a", 7)), Some(&named(5, "f")));
        assert!(by(&all, Op::Write) && !by(&all, Op::SessionRenew));
        assert!(all.has_request(Op::Write, "n1", None, None));
        assert!(by(&all, Op::OstStatfs) && !all.has_request(Op::OstStatfs, "n1", None, None));
        let ops = TraceFilter { ops: vec![Op::SessionRenew as u16], ..all.clone() };
        assert!(by(&ops, Op::SessionRenew) && !by(&ops, Op::Write));
        for (filter, other) in [
            (TraceFilter { job: "a".into(), ..all.clone() }, TraceFilter { job: "b".into(), ..all.clone() }),
            (TraceFilter { uid: Some(7), ..all.clone() }, TraceFilter { uid: Some(0), ..all.clone() }),
            (
                TraceFilter { client: "n1".into(), ..all.clone() },
                TraceFilter { client: "n".into(), ..all.clone() },
            ),
        ] {
            assert!(by(&filter, Op::Write) && !by(&other, Op::Write), "{filter:?}");
        }
        let files = |ino, name: &str| TraceFilter { files: vec![(ino, name.into())], ..all.clone() };
        assert!(by(&files(5, ""), Op::Write) && by(&files(5, "f"), Op::Write));
        assert!(!by(&files(5, "g"), Op::Write) && !by(&files(6, ""), Op::Write));
        assert!(!files(5, "").has_request(Op::Write, "n1", None, None), "no file is not that file");
        let slow = TraceFilter { slower_us: 10, ..all.clone() };
        assert!(slow.has_outcome(10, 0) && !slow.has_outcome(9, 2001));
        let failed = TraceFilter { errors_only: true, ..all.clone() };
        assert!(failed.has_outcome(0, 2001) && !failed.has_outcome(99, 0));
    }

    #[test]
    fn filters_are_bounded() {
        let all = TraceFilter::default();
        assert_eq!(all.excess(), None);
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert!(TraceFilter { job: long.clone(), ..all.clone() }.excess().is_some());
        assert!(TraceFilter { files: vec![(1, long.into())], ..all.clone() }.excess().is_some());
        assert!(TraceFilter { ops: vec![1; CHOSEN_MAX + 1], ..all }.excess().is_some());
    }
}
