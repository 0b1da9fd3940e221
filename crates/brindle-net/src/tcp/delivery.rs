//! Delivery state of a TCP connection, from the kernel (`TCP_INFO`).

use std::os::fd::AsRawFd;

use brindle_stdx::cast::len_u32;
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;

use crate::transport::Delivery;

/// A connection's socket, under a number of its own.
struct TcpDelivery(Socket);

/// `None` where the process has no more numbers for files: then keep-alive finds a dead rail, some seconds later.
pub(super) fn of(stream: &TcpStream) -> Option<Box<dyn Delivery>> {
    let socket = SockRef::from(stream).try_clone().ok()?;
    Some(Box::new(TcpDelivery(socket)))
}

impl Delivery for TcpDelivery {
    fn unacknowledged_ms(&self) -> u64 {
        // SAFETY: zeros are a value of this plain structure of numbers.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len: libc::socklen_t = len_u32(size_of::<libc::tcp_info>());
        let (to, fd) = ((&raw mut info).cast(), self.0.as_raw_fd());
        // SAFETY: the kernel writes at most `len` bytes to `info`.
        let done = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len) };
        // A socket that cannot be asked has ended, which its reader hears.
        if done != 0 || info.tcpi_unacked == 0 { 0 } else { u64::from(info.tcpi_last_ack_recv).max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_arrives_is_acknowledged() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connects");
        let (_other, _) = listener.accept().await.expect("accepts");
        let delivery = of(&stream).expect("there are numbers left");
        stream.try_write(b"x").expect("there is room");
        let acknowledged = async {
            while delivery.unacknowledged_ms() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(5), acknowledged).await.expect("soon");
    }
}
