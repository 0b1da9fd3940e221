//! Random operations against a model in memory: same outcomes, same tree, and nothing wrong with the rows.

use std::collections::BTreeMap;

use brindle_types::{Code, FileType, Ino, Result};
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::open::OpenReq;
use brindle_wire::mds::readdir::ReaddirReq;
use brindle_wire::mds::rename::RenameReq;
use brindle_wire::mds::setattr::SetattrReq;
use brindle_wire::mds::unlink::RmdirReq;

use super::rig::*;

const OPS: usize = 2000;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A node of the model; directories have children, files a size.
#[derive(Clone, Debug, Default)]
struct Node {
    is_dir: bool,
    children: BTreeMap<&'static str, Ino>,
    parent: Option<Ino>,
    links: u32,
    size: u64,
    handles: Vec<u64>,
}

struct Model {
    nodes: BTreeMap<Ino, Node>,
    random: u64,
}

impl Model {
    fn new(seed: u64) -> Model {
        let root = Node { is_dir: true, links: 1, ..Node::default() };
        Model { nodes: BTreeMap::from([(Ino::ROOT, root)]), random: seed }
    }

    fn draw(&mut self, n: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % n
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.draw(NAMES.len())]
    }

    fn any(&mut self, dir: bool) -> Option<Ino> {
        let found: Vec<Ino> =
            self.nodes.iter().filter(|(_, n)| n.is_dir == dir && n.links > 0).map(|(i, _)| *i).collect();
        (!found.is_empty()).then(|| found[self.draw(found.len())])
    }

    fn child(&self, dir: Ino, name: &str) -> Option<Ino> {
        self.nodes[&dir].children.get(name).copied()
    }

    fn add(&mut self, dir: Ino, name: &'static str, ino: Ino, is_dir: bool) {
        let node = self.nodes.entry(ino).or_default();
        node.is_dir = is_dir;
        node.links += 1;
        node.parent = Some(dir);
        self.nodes.get_mut(&dir).expect("known").children.insert(name, ino);
    }

    fn drop_name(&mut self, dir: Ino, name: &str) {
        let ino = self.nodes.get_mut(&dir).expect("known").children.remove(name).expect("there");
        let node = self.nodes.get_mut(&ino).expect("known");
        node.links -= 1;
        if node.links == 0 && node.handles.is_empty() {
            self.nodes.remove(&ino);
        }
    }

    fn is_below(&self, mut at: Ino, top: Ino) -> bool {
        loop {
            if at == top {
                return true;
            }
            match self.nodes[&at].parent {
                Some(parent) if at != Ino::ROOT => at = parent,
                _ => return false,
            }
        }
    }

    /// Expected refusal of a rename, or `None` for success.
    fn rename_refusal(&self, from: (Ino, &str), to: (Ino, &str), exchange: bool) -> Option<Code> {
        let Some(source) = self.child(from.0, from.1) else { return Some(Code::NotFound) };
        let target = self.child(to.0, to.1);
        if self.nodes[&source].is_dir && self.is_below(to.0, source) {
            return Some(Code::RenameLoop);
        }
        let Some(target) = target else { return exchange.then_some(Code::NotFound) };
        if target == source {
            return None;
        }
        let (from_dir, to_dir) = (self.nodes[&source].is_dir, self.nodes[&target].is_dir);
        if exchange {
            return (to_dir && self.is_below(from.0, target)).then_some(Code::RenameLoop);
        }
        match (from_dir, to_dir) {
            (true, false) => Some(Code::NotDirectory),
            (false, true) => Some(Code::IsDirectory),
            (true, true) if !self.nodes[&target].children.is_empty() => Some(Code::NotEmpty),
            _ => None,
        }
    }

    fn rename(&mut self, from: (Ino, &'static str), to: (Ino, &'static str), exchange: bool) {
        let source = self.child(from.0, from.1).expect("checked");
        let target = self.child(to.0, to.1);
        if target == Some(source) {
            return;
        }
        let set = |nodes: &mut BTreeMap<Ino, Node>, dir: Ino, name, ino: Ino| {
            nodes.get_mut(&dir).expect("known").children.insert(name, ino);
            nodes.get_mut(&ino).expect("known").parent = Some(dir);
        };
        match target {
            Some(target) if exchange => {
                set(&mut self.nodes, from.0, from.1, target);
                set(&mut self.nodes, to.0, to.1, source);
                return;
            }
            Some(_) => self.drop_name(to.0, to.1),
            None => {}
        }
        self.nodes.get_mut(&from.0).expect("known").children.remove(from.1);
        set(&mut self.nodes, to.0, to.1, source);
    }
}

