//! Small files in the MDT: reads and writes of inline data.

use brindle_types::attr::Time;
use brindle_types::{Attr, Ino, Pair};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Cred, message};

/// Reads the whole contents of a file whose bytes lie in the MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineReadReq {
    /// The file.
    pub ino: Ino,
}

/// The contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineReadResp {
    /// All bytes; `None` when they do not lie in the MDT (any more): fetch the layout.
    pub data: Option<Bytes>,
    /// Size in bytes (data may be shorter: the rest reads as zeros).
    pub size_bytes: u64,
}
message!(InlineReadReq => InlineReadResp, InlineRead);

/// Bytes of the file in the reply to an [`InlineReadReq`], without reading them; 0 of what is none.
pub fn read_bytes(outcome: &[u8]) -> u64 {
    type Front<'a> = Result<Option<&'a [u8]>, ()>;
    match postcard::take_from_bytes::<Front<'_>>(outcome) {
        Ok((Ok(Some(data)), _)) => data.len() as u64,
        _ => 0,
    }
}

/// Writes into a file whose bytes lie in the MDT. The data is in the message, since it goes into the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineWriteReq {
    /// The file.
    pub ino: Ino,
    /// The client's handle.
    pub handle: u64,
    /// Layout epoch that the client knows; `StaleLayout` when it is old.
    pub layout_epoch: Pair,
    /// First byte; ignored with `append`.
    pub offset: u64,
    /// Whether the bytes go to the end of the file, wherever that is.
    pub append: bool,
    /// The bytes; with none the file reaches up to `offset` at least.
    pub data: Bytes,
    /// Start of the write, as in [`super::report::WriteReport`].
    pub written_at: Option<Time>,
    /// Clear set-id bits.
    pub kill_suidgid: bool,
    /// Credentials of the program that asks.
    pub cred: Cred,
    /// Durable before the answer (O_SYNC, O_DSYNC, fsync).
    pub sync: bool,
    /// A program was told that they are written: they may use what the MDT keeps in reserve.
    pub promised: bool,
}

/// Destination of the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineWriteResp {
    /// Offset at which they were written.
    pub offset: u64,
    /// Attributes afterwards.
    pub attr: Attr,
    /// The change, as [`super::open::OpenGrant::changed`] shows it.
    pub changed: Pair,
}
message!(InlineWriteReq => InlineWriteResp, InlineWrite);

/// Bytes of the file in an [`InlineWriteReq`], without reading them; 0 of what is none.
pub fn written_bytes(body: &[u8]) -> u64 {
    type Front<'a> = (Ino, u64, Pair, u64, bool, &'a [u8]);
    postcard::take_from_bytes::<Front<'_>>(body).map_or(0, |(front, _)| front.5.len() as u64)
}

#[cfg(test)]
mod tests {
    use brindle_types::{Code, Fault};

    use super::*;
    use crate::frame::encode_body;

    #[test]
    fn bytes_of_files_are_counted_without_reading_them() {
        let data = Bytes::from(vec![7; 300]);
        let write = InlineWriteReq {
            ino: Ino(5),
            handle: 6,
            layout_epoch: Pair { term: 1, counter: 2 },
            offset: 1 << 40,
            append: true,
            data: data.clone(),
            written_at: None,
            kill_suidgid: false,
            cred: Cred::default(),
            sync: false,
            promised: false,
        };
        assert_eq!(written_bytes(&encode_body(&write)), 300);
        let outcome = |data| Ok::<_, Fault>(InlineReadResp { data, size_bytes: 300 });
        assert_eq!(read_bytes(&encode_body(&outcome(Some(data)))), 300);
        assert_eq!(read_bytes(&encode_body(&outcome(None))), 0);
        let refused: Result<InlineReadResp, Fault> = Err(Fault::new(Code::NotFound));
        assert_eq!((read_bytes(&encode_body(&refused)), read_bytes(&[]), written_bytes(&[1])), (0, 0, 0));
    }
}
