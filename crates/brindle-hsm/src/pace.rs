//! The pace of an agent: at most so many bytes a second, over all that it copies.

use brindle_stdx::{Mono, Seams};
use parking_lot::Mutex;

/// A limit of bytes a second, if there is one.
pub struct Pace {
    bytes_per_sec: Option<u64>,
    /// Time at which the next bytes may be copied.
    next: Mutex<Option<Mono>>,
}

impl Pace {
    /// A pace; `None` for as fast as possible.
    pub fn new(bytes_per_sec: Option<u64>) -> Pace {
        Pace { bytes_per_sec: bytes_per_sec.filter(|rate| *rate > 0), next: Mutex::new(None) }
    }

    /// Waits until more bytes may be copied.
    pub async fn ready(&self, seams: &Seams) {
        let now = seams.now();
        let wait_ms = self.next.lock().filter(|at| *at > now).map_or(0, |at| at.ms_since(now));
        if wait_ms > 0 {
            seams.sleep_ms(wait_ms).await;
        }
    }

    /// Waits until so many bytes more may be copied.
    pub async fn wait(&self, seams: &Seams, bytes: u64) {
        let Some(rate) = self.bytes_per_sec else { return };
        let wait_ms = {
            let mut next = self.next.lock();
            let now = seams.now();
            let at = next.filter(|at| *at > now).unwrap_or(now);
            *next = Some(at.plus_ms(bytes.saturating_mul(1000) / rate));
            at.ms_since(now)
        };
        if wait_ms > 0 {
            seams.sleep_ms(wait_ms).await;
        }
    }
}
