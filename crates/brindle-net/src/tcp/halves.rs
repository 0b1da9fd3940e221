//! The two halves of a local socket: one waits only for input, the other only for space to write.
//!
//! Each time that the peer of a local socket reads, the kernel tells the sender that there is space to write. TCP tells the
//! sender only if there was none before. A socket that waits for both directions, like tokio's, therefore wakes a thread with
//! each message for nothing. Hence the reading half never waits for space, and the writing half only while there is none.

use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

use super::shared_memory::Borrows;
use super::write::WriteHalf;

/// The receiving half.
pub(super) struct LocalRead {
    socket: AsyncFd<Arc<UnixStream>>,
    borrows: Arc<Borrows>,
}

/// The sending half. Dropping it ends the stream that the peer receives.
pub(super) struct LocalWrite {
    socket: Arc<UnixStream>,
    /// The socket under a second number: an epoll waits for the first one already.
    again: Arc<UnixStream>,
}

/// The halves of a socket that does not block. The first byte tells `borrows` what memory the other side
/// lends.
pub(super) fn split(stream: UnixStream, borrows: Arc<Borrows>) -> std::io::Result<(LocalRead, LocalWrite)> {
    let stream = Arc::new(stream);
    // Made now, not when the socket is full: by then the process may have no file descriptor left.
    let again = Arc::new(stream.try_clone()?);
    let read = wait_for(stream.clone(), Interest::READABLE)?;
    Ok((LocalRead { socket: read, borrows }, LocalWrite { socket: stream, again }))
}

fn wait_for(stream: Arc<UnixStream>, what: Interest) -> std::io::Result<AsyncFd<Arc<UnixStream>>> {
    // SAFETY: the socket keeps its descriptor, and is kept by what is returned here.
    unsafe { AsyncFd::register_with_interest(stream, what) }.map_err(std::io::Error::from)
}

impl AsyncRead for LocalRead {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let room = buf.initialize_unfilled();
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            if !self.borrows.is_said() {
                match ready.try_io(|socket| self.borrows.hear(socket.get_ref())) {
                    Ok(Ok(true)) | Err(_) => continue,
                    Ok(Ok(false)) => return Poll::Ready(Ok(())),
                    Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Ok(Err(error)) => return Poll::Ready(Err(error)),
                }
            }
            match ready.try_io(|socket| (&**socket.get_ref()).read(room)) {
                Ok(Ok(len)) => {
                    if 0 < len && len < room.len() {
                        // The socket is empty now: the next read would only find that out.
                        ready.clear_ready();
                    }
                    buf.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl WriteHalf for LocalWrite {
    fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> std::io::Result<usize> {
        (&*self.socket).write_vectored(pieces)
    }

    async fn writable(&self) -> std::io::Result<()> {
        let waiting = wait_for(self.again.clone(), Interest::WRITABLE)?;
        waiting.writable().await.map(drop)
    }
}

impl Drop for LocalWrite {
    fn drop(&mut self) {
        // Fails if the peer has gone: the socket is shut down already.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;

    fn pair() -> [(LocalRead, LocalWrite); 2] {
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        [a, b].map(|end| {
            end.set_nonblocking(true).expect("it is set");
            crate::tcp::shared_memory::offer(&end, false).expect("the first byte is sent");
            split(end, Arc::default()).expect("two halves")
        })
    }

    fn blocks_on(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let bounded = async { tokio::time::timeout(Duration::from_secs(60), future).await };
        runtime.block_on(bounded).expect("in time");
    }

    /// Writes all bytes, waiting for space.
    async fn write_all(to: &LocalWrite, mut bytes: &[u8]) -> usize {
        let mut waits = 0;
        while !bytes.is_empty() {
            match to.try_write_vectored(&[IoSlice::new(bytes)]) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                    to.writable().await.expect("it is told");
                    waits += 1;
                }
            }
        }
        waits
    }

    #[test]
    fn more_than_it_holds_goes_through_in_both_directions_at_once() {
        let bytes: Vec<u8> = (0..8 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        blocks_on(async {
            let [(mut read_a, write_a), (mut read_b, write_b)] = pair();
            let receive = async |from: &mut LocalRead| {
                let mut got = vec![0; bytes.len()];
                from.read_exact(&mut got).await.expect("all of it");
                assert!(got == bytes, "other bytes than were sent");
            };
            let (waits_a, waits_b, (), ()) = tokio::join!(
                write_all(&write_a, &bytes),
                write_all(&write_b, &bytes),
                receive(&mut read_a),
                receive(&mut read_b)
            );
            assert!(waits_a > 0 && waits_b > 0);
        });
    }

    #[test]
    fn the_end_is_seen_behind_the_last_bytes_and_the_other_direction_goes_on() {
        blocks_on(async {
            let [(mut read_a, write_a), (mut read_b, write_b)] = pair();
            write_all(&write_a, b"last").await;
            drop(write_a);
            let mut got = Vec::new();
            read_b.read_to_end(&mut got).await.expect("until the end");
            assert_eq!(got, b"last");
            write_all(&write_b, b"answer").await;
            let mut answer = [0; 6];
            read_a.read_exact(&mut answer).await.expect("the answer");
            assert_eq!(&answer, b"answer");
            drop(read_a);
            let gone = write_b.try_write_vectored(&[IoSlice::new(b"x")]).expect_err("nobody is there");
            assert_eq!(gone.kind(), std::io::ErrorKind::BrokenPipe);
        });
    }

    const EPOLLIN: u32 = 1;
    const EPOLLOUT: u32 = 4;

    /// Events that an epoll of this process waits for at a socket (proc(5), fdinfo).
    fn events(socket: &impl AsRawFd) -> Vec<u32> {
        let wanted = socket.as_raw_fd().to_string();
        let infos = std::fs::read_dir("/proc/self/fdinfo").expect("it is listed");
        let infos = infos.filter_map(|info| std::fs::read_to_string(info.ok()?.path()).ok());
        let of_line = |line: &str| {
            let (fd, rest) = line.strip_prefix("tfd:")?.split_once("events:")?;
            let mask = rest.split_whitespace().next()?;
            (fd.trim() == wanted).then(|| u32::from_str_radix(mask, 16).expect("a mask"))
        };
        infos.flat_map(|info| info.lines().filter_map(of_line).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn nobody_waits_for_room_while_there_is_some() {
        blocks_on(async {
            let [(read_a, _write_a), _b] = pair();
            let masks = events(read_a.socket.get_ref());
            // An epoll may have several numbers.
            assert!(!masks.is_empty());
            assert!(masks.iter().all(|mask| mask & (EPOLLIN | EPOLLOUT) == EPOLLIN), "{masks:x?}");
        });
    }
}
