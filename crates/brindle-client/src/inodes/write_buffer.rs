//! Write-behind: bytes of a file that programs were told are written and that have not reached the OSTs.
//!
//! The buffer does no I/O and belongs to the inode's state. Contiguous writes are joined, so that small ones are sent as large ones.
//! Invariants: no two extents overlap, waiting or being sent, so they may be sent in any order and at once; the bytes are bounded by
//! [`FILE_BYTES_MAX`] and by what the OSTs have granted; an extent that was taken counts as being sent until [`WriteBuffer::over`] is
//! called.

use std::collections::BTreeMap;
use std::ops::Range;

use brindle_stdx::Mono;
use brindle_targets::Identity;
use brindle_types::Pair;
use brindle_wire::job::JobTag;
use bytes::{Bytes, BytesMut};

use crate::grants::Covered;
use crate::rope::Rope;

/// Most bytes of one file.
pub const FILE_BYTES_MAX: u64 = 32 << 20;
/// Most extents of one file that wait.
const WAITING_MAX: usize = 1024;
/// An extent of this length is sent without a flush.
pub const FULL_BYTES: u64 = 1 << 20;
/// Extents do not grow beyond this length by joining.
const EXTENT_BYTES_MAX: u64 = 4 << 20;
/// Pieces shorter than this are copied together, so that they do not pin the large buffers they lie in.
const COPY_BELOW_BYTES: usize = 512 << 10;
/// Pieces that were copied together grow no further from this length on.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// Bytes of one file.
#[derive(Default)]
pub(crate) struct WriteBuffer {
    /// Waiting extents, by first byte.
    waiting: BTreeMap<u64, Extent>,
    /// Extents being sent, by number.
    sending: BTreeMap<u64, Sending>,
    /// Number of extents for which an OST had no room: they wait until the MDT has found other OSTs.
    pub without_room: usize,
    /// The number of the last extent that was taken.
    last: u64,
    bytes: u64,
    /// Number of waiting bytes that the MDT gets.
    small: u64,
}

/// Bytes that are being sent.
struct Sending {
    range: Range<u64>,
    /// Whether the MDT gets them.
    is_small: bool,
    /// [`Author::body`].
    body: Pair,
}

/// Rights under which bytes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Author {
    /// The only session in which the bytes are sent.
    pub session: Identity,
    /// Whether the write clears set-id bits.
    pub kill_suidgid: bool,
    /// Epoch of times at the write: times that are set explicitly later are not changed.
    pub attr_epoch: Pair,
    /// Identity of the contents: if the file is emptied, the bytes go with its old contents.
    pub body: Pair,
    /// Handle through which bytes of a small file were written, which go to the MDT; 0 for bytes that go to
    /// OSTs.
    pub small: u64,
    /// Job that the bytes are sent for.
    pub job: Option<JobTag>,
}

/// Contiguous bytes.
pub(crate) struct Extent {
    /// First byte in the file.
    pub offset: u64,
    pub author: Author,
    rope: Rope,
    copied: BytesMut,
    /// Whether the last piece is as the kernel gave it, and was not copied.
    is_last_long: bool,
    since: Mono,
    covered: Covered,
}

/// An extent that is to be sent.
pub(crate) struct Taken {
    /// Number for [`WriteBuffer::over`].
    pub number: u64,
    pub offset: u64,
    pub author: Author,
    pub rope: Rope,
    /// Kept until the OSTs have answered.
    pub covered: Covered,
}

impl Extent {
    fn len_bytes(&self) -> u64 {
        self.rope.len_bytes() + self.copied.len() as u64
    }

    /// Whether the extent is one piece as the kernel gave it.
    fn is_long_piece(&self) -> bool {
        self.copied.is_empty() && self.rope.is_one_piece() && self.is_last_long
    }

    /// Whether no long piece is joined to its end: a piece that goes alone need not be copied within a machine (note 015). Where no
    /// stripe can begin, a joined piece would only be cut into two.
    fn stays_alone(&self) -> bool {
        self.is_long_piece() && self.len_bytes() >= FULL_BYTES && self.end().is_multiple_of(FULL_BYTES)
    }

