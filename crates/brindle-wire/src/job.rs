//! Jobs: the tag with the job and user of a request, and the counters that servers keep by tag.
//!
//! If the server has said in its hello that it takes job tags ([`crate::version::FEATURE_JOB`]), a client puts a [`JobTag`] behind the body
//! of each request ([`crate::frame::Frame::with_job`]). Peers of the release before therefore see no change. `brindle-net` adds and removes
//! the tag.

use std::fmt::{self, Write};

use brindle_types::{Code, Fault};
use serde::{Deserialize, Serialize};

use crate::message;

/// Longest name of a job in bytes, as in Lustre (`LUSTRE_JOBID_SIZE`, with the NUL that C needs).
pub const NAME_BYTES_MAX: usize = 31;
/// Bytes of the user in a tag.
const UID_BYTES: usize = 4;
/// Longest tag in bytes.
pub const TAG_BYTES_MAX: usize = UID_BYTES + NAME_BYTES_MAX;

/// Job and user that work is done for. The name has 1 to [`NAME_BYTES_MAX`] bytes, of letters, digits and `.
/// _ - + : @ / % = ~`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobTag {
    uid: u32,
    len: u8,
    name: [u8; NAME_BYTES_MAX],
}

impl JobTag {
    /// The tag of a job; a name that is too long is cut, and what may not be in one becomes `_`.
    pub fn new(name: &str, uid: u32) -> JobTag {
        let mut tag = JobTag { uid, len: 0, name: [0; NAME_BYTES_MAX] };
        tag.push(name);
        if tag.len == 0 {
            (tag.name[0], tag.len) = (b'_', 1);
        }
        tag
    }

    /// The tag of a program that belongs to no job: `PROGRAM.UID`, as Lustre's `procname_uid`.
    pub fn of_program(program: &str, uid: u32) -> JobTag {
        let mut tag = JobTag { uid, len: 0, name: [0; NAME_BYTES_MAX] };
        // A tag takes in what fits, so writing to it never fails.
        let _ = write!(&mut tag, "{program}.{uid}");
        tag
    }

    fn push(&mut self, text: &str) {
        for (to, from) in self.name[usize::from(self.len)..].iter_mut().zip(text.bytes()) {
            *to = if is_allowed(from) { from } else { b'_' };
            self.len += 1;
        }
    }

    /// Name of the job.
    pub fn name(&self) -> &str {
        // Only ASCII is in it.
        std::str::from_utf8(&self.name[..usize::from(self.len)]).unwrap_or_default()
    }

    /// User that the program acts as.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Adds the bytes of the tag, which follow a body: the user, big-endian, and the name.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.uid.to_be_bytes());
        bytes.extend(self.name().as_bytes());
    }

    /// Number of these bytes.
    pub fn encoded_len(&self) -> usize {
        UID_BYTES + usize::from(self.len)
    }

    /// Reads a tag. `BadFrame` for what is none.
    pub fn decode(bytes: &[u8]) -> Result<JobTag, Fault> {
        let wrong =
            |why: &str| Fault::new(Code::BadFrame).why(format!("the job of the request is wrong: {why}"));
        let (uid, name) = bytes.split_first_chunk::<UID_BYTES>().ok_or_else(|| wrong("it is too short"))?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(wrong("its name is empty or too long"));
        }
        if !name.iter().copied().all(is_allowed) {
            return Err(wrong("its name has bytes that no name may have"));
        }
        let len = u8::try_from(name.len()).expect("NAME_BYTES_MAX is below 256");
        let mut tag = JobTag { uid: u32::from_be_bytes(*uid), len, name: [0; NAME_BYTES_MAX] };
        tag.name[..name.len()].copy_from_slice(name);
        Ok(tag)
    }
}

impl fmt::Write for JobTag {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+:@/%=~".contains(&byte)
}

impl fmt::Debug for JobTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} of user {}", self.name(), self.uid)
    }
}

/// Values of one kind: how many, and what they come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of values.
    pub count: u64,
    /// The smallest; 0 if there are none.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// All together.
    pub sum: u64,
    /// Sum of the squares. Both sums saturate.
    pub sum_squares: u64,
}

impl Tally {
    /// One more.
    pub fn add(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(value);
        self.sum_squares = self.sum_squares.saturating_add(value.saturating_mul(value));
    }
}

/// The tables of counters that a server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UsageBy {
    /// Rows by job.
    Job,
    /// Rows by user id.
    User,
    /// Rows by the host of the mount.
    Client,
}

