//! Sending: many small frames in one write, bulk with `writev` from where it lies.

use std::io::IoSlice;

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault};
use brindle_wire::frame::{Frame, HEADER_LEN};
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

use crate::NetError;
use crate::transport::FrameTx;

/// Parts up to this size are copied together, larger ones are sent from where they lie.
const COPY_MAX: usize = 4 << 10;
/// Pieces in one system call.
const PIECES_MAX: usize = 64;

/// The sending half of a TCP connection.
pub(super) struct TcpTx {
    socket: OwnedWriteHalf,
}

impl FrameTx for TcpTx {
    fn send(&mut self, frames: Vec<Frame>) -> BoxFuture<'_, Result<(), NetError>> {
        Box::pin(async move {
            let pieces = pieces(&frames)?;
            Ok(write_all(&mut self.socket, &pieces).await?)
        })
    }
}

impl TcpTx {
    pub(super) fn new(socket: OwnedWriteHalf) -> TcpTx {
        TcpTx { socket }
    }
}

/// The frames as a list of pieces of memory, in order.
fn pieces(frames: &[Frame]) -> Result<Vec<Bytes>, NetError> {
    let mut pieces = Vec::with_capacity(frames.len());
    let mut small = BytesMut::with_capacity(frames.len() * 2 * HEADER_LEN);
    for frame in frames {
        check_parts(frame)?;
        small.extend_from_slice(&frame.header.encode());
        for part in std::iter::once(&frame.body).chain(&frame.bulk) {
            if part.len() <= COPY_MAX {
                small.extend_from_slice(part);
            } else {
                pieces.push(small.split().freeze());
                pieces.push(part.clone());
            }
        }
    }
    pieces.push(small.freeze());
    pieces.retain(|p| !p.is_empty());
    Ok(pieces)
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

async fn write_all(socket: &mut OwnedWriteHalf, pieces: &[Bytes]) -> std::io::Result<()> {
    let mut first = 0;
    let mut done_of_first = 0;
    while first < pieces.len() {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let window = &pieces[first..pieces.len().min(first + PIECES_MAX)];
        for (slice, piece) in slices.iter_mut().zip(window) {
            *slice = IoSlice::new(piece);
        }
        slices[0] = IoSlice::new(&pieces[first][done_of_first..]);
        let mut n = socket.write_vectored(&slices[..window.len()]).await?;
        if n == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        n += done_of_first;
        while first < pieces.len() && n >= pieces[first].len() {
            n -= pieces[first].len();
            first += 1;
        }
        done_of_first = n;
    }
    Ok(())
}