async fn one(rig: &Rig, m: &mut Model, handle: u64) {
    let Some(dir) = m.any(true) else { return };
    let name = m.name();
    let there = m.child(dir, name);
    match m.draw(10) {
        0 | 1 => {
            let mut req = create_req(dir, name, RW);
            req.handle = handle;
            let made = rig.ask(A, req).await;
            match there {
                Some(_) => assert_eq!(code(made), Some(Code::Exists)),
                None => {
                    let ino = made.expect("made").attr.ino;
                    m.add(dir, name, ino, false);
                    m.nodes.get_mut(&ino).expect("added").handles.push(handle);
                }
            }
        }
        2 | 3 => match (there, rig.mkdir(dir, name).await) {
            (Some(_), refused) => assert_eq!(code(refused), Some(Code::Exists)),
            (None, made) => m.add(dir, name, made.expect("made").ino, true),
        },
        4 => {
            let done = rig.unlink(dir, name).await;
            expect(m, there, done, Some((Code::IsDirectory, false)), |m| m.drop_name(dir, name));
        }
        5 => {
            let done = rig.ask(A, RmdirReq { parent: dir, name: name.into(), cred: root() }).await.map(drop);
            let full = there.is_some_and(|ino| !m.nodes[&ino].children.is_empty());
            match full {
                true => assert_eq!(code(done), Some(Code::NotEmpty)),
                false => expect(m, there, done, Some((Code::NotDirectory, true)), |m| m.drop_name(dir, name)),
            }
        }
        6 | 7 => rename(rig, m, (dir, name)).await,
        8 => {
            let Some(ino) = m.any(false) else { return };
            let done = rig.ask(A, LinkReq { ino, parent: dir, name: name.into(), cred: root() }).await;
            match there {
                Some(_) => assert_eq!(code(done), Some(Code::Exists)),
                None => {
                    done.expect("linked");
                    m.add(dir, name, ino, false);
                }
            }
        }
        _ => with_file(rig, m, handle).await,
    }
}

/// An operation on a name that must be of one kind.
fn expect(
    m: &mut Model,
    there: Option<Ino>,
    done: Result<()>,
    wrong_kind: Option<(Code, bool)>,
    change: impl FnOnce(&mut Model),
) {
    match (there, wrong_kind) {
        (None, _) => assert_eq!(code(done), Some(Code::NotFound)),
        (Some(ino), Some((refusal, wants_dir))) if m.nodes[&ino].is_dir != wants_dir => {
            assert_eq!(code(done), Some(refusal));
        }
        _ => {
            done.expect("allowed");
            change(m);
        }
    }
}

async fn rename(rig: &Rig, m: &mut Model, from: (Ino, &'static str)) {
    let to = (m.any(true).expect("the root"), m.name());
    let exchange = m.draw(4) == 0;
    let req = RenameReq {
        parent: from.0,
        name: from.1.into(),
        new_parent: to.0,
        new_name: to.1.into(),
        no_replace: false,
        exchange,
        cred: root(),
        whiteout: false,
    };
    let done = rig.ask(A, req).await;
    match m.rename_refusal(from, to, exchange) {
        Some(refusal) => assert_eq!(code(done), Some(refusal), "{from:?} {to:?} {exchange}"),
        None => {
            done.expect("allowed");
            m.rename(from, to, exchange);
        }
    }
}

/// Opens, closes or cuts a file.
async fn with_file(rig: &Rig, m: &mut Model, handle: u64) {
    let open: Vec<(Ino, u64)> =
        m.nodes.iter().flat_map(|(i, n)| n.handles.iter().map(|h| (*i, *h)).collect::<Vec<_>>()).collect();
    if !open.is_empty() && m.draw(2) == 0 {
        let (ino, handle) = open[m.draw(open.len())];
        rig.close(A, ino, handle).await.expect("closed");
        let node = m.nodes.get_mut(&ino).expect("known");
        node.handles.retain(|h| *h != handle);
        if node.links == 0 && node.handles.is_empty() {
            m.nodes.remove(&ino);
        }
        return;
    }
    let Some(ino) = m.any(false) else { return };
    if m.draw(2) == 0 {
        let req = OpenReq { ino, handle, access: RO, cred: root(), kill_suidgid: false };
        rig.ask(A, req).await.expect("opened");
        m.nodes.get_mut(&ino).expect("known").handles.push(handle);
        return;
    }
    let size = m.draw(10_000) as u64;
    let req = SetattrReq {
        ino,
        cred: root(),
        mode: None,
        uid: Some(m.draw(3) as u32),
        gid: None,
        size_bytes: Some(size),
        atime: None,
        mtime: None,
        kill_suidgid: false,
        handle: 0,
        report: None,
    };
    assert_eq!(rig.ask(A, req).await.expect("cut").attr.size_bytes, size);
    m.nodes.get_mut(&ino).expect("known").size = size;
}

async fn compare(rig: &Rig, m: &Model) {
    for (ino, node) in &m.nodes {
        let attr = rig.stat(A, *ino).await.expect("there");
        assert_eq!(attr.kind == FileType::Directory, node.is_dir);
        if !node.is_dir {
            assert_eq!((attr.nlink, attr.size_bytes), (node.links, node.size), "{ino:?}");
            continue;
        }
        let subdirs = node.children.values().filter(|c| m.nodes[c].is_dir).count();
        assert_eq!(attr.nlink as usize, if node.links == 0 { 0 } else { 2 + subdirs }, "{ino:?}");
        let req = ReaddirReq { ino: *ino, after: 0, entries_max: 100, plus: false };
        let list = rig.ask(A, req).await.expect("listed");
        let listed: BTreeMap<Vec<u8>, Ino> = list.entries.into_iter().map(|e| (e.name, e.ino)).collect();
        let known: BTreeMap<Vec<u8>, Ino> =
            node.children.iter().map(|(n, i)| (n.as_bytes().to_vec(), *i)).collect();
        assert_eq!(listed, known);
    }
    rig.verify();
}

fn play(seed: u64) {
    run(async {
        let rig = Rig::new().await;
        let mut model = Model::new(seed);
        for step in 0..OPS {
            one(&rig, &mut model, 1000 + step as u64).await;
            if step % 200 == 199 {
                compare(&rig, &model).await;
            }
        }
    });
}

#[test]
fn random_operations_do_what_the_model_does() {
    (1..=4).for_each(play);
}