/// Requests of one job, user or client to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The job, the user's number, or the host.
    pub name: String,
    /// First request that is counted, in nanoseconds since 1970.
    pub since_ns: i64,
    /// Last one.
    pub last_ns: i64,
    /// Bytes of each read.
    pub read: Tally,
    /// Bytes of each write.
    pub written: Tally,
    /// Microseconds that requests took at the server, by number of the operation.
    pub ops: Vec<(u16, Tally)>,
}

/// Asks what a target was asked for, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReq {
    /// The table.
    pub by: UsageBy,
    /// Forget the rows of this name, or all (`Some("")`), after the answer was made.
    pub clear: Option<String>,
}

/// Requests by client, user and job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageResp {
    /// Now, in nanoseconds since 1970.
    pub now_ns: i64,
    /// Rows, those that took most of the server's time first.
    pub rows: Vec<UsageRow>,
    /// Rows that found no place in the answer.
    pub left_out: u32,
}

/// [`UsageReq`] to an MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtUsageReq(pub UsageReq);
message!(MdtUsageReq => UsageResp, MdtUsage);

/// [`UsageReq`] to an OST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstUsageReq(pub UsageReq);
message!(OstUsageReq => UsageResp, OstUsage);

/// Asks what a target has held back: because others had their turn, or by limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesReq {}

/// Requests that a rule counts for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHeld {
    /// Name of the rule.
    pub name: String,
    /// Requests that the rule has counted for.
    pub requests: u64,
    /// Requests that were held.
    pub held: u64,
    /// For how long, in microseconds.
    pub held_micros: u64,
    /// Held requests that went on before there were tokens, because the longest time was over.
    pub overdue: u64,
}

/// Requests of one job, or of a host that names none, that had to wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHeld {
    /// The job, or the host.
    pub name: String,
    /// Microseconds of each wait for its turn.
    pub queued: Tally,
    /// Requests of others that each of these let go first.
    pub overtaken: Tally,
    /// Microseconds of each wait by a limit.
    pub held: Tally,
    /// The rule that has held it last; empty if none has.
    pub rule: String,
}

/// Requests that a target has held back since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesResp {
    /// Requests that are served at once; 0 where jobs do not share by turns.
    pub places: u32,
    /// Requests that are being served.
    pub in_service: u32,
    /// Requests that wait for their turn.
    pub queued: u32,
    /// Requests that are held by limits.
    pub held: u32,
    /// Rules that count at this target.
    pub rules: Vec<RuleHeld>,
    /// Jobs and hosts with requests that waited, the longest waits first.
    pub jobs: Vec<JobHeld>,
}

/// [`SharesReq`] to an MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtSharesReq(pub SharesReq);
message!(MdtSharesReq => SharesResp, MdtShares);

/// [`SharesReq`] to an OST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstSharesReq(pub SharesReq);
message!(OstSharesReq => SharesResp, OstShares);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_cleaned_and_come_back() {
        for (given, kept) in [
            ("4711", "4711"),
            ("dd.1000", "dd.1000"),
            ("a b\"c\n", "a_b_c_"),
            ("", "_"),
            ("0123456789012345678901234567890123456789", "0123456789012345678901234567890"),
        ] {
            let tag = JobTag::new(given, 7);
            assert_eq!((tag.name(), tag.uid()), (kept, 7), "{given:?}");
            let bytes = encoded(&tag);
            assert_eq!(JobTag::decode(&bytes), Ok(tag));
            assert_eq!(bytes.len(), tag.encoded_len());
            let of_program = JobTag::new(&format!("{given}.1000"), 1000);
            assert_eq!(JobTag::of_program(given, 1000), of_program, "{given:?}");
        }
        assert_eq!(encoded(&JobTag::new("ab", 0x0102_0304)), [1, 2, 3, 4, b'a', b'b'], "bytes on the wire");
    }

    fn encoded(tag: &JobTag) -> Vec<u8> {
        let mut bytes = Vec::new();
        tag.append_to(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        let long = [b'a'; TAG_BYTES_MAX + 1];
        for bad in [&b""[..], &[0; 3], &[0; 4], &[0, 0, 0, 0, b'"'], &[0, 0, 0, 0, 0xff], &long] {
            assert_eq!(JobTag::decode(bad).expect_err("refused").code, Code::BadFrame, "{bad:?}");
        }
    }

    #[test]
    fn tallies_stay_within_their_numbers() {
        let mut tally = Tally::default();
        for value in [5, 3, u64::MAX] {
            tally.add(value);
        }
        let most = u64::MAX;
        assert_eq!(tally, Tally { count: 3, min: 3, max: most, sum: most, sum_squares: most });
    }
}
