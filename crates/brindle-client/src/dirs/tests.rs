//! Tests of the directory cache, with answers in every order.

use brindle_wire::cache_updates::{Covered, InodeUpdate, NameUpdate};
use brindle_wire::mds::readdir::{DirEntry, ReaddirResp};
use tokio::sync::oneshot;

use super::credit::{AHEAD_MAX, AHEAD_MIN, OF_EACH_ASKED, OF_EACH_USED};
use super::listing::AHEAD_FACTS_MAX;
use super::*;

const D: Ino = Ino(10);
const E: Ino = Ino(11);
const F: Ino = Ino(20);

fn attr(ino: Ino, size_bytes: u64) -> Attr {
    let kind = if ino == F { FileType::Regular } else { FileType::Directory };
    Attr::plain(ino, kind, size_bytes)
}

fn leased(dir: Ino, at: u64, is_new: bool) -> CacheUpdates {
    CacheUpdates { leased: vec![Leased { dir, at, is_new }], ..CacheUpdates::default() }
}

fn name(dir: Ino, name: &str, to: Lead, at: u64) -> CacheUpdates {
    CacheUpdates { names: vec![NameUpdate { dir, name: name.into(), to, at }], ..CacheUpdates::default() }
}

fn inode(ino: Ino, size_bytes: u64, by: Ino, at: u64) -> CacheUpdates {
    let known = Some(Covered { attr: attr(ino, size_bytes), by });
    CacheUpdates { inodes: vec![InodeUpdate { ino, at, known }], ..CacheUpdates::default() }
}

fn gone(ino: Ino, at: u64) -> CacheUpdates {
    CacheUpdates { inodes: vec![InodeUpdate { ino, at, known: None }], ..CacheUpdates::default() }
}

fn listing(entries: &[DirEntry], end: bool) -> ReaddirResp {
    ReaddirResp { entries: entries.to_vec(), end, parent: Ino(2) }
}

/// An entry that is named after its place.
fn entry_at(cookie: u64) -> DirEntry {
    let name = cookie.to_string().into();
    DirEntry { name, ino: Ino(cookie), kind: FileType::Regular, cookie, attr: None }
}

const FILE: Lead = Some((F, FileType::Regular));

/// Writes down what it is to forget.
#[derive(Default)]
struct Kernel(Mutex<Vec<Ino>>);

impl KernelCache for Kernel {
    fn invalidate(&self, _: Ino, _: u64, _: u64) -> brindle_stdx::BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn forget_attr(&self, ino: Ino) -> Forgetting {
        self.0.lock().push(ino);
        None
    }

    fn forget_files(&self) -> Forgetting {
        self.0.lock().push(Ino(1));
        None
    }

    fn forget_attrs(&self) -> Forgetting {
        self.0.lock().push(Ino(0));
        None
    }
}

#[test]
fn the_kernel_forgets_what_changes_and_what_is_taken_back() {
    let (dirs, kernel) = (Dirs::default(), Arc::new(Kernel::default()));
    dirs.set_kernel(kernel.clone());
    let forgotten = || std::mem::take(&mut *kernel.0.lock());
    dirs.told(0, &leased(D, 5, true));
    assert_eq!(forgotten(), []);
    dirs.told(0, &inode(D, 1, D, 6));
    assert_eq!(forgotten(), [D], "it has changed it itself");
    dirs.recalled(&[D, E], 9);
    assert_eq!(forgotten(), [D, E, Ino(1)], "also what is not known any more, and all files");
    dirs.clear();
    assert_eq!(forgotten(), [Ino(0)]);
    dirs.told(0, &gone(D, 10));
    assert_eq!(forgotten(), [D], "asked for before everything was forgotten");
}

fn size(dirs: &Dirs) -> Option<u64> {
    dirs.attr(F).map(|attr| attr.size_bytes)
}

#[test]
fn the_newest_fact_counts_whatever_the_order_of_answers() {
    let dirs = Dirs::default();
    dirs.told(0, &name(D, "f", FILE, 4));
    assert_eq!(dirs.lead(D, b"f"), None, "no lease, no knowledge");
    dirs.told(0, &leased(D, 5, false));
    dirs.told(0, &name(D, "f", None, 7));
    dirs.told(0, &name(D, "f", FILE, 6));
    assert_eq!((dirs.lead(D, b"f"), dirs.lead(D, b"g")), (Some(None), None));
    dirs.told(0, &inode(F, 8, D, 8));
    dirs.told(0, &inode(F, 6, D, 6));
    assert_eq!(size(&dirs), Some(8));
    dirs.told(0, &gone(F, 10));
    dirs.told(0, &inode(F, 9, D, 9));
    assert_eq!(size(&dirs), None, "asked before it changed");
    dirs.told(0, &inode(F, 11, D, 11));
    assert_eq!(size(&dirs), Some(11));
}

