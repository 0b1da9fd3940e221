//! Reading a changelog: part after part, to its end or for ever.

use std::io::Write;
use std::time::Duration;

use brindle_admin::document;
use brindle_types::{Change, ChangeKind, ChangeMask, Code, Fault, Result};
use brindle_wire::mds::changelog::ChangelogReadReq;
use schemars::JsonSchema;
use serde::Serialize;

use super::reach::{Reach, own_cred};
use super::text;
use crate::exit;
use crate::output::print_document_line;
use crate::print;

/// Interval of the search for new records with `--follow`.
const FOLLOW: Duration = Duration::from_secs(1);

/// Records to show.
pub struct Wanted {
    /// Reader on whose behalf records are read.
    pub reader: Option<u32>,
    /// Types.
    pub mask: Option<ChangeMask>,
    /// First index.
    pub start: u64,
    /// Last index; 0 for no end.
    pub end: u64,
    /// Waits for more at the end.
    pub follow: bool,
    /// Lines of JSON.
    pub json: bool,
}

/// A record in JSON; bytes that are not UTF-8 are replaced, and then come as hexadecimal digits too.
#[derive(Serialize, JsonSchema)]
pub struct RecordView {
    /// Full name of the MDT.
    mdt: String,
    /// Index of the record in the changelog.
    index: u64,
    /// The kind of change, in Lustre's words: `CREAT`, `UNLNK` and so on.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Flags of the kind.
    flags: u32,
    /// When it happened, in seconds since 1970.
    secs: i64,
    /// Nanoseconds of that time.
    nanos: u32,
    /// FID of what was changed.
    target: Option<String>,
    /// FID of its directory.
    parent: Option<String>,
    /// Name in that directory.
    name: Option<NameView>,
    /// Of a rename: where it was before.
    source: Option<SourceView>,
    /// User that made the change.
    uid: Option<u32>,
    /// The group of who changed it.
    gid: Option<u32>,
    /// The client.
    nid: Option<String>,
    /// The extended attribute that was changed.
    xattr: Option<NameView>,
}
document!(RecordView, "brindle.changelog.record", 1);

/// Name before a rename.
#[derive(Serialize, JsonSchema)]
struct SourceView {
    /// FID of the entry.
    target: String,
    /// FID of its directory.
    parent: String,
    /// Name in that directory.
    name: Option<NameView>,
}

/// A name: text, or hexadecimal digits of its bytes where they are not UTF-8.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum NameView {
    Text(String),
    Bytes { hex: String },
}

fn name(bytes: &[u8]) -> Option<NameView> {
    (!bytes.is_empty()).then(|| match std::str::from_utf8(bytes) {
        Ok(text) => NameView::Text(text.to_owned()),
        Err(_) => NameView::Bytes { hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect() },
    })
}

fn view(mdt: &str, index: u64, change: &Change) -> RecordView {
    RecordView {
        mdt: mdt.to_owned(),
        index,
        kind: change.kind.label(),
        flags: change.flags,
        secs: change.time.secs,
        nanos: change.time.nanos,
        target: change.target.map(|ino| ino.fid().to_string()),
        parent: change.parent.map(|ino| ino.fid().to_string()),
        name: name(&change.name),
        source: change.source.as_ref().map(|source| SourceView {
            target: source.ino.fid().to_string(),
            parent: source.parent.fid().to_string(),
            name: name(&source.name),
        }),
        uid: change.user.map(|(uid, _)| uid),
        gid: change.user.map(|(_, gid)| gid),
        nid: Some(change.nid.clone()).filter(|nid| !nid.is_empty()),
        xattr: name(&change.xattr),
    }
}

/// Prints what is wanted.
pub fn run(reach: &Reach, wanted: &Wanted) -> Result<()> {
    let mut start = wanted.start;
    let mut is_away = false;
    loop {
        let request = ChangelogReadReq {
            reader: wanted.reader,
            start,
            end: wanted.end,
            mask: wanted.mask,
            cred: own_cred(),
        };
        let part = match reach.ask(&request) {
            Ok(part) => part,
            // A command with `--follow` goes on when the MDT is back. No record is missed: it starts where it
            // ended.
            Err(fault) if wanted.follow && fault.code == Code::TargetDown => {
                if !std::mem::replace(&mut is_away, true) {
                    exit::warn(&fault.next("nothing: this command goes on when it answers again"));
                }
                std::thread::sleep(FOLLOW);
                continue;
            }
            Err(fault) => return Err(fault),
        };
        is_away = false;
        for (index, change) in &part.records {
            print(reach, *index, change, wanted.json)?;
        }
        start = part.next;
        let is_past = wanted.end != 0 && start > wanted.end;
        match (part.is_end, wanted.follow && !is_past) {
            (true, false) => return Ok(()),
            (true, true) => std::thread::sleep(FOLLOW),
            (false, _) => {}
        }
    }
}

fn print(reach: &Reach, index: u64, change: &Change, json: bool) -> Result<()> {
    if change.kind == ChangeKind::Gap {
        exit::warn(
            &Fault::new(Code::ChangelogGap)
                .what("records are missing from the changelog of")
                .subject(reach.name.clone())
                .why(format!("those up to {index} went before they were cleared"))
                .data("the files are as they are; only what was told of their changes is gone")
                .next("scan the file system again (lfs find), and clear up to this record"),
        );
    }
    if json {
        return print_document_line(&view(&reach.name, index, change));
    }
    let mut out = std::io::stdout().lock();
    let written = out.write_all(&text::record(index, change)).and_then(|()| out.flush());
    written.map_err(|e| print::fault(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::Ino;
    use brindle_types::attr::Time;

    #[test]
    fn records_in_json_have_plain_names_where_they_can() {
        let mut change = Change {
            target: Some(Ino::new(0, 17)),
            parent: Some(Ino::ROOT),
            name: b"a name".to_vec(),
            user: Some((0, 50)),
            ..Change::new(ChangeKind::Mkdir, Time { secs: 5, nanos: 6 })
        };
        let json =
            |change: &Change| brindle_admin::document::line(&view("a-MDT0000", 7, change)).expect("JSON");
        assert_eq!(
            json(&change),
            "{\"schema\":\"brindle.changelog.record\",\"version\":1,\"mdt\":\"a-MDT0000\",\"index\":7,\
             \"type\":\"MKDIR\",\"flags\":0,\"secs\":5,\"nanos\":6,\"target\":\"[0x200000400:0x11:0x0]\",\
             \"parent\":\"[0x200000400:0x1:0x0]\",\"name\":\"a name\",\"source\":null,\"uid\":0,\"gid\":50,\
             \"nid\":null,\"xattr\":null}"
        );
        change.name = b"\xff/".to_vec();
        assert!(json(&change).contains("\"name\":{\"hex\":\"ff2f\"}"));
    }
}
