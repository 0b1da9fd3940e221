//! A listener with few connections, each of which ends in bounded time. A client that holds metrics ports open therefore
//! takes no descriptors from the clients of the file system.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// See the module.
pub struct Bounded {
    listener: TcpListener,
    room: Arc<Semaphore>,
    life: Duration,
}

/// A connection that fails its reads when its time is over.
pub struct Mortal {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _room: OwnedSemaphorePermit,
}

impl Bounded {
    /// Each connection is closed `life` after it was accepted, whatever it does.
    pub fn new(listener: TcpListener, life: Duration) -> Bounded {
        Bounded { listener, room: Arc::new(Semaphore::new(CONNECTIONS_MAX)), life }
    }
}

impl Listener for Bounded {
    type Io = Mortal;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Mortal, SocketAddr) {
        let room = self.room.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Mortal { stream, end: Box::pin(tokio::time::sleep(self.life)), _room: room }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Mortal {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Mortal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