#[test]
fn a_recall_voids_what_is_on_its_way() {
    let dirs = Dirs::default();
    dirs.told(0, &leased(D, 5, true));
    dirs.told(0, &inode(F, 5, D, 5));
    assert_eq!((dirs.lead(D, b"x"), size(&dirs)), (Some(None), Some(5)), "a new directory is empty");
    dirs.recalled(&[D], 9);
    dirs.told(0, &leased(D, 9, false));
    dirs.told(0, &name(D, "f", FILE, 9));
    assert_eq!((dirs.lead(D, b"f"), size(&dirs)), (None, None));
    dirs.told(0, &leased(D, 10, false));
    dirs.told(0, &name(D, "f", FILE, 9));
    dirs.told(0, &inode(F, 9, D, 9));
    assert_eq!((dirs.lead(D, b"f"), size(&dirs)), (None, None), "told under the lease before");
}

/// The size stands for the rights, as elsewhere for everything.
fn rights(dirs: &Dirs) -> Option<u64> {
    dirs.rights(D).map(|attr| attr.size_bytes)
}

#[test]
fn rights_are_covered_by_the_lease_of_the_parent_and_nothing_else_is() {
    let dirs = Dirs::default();
    dirs.told(0, &inode(D, 4, E, 4));
    assert_eq!(rights(&dirs), None, "no lease, no knowledge");
    dirs.told(0, &leased(E, 5, false));
    dirs.told(0, &inode(D, 5, E, 5));
    assert_eq!((rights(&dirs), dirs.attr(D)), (Some(5), None), "its size and times are not");
    dirs.told(0, &inode(D, 7, E, 7));
    dirs.told(0, &inode(D, 6, E, 6));
    assert_eq!(rights(&dirs), Some(7), "the newest fact counts");
    // Under its own lease all of it is known. Earlier information under the parent's lease is void, also when
    // its own lease is recalled.
    dirs.told(0, &leased(D, 8, false));
    dirs.told(0, &inode(D, 9, D, 9));
    dirs.told(0, &inode(D, 8, E, 8));
    assert_eq!((rights(&dirs), dirs.attr(D).map(|attr| attr.size_bytes)), (Some(9), Some(9)));
    dirs.recalled(&[D], 10);
    assert_eq!((rights(&dirs), dirs.attr(D)), (None, None));
    dirs.told(0, &inode(D, 8, E, 8));
    assert_eq!(rights(&dirs), None, "from before");
    dirs.told(0, &inode(D, 11, E, 11));
    assert_eq!(rights(&dirs), Some(11));
    dirs.told(0, &gone(D, 12));
    dirs.told(0, &inode(D, 12, E, 12));
    assert_eq!(rights(&dirs), None, "gone, or moved elsewhere");
    dirs.told(0, &inode(D, 13, E, 13));
    dirs.recalled(&[E], 14);
    dirs.told(0, &leased(E, 15, false));
    dirs.told(0, &inode(D, 14, E, 14));
    assert_eq!(rights(&dirs), None, "told under the lease before");
    dirs.told(0, &inode(D, 15, E, 15));
    assert_eq!(rights(&dirs), Some(15));
    dirs.clear();
    assert_eq!(rights(&dirs), None);
    let inner = dirs.inner.lock();
    assert!(inner.rights.is_empty() && inner.attrs.is_empty() && inner.dirs.is_empty());
}

#[test]
fn what_is_on_its_way_under_its_own_lease_does_not_outlive_newer_rights() {
    let dirs = Dirs::default();
    dirs.told(0, &leased(E, 5, false));
    dirs.told(0, &leased(D, 5, false));
    dirs.told(0, &inode(D, 6, D, 6));
    dirs.told(0, &inode(D, 8, E, 8));
    assert_eq!((rights(&dirs), dirs.attr(D)), (Some(8), None), "the lease of it was lost");
    dirs.told(0, &inode(D, 7, D, 7));
    assert_eq!(dirs.attr(D), None, "it has changed since");
    dirs.told(0, &inode(D, 8, D, 8));
    assert_eq!(dirs.attr(D).map(|attr| attr.size_bytes), Some(8), "of the same moment");
}

