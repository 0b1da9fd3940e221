//! The two halves of a connection inside TLS: mode `privacy`.
//!
//! Both directions share the state of TLS under a lock. The lock is held while bytes are encrypted or decrypted, and never while a half
//! waits for the socket.

use std::io::{IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use rustls::Connection as Tls;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::write::WriteHalf;

/// Encrypted bytes that wait for the socket.
const WRITE_BUFFER_BYTES: usize = 256 << 10;
/// Encrypted bytes that are read at once.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// The receiving half.
pub(super) struct TlsRead {
    tls: Arc<Mutex<Tls>>,
    socket: OwnedReadHalf,
    buffer: Box<[u8]>,
    /// The bytes of `buffer` that were read and not decrypted yet.
    start: usize,
    end: usize,
}

/// The sending half.
pub(super) struct TlsWrite {
    tls: Arc<Mutex<Tls>>,
    socket: OwnedWriteHalf,
}

/// The halves of a connection behind its handshake.
pub(super) fn halves(mut tls: Tls, read: OwnedReadHalf, write: OwnedWriteHalf) -> (TlsRead, TlsWrite) {
    tls.set_buffer_limit(Some(WRITE_BUFFER_BYTES));
    let tls = Arc::new(Mutex::new(tls));
    let buffer = vec![0; READ_BUFFER_BYTES].into_boxed_slice();
    let read = TlsRead { tls: tls.clone(), socket: read, buffer, start: 0, end: 0 };
    (read, TlsWrite { tls, socket: write })
}

impl TlsRead {
    /// Decrypts what is there; `None` when more has to come from the socket first.
    fn decrypted(&mut self, into: &mut ReadBuf<'_>) -> std::io::Result<Option<()>> {
        let mut tls = self.tls.lock();
        loop {
            match tls.reader().read(into.initialize_unfilled()) {
                Ok(n) => {
                    into.advance(n);
                    return Ok(Some(()));
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            if self.start == self.end {
                return Ok(None);
            }
            let mut rest = &self.buffer[self.start..self.end];
            self.start += tls.read_tls(&mut rest)?;
            tls.process_new_packets()
                .map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e.to_string()))?;
        }
    }
}

impl AsyncRead for TlsRead {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(()) = this.decrypted(buf)? {
                return Poll::Ready(Ok(()));
            }
            let mut room = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut room))?;
            let read = room.filled().len();
            if read == 0 {
                // Frames tell whether that was in the middle of one.
                return Poll::Ready(Ok(()));
            }
            (this.start, this.end) = (0, read);
        }
    }
}

/// The socket as TLS writes to it, without waiting.
struct Out<'a>(&'a OwnedWriteHalf);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> std::io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl TlsWrite {
    fn flush(&self, tls: &mut Tls) -> std::io::Result<()> {
        while tls.wants_write() {
            if tls.write_tls(&mut Out(&self.socket))? == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

impl WriteHalf for TlsWrite {
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let mut tls = self.tls.lock();
        // Encrypted bytes go first; while the socket takes none of them, there is no room for more.
        self.flush(&mut tls)?;
        let taken = tls.writer().write_vectored(pieces)?;
        match self.flush(&mut tls) {
            Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(taken),
        }
    }

    fn try_flush(&self) -> std::io::Result<()> {
        self.flush(&mut self.tls.lock())
    }

    async fn writable(&self) -> std::io::Result<()> {
        self.socket.writable().await
    }
}
