//! Receiving: header and body through a small buffer, bulk straight to where it stays.

use brindle_stdx::{BoxFuture, Seams, crc_append};
use brindle_types::{Code, Fault};
use brindle_wire::frame::{Frame, HEADER_LEN, Header};
use bytes::{BufMut, Bytes};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

use super::FRAME_STALL_MS;
use crate::NetError;
use crate::transport::FrameRx;

/// Size of the read buffer: dozens of small frames at once, and at most this much of bulk is copied.
const READ_BUFFER_LEN: usize = 8 << 10;
/// Bulk begins at a multiple of this in memory, as direct I/O needs it.
pub(super) const BULK_ALIGN: usize = 4 << 10;

/// The receiving half of a TCP connection.
pub(super) struct TcpRx {
    socket: OwnedReadHalf,
    seams: Seams,
    buffer: Box<[u8; READ_BUFFER_LEN]>,
    /// The bytes of `buffer` that were read and not used yet.
    start: usize,
    end: usize,
}

impl FrameRx for TcpRx {
    fn recv(&mut self) -> BoxFuture<'_, Result<Frame, NetError>> {
        Box::pin(self.frame())
    }
}

impl TcpRx {
    pub(super) fn new(socket: OwnedReadHalf, seams: Seams) -> TcpRx {
        TcpRx { socket, seams, buffer: Box::new([0; READ_BUFFER_LEN]), start: 0, end: 0 }
    }

    async fn frame(&mut self) -> Result<Frame, NetError> {
        let bytes = self.header_bytes().await?;
        let header = match Header::decode(&bytes) {
            Ok(header) => header,
            Err(fault) => return Err(readable(fault, &bytes)),
        };
        let (body, _) =
            self.part(header.body_len as usize, 1, header.body_crc, &header, Code::BadFrame).await?;
        let (bulk, any) = self
            .part(header.bulk_len as usize, BULK_ALIGN, header.bulk_crc, &header, Code::BadChecksum)
            .await?;
        Ok(Frame { header, body, bulk: if any { vec![bulk] } else { Vec::new() } })
    }

    /// Waits for a whole header: without limit for its first byte, bounded from there on.
    async fn header_bytes(&mut self) -> Result<[u8; HEADER_LEN], NetError> {
        while self.end - self.start < HEADER_LEN {
            if self.start + HEADER_LEN > READ_BUFFER_LEN || self.start == self.end {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let idle = self.start == self.end;
            let reading = self.socket.read(&mut self.buffer[self.end..]);
            let n = if idle { reading.await? } else { stall_bound(&self.seams, reading).await? };
            if n == 0 {
                return Err(NetError::Closed);
            }
            self.end += n;
        }
        let bytes = &self.buffer[self.start..self.start + HEADER_LEN];
        self.start += HEADER_LEN;
        Ok(bytes.try_into().expect("the slice has the header's length"))
    }

    /// Reads `len` bytes into a buffer of their own that begins at a multiple of `align`, and checks their checksum
    /// while they are in the processor's cache. The memory is touched only as bytes arrive.
    async fn part(
        &mut self,
        len: usize,
        align: usize,
        want_crc: u32,
        header: &Header,
        code: Code,
    ) -> Result<(Bytes, bool), NetError> {
        let mut out: Vec<u8> = Vec::new();
        let mut pad = 0;
        if len > 0 {
            out.reserve_exact(len + align - 1);
            pad = out.as_ptr().align_offset(align);
            out.resize(pad, 0);
        }
        let buffered = len.min(self.end - self.start);
        out.extend_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        let mut sum = crc_append(0, &out[pad..]);
        while out.len() < pad + len {
            let before = out.len();
            let mut room = (&mut out).limit(pad + len - before);
            let n = stall_bound(&self.seams, self.socket.read_buf(&mut room)).await?;
            if n == 0 {
                return Err(NetError::Closed);
            }
            sum = crc_append(sum, &out[before..]);
        }
        if sum != want_crc {
            let fault =
                Fault::new(code).why(format!("{len} bytes with checksum {sum:08x}, not {want_crc:08x}"));
            return Err(NetError::bad_with(fault, header.clone()));
        }
        Ok((Bytes::from(out).slice(pad..), len > 0))
    }
}

/// A header that this version does not take, but whose xid can be read to answer it.
fn readable(fault: Fault, bytes: &[u8; HEADER_LEN]) -> NetError {
    match Header::decode_any_version(bytes) {
        Some(header) => NetError::bad_with(fault, header),
        None => NetError::bad(fault),
    }
}

async fn stall_bound(
    seams: &Seams,
    reading: impl Future<Output = std::io::Result<usize>> + Send,
) -> Result<usize, NetError> {
    Ok(seams.timeout_ms(FRAME_STALL_MS, reading).await.ok_or(NetError::TimedOut)??)
}
