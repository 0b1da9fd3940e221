//! Scans against the obvious way to do it: random trees, random predicates, pages of any size.

use std::collections::{BTreeMap, BTreeSet};

use brindle_types::attr::Time;
use brindle_types::{Attr, Code, FileType, Ino, Layout, StripePolicy};
use brindle_wire::Cred;
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::rename::RenameReq;
use brindle_wire::mds::scan::*;
use brindle_wire::mds::setattr::{SetTime, SetattrReq};
use brindle_wire::mds::stripe::{GetStripeReq, SetStripeReq};
use brindle_wire::mds::symlink::SymlinkReq;

use super::rig::*;
use crate::scan::{Limits, Walk};

const NAMES: [&str; 8] = ["a", "b.c", "c.txt", "D", "e", "f.C", "g", ".h"];
const GLOBS: [&str; 8] = ["*", "*.c", "[a-c]*", "?", "D", ".*", "*.txt", "nothing"];
/// Users of files; also who looks.
const USERS: [u32; 3] = [0, 1001, 1002];
const SECONDS: i64 = 1_000_000;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.draw(of.len())]
    }
}

/// Contents of the tree: every path with its attributes and, for files, the layout.
type Tree = BTreeMap<String, (Attr, Option<Layout>)>;

fn rename_req(dir: Ino, from: &str, to: &str) -> RenameReq {
    let (name, new_name) = (from.into(), to.into());
    RenameReq {
        parent: dir,
        name,
        new_parent: dir,
        new_name,
        no_replace: false,
        exchange: false,
        whiteout: false,
        cred: root(),
    }
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Makes a random tree below the root and says what is in it.
async fn grow(rig: &Rig, dice: &mut Dice, entries: usize) -> Tree {
    let mut dirs = vec![(String::new(), Ino::ROOT)];
    let mut files: Vec<Ino> = Vec::new();
    let mut paths: BTreeMap<String, Ino> = BTreeMap::from([(String::new(), Ino::ROOT)]);
    for number in 0..entries {
        let (above, parent) = dirs[dice.draw(dirs.len())].clone();
        let name = format!(
            "{}{}",
            dice.one(&NAMES),
            if dice.draw(2) == 0 { String::new() } else { number.to_string() }
        );
        let path = join(&above, &name);
        if paths.contains_key(&path) {
            continue;
        }
        let ino = match dice.draw(8) {
            0..=1 => {
                let ino = rig.mkdir(parent, &name).await.expect("made").ino;
                dirs.push((path.clone(), ino));
                ino
            }
            2 => {
                let req = SymlinkReq { parent, name: name.into(), target: b"x".to_vec(), cred: root() };
                rig.ask(A, req).await.expect("made").attr.ino
            }
            3 if !files.is_empty() => {
                let ino = dice.one(&files);
                let req = LinkReq { ino, parent, name: name.into(), cred: root() };
                rig.ask(A, req).await.expect("linked").attr.ino
            }
            _ => {
                let req = create_req(parent, &name, RW);
                let ino = rig.ask(A, req.clone()).await.expect("made").attr.ino;
                rig.close(A, ino, req.handle).await.expect("closed");
                files.push(ino);
                ino
            }
        };
        paths.insert(path, ino);
    }
    let inodes: BTreeSet<Ino> = paths.values().copied().filter(|ino| *ino != Ino::ROOT).collect();
    for ino in inodes {
        change(rig, dice, ino, files.contains(&ino)).await;
    }
    look(rig, paths).await
}

async fn change(rig: &Rig, dice: &mut Dice, ino: Ino, is_file: bool) {
    if is_file && dice.draw(3) == 0 {
        let policy = StripePolicy { count: Some(dice.draw(4) as i32 + 1), ..StripePolicy::default() };
        let req = SetStripeReq { ino, policy: Some(policy.into()), cred: root() };
        rig.ask(A, req).await.expect("set");
    }
    let time = Time { secs: SECONDS - dice.draw(5 * 86_400) as i64, nanos: dice.draw(2) as u32 };
    let req = SetattrReq {
        uid: Some(dice.one(&USERS)),
        gid: Some(dice.one(&USERS)),
        mode: Some(dice.one(&[0o755, 0o750, 0o711, 0o644, 0o600])),
        size_bytes: is_file.then(|| dice.one(&[0, 1, 512, 1024, 1025, 8000])),
        ..setattr_req(ino, root())
    };
    rig.ask(A, req).await.expect("changed");
    let req = SetattrReq {
        mtime: Some(SetTime::At(time)),
        atime: Some(SetTime::At(time)),
        ..setattr_req(ino, root())
    };
    rig.ask(A, req).await.expect("changed");
}

async fn look(rig: &Rig, paths: BTreeMap<String, Ino>) -> Tree {
    let mut tree = Tree::new();
    for (path, ino) in paths {
        let attr = rig.stat(A, ino).await.expect("there");
        let stripe = rig.ask(A, GetStripeReq { ino }).await.ok();
        tree.insert(path, (attr, stripe.and_then(|s| s.layout)));
    }
    tree
}

/// A predicate as people think of it.
enum Expr {
    Test(Test),
    Not(Box<Expr>),
    Both(Box<Expr>, Box<Expr>),
    Either(Box<Expr>, Box<Expr>),
}

impl Expr {
    fn random(dice: &mut Dice, depth: u32) -> Expr {
        let inner = |dice: &mut Dice| Box::new(Expr::random(dice, depth + 1));
        match dice.draw(if depth > 2 { 3 } else { 7 }) {
            0..=2 => Expr::Test(test(dice)),
            3 => Expr::Not(inner(dice)),
            4..=5 => Expr::Both(inner(dice), inner(dice)),
            _ => Expr::Either(inner(dice), inner(dice)),
        }
    }

    fn terms(&self) -> Vec<Term> {
        match self {
            Expr::Test(test) => vec![Term::Test(test.clone())],
            Expr::Not(a) => [a.terms(), vec![Term::Not]].concat(),
            Expr::Both(a, b) => [a.terms(), b.terms(), vec![Term::And]].concat(),
            Expr::Either(a, b) => [a.terms(), b.terms(), vec![Term::Or]].concat(),
        }
    }

    fn holds(&self, name: &str, attr: &Attr, layout: Option<&Layout>) -> bool {
        match self {
            Expr::Test(test) => holds(test, name, attr, layout),
            Expr::Not(a) => !a.holds(name, attr, layout),
            Expr::Both(a, b) => a.holds(name, attr, layout) && b.holds(name, attr, layout),
            Expr::Either(a, b) => a.holds(name, attr, layout) || b.holds(name, attr, layout),
        }
    }
}

fn test(dice: &mut Dice) -> Test {
    let range = |dice: &mut Dice, of: &[u64]| {
        let n = dice.one(of);
        dice.one(&[Range { min: n, max: n }, Range { min: n + 1, max: u64::MAX }, Range { min: 0, max: n }])
    };
    let kinds = [FileType::Directory, FileType::Regular, FileType::Symlink];
    match dice.draw(12) {
        0..=1 => Test::Name { glob: dice.one(&GLOBS).into(), fold_case: dice.draw(2) == 0 },
        2 => Test::Kind(vec![dice.one(&kinds), dice.one(&kinds)]),
        3 => Test::Size(range(dice, &[0, 1, 512, 1024, 4096])),
        4 => Test::Age {
            of: dice.one(&[Stamp::Modify, Stamp::Access]),
            at_least_secs: (dice.draw(2) == 0).then_some(86_400),
            below_secs: (dice.draw(2) == 0).then_some(3 * 86_400),
        },
        5 => Test::Newer { of: Stamp::Modify, than: Time { secs: SECONDS - 100_000, nanos: 0 } },
        6 => Test::Uid(range(dice, &[0, 1001])),
        7 => Test::Links(range(dice, &[1, 2])),
        8 => Test::Perm {
            how: dice.one(&[PermMatch::Exact, PermMatch::All, PermMatch::Any]),
            bits: dice.one(&[0o755, 0o022, 0o600, 0]),
        },
        9 => Test::StripeCount(range(dice, &[1, 2, 3])),
        10 => Test::Layout(dice.one(&[LayoutKind::Raid0, LayoutKind::Mdt, LayoutKind::Composite])),
        _ => Test::Components(range(dice, &[1, 2])),
    }
}

/// The reference: of the few globs above.
fn glob_holds(glob: &str, name: &str) -> bool {
    match glob {
        "*" => true,
        "?" => name.chars().count() == 1,
        "[a-c]*" => name.starts_with(['a', 'b', 'c']),
        ".*" => name.starts_with('.'),
        "*.c" | "*.C" => name.ends_with(&glob[1..]),
        "*.txt" | "*.TXT" => name.ends_with(&glob[1..]),
        other => name == other,
    }
}

fn holds(test: &Test, name: &str, attr: &Attr, layout: Option<&Layout>) -> bool {
    let age = SECONDS * 1_000_000_000 - (attr.mtime.secs * 1_000_000_000 + i64::from(attr.mtime.nanos));
    match test {
        Test::Name { glob, fold_case: false } => glob_holds(&String::from_utf8_lossy(glob), name),
        Test::Name { glob, fold_case: true } => {
            glob_holds(&String::from_utf8_lossy(glob).to_lowercase(), &name.to_lowercase())
        }
        Test::Kind(kinds) => kinds.contains(&attr.kind),
        Test::Size(range) => range.holds(attr.size_bytes),
        Test::Age { at_least_secs, below_secs, .. } => {
            at_least_secs.is_none_or(|secs| age >= secs as i64 * 1_000_000_000)
                && below_secs.is_none_or(|secs| age < secs as i64 * 1_000_000_000)
        }
        Test::Newer { than, .. } => attr.mtime > *than,
        Test::Uid(range) => range.holds(attr.uid.into()),
        Test::Links(range) => range.holds(attr.nlink.into()),
        Test::Perm { how: PermMatch::Exact, bits } => attr.perm == *bits,
        Test::Perm { how: PermMatch::All, bits } => attr.perm & bits == *bits,
        Test::Perm { how: PermMatch::Any, bits } => *bits == 0 || attr.perm & bits > 0,
        Test::StripeCount(range) => layout.is_some_and(|l| {
            let first = &l.components[0];
            range.holds(first.asked.count.filter(|n| *n > 0).unwrap_or(1) as u64)
        }),
        Test::Layout(kind) => layout.is_some_and(|l| match kind {
            LayoutKind::Mdt => l.inline && attr.size_bytes > 0,
            LayoutKind::Raid0 => !l.inline || attr.size_bytes == 0,
            LayoutKind::Composite => l.components.len() > 1,
        }),
        Test::Components(range) => layout.is_some_and(|l| range.holds(l.components.len() as u64)),
        other => panic!("{other:?} is not drawn"),
    }
}

fn request(predicate: Vec<Term>, wanted: Wanted) -> ScanReq {
    ScanReq {
        cred: root(),
        start: Ino::ROOT,
        start_name: b"top".to_vec(),
        predicate,
        depth_min: 0,
        depth_max: u32::MAX,
        wanted,
        cursor: None,
    }
}

/// All pages of a scan, of this size; ages are those at [`SECONDS`].
fn scan(rig: &Rig, mut req: ScanReq, limits: Limits) -> ScanResp {
    let mut all = ScanResp { found: Vec::new(), sums: Vec::new(), refused: Vec::new(), cursor: None };
    let now = Time { secs: SECONDS, nanos: 0 };
    loop {
        let key = rig.mdt.engine().format().hash_key;
        let page = Walk::page(rig.mdt.engine(), key, &req, now, limits).expect("scanned");
        all.found.extend(page.found);
        all.sums.extend(page.sums);
        all.refused.extend(page.refused);
        match page.cursor {
            Some(cursor) => req.cursor = Some(cursor),
            None => return all,
        }
    }
}

fn paths(page: &ScanResp) -> Vec<String> {
    page.found.iter().map(|f| String::from_utf8(f.path.clone()).expect("text")).collect()
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort();
    paths
}

fn depth(path: &str) -> u32 {
    if path.is_empty() { 0 } else { path.matches('/').count() as u32 + 1 }
}

fn may(attr: &Attr, user: u32, bit: u16) -> bool {
    let shift = if attr.uid == user {
        6
    } else if attr.gid == user {
        3
    } else {
        0
    };
    user == 0 || attr.perm >> shift & bit == bit
}

/// Whether a user can come to a path: every directory above can be read and searched.
fn reaches(tree: &Tree, path: &str, user: u32) -> bool {
    let above: Vec<&str> =
        path.match_indices('/').map(|(at, _)| &path[..at]).chain((!path.is_empty()).then_some("")).collect();
    above.iter().all(|dir| may(&tree[*dir].0, user, 4) && may(&tree[*dir].0, user, 1))
}

fn random_limits(dice: &mut Dice) -> Limits {
    Limits { rows: dice.one(&[1, 2, 7, 50, 4096]), bytes: dice.one(&[1, 40, 500, 1 << 17]) }
}

#[test]
fn scans_find_what_a_walk_finds() {
    run(async {
        for seed in 1..=3 {
            let rig = Rig::new().await;
            let mut dice = Dice(seed);
            let tree = grow(&rig, &mut dice, 150).await;
            rig.verify();
            for _ in 0..40 {
                let expr = Expr::random(&mut dice, 0);
                let user = dice.one(&USERS);
                let (low, high) = (dice.draw(3) as u32, dice.one(&[0, 1, 3, u32::MAX]));
                let wanted: Vec<String> = tree
                    .iter()
                    .filter(|(path, _)| (low..=high).contains(&depth(path)) && reaches(&tree, path, user))
                    .filter(|(path, (attr, layout))| {
                        let name = if path.is_empty() { "top" } else { last_name(path) };
                        expr.holds(name, attr, layout.as_ref())
                    })
                    .map(|(path, _)| path.clone())
                    .collect();
                let cred = if user == 0 { root() } else { super::rig::user(user) };
                let what = if dice.draw(2) == 0 { Wanted::Paths } else { Wanted::Attrs };
                let req = ScanReq { cred, depth_min: low, depth_max: high, ..request(expr.terms(), what) };
                let found = scan(&rig, req.clone(), random_limits(&mut dice));
                assert_eq!(sorted(paths(&found)), wanted, "seed {seed}: {req:?}");
                for entry in found.found.iter().filter(|_| what == Wanted::Attrs) {
                    let path = std::str::from_utf8(&entry.path).expect("text");
                    assert_eq!(entry.attr.as_ref(), Some(&tree[path].0));
                }
                let one_page = scan(&rig, req, Limits::PAGE);
                assert_eq!(paths(&one_page), paths(&found), "pages change nothing, not even the order");
            }
        }
    });
}

#[test]
fn sums_are_those_of_a_walk_with_links_counted_once() {
    run(async {
        for seed in 11..=12 {
            let rig = Rig::new().await;
            let mut dice = Dice(seed);
            let tree = grow(&rig, &mut dice, 120).await;
            for depth_max in [0, 1, 2, u32::MAX] {
                let found =
                    scan(&rig, request(Vec::new(), Wanted::Sums { depth_max }), random_limits(&mut dice));
                let mut seen = BTreeSet::new();
                let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
                let mut entries = 0;
                for sum in &found.sums {
                    let path = std::str::from_utf8(&sum.path).expect("text");
                    let of = sums.entry(path).or_default();
                    *of = (of.0 + sum.allocated_bytes, of.1 + sum.size_bytes);
                    entries += sum.entries;
                    for link in sum.linked.iter().filter(|link| seen.insert(link.ino)) {
                        *of = (of.0 + link.allocated_bytes, of.1 + link.size_bytes);
                        entries += 1;
                    }
                }
                let inodes: BTreeMap<Ino, &Attr> = tree.values().map(|(attr, _)| (attr.ino, attr)).collect();
                let space = |a: &&Attr| a.allocated_bytes.div_ceil(512) * 512;
                let has_size = |a: &&&Attr| a.kind != FileType::Directory;
                assert_eq!(entries, inodes.len() as u64);
                assert_eq!(sums.values().map(|s| s.0).sum::<u64>(), inodes.values().map(space).sum::<u64>());
                let sizes = inodes.values().filter(has_size).map(|a| a.size_bytes).sum::<u64>();
                assert_eq!(sums.values().map(|s| s.1).sum::<u64>(), sizes);
                let is_dir = |p: &&String| tree[*p].0.kind == FileType::Directory && depth(p) <= depth_max;
                let dirs: BTreeSet<&str> = tree.keys().filter(is_dir).map(String::as_str).collect();
                assert_eq!(sums.keys().copied().collect::<BTreeSet<_>>(), dirs);
            }
        }
    });
}

#[test]
fn what_stays_is_found_once_whatever_else_happens() {
    run(async {
        let rig = Rig::new().await;
        let mut dice = Dice(77);
        let mut stays = vec![String::new()];
        for dir in ["", "d", "e"] {
            let ino = match dir {
                "" => Ino::ROOT,
                name => rig.mkdir(Ino::ROOT, name).await.expect("made").ino,
            };
            stays.extend((!dir.is_empty()).then(|| dir.to_owned()));
            for n in 0..100 {
                let name = format!("{}{n}", if n % 2 == 0 { "stays" } else { "goes" });
                rig.create(A, ino, &name, RW).await.expect("made");
                stays.extend((n % 2 == 0).then(|| join(dir, &name)));
            }
        }
        let mut req = request(Vec::new(), Wanted::Paths);
        let mut found = Vec::new();
        loop {
            let limits = random_limits(&mut dice);
            let key = rig.mdt.engine().format().hash_key;
            let page = Walk::page(rig.mdt.engine(), key, &req, Time::default(), limits).expect("scanned");
            found.extend(paths(&page));
            let Some(cursor) = page.cursor else { break };
            req.cursor = Some(cursor);
            let dir = rig.lookup(Ino::ROOT, dice.one(&["d", "e"])).await.expect("there").ino;
            let (old, new) = (format!("goes{}", dice.draw(50) * 2 + 1), format!("goes-new{}", dice.draw(50)));
            // The entry may or may not still exist.
            let _ = match dice.draw(2) {
                0 => rig.unlink(dir, &old).await.err(),
                _ => rig.ask(A, rename_req(dir, &old, &new)).await.err(),
            };
        }
        found.retain(|p| !last_name(p).starts_with("goes"));
        assert_eq!(sorted(found), sorted(stays));
    });
}

#[test]
fn directories_that_may_not_be_read_are_named_and_never_entered() {
    run(async {
        let rig = Rig::new().await;
        let open = rig.mkdir(Ino::ROOT, "open").await.expect("made").ino;
        let secret = rig.mkdir(Ino::ROOT, "secret").await.expect("made").ino;
        let inner = rig.mkdir(secret, "inner").await.expect("made").ino;
        rig.create(A, inner, "f", RW).await.expect("made");
        rig.create(A, open, "g", RW).await.expect("made");
        rig.ask(A, SetattrReq { mode: Some(0o700), ..setattr_req(secret, root()) }).await.expect("changed");
        let asked = |start: Ino, cred: Cred| ScanReq { start, cred, ..request(Vec::new(), Wanted::Paths) };
        let page = rig.ask(A, asked(Ino::ROOT, user(1001))).await.expect("scanned");
        assert_eq!(sorted(paths(&page)), ["", "open", "open/g", "secret"]);
        assert_eq!(page.refused, [ScanRefused { path: b"secret".to_vec(), code: Code::PermissionDenied }]);
        // A scan that starts at the inode number of an entry below is refused, too.
        assert_eq!(code(rig.ask(A, asked(inner, user(1001))).await), Some(Code::PermissionDenied));
        assert_eq!(paths(&rig.ask(A, asked(inner, root())).await.expect("scanned")), ["", "f"]);
        rig.ask(A, SetattrReq { mode: Some(0o750), gid: Some(7), ..setattr_req(secret, root()) })
            .await
            .expect("changed");
        let member = Cred { groups: vec![7], ..user(1001) };
        assert_eq!(paths(&rig.ask(A, asked(inner, member)).await.expect("scanned")), ["", "f"]);
    });
}

#[test]
fn a_start_may_be_a_file_and_a_cursor_must_be_one_of_ours() {
    run(async {
        let rig = Rig::new().await;
        let file = rig.create(A, Ino::ROOT, "f", RW).await.expect("made").attr.ino;
        let name = Term::Test(Test::Name { glob: b"top".to_vec(), fold_case: false });
        let req = ScanReq { start: file, ..request(vec![name], Wanted::Paths) };
        assert_eq!(paths(&rig.ask(A, req.clone()).await.expect("scanned")), [""]);
        let gone = ScanReq { start: Ino(0xffff_ffff), ..req.clone() };
        assert_eq!(code(rig.ask(A, gone).await), Some(Code::NotFound));
        let level = |after: &str| ScanLevel { dir: Ino::ROOT, after: after.into() };
        for levels in [vec![], vec![level(""), level("")], vec![level(&"x".repeat(256))]] {
            let req = ScanReq { cursor: Some(ScanCursor { began: Time::default(), levels }), ..req.clone() };
            assert_eq!(code(rig.ask(A, req).await), Some(Code::InvalidArgument));
        }
        let req = ScanReq { predicate: vec![Term::Not], ..req };
        assert_eq!(code(rig.ask(A, req).await), Some(Code::InvalidArgument));
    });
}
