//! Bounds on the resources of connections: time without progress, and the number of connections of one address.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::access::attempts::Origin;

/// Connections of one address at once. Connections from this machine (a proxy, say) have no such bound.
const OF_ADDRESS_MAX: usize = 64;

/// A stream that fails when its peer takes no bytes for some time: its reader is gone, or does not read.
pub struct Impatient<S> {
    stream: S,
    limit: Duration,
    /// Runs while something waits to be sent.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// A stream whose reader may pause for this long.
    pub fn new(stream: S, limit: Duration) -> Impatient<S> {
        Impatient { stream, limit, waits: None }
    }

    fn judged<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waits = None;
            return outcome;
        }
        let limit = self.limit;
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match waits.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judged(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judged(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judged(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judged(cx, shut)
    }
}

/// Connections by address.
#[derive(Clone, Default)]
pub struct Shares(Arc<Mutex<BTreeMap<Origin, usize>>>);

/// A place; free again when dropped.
pub struct SharePermit {
    shares: Shares,
    origin: Origin,
}

impl Shares {
    /// A place for one more connection; `None` where its address has as many as one may have.
    pub fn take(&self, address: IpAddr) -> Option<SharePermit> {
        let origin = Origin::of(address);
        let mut shares = self.0.lock();
        let count = shares.entry(origin).or_default();
        if *count >= OF_ADDRESS_MAX && !address.to_canonical().is_loopback() {
            return None;
        }
        *count += 1;
        Some(SharePermit { shares: self.clone(), origin })
    }
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        let mut shares = self.shares.0.lock();
        if let Some(count) = shares.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                shares.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn whoever_does_not_read_is_let_go() {
        let (near, far) = tokio::io::duplex(16);
        let mut near = Impatient::new(near, Duration::from_millis(20));
        let failed = near.write_all(&[7; 1000]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }

    #[tokio::test]
    async fn whoever_reads_gets_all_and_a_pause_with_nothing_to_send_is_none() {
        let (near, mut far) = tokio::io::duplex(16);
        let limit = Duration::from_secs(60);
        let mut near = Impatient::new(near, limit);
        let sent = tokio::spawn(async move {
            near.write_all(&[7; 1000]).await.unwrap();
            near.flush().await.unwrap();
            near
        });
        let mut read = [0; 1000];
        far.read_exact(&mut read).await.unwrap();
        let near = sent.await.unwrap();
        assert!(read == [7; 1000] && near.waits.is_none());
    }

    #[test]
    fn an_address_has_its_share_of_the_places() {
        let shares = Shares::default();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut places: Vec<SharePermit> =
            (0..OF_ADDRESS_MAX).map(|_| shares.take(ip("192.0.2.1")).unwrap()).collect();
        assert!(shares.take(ip("192.0.2.1")).is_none() && shares.take(ip("::ffff:192.0.2.1")).is_none());
        assert!(shares.take(ip("192.0.2.2")).is_some());
        places.pop();
        let again = shares.take(ip("192.0.2.1"));
        assert!(again.is_some());
        let local: Vec<Option<SharePermit>> =
            (0..2 * OF_ADDRESS_MAX).map(|_| shares.take(ip("127.0.0.1"))).collect();
        assert!(local.iter().all(Option::is_some));
        drop((places, again, local));
        assert!(shares.0.lock().is_empty());
    }
}
