//! Golden bytes: what every message of every version of the protocol looks like on the wire.
//!
//! `golden/vN/messages.txt` has a line for each request and each answer of version N: its name, and of each shape of it
//! ([`extremes::shapes`]) the length and CRC32C of its bytes. Versions behind the oldest have the lines only of what they changed or added.
//! A message that is added to the newest version gets its line by `BRINDLE_GOLDEN=1 cargo test -p brindle-wire --test fuzz golden`; a
//! line that exists never changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use brindle_stdx::crc;
use brindle_types::Fault;
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::earlier::{CHANGES, Part};
use brindle_wire::extremes;
use brindle_wire::frame::encode_body;
use brindle_wire::version::Versions;
use brindle_wire::{Message, Op};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Visit, all_messages};

/// Bodies of one version of the protocol, by name.
struct Bodies {
    version: u16,
    lines: BTreeMap<String, String>,
}

fn name_of(op: Option<Op>, part: Part) -> String {
    let (number, name) = op.map_or((0, "any"), |op| (op as u16, op.name()));
    format!("{number} {name} {part:?}")
}

impl Bodies {
    /// Notes a part of an exchange, in the form that the version has of it.
    fn note<T: Serialize + DeserializeOwned>(&mut self, op: Option<Op>, part: Part) {
        let earlier = CHANGES.iter().find(|c| c.op == op && c.part == part && c.since > self.version);
        let bodies: Vec<Bytes> = match earlier {
            Some(change) => (change.samples)(),
            None => extremes::shapes::<T>(&|_| None).iter().map(encode_body).collect(),
        };
        let mut line = String::new();
        for body in bodies {
            write!(line, " {}:{:08x}", body.len(), crc(&body)).expect("a string takes everything");
        }
        self.lines.insert(name_of(op, part), line);
    }
}

impl Visit for Bodies {
    fn message<M: Message>(&mut self) {
        self.note::<M>(Some(M::OP), Part::Request);
        self.note::<Result<M::Resp, Fault>>(Some(M::OP), Part::Reply);
    }
}

type Lines = BTreeMap<String, String>;

fn path_of(version: u16) -> String {
    format!("{}/golden/v{version}/messages.txt", env!("CARGO_MANIFEST_DIR"))
}

/// Lines of the file of a version; none where there is no file.
fn file_of(version: u16) -> Lines {
    let text = std::fs::read_to_string(path_of(version)).unwrap_or_default();
    let line = |line: &str| line.split_once(':').map(|(name, bodies)| (name.to_owned(), bodies.to_owned()));
    text.lines().filter_map(line).collect()
}

/// Lines of a version: of its own file, and of those before where it has none.
fn lines_of(version: u16) -> Lines {
    (Versions::OURS.min..=version).flat_map(file_of).collect()
}

fn bodies_of(version: u16) -> Lines {
    let mut now = Bodies { version, lines: Lines::new() };
    all_messages(&mut now);
    now.note::<CacheUpdates>(None, Part::CacheUpdates);
    now.lines
}

/// Adds what the newest version has, and no version before it.
fn add_new_lines() {
    let newest = Versions::OURS.max;
    let (mut own, before) = (file_of(newest), lines_of(newest - 1));
    for (name, bodies) in bodies_of(newest) {
        let is_changed = CHANGES.iter().any(|c| c.since == newest && name == name_of(c.op, c.part));
        if is_changed || !before.contains_key(&name) {
            own.entry(name).or_insert(bodies);
        }
    }
    let text: String = own.iter().map(|(name, bodies)| format!("{name}:{bodies}\n")).collect();
    let path = path_of(newest);
    std::fs::create_dir_all(std::path::Path::new(&path).parent().expect("a directory")).expect("made");
    std::fs::write(&path, text).expect("golden file is writable");
}

#[test]
fn golden_bytes_of_every_message_of_every_version_stay() {
    if std::env::var_os("BRINDLE_GOLDEN").is_some() {
        add_new_lines();
    }
    for version in Versions::OURS.min..=Versions::OURS.max {
        let golden = lines_of(version);
        let mut now = bodies_of(version);
        // A message that a later version has added.
        now.retain(|name, _| golden.contains_key(name) || version == Versions::OURS.max);
        for (name, bodies) in &now {
            assert_eq!(
                golden.get(name),
                Some(bodies),
                "protocol {version}, {name}: its bytes changed, which needs a new version of the protocol \
                 (brindle_wire::earlier), or it is new (BRINDLE_GOLDEN=1 adds it)"
            );
        }
        assert_eq!(now.len(), golden.len(), "protocol {version}: a message is gone");
    }
}
