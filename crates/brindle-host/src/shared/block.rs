//! The owner block of a shared device: the owner, its turn, and whether the owner has released the device.
//!
//! 4096 bytes, big-endian:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | `BRINDLEO` |
//! | 8 | 1 | version: 1 |
//! | 9 | 1 | 1: released |
//! | 10 | 16 | identity of the target |
//! | 26 | 8 | turn |
//! | 34 | 8 | sequence |
//! | 42 | 8 | process |
//! | 50 | 16 | boot of the host |
//! | 66 | 1 + 255 | length and name of the host |
//! | 4092 | 4 | CRC32C of all before it |

use brindle_stdx::crc;
use brindle_types::{Code, Fault, Result};

/// Length of the block, bytes: what disks write as a whole.
pub const BLOCK_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"BRINDLEO";
const VERSION: u8 = 1;
const HOST_AT: usize = 66;
const HOST_MAX_BYTES: usize = 255;
const CRC_AT: usize = BLOCK_BYTES - 4;

/// An owner block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerBlock {
    /// Identity of the target on the device.
    pub target: [u8; 16],
    /// Number of the owner; rises with each change of it.
    pub turn: u64,
    /// The owner.
    pub host: String,
    /// Boot of the owner in which the block was written.
    pub boot_id: [u8; 16],
    /// Tells processes of one host apart.
    pub process: u64,
    /// Rises with each writing.
    pub sequence: u64,
    /// Whether the owner has given the device up.
    pub is_released: bool,
}

impl OwnerBlock {
    /// The bytes on the device.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        bytes[9] = u8::from(self.is_released);
        bytes[10..26].copy_from_slice(&self.target);
        bytes[26..34].copy_from_slice(&self.turn.to_be_bytes());
        bytes[34..42].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[42..50].copy_from_slice(&self.process.to_be_bytes());
        bytes[50..66].copy_from_slice(&self.boot_id);
        let host = &self.host.as_bytes()[..self.host.len().min(HOST_MAX_BYTES)];
        bytes[HOST_AT] = u8::try_from(host.len()).expect("HOST_MAX_BYTES is below 256");
        bytes[HOST_AT + 1..HOST_AT + 1 + host.len()].copy_from_slice(host);
        let sum = crc(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// The block in these bytes; `None` where nobody has ever written one. `BadOwnerBlock` without a subject when it cannot be used.
    pub fn decode(bytes: &[u8; BLOCK_BYTES]) -> Result<Option<OwnerBlock>> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let bad = |why: String| Fault::new(Code::BadOwnerBlock).why(why).data("nothing was changed");
        if &bytes[..8] != MAGIC {
            return Err(bad("something else lies where the owner block should be".to_owned()));
        }
        if bytes[8] != VERSION {
            return Err(bad(format!("it has version {}, this release reads version {VERSION}", bytes[8]))
                .next("upgrade this host"));
        }
        let sum = crc(&bytes[..CRC_AT]).to_be_bytes();
        if bytes[CRC_AT..] != sum {
            return Err(bad("its checksum is wrong".to_owned()));
        }
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(number)
        };
        let id = |at: usize| {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[at..at + 16]);
            id
        };
        let host = &bytes[HOST_AT + 1..HOST_AT + 1 + usize::from(bytes[HOST_AT])];
        Ok(Some(OwnerBlock {
            target: id(10),
            turn: number(26),
            host: String::from_utf8_lossy(host).into_owned(),
            boot_id: id(50),
            process: number(42),
            sequence: number(34),
            is_released: bytes[9] == 1,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> OwnerBlock {
        OwnerBlock {
            target: *b"0123456789abcdef",
            turn: 7,
            host: "oss1".into(),
            boot_id: [3; 16],
            process: 9,
            sequence: 1 << 40,
            is_released: true,
        }
    }

    #[test]
    fn bytes_on_the_device_never_change() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1/owner-block.bin");
        let bytes = block().encode();
        if std::env::var_os("BRINDLE_GOLDEN").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1")).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        assert_eq!(std::fs::read(path).unwrap(), bytes, "the format of the owner block has changed");
        assert_eq!(OwnerBlock::decode(&bytes).unwrap(), Some(block()));
    }

    #[test]
    fn what_is_no_block_of_this_release_is_refused() {
        assert_eq!(OwnerBlock::decode(&[0; BLOCK_BYTES]).unwrap(), None);
        let code = |bytes: [u8; BLOCK_BYTES]| OwnerBlock::decode(&bytes).unwrap_err().code;
        assert_eq!(code([7; BLOCK_BYTES]), Code::BadOwnerBlock);
        let mut newer = block().encode();
        newer[8] = 2;
        assert!(OwnerBlock::decode(&newer).unwrap_err().why[0].contains("version 2"));
        for at in [9, 30, 100, 2048, BLOCK_BYTES - 1] {
            let mut torn = block().encode();
            torn[at] ^= 1;
            assert_eq!(code(torn), Code::BadOwnerBlock, "byte {at}");
        }
    }
}