#[test]
fn what_was_told_under_a_lease_that_was_being_taken_back_does_not_count_under_the_next_one() {
    let dirs = Dirs::default();
    dirs.told(0, &leased(E, 5, false));
    dirs.recalled(&[E], 6);
    // E's own change at 7 came into the log before E gave the lease back; its answer comes last.
    dirs.told(0, &leased(E, 9, false));
    dirs.told(0, &inode(D, 7, E, 7));
    dirs.told(0, &name(E, "f", FILE, 7));
    assert_eq!((rights(&dirs), dirs.lead(E, b"f")), (None, None));
}

#[test]
fn changes_that_were_asked_for_before_everything_was_forgotten_count() {
    let dirs = Dirs::default();
    let asked = dirs.asked();
    dirs.clear();
    dirs.told(asked, &leased(E, 20, true));
    assert_eq!(dirs.lead(E, b"x"), None, "no lease comes from before");
    dirs.told(1, &leased(D, 4, true));
    dirs.told(1, &name(D, "f", None, 5));
    dirs.told(1, &inode(F, 5, D, 5));
    dirs.told(asked, &name(D, "f", FILE, 6));
    dirs.told(asked, &inode(F, 6, D, 6));
    assert_eq!((dirs.lead(D, b"f"), dirs.lead(D, b"g"), size(&dirs)), (None, None, None));
}

#[test]
fn a_fact_that_is_not_kept_voids_older_ones() {
    let dirs = Dirs::default();
    let twin = Ino(D.0 + FLOORS as u64);
    dirs.told(0, &leased(D, 5, true));
    dirs.told(0, &inode(F, 5, D, 5));
    dirs.told(0, &name(twin, "x", FILE, 9));
    dirs.told(0, &name(D, "f", FILE, 7));
    dirs.told(0, &inode(F, 7, D, 7));
    assert_eq!((dirs.lead(D, b"f"), size(&dirs)), (None, None), "the floor is its twin's");
}

/// Without this property every create behind the 4096th of a client would cost a LOOKUP at the MDT.
#[test]
fn a_new_directory_stays_complete_however_many_open_files_are_made_in_it() {
    let dirs = Dirs::default();
    dirs.told(0, &leased(D, 1, true));
    for n in 1..=2 * FLOORS as u64 {
        // The answer to a CREATE: the file, which is open for writing, its directory and its name.
        let (at, file) = (1 + n, Ino(1000 + n));
        let told = [gone(file, at), inode(D, n, D, at)];
        let inodes = told.into_iter().flat_map(|news| news.inodes).collect();
        let names = name(D, &format!("f{n}"), Some((file, FileType::Regular)), at).names;
        dirs.told(0, &CacheUpdates { inodes, names, ..CacheUpdates::default() });
        assert_eq!(dirs.lead(D, b"another"), Some(None), "after {n} files");
    }
}

