//! Waits for calls that a device may hold for ever.

use std::pin::pin;

use brindle_stdx::Seams;

/// Outcome of a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited<T, L> {
    /// The call has ended.
    Done(T),
    /// The device was lost meanwhile.
    Lost(L),
    /// The call has taken too long.
    TooLong,
}

/// Waits for a call until the device is lost or `limit_ms` are over. Once `released` completes the call has `stop_ms` left, to end in order.
pub(crate) async fn wait_for<T, L>(
    seams: &Seams,
    call: impl Future<Output = T>,
    lost: impl Future<Output = L>,
    released: impl Future<Output = ()>,
    (limit_ms, stop_ms): (u64, u64),
) -> Waited<T, L> {
    let (mut call, mut lost) = (pin!(call), pin!(lost));
    tokio::select! {
        biased;
        done = &mut call => return Waited::Done(done),
        lost = &mut lost => return Waited::Lost(lost),
        () = seams.sleep_ms(limit_ms) => return Waited::TooLong,
        () = released => {}
    }
    tokio::select! {
        biased;
        done = call => Waited::Done(done),
        lost = lost => Waited::Lost(lost),
        () = seams.sleep_ms(stop_ms) => Waited::TooLong,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use brindle_net::latch::Latch;

    use super::*;

    fn seams() -> Seams {
        brindle_stdx::real::seams(tokio::runtime::Handle::current())
    }

    /// Far more than any of these waits takes.
    const LONG_MS: u64 = 600_000;

    #[tokio::test]
    async fn a_call_that_ends_after_the_release_is_not_given_up() {
        let (seams, release, ends) = (seams(), Latch::default(), Latch::default());
        let call = async {
            ends.wait().await;
            7
        };
        let stop = async {
            release.set();
            tokio::task::yield_now().await;
            ends.set();
        };
        let waited = wait_for(&seams, call, pending::<()>(), release.wait(), (LONG_MS, LONG_MS));
        assert_eq!(tokio::join!(waited, stop).0, Waited::Done(7));
    }

    #[tokio::test]
    async fn a_call_that_never_ends_is_given_up() {
        let seams = seams();
        let hangs = pending::<()>;
        let lost = wait_for(&seams, hangs(), ready("taken"), pending(), (LONG_MS, LONG_MS)).await;
        assert_eq!(lost, Waited::Lost("taken"));
        let lost = wait_for(&seams, hangs(), ready("taken"), ready(()), (LONG_MS, LONG_MS)).await;
        assert_eq!(lost, Waited::Lost("taken"));
        let late = wait_for(&seams, hangs(), pending::<()>(), pending(), (1, LONG_MS)).await;
        assert_eq!(late, Waited::TooLong);
        let late = wait_for(&seams, hangs(), pending::<()>(), ready(()), (LONG_MS, 1)).await;
        assert_eq!(late, Waited::TooLong);
    }
}