    fn end(&self) -> u64 {
        self.offset + self.len_bytes()
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }

    fn settle_copied(&mut self) {
        self.rope.push(std::mem::take(&mut self.copied).freeze());
    }

    fn push(&mut self, data: &Bytes) {
        self.is_last_long = data.len() >= COPY_BELOW_BYTES;
        if self.is_last_long {
            self.settle_copied();
            self.rope.push(data.clone());
            return;
        }
        self.copied.extend_from_slice(data);
        if self.copied.len() >= COPIED_BYTES_MAX {
            self.settle_copied();
        }
    }

    fn join(&mut self, mut next: Extent) {
        next.settle_copied();
        self.settle_copied();
        self.rope.append(next.rope);
        self.since = self.since.min(next.since);
        self.covered.join(next.covered);
    }
}

impl WriteBuffer {
    /// Whether nothing waits or is being sent.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether everything that could be sent under the present layout was sent. If an OST has refused bytes, the rest may wait behind
    /// them, and goes where they go.
    pub fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && (self.sending.is_empty() || self.without_room > 0)
    }

    /// Whether bytes of `range` wait or are being sent.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let before = self.waiting.range(..range.end).next_back();
        before.is_some_and(|(_, extent)| meets(&extent.range()))
            || self.sending.values().any(|sending| meets(&sending.range))
    }

    /// Whether bytes wait, or are being sent, that the MDT gets.
    pub fn has_small(&self) -> bool {
        self.small > 0
    }

    /// Ranges that wait to be sent to the MDT. `None` if there are none, if some are being sent, or if some
    /// belong to another generation of the file than `small`.
    pub fn small_waiting(&self, small: Pair) -> Option<Vec<Range<u64>>> {
        let on_their_way = self.sending.values().any(|sending| sending.is_small);
        let waiting: Vec<&Extent> = self.waiting.values().filter(|e| e.author.small != 0).collect();
        let all = !waiting.is_empty() && waiting.iter().all(|extent| extent.author.body == small);
        (all && !on_their_way).then(|| waiting.into_iter().map(Extent::range).collect())
    }

    /// Notes that OSTs have space for a waiting extent.
    pub fn cover(&mut self, first: u64, covered: Covered) {
        if let Some(extent) = self.waiting.get_mut(&first) {
            extent.covered.join(covered);
        }
    }

    /// Turns bytes that wait for the MDT under the generation `small` into bytes for objects, under `body`.
    pub fn follow(&mut self, small: Pair, body: Pair) {
        for extent in self.waiting.values_mut().filter(|e| e.author.small != 0 && e.author.body == small) {
            self.small -= extent.len_bytes();
            extent.author = Author { small: 0, body, ..extent.author };
        }
        // Bytes that are being sent to the MDT will find the file moved.
        let on_their_way = self.sending.values_mut().filter(|s| s.is_small && s.body == small);
        on_their_way.for_each(|sending| sending.body = body);
    }

    /// Whether the buffer has space for `len_bytes` more.
    pub fn has_room(&self, len_bytes: u64) -> bool {
        self.bytes + len_bytes <= FILE_BYTES_MAX && self.waiting.len() < WAITING_MAX
    }

    /// The end of all waiting or sent bytes of the named contents. If the contents have changed, the file was emptied, and these bytes
    /// go with the old contents.
    pub fn end_bytes(&self, body: Pair) -> u64 {
        let waiting = self.waiting.values().rev().find(|extent| extent.author.body == body);
        let sending = self.sending.values().filter(|sending| sending.body == body);
        sending.map(|sending| sending.range.end).fold(waiting.map_or(0, Extent::end), u64::max)
    }

    /// Takes in bytes that overlap no others; the buffer has space for them. Returns whether an extent is now long enough to be sent by
    /// itself.
    pub fn put(&mut self, offset: u64, data: &Bytes, author: Author, covered: Covered, now: Mono) -> bool {
        self.bytes += data.len() as u64;
        self.small += if author.small != 0 { data.len() as u64 } else { 0 };
        let end = offset + data.len() as u64;
        let fits = |extent: &Extent, more: u64| {
            extent.author == author && extent.len_bytes() + more <= EXTENT_BYTES_MAX
        };
        let is_long = data.len() >= COPY_BELOW_BYTES;
        let before = self.waiting.range_mut(..offset).next_back();
        let joined = before.filter(|(_, extent)| {
            let stays_apart = is_long && extent.stays_alone();
            extent.end() == offset && fits(extent, data.len() as u64) && !stays_apart
        });
        let first = match joined {
            Some((first, extent)) => {
                extent.push(data);
                extent.covered.join(covered);
                *first
            }
            None => {
                let (rope, copied) = (Rope::default(), BytesMut::new());
                let mut extent =
                    Extent { offset, author, rope, copied, is_last_long: false, since: now, covered };
                extent.push(data);
                self.waiting.insert(offset, extent);
                offset
            }
        };
        let (len_bytes, is_alone) =
            self.waiting.get(&first).map_or((0, false), |extent| (extent.len_bytes(), extent.stays_alone()));
        let joins = |next: &Extent| fits(next, len_bytes) && !(is_alone && next.is_long_piece());
        if self.waiting.get(&end).is_some_and(joins)
            && let Some(next) = self.waiting.remove(&end)
            && let Some(extent) = self.waiting.get_mut(&first)
        {
            extent.join(next);
        }
        self.waiting.get(&first).is_some_and(|extent| extent.len_bytes() >= FULL_BYTES)
    }

    /// An extent that is long enough to be sent by itself, unless `most` are being sent.
    pub fn take_full(&mut self, most: usize) -> Option<Taken> {
        // Extents that cannot be joined with others gain nothing by waiting.
        let most_of = |extent: &Extent| if extent.stays_alone() { 2 * most } else { most };
        let may_go = |e: &&Extent| e.len_bytes() >= FULL_BYTES && self.sending.len() < most_of(e);
        let full = self.waiting.values().find(may_go)?.offset;
        self.take(full)
    }

    /// Takes out all waiting extents.
    pub fn take_all(&mut self) -> Vec<Taken> {
        let offsets: Vec<u64> = self.waiting.keys().copied().collect();
        offsets.into_iter().filter_map(|offset| self.take(offset)).collect()
    }

    fn take(&mut self, offset: u64) -> Option<Taken> {
        let mut extent = self.waiting.remove(&offset)?;
        extent.settle_copied();
        self.last += 1;
        let Author { small, body, .. } = extent.author;
        self.sending.insert(self.last, Sending { range: extent.range(), is_small: small != 0, body });
        let Extent { offset, author, rope, covered, .. } = extent;
        Some(Taken { number: self.last, offset, author, rope, covered })
    }

    /// The extent has reached the OSTs, or was given up.
    pub fn over(&mut self, number: u64) {
        if let Some(Sending { range, is_small, .. }) = self.sending.remove(&number) {
            self.bytes -= range.end - range.start;
            self.small -= if is_small { range.end - range.start } else { 0 };
        }
    }

    /// The number of the last extent that was taken.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether every extent taken up to `number` has been sent.
    pub fn is_over(&self, number: u64) -> bool {
        self.sending.first_key_value().is_none_or(|(first, _)| *first > number)
    }

    /// Time at which the oldest waiting byte was written.
    pub fn oldest(&self) -> Option<Mono> {
        self.waiting.values().map(|extent| extent.since).min()
    }

    /// Gives up the waiting bytes; returns whether there were any.
    pub fn give_up(&mut self) -> bool {
        let given_up = std::mem::take(&mut self.waiting);
        self.bytes -= given_up.values().map(Extent::len_bytes).sum::<u64>();
        let small = given_up.values().filter(|extent| extent.author.small != 0);
        self.small -= small.map(Extent::len_bytes).sum::<u64>();
        !given_up.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::grants::Grants;
    use brindle_wire::oss::Grant;

    fn granted() -> Arc<Grants> {
        let grants = Arc::<Grants>::default();
        grants.told(0, Some(Grant { life: 1, serial: 1, bytes: u64::MAX / 2 }), 0, Mono(0));
        grants
    }

    fn author(n: u64) -> Author {
        let attr_epoch = Pair { term: 1, counter: n };
        Author {
            session: Identity::default(),
            kill_suidgid: false,
            attr_epoch,
            body: Pair::ZERO,
            small: n % 2,
            job: None,
        }
    }

    struct Bench {
        behind: WriteBuffer,
        grants: Arc<Grants>,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { behind: WriteBuffer::default(), grants: granted() }
        }

        fn put(&mut self, offset: u64, data: &Bytes, by: u64) -> bool {
            let bytes = data.len() as u64;
            let covered = self.grants.take(vec![(0, bytes)], bytes, Mono(0)).expect("granted");
            self.behind.put(offset, data, author(by), covered, Mono(offset))
        }
    }

    fn bytes(taken: &Taken) -> Vec<u8> {
        taken.rope.slice(0, taken.rope.len_bytes()).collect::<Vec<_>>().concat()
    }

    #[test]
    fn what_waits_for_the_mdt_follows_to_the_objects_and_nothing_else_does() {
        let mut b = Bench::new();
        let (small, body) = (Pair::ZERO, Pair { term: 1, counter: 9 });
        assert_eq!(b.behind.small_waiting(small), None, "there is nothing");
        b.put(0, &Bytes::from_static(b"small"), 1);
        b.put(100, &Bytes::from_static(b"object"), 2);
        let waits =
            |b: &Bench| b.behind.small_waiting(small).map(|ranges| ranges.into_iter().flatten().count());
        assert_eq!(waits(&b), Some(5));
        assert_eq!(b.behind.small_waiting(body), None, "it is of another body");
        b.behind.follow(body, small);
        assert!(b.behind.has_small(), "of another body");
        b.behind.follow(small, body);
        assert!(!b.behind.has_small());
        let taken = b.behind.take_all();
        assert_eq!(
            taken.iter().map(|t| (t.offset, t.author.small, t.author.body)).collect::<Vec<_>>(),
            [(0, 0, body), (100, 0, small)]
        );
        b.put(200, &Bytes::from_static(b"more"), 3);
        let on_its_way = b.behind.take_all();
        b.put(300, &Bytes::from_static(b"again"), 3);
        assert_eq!(waits(&b), None, "some of it is on its way to the MDT");
        on_its_way.into_iter().chain(taken).for_each(|taken| b.behind.over(taken.number));
        assert_eq!(waits(&b), Some(5));
        drop(b.behind.take_all());
        assert_eq!(b.grants.bytes(), 0, "room is given back");
    }

    #[test]
    fn neighbours_are_joined_and_sent_when_they_are_many() {
        let mut b = Bench::new();
        let half = Bytes::from(vec![1; FULL_BYTES as usize / 2]);
        assert!(!b.put(0, &half, 1));
        assert!(b.behind.take_full(1).is_none(), "not long enough");
        // Leaves a gap, then fills the gap: all three become one.
        assert!(!b.put(FULL_BYTES, &half, 1));
        assert!(b.put(FULL_BYTES / 2, &half, 1));
        let taken = b.behind.take_full(1).expect("long enough");
        assert_eq!((taken.offset, taken.rope.len_bytes()), (0, FULL_BYTES * 3 / 2));
        assert!(b.behind.overlaps(&(10..11)), "it is on its way");
        assert!(!b.behind.overlaps(&(FULL_BYTES * 3 / 2..FULL_BYTES * 2)));
        assert!(!b.put(4 * FULL_BYTES, &half, 1) && b.put(4 * FULL_BYTES + FULL_BYTES / 2, &half, 1));
        assert!(b.behind.take_full(1).is_none(), "as many as may be are on their way");
        assert!(!b.behind.is_over(taken.number));
        b.behind.over(taken.number);
        assert!(b.behind.is_over(taken.number) && !b.behind.is_empty());
        let end = b.behind.end_bytes(Pair::ZERO);
        assert_eq!((end, b.behind.oldest()), (5 * FULL_BYTES, Some(Mono(4 * FULL_BYTES))));
        assert_eq!(b.behind.end_bytes(Pair { term: 1, counter: 1 }), 0, "the file was emptied");
        assert!(b.behind.give_up() && b.behind.is_empty());
        drop(taken);
        assert_eq!(b.grants.bytes(), 0, "room is given back");
    }

    #[test]
    fn long_pieces_stay_apart_and_twice_as_many_of_them_are_sent() {
        let mut b = Bench::new();
        let long = Bytes::from(vec![1; FULL_BYTES as usize]);
        for n in [0, 2, 1] {
            assert!(b.put(n * FULL_BYTES, &long, 1));
        }
        let taken: Vec<Taken> = std::iter::from_fn(|| b.behind.take_full(1)).collect();
        assert_eq!(taken.iter().map(|t| t.offset).collect::<Vec<_>>(), [0, FULL_BYTES]);
        assert!(b.put(3 * FULL_BYTES, &Bytes::from_static(b"short"), 1), "that is copied, alone or not");
        let rest = b.behind.take_all();
        assert_eq!(rest.iter().map(|t| t.rope.len_bytes()).collect::<Vec<_>>(), [FULL_BYTES + 5]);
        // Without a stripe boundary at their start, each would be cut in two.
        for n in 0..2 {
            b.put(5 + n * FULL_BYTES, &long, 1);
        }
        assert_eq!(
            b.behind.take_all().iter().map(|t| t.rope.len_bytes()).collect::<Vec<_>>(),
            [2 * FULL_BYTES]
        );
    }

    #[test]
    fn what_was_written_under_other_rights_is_sent_apart() {
        let mut b = Bench::new();
        b.put(0, &Bytes::from_static(b"one"), 1);
        b.put(3, &Bytes::from_static(b"two"), 2);
        let taken = b.behind.take_all();
        assert_eq!(taken.iter().map(bytes).collect::<Vec<_>>(), [b"one", b"two"]);
        assert_eq!(taken.iter().map(|t| t.author).collect::<Vec<_>>(), [author(1), author(2)]);
    }

    #[test]
    fn every_byte_is_sent_once_whatever_comes_in_which_order() {
        // Random writes and ends of sends against an array of bytes.
        const FILE: usize = 3 << 20;
        let mut seed = 7u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let mut b = Bench::new();
        let long = FULL_BYTES / 2;
        let (mut written, mut sent) = (vec![0u8; FILE], vec![0u8; FILE]);
        let mut under_way: Vec<Taken> = Vec::new();
        for step in 0..4000u64 {
            let most = if below(8) == 0 { 600 << 10 } else { 20_000 };
            // Some are long pieces between stripes.
            let (len, offset) = if below(8) == 0 {
                let len = long * (1 + below(2));
                (len, below((FILE as u64 - len) / long + 1) * long)
            } else {
                let len = 1 + below(most);
                (len, below(FILE as u64 - len))
            };
            let range = offset..offset + len;
            if !b.behind.overlaps(&range) && b.behind.has_room(len) {
                let data: Vec<u8> = (0..len).map(|i| (step + i) as u8 | 1).collect();
                written[offset as usize..range.end as usize].copy_from_slice(&data);
                b.put(offset, &Bytes::from(data), below(3));
            }
            match below(6) {
                0 => under_way.extend(b.behind.take_full(4)),
                1 if below(40) == 0 => under_way.extend(b.behind.take_all()),
                2 | 3 if !under_way.is_empty() => {
                    let taken = under_way.swap_remove(below(under_way.len() as u64) as usize);
                    let at = taken.offset as usize;
                    sent[at..at + taken.rope.len_bytes() as usize].copy_from_slice(&bytes(&taken));
                    b.behind.over(taken.number);
                }
                _ => {}
            }
            let left: u64 = under_way.iter().map(|t| t.rope.len_bytes()).sum();
            assert!(b.behind.bytes >= left && b.behind.bytes <= FILE_BYTES_MAX);
        }
        under_way.extend(b.behind.take_all());
        for taken in under_way {
            let at = taken.offset as usize;
            sent[at..at + taken.rope.len_bytes() as usize].copy_from_slice(&bytes(&taken));
            b.behind.over(taken.number);
        }
        assert!(b.behind.is_empty() && !b.behind.has_small() && written == sent);
        assert_eq!(b.grants.bytes(), 0);
    }
}
