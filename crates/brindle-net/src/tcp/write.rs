//! Sending: many small frames in one write, bulk with `writev` from where it lies.

use std::collections::VecDeque;
use std::io::IoSlice;

use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault};
use brindle_wire::frame::{FLAG_LENT, Frame, HEADER_LEN, Header};
use bytes::{Buf, Bytes, BytesMut};
use zerocopy::IntoBytes;

use super::USER_TIMEOUT_S;
use super::keyed::FrameKey;
use super::shared_memory::{Lender, LentLocation};
use crate::NetError;
use crate::transport::FrameTx;

/// Parts up to this size are copied together, larger ones are sent from where they lie.
const COPY_MAX: usize = 4 << 10;
/// Pieces in one system call.
const PIECES_MAX: usize = 64;

/// The sending half of a stream socket.
pub(super) trait WriteHalf: Send + Sync + 'static {
    /// Writes as many bytes as the socket takes at this moment.
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> std::io::Result<usize>;
    /// Sends bytes that the socket itself keeps back; `WouldBlock` while something is left.
    fn try_flush(&self) -> std::io::Result<()> {
        Ok(())
    }
    /// Waits until the socket takes bytes.
    fn writable(&self) -> impl Future<Output = std::io::Result<()>> + Send;
}

impl WriteHalf for tokio::net::tcp::OwnedWriteHalf {
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> std::io::Result<usize> {
        self.as_ref().try_write_vectored(pieces)
    }

    async fn writable(&self) -> std::io::Result<()> {
        self.as_ref().writable().await
    }
}

/// The sending half of a connection.
pub(super) struct TcpTx<W> {
    socket: W,
    /// Bytes that are not written yet, in order.
    rest: VecDeque<Bytes>,
    /// For sockets of which the kernel does not see to it itself that a peer that never reads loses its connection.
    stall: Option<Seams>,
    /// Lender of this side's memory; `None` if the other side cannot look at it.
    lender: Option<Lender>,
    /// Key of the checksum behind each frame.
    key: Option<FrameKey>,
}

impl<W: WriteHalf> FrameTx for TcpTx<W> {
    fn send(&mut self, frames: Vec<Frame>) -> BoxFuture<'_, Result<(), NetError>> {
        Box::pin(async move {
            add_pieces(&mut self.rest, &frames, &mut self.lender, &mut self.key)?;
            while !self.write()? {
                let writable = self.socket.writable();
                match &self.stall {
                    None => writable.await?,
                    Some(seams) => {
                        let bounded = seams.timeout_ms(USER_TIMEOUT_S * 1000, writable).await;
                        bounded.ok_or(NetError::TimedOut)??;
                    }
                }
            }
            Ok(())
        })
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn try_send(&mut self, frames: Vec<Frame>) -> Result<bool, NetError> {
        add_pieces(&mut self.rest, &frames, &mut self.lender, &mut self.key)?;
        Ok(self.write()?)
    }
}

impl<W: WriteHalf> TcpTx<W> {
    pub(super) fn new(socket: W, stall: Option<Seams>, lender: Option<Lender>) -> TcpTx<W> {
        TcpTx { socket, rest: VecDeque::new(), stall, lender, key: None }
    }

    /// Puts a keyed checksum behind each frame.
    pub(super) fn keyed(self, key: FrameKey) -> TcpTx<W> {
        TcpTx { key: Some(key), ..self }
    }

    /// Sends these bytes in front of the first frame.
    pub(super) fn bound(mut self, binding: &[u8]) -> TcpTx<W> {
        self.rest.push_back(Bytes::copy_from_slice(binding));
        self
    }

    /// Writes as much as the socket takes at once; whether that was everything.
    fn write(&mut self) -> std::io::Result<bool> {
        while !self.rest.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.rest.len().min(PIECES_MAX);
            slices.iter_mut().zip(&self.rest).for_each(|(slice, piece)| *slice = IoSlice::new(piece));
            match self.socket.try_write_vectored(&slices[..count]) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written(written),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        match self.socket.try_flush() {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn written(&mut self, mut bytes: usize) {
        while let Some(piece) = self.rest.front_mut() {
            if bytes < piece.len() {
                return piece.advance(bytes);
            }
            bytes -= piece.len();
            self.rest.pop_front();
        }
    }
}

/// Adds the frames as pieces of memory, in order; bulk that could be lent is not among them. Nothing is added where a frame is refused.
fn add_pieces(
    pieces: &mut VecDeque<Bytes>,
    frames: &[Frame],
    lender: &mut Option<Lender>,
    key: &mut Option<FrameKey>,
) -> Result<(), NetError> {
    frames.iter().try_for_each(check_parts)?;
    lender.iter_mut().for_each(Lender::settle);
    // Memory that is filled exactly needs no second allocation to be shared.
    let mut small = BytesMut::with_capacity(frames.iter().map(small_len).sum());
    for frame in frames {
        let place = lender.as_mut().and_then(|lender| lender.lend(&frame.bulk));
        let lent = if place.is_some() { FLAG_LENT } else { 0 };
        let header = Header { flags: frame.header.flags | lent, ..frame.header.clone() }.encode();
        small.extend_from_slice(&header);
        let bulk = if place.is_some() { &[][..] } else { &frame.bulk };
        for part in std::iter::once(&frame.body).chain(bulk) {
            if part.len() <= COPY_MAX {
                small.extend_from_slice(part);
            } else {
                pieces.extend(Some(small.split().freeze()).filter(|small| !small.is_empty()));
                pieces.push_back(part.clone());
            }
        }
        small.extend_from_slice(place.as_ref().map_or(&[], LentLocation::as_bytes));
        if let Some(key) = key {
            let parts = std::iter::once(&frame.body).chain(bulk).map(|part| &part[..]);
            small.extend_from_slice(&key.tag(&header, parts));
        }
    }
    if !small.is_empty() {
        pieces.push_back(small.freeze());
    }
    Ok(())
}

/// Bytes of a frame that are copied, at least.
fn small_len(frame: &Frame) -> usize {
    let parts = std::iter::once(&frame.body).chain(&frame.bulk);
    HEADER_LEN + parts.map(Bytes::len).filter(|len| *len <= COPY_MAX).sum::<usize>()
}

/// A frame whose header does not describe its parts would break every frame behind it.
fn check_parts(frame: &Frame) -> Result<(), NetError> {
    let bulk: usize = frame.bulk.iter().map(Bytes::len).sum();
    let header = &frame.header;
    let fits = header.body_len as usize == frame.body.len() && header.bulk_len as usize == bulk;
    if fits && header.check_lengths().is_ok() {
        return Ok(());
    }
    let why = format!("operation {} was sent with lengths that are not those of its parts", header.op);
    Err(NetError::bad(Fault::new(Code::Bug).why(why)))
}
