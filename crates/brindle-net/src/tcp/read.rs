//! Receiving: header and body through a small buffer, bulk straight to where it stays.

use std::sync::Arc;

use brindle_stdx::buffers::{ALIGN_BYTES, Buffer, POOLED_BYTES_MIN};
use brindle_stdx::{BoxFuture, Seams, crc_append};
use brindle_types::{Code, Fault};
use brindle_wire::frame::{FLAG_LENT, Frame, HEADER_LEN, Header};
use bytes::{BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::FRAME_STALL_MS;
use super::keyed::{FrameKey, TAG_BYTES, are_equal};
use super::shared_memory::{Borrows, LentLocation};
use crate::NetError;
use crate::transport::FrameRx;

/// Size of the read buffer: dozens of small frames at once, and at most this much of bulk is copied.
const READ_BUFFER_LEN: usize = 8 << 10;

/// The receiving half of a connection.
pub(super) struct TcpRx<R> {
    socket: R,
    seams: Seams,
    buffer: Box<[u8; READ_BUFFER_LEN]>,
    /// Memory that the sender may lend.
    borrows: Arc<Borrows>,
    /// The bytes of `buffer` that were read and not used yet.
    start: usize,
    end: usize,
    /// Bytes that have to come in front of the first frame.
    binding: Option<Vec<u8>>,
    /// Key of the checksum behind each frame.
    key: Option<FrameKey>,
}

impl<R: AsyncRead + Unpin + Send> FrameRx for TcpRx<R> {
    fn recv(&mut self) -> BoxFuture<'_, Result<Frame, NetError>> {
        Box::pin(self.frame())
    }
}

impl<R: AsyncRead + Unpin + Send> TcpRx<R> {
    pub(super) fn new(socket: R, seams: Seams, borrows: Arc<Borrows>) -> TcpRx<R> {
        let buffer = Box::new([0; READ_BUFFER_LEN]);
        TcpRx { socket, seams, borrows, buffer, start: 0, end: 0, binding: None, key: None }
    }

    /// Expects a keyed checksum behind each frame.
    pub(super) fn keyed(self, key: FrameKey) -> TcpRx<R> {
        TcpRx { key: Some(key), ..self }
    }

    /// Expects these bytes in front of the first frame.
    pub(super) fn bound(self, binding: &[u8]) -> TcpRx<R> {
        TcpRx { binding: Some(binding.to_vec()), ..self }
    }

    async fn frame(&mut self) -> Result<Frame, NetError> {
        if let Some(binding) = self.binding.take()
            && !are_equal(&self.small(binding.len(), 1).await?, &binding)
        {
            let why = "the frames are not those of the side that has proven itself";
            return Err(NetError::bad(Fault::new(Code::BadFrame).why(why)));
        }
        let bytes = self.header_bytes().await?;
        let mut header = match Header::decode(&bytes) {
            Ok(header) => header,
            Err(fault) => return Err(readable(fault, &bytes)),
        };
        let body = self.small(header.body_len as usize, 1).await?;
        check(&body, header.body_crc, &header, Code::BadFrame)?;
        let bulk = match header.bulk_len as usize {
            0 => {
                check(&[], header.bulk_crc, &header, Code::BadChecksum)?;
                Vec::new()
            }
            len if header.flags & FLAG_LENT != 0 => {
                header.flags &= !FLAG_LENT;
                vec![self.lent(len, &header).await?]
            }
            len => vec![self.bulk(len, &header).await?],
        };
        if let Some(key) = &mut self.key {
            let parts = std::iter::once(&body).chain(&bulk).map(|part| &part[..]);
            let tag = key.tag(&bytes, parts);
            if !are_equal(&self.small(TAG_BYTES, 1).await?, &tag) {
                let why = "its keyed checksum does not fit: somebody on the way has changed it";
                return Err(NetError::bad(Fault::new(Code::BadFrame).why(why)));
            }
        }
        Ok(Frame { header, body, bulk })
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

    /// Reads `len` bytes into memory of their own that begins at a multiple of `align` and is touched only as they arrive.
    async fn small(&mut self, len: usize, align: usize) -> Result<Bytes, NetError> {
        let mut out: Vec<u8> = Vec::with_capacity(len + align - 1);
        let pad = if len > 0 { out.as_ptr().align_offset(align) } else { 0 };
        out.resize(pad, 0);
        out.extend_from_slice(self.buffered(len));
        while out.len() < pad + len {
            let missing = pad + len - out.len();
            let mut room = (&mut out).limit(missing);
            some(stall_bound(&self.seams, self.socket.read_buf(&mut room)).await?)?;
        }
        Ok(Bytes::from(out).slice(pad..))
    }

    /// Reads bulk into memory that begins at a page, as direct I/O needs it, and checks its checksum while it is in the processor's cache.
    async fn bulk(&mut self, len: usize, header: &Header) -> Result<Bytes, NetError> {
        if len < POOLED_BYTES_MIN {
            let bytes = self.small(len, ALIGN_BYTES).await?;
            check(&bytes, header.bulk_crc, header, Code::BadChecksum)?;
            return Ok(bytes);
        }
        let mut out = Buffer::new(len);
        let buffered = self.buffered(len);
        let mut filled = buffered.len();
        out[..filled].copy_from_slice(buffered);
        let mut sum = crc_append(0, &out[..filled]);
        while filled < len {
            let n = some(stall_bound(&self.seams, self.socket.read(&mut out[filled..])).await?)?;
            sum = crc_append(sum, &out[filled..filled + n]);
            filled += n;
        }
        check_sum(len, sum, header.bulk_crc, header, Code::BadChecksum)?;
        Ok(out.freeze(len))
    }

    /// Bulk that lies with the sender; checked as if it had been sent.
    async fn lent(&mut self, len: usize, header: &Header) -> Result<Bytes, NetError> {
        let place = self.small(LentLocation::LEN, 1).await?;
        let lent = self.borrows.take(&place, len).ok_or_else(|| {
            let why = format!("{len} bytes were lent that lie nowhere, or where nothing is lent");
            NetError::bad_with(Fault::new(Code::BadFrame).why(why), header.clone())
        })?;
        check(&lent, header.bulk_crc, header, Code::BadChecksum)?;
        Ok(lent)
    }

    /// The first bytes of the next `len` that have been read already.
    fn buffered(&mut self, len: usize) -> &[u8] {
        let from = self.start;
        self.start += len.min(self.end - from);
        &self.buffer[from..self.start]
    }
}

fn check(bytes: &[u8], want: u32, header: &Header, code: Code) -> Result<(), NetError> {
    check_sum(bytes.len(), crc_append(0, bytes), want, header, code)
}

fn check_sum(len: usize, sum: u32, want: u32, header: &Header, code: Code) -> Result<(), NetError> {
    if sum == want {
        return Ok(());
    }
    let fault = Fault::new(code).why(format!("{len} bytes with checksum {sum:08x}, not {want:08x}"));
    Err(NetError::bad_with(fault, header.clone()))
}

/// The bytes that a read gave; none means that the other side has hung up.
fn some(read: usize) -> Result<usize, NetError> {
    if read == 0 { Err(NetError::Closed) } else { Ok(read) }
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