#[test]
fn a_listing_to_the_end_knows_every_name() {
    let dirs = Dirs::default();
    let lease = Leased { dir: D, at: 5, is_new: false };
    dirs.told(0, &leased(D, 5, false));
    let entry = |name: &str, cookie| DirEntry {
        name: name.into(),
        ino: F,
        kind: FileType::Regular,
        cookie,
        attr: Some(attr(F, 3)),
    };
    dirs.listed(0, &lease, 40, &listing(&[entry("c", 50)], true), Listed::Asked);
    assert_eq!(dirs.lead(D, b"x"), None, "the end of a listing that was not followed from its start");
    dirs.listed(0, &lease, 0, &listing(&[entry("a", 30), entry("b", 40)], false), Listed::Asked);
    assert_eq!((dirs.lead(D, b"a"), dirs.lead(D, b"x")), (Some(FILE), None));
    dirs.told(0, &name(D, "new", FILE, 6));
    dirs.listed(0, &lease, 40, &listing(&[entry("c", 50)], true), Listed::Asked);
    assert_eq!((dirs.lead(D, b"x"), dirs.lead(D, b"new"), size(&dirs)), (Some(None), Some(FILE), Some(3)));
    assert!(!dirs.ends_at(D, 50), "the new name may lie behind");
    dirs.listed(
        0,
        &Leased { at: 6, ..lease },
        0,
        &listing(&[entry("b", 40), entry("c", 50)], true),
        Listed::Asked,
    );
    assert!(dirs.ends_at(D, 50) && !dirs.ends_at(D, 40));
    dirs.told(0, &name(D, "y", None, 7));
    assert!(dirs.ends_at(D, 50));
    dirs.told(0, &name(D, "newer", FILE, 8));
    assert!(!dirs.ends_at(D, 50), "it may lie behind");
    dirs.listed(
        0,
        &Leased { at: 8, ..lease },
        0,
        &listing(&[entry("b", 40), entry("c", 50)], true),
        Listed::Asked,
    );
    assert!(dirs.ends_at(D, 50));
    // A listing that was answered before a name was made, and arrives after it.
    dirs.told(0, &name(D, "overtaking", FILE, 9));
    dirs.listed(
        0,
        &Leased { at: 8, ..lease },
        0,
        &listing(&[entry("b", 40), entry("c", 50)], true),
        Listed::Asked,
    );
    assert!(!dirs.ends_at(D, 50), "the name may lie behind");
    dirs.listed(
        0,
        &Leased { at: 9, ..lease },
        0,
        &listing(&[entry("b", 40), entry("c", 50)], true),
        Listed::Asked,
    );
    assert!(dirs.ends_at(D, 50));
    dirs.recalled(&[D], 9);
    assert!(!dirs.ends_at(D, 50));
}

#[test]
fn a_small_directory_is_listed_again_from_memory_until_a_name_changes() {
    let dirs = Dirs::default();
    dirs.told(0, &leased(D, 5, false));
    let entry = |name: &str, cookie| {
        let (name, ino, kind) = (name.into(), F, FileType::Regular);
        DirEntry { name, ino, kind, cookie, attr: Some(attr(F, 3)) }
    };
    let all = [entry("a", 30), entry("b", 40)];
    let at = |at| Leased { dir: D, at, is_new: false };
    let names = |after, max| {
        let found = dirs.listing(D, after, max)?.told;
        let names: Vec<_> =
            found.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
        Some((names.concat(), found.end))
    };
    dirs.listed(0, &at(5), 0, &listing(&all, false), Listed::Asked);
    assert_eq!(names(0, 9), None, "that is not all");
    dirs.listed(0, &at(5), 0, &listing(&all, true), Listed::Asked);
    assert_eq!(names(0, 9), Some(("ab".into(), true)));
    let bare = all.clone().map(|entry| DirEntry { attr: None, ..entry });
    assert_eq!(dirs.listing(D, 0, 9).expect("known").told, listing(&bare, true), "with its parent");
    assert_eq!((names(0, 1), names(30, 1)), (Some(("a".into(), false)), Some(("b".into(), true))));
    assert_eq!(names(40, 1), Some((String::new(), true)));
    dirs.told(0, &name(D, "a", FILE, 6));
    assert!(names(0, 9).is_some(), "that was known");
    dirs.told(0, &name(D, "a", None, 7));
    assert_eq!(names(0, 9), None);
    dirs.listed(0, &at(6), 0, &listing(&all, true), Listed::Asked);
    assert_eq!(names(0, 9), None, "answered before the name was removed");
    dirs.listed(0, &at(7), 0, &listing(&all[1..], true), Listed::Asked);
    assert_eq!(names(0, 9), Some(("b".into(), true)));
    dirs.told(0, &name(D, "new", FILE, 8));
    assert_eq!(names(0, 9), None);
    dirs.listed(0, &at(8), 0, &listing(&all, true), Listed::Asked);
    dirs.told(0, &inode(D, 2, D, 9));
    assert_eq!(names(0, 9), None, "it may have another parent");
    dirs.listed(0, &at(8), 0, &listing(&all, true), Listed::Asked);
    assert_eq!(names(0, 9), None, "answered before it was moved");
    dirs.listed(0, &at(9), 0, &listing(&all, true), Listed::Asked);
    dirs.told(0, &inode(D, 2, D, 10));
    assert!(names(0, 9).is_some(), "nothing has changed");
    dirs.recalled(&[D], 9);
    assert_eq!(names(0, 9), None);
}

