//! The way from a command to the MDT whose changelog is meant.

use brindle_stdx::Rng;
use brindle_stdx::real::RealRng;
use brindle_types::{Code, Fault, FsName, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::changelog::{ChangelogInfoReq, ChangelogInfoResp};
use brindle_wire::{Cred, Message};

use crate::admin::ask::{self, servers};
use crate::format::runtime;
use crate::lctl::MgsArgs;
use brindle_admin::servers::Servers;

/// Name of an MDT: `scratch-MDT0000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdtName {
    fs: FsName,
    id: TargetId,
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

/// An MDT that can be asked.
pub struct Reach {
    runtime: tokio::runtime::Runtime,
    asker: Servers,
    map: Map,
    id: TargetId,
    /// Full name.
    pub name: String,
}

impl Reach {
    /// Finds where the MDT is served, as its MGS (or a mount) has it.
    pub fn new(mdt: &MdtName, mgs: &MgsArgs) -> Result<Reach> {
        let place = mgs.place(&mdt.fs)?;
        let runtime = runtime()?;
        let (asker, map) = runtime.block_on(async {
            let asker = servers();
            let map = ask::map(&asker, &place).await;
            (asker, map)
        });
        let map = map?;
        let name = map.fs.target(mdt.id);
        map.target(mdt.id).ok_or_else(|| {
            let mdts = map.targets.iter().filter(|t| t.id.role == Role::Mdt);
            let known: Vec<String> = mdts.map(|t| map.fs.target(t.id)).collect();
            Fault::new(Code::NotFound)
                .what("there is no")
                .subject(name.clone())
                .why(format!("the MDTs are: {}", known.join(", ")))
                .next("list them: lfs mdts")
        })?;
        Ok(Reach { map, id: mdt.id, name, asker, runtime })
    }

    /// Asks it.
    pub fn ask<M: Message>(&self, request: &M) -> Result<M::Resp> {
        self.runtime.block_on(self.asker.ask(&self.map, self.id, request))
    }

    /// Readers and size of the changelog.
    pub fn info(&self) -> Result<ChangelogInfoResp> {
        self.ask(&ChangelogInfoReq { cred: own_cred() })
    }
}

/// Credentials of this command.
pub fn own_cred() -> Cred {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Cred { uid, gid, groups: Vec::new() }
}

/// Nonce of a registration: a repeated request with the same nonce is the same registration.
pub fn nonce() -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce.chunks_mut(8).for_each(|part| part.copy_from_slice(&RealRng.next_u64().to_le_bytes()));
    nonce
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
        assert_ne!(nonce(), nonce());
    }
}
