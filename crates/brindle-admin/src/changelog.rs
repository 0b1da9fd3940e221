//! The changelog of an MDT: its readers, what it records, and what they have cleared.

use brindle_types::changelog::reader_name;
use brindle_types::{ChangeMask, Code, Fault, FsName, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::changelog::{
    ChangelogClearReq, ChangelogDeregisterReq, ChangelogInfoReq, ChangelogInfoResp, ChangelogMaskReq,
    ChangelogReader, ChangelogRegisterReq,
};
use brindle_wire::{Cred, Message};
use schemars::JsonSchema;
use serde::Serialize;

use crate::servers::Servers;

/// Name of an MDT: `scratch-MDT0000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdtName {
    /// The file system.
    pub fs: FsName,
    /// The MDT.
    pub id: TargetId,
}

impl std::str::FromStr for MdtName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<MdtName, String> {
        let wrong = || format!("'{text}' is not the name of an MDT, such as scratch-MDT0000");
        let (fs, index) = text.split_once("-MDT").ok_or_else(wrong)?;
        // Lustre's tools print names with an ending, too.
        let index = index.strip_suffix("_UUID").unwrap_or(index);
        let is_hex = index.len() == 4 && index.bytes().all(|b| b.is_ascii_hexdigit());
        let index = u16::from_str_radix(index, 16).ok().filter(|_| is_hex).ok_or_else(wrong)?;
        Ok(MdtName { fs: fs.parse()?, id: TargetId::mdt(index) })
    }
}

/// The changelog of an MDT that can be asked, in somebody's name.
pub struct Changelog {
    servers: Servers,
    map: Map,
    id: TargetId,
    cred: Cred,
    /// Full name of the MDT.
    pub name: String,
}

impl Changelog {
    /// The changelog of an MDT of this map; `NotFound` if the map has no such MDT.
    pub fn of(servers: Servers, map: Map, id: TargetId, cred: Cred) -> Result<Changelog> {
        let name = map.fs.target(id);
        if map.target(id).is_none() {
            let mdts = map.targets.iter().filter(|t| t.id.role == Role::Mdt);
            let known: Vec<String> = mdts.map(|t| map.fs.target(t.id)).collect();
            return Err(Fault::new(Code::NotFound)
                .what("there is no")
                .subject(name)
                .why(format!("the MDTs are: {}", known.join(", ")))
                .next("list them: lfs mdts"));
        }
        Ok(Changelog { servers, map, id, cred, name })
    }

    /// Asks the MDT.
    pub async fn ask<M: Message>(&self, request: &M) -> Result<M::Resp> {
        self.servers.ask(&self.map, self.id, request).await
    }

    /// Credentials of whoever asks.
    pub fn cred(&self) -> Cred {
        self.cred.clone()
    }

    /// Registers a reader and returns its name. A repeated request with the same nonce is the same registration.
    pub async fn register(&self, name: &str, mask: Option<ChangeMask>, nonce: [u8; 16]) -> Result<String> {
        let request = ChangelogRegisterReq { nonce, name: name.to_owned(), mask, cred: self.cred() };
        Ok(reader_name(self.ask(&request).await?.id, name))
    }

    /// Removes a reader.
    pub async fn deregister(&self, id: u32) -> Result<()> {
        self.ask(&ChangelogDeregisterReq { id, cred: self.cred() }).await.map(drop)
    }

    /// A reader needs no record up to `end` any more; 0 for all.
    pub async fn clear(&self, id: u32, end: u64) -> Result<()> {
        self.ask(&ChangelogClearReq { id, end, cred: self.cred() }).await.map(drop)
    }

    /// Readers and size of the changelog.
    pub async fn info(&self) -> Result<ChangelogInfoResp> {
        self.ask(&ChangelogInfoReq { cred: self.cred() }).await
    }
}

/// The request that sets the kinds of changes that are recorded, from words about them (`+XATTR -CLOSE`) and the present kinds.
pub fn mask_request(
    info: &ChangelogInfoResp,
    text: &str,
    cred: Cred,
) -> std::result::Result<ChangelogMaskReq, String> {
    Ok(ChangelogMaskReq { mask: info.mask.changed(text)?, cred })
}

/// A reader of a changelog.
#[derive(Serialize, JsonSchema)]
pub struct ReaderOf {
    /// Full name of the MDT.
    pub mdt: String,
    /// Name of the reader: `cl1-name`, or `cl1`.
    pub reader: String,
}

/// A reader that was registered.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct RegisteredView(pub ReaderOf);
document!(RegisteredView, "brindle.changelog.register", 1);

/// A reader that was removed.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct DeregisteredView(pub ReaderOf);
document!(DeregisteredView, "brindle.changelog.deregister", 1);

/// A reader that needs nothing of what came before any more.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ClearedView(pub ReaderOf);
document!(ClearedView, "brindle.changelog.clear", 1);

/// The changelog of an MDT, and who reads it.
#[derive(Serialize, JsonSchema)]
pub struct ChangelogView {
    /// Full name of the MDT.
    pub mdt: String,
    /// Index of the last record.
    pub current_index: u64,
    /// Kinds of changes that are recorded.
    pub mask: Vec<String>,
    /// Records that are kept.
    pub records: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that they may take.
    pub bytes_max: u64,
    /// Records up to this index were dropped because there were too many.
    pub dropped_to: u64,
    /// Readers of the changelog.
    pub readers: Vec<ReaderView>,
}
document!(ChangelogView, "brindle.changelog.list", 1);

/// A reader of the changelog.
#[derive(Serialize, JsonSchema)]
pub struct ReaderView {
    /// Name of the reader.
    pub reader: String,
    /// The reader needs no record up to this index any more.
    pub cleared: u64,
    /// For how long it has cleared nothing.
    pub idle_seconds: u64,
    /// Kinds of changes that it reads; none: all.
    pub mask: Option<Vec<String>>,
    /// Whether records were dropped that it had not cleared.
    pub missed: bool,
}

fn words(mask: ChangeMask) -> Vec<String> {
    mask.to_string().split(' ').map(str::to_owned).collect()
}

/// Readers and size of the changelog of the MDT with this name, as a document has them.
pub fn view(name: &str, info: &ChangelogInfoResp) -> ChangelogView {
    let reader = |reader: &ChangelogReader| ReaderView {
        reader: reader_name(reader.id, &reader.name),
        cleared: reader.cleared,
        idle_seconds: reader.idle_secs,
        mask: reader.mask.map(words),
        missed: reader.cleared < info.dropped_to,
    };
    ChangelogView {
        mdt: name.to_owned(),
        current_index: info.current,
        mask: words(info.mask),
        records: info.records,
        bytes: info.bytes,
        bytes_max: info.bytes_max,
        dropped_to: info.dropped_to,
        readers: info.readers.iter().map(reader).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mdts_have_full_names() {
        let name: MdtName = "scratch-MDT000a".parse().expect("good");
        assert_eq!((name.fs.as_str(), name.id), ("scratch", TargetId::mdt(10)));
        assert_eq!("scratch-MDT000a_UUID".parse(), Ok(name));
        for wrong in ["", "scratch", "scratch-OST0000", "scratch-MDT", "scratch-MDT00000", "-MDT0000"] {
            assert!(wrong.parse::<MdtName>().is_err(), "{wrong}");
        }
    }
}