#[test]
fn what_was_read_ahead_is_shown_unless_something_has_changed_since() {
    let part = |cookies: std::ops::Range<u64>| listing(&cookies.map(entry_at).collect::<Vec<_>>(), false);
    let at = |at| Leased { dir: D, at, is_new: false };
    // Runs `meanwhile` after the part behind cookie 49 has come; returns whether that part may be shown.
    let is_shown = |meanwhile: &dyn Fn(&Dirs)| {
        let dirs = Dirs::default();
        dirs.told(0, &leased(D, 5, false));
        dirs.listed(0, &at(5), 0, &part(40..50), Listed::Asked);
        assert!(dirs.begin_reading_on(D, 49) && !dirs.begin_reading_on(D, 49), "once at a time");
        assert!(dirs.coming(D, 40).is_none());
        let mut coming = dirs.coming(D, 49).expect("it is on its way");
        dirs.listed(0, &at(5), 49, &part(50..60), Listed::ReadAhead);
        assert!(coming.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
        dirs.listed_ahead(D, &[]);
        assert!(coming.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        assert!(dirs.coming(D, 49).is_none());
        meanwhile(&dirs);
        dirs.listing(D, 49, 5).is_some_and(|known| known.told.entries.len() == 5 && known.read_on == Some(59))
    };
    assert!(is_shown(&|_| {}));
    assert!(
        is_shown(&|dirs| assert!(dirs.listed(0, &at(6), 59, &part(60..70), Listed::Asked))),
        "more was found"
    );
    let between = DirEntry { name: "between".into(), ..entry_at(55) };
    let finds = |dirs: &Dirs| {
        dirs.listed(0, &at(8), 50, &listing(std::slice::from_ref(&between), false), Listed::Asked);
        // Older information about the name arrives too late to count.
        dirs.told(0, &name(D, "between", Some((between.ino, between.kind)), 7));
    };
    assert!(!is_shown(&finds), "somebody was shown a name that the part does not have");
    assert!(
        is_shown(&|dirs| drop(dirs.told(0, &name(D, "55", Some((Ino(55), FileType::Regular)), 7)))),
        "known"
    );
    assert!(!is_shown(&|dirs| drop(dirs.told(0, &name(D, "55", None, 7)))), "removed");
    assert!(!is_shown(&|dirs| drop(dirs.told(0, &name(D, "new", FILE, 7)))), "made");
    assert!(!is_shown(&|dirs| drop(dirs.recalled(&[D], 7))));
    assert!(!is_shown(&|dirs| drop(dirs.clear())));
    // The name is told before a change that the answer does not know of.
    let dirs = Dirs::default();
    dirs.told(0, &leased(D, 5, false));
    dirs.told(0, &name(D, "new", FILE, 7));
    dirs.listed(0, &at(6), 49, &part(50..60), Listed::ReadAhead);
    assert!(dirs.listing(D, 49, 5).is_none());
}

#[test]
fn whoever_changes_a_directory_while_he_lists_it_has_nothing_read_ahead() {
    let dirs = Dirs::default();
    dirs.told(0, &leased(D, 5, false));
    let part = |names: &[(&str, u64)]| {
        let entry = |(name, cookie): &(&str, u64)| DirEntry { name: (*name).into(), ..entry_at(*cookie) };
        listing(&names.iter().map(entry).collect::<Vec<_>>(), false)
    };
    let at = |at| Leased { dir: D, at, is_new: false };
    assert!(
        !dirs.listed(0, &at(5), 0, &part(&[("a", 30)]), Listed::Asked),
        "nothing is known of what was before"
    );
    assert!(dirs.listed(0, &at(5), 30, &part(&[("b", 40)]), Listed::Asked));
    dirs.told(0, &name(D, "a", None, 6));
    assert!(!dirs.listed(0, &at(6), 40, &part(&[("c", 50)]), Listed::Asked));
    assert!(dirs.listed(0, &at(6), 50, &part(&[("d", 60)]), Listed::Asked));
    assert!(
        !dirs.listed(1, &at(6), 60, &part(&[("e", 70)]), Listed::Asked),
        "asked before all was forgotten"
    );
}

#[test]
fn what_was_forgotten_for_want_of_memory_is_remembered_when_it_is_told_again() {
    let dirs = Dirs::default();
    let dir = |n: u64| Ino(100_000 + n);
    // Without changes every answer has the same log position.
    let tell = |n: u64| {
        dirs.told(0, &leased(dir(n), 7, false));
        for name_of in 0..1000 {
            dirs.told(0, &name(dir(n), &name_of.to_string(), FILE, 7));
        }
    };
    let many = FACTS_MAX as u64 / 1000 + 10;
    (0..many).for_each(tell);
    assert_eq!(dirs.lead(dir(0), b"5"), None, "it was forgotten");
    tell(0);
    assert_eq!(dirs.lead(dir(0), b"5"), Some(FILE));
    // Older answers are refused all the same.
    dirs.told(0, &leased(dir(1), 6, false));
    dirs.told(0, &name(dir(1), "5", None, 6));
    assert_eq!(dirs.lead(dir(1), b"5"), None);
}

#[test]
fn a_directory_is_listed_ahead_as_far_as_it_is_asked_about() {
    let dirs = Dirs::default();
    let lease = Leased { dir: D, at: 5, is_new: false };
    let asked = |times: u32| (0..times).filter_map(|_| dirs.ahead(D)).collect::<Vec<_>>();
    assert_eq!(asked(1000), [], "nothing can be known of it");
    dirs.told(0, &leased(D, 5, false));
    let few = AHEAD_MIN / OF_EACH_ASKED;
    assert_eq!(asked(few - 1), []);
    assert_eq!(asked(1), [Ahead { after: 0, entries_max: AHEAD_MIN }]);
    assert_eq!(asked(100), [], "it is being listed");
    dirs.listed(0, &lease, 0, &listing(&[entry_at(30), entry_at(40)], false), Listed::Asked);
    dirs.listed_ahead(D, &[]);
    assert_eq!(asked(1), [Ahead { after: 40, entries_max: AHEAD_MAX }], "what was asked meanwhile counts");
    dirs.listed(0, &lease, 40, &listing(&[entry_at(50)], true), Listed::Asked);
    dirs.listed_ahead(D, &[]);
    assert_eq!(asked(1000), [], "nothing is left to be listed");
    // A single directory does not push out all others.
    dirs.told(0, &leased(E, 5, false));
    let many: Vec<DirEntry> = (16..AHEAD_FACTS_MAX as u64).map(entry_at).collect();
    dirs.listed(0, &Leased { dir: E, ..lease }, 0, &listing(&many, false), Listed::Asked);
    assert_eq!((0..1000).filter_map(|_| dirs.ahead(E)).count(), 0);
}

#[test]
fn what_was_listed_ahead_and_is_used_lists_on_without_a_question() {
    let dirs = Dirs::default();
    let lease = Leased { dir: D, at: 5, is_new: false };
    dirs.told(0, &leased(D, 5, false));
    let names: Vec<DirEntry> = (100..1000).map(entry_at).collect();
    let walk = |names: &[DirEntry]| {
        let used = names.iter().map(|entry| dirs.walk(D, &entry.name));
        used.filter_map(|(lead, ahead)| lead.and(ahead)).collect::<Vec<_>>()
    };
    let few = (AHEAD_MIN / OF_EACH_USED) as usize;
    // A listing by the program itself earns no credit.
    dirs.listed(0, &lease, 0, &listing(&names[..200], false), Listed::Asked);
    assert_eq!(walk(&names[..200]), []);
    dirs.listed(0, &lease, 299, &listing(&names[200..], false), Listed::Asked);
    dirs.listed_ahead(D, &names[200..]);
    assert_eq!(walk(&names[200..199 + few]), []);
    assert_eq!(walk(&names[..199 + few]), [], "each counts once");
    let ahead = Ahead { after: 999, entries_max: AHEAD_MIN };
    assert_eq!(walk(&names[199 + few..]), [ahead], "one at a time");
}

#[test]
fn memory_is_bounded_and_what_was_not_used_goes_first() {
    let dirs = Dirs::default();
    dirs.told(0, &leased(D, 1, false));
    dirs.told(0, &leased(E, 1, false));
    dirs.told(0, &name(D, "f", FILE, 2));
    for n in 0..FACTS_MAX as u64 - 1 {
        dirs.told(0, &name(E, &n.to_string(), None, n + 2));
    }
    assert_eq!(dirs.lead(D, b"f"), Some(FILE), "and it is used");
    dirs.told(0, &name(D, "g", FILE, 2));
    assert_eq!((dirs.lead(E, b"0"), dirs.lead(D, b"f")), (None, Some(FILE)));
    let inner = dirs.inner.lock();
    assert_eq!((inner.names, inner.dirs.len(), inner.used.len()), (2, 1, 1));
}
