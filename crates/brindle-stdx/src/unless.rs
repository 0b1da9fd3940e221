//! Work beside something that may end it.
//!
//! An `async fn` that is given a future holds it twice: as its argument, and where it waits for it. A request passes several such functions on
//! its way, and each one doubled what is allocated and copied for it. The functions here hold a future once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

pin_project! {
    /// What [`unless`] returns.
    pub struct Unless<W, E> {
        #[pin]
        work: W,
        #[pin]
        end: E,
    }
}

/// `Ok` with what `work` returns, or `Err` with what `end` returns if that completes first. `work` is polled before `end`.
pub fn unless<W: Future, E: Future>(work: W, end: E) -> Unless<W, E> {
    Unless { work, end }
}

impl<W: Future, E: Future> Future for Unless<W, E> {
    type Output = Result<W::Output, E::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.work.poll(context) {
            Poll::Ready(out) => Poll::Ready(Ok(out)),
            Poll::Pending => this.end.poll(context).map(Err),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::mem::size_of_val;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn what_completes_first_counts_and_work_comes_before_its_end() {
        assert_eq!(unless(ready(1), ready(2)).now_or_never(), Some(Ok(1)));
        assert_eq!(unless(pending::<u8>(), ready(2)).now_or_never(), Some(Err(2)));
        assert_eq!(unless(pending::<u8>(), pending::<u8>()).now_or_never(), None);
    }

    #[test]
    fn a_limited_wait_may_be_made_where_there_is_no_runtime_yet() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let seams = crate::real::seams(runtime.handle().clone());
        let waits = seams.timeout_ms(1, pending::<()>());
        assert_eq!(runtime.block_on(waits), None);
    }

    #[test]
    fn work_is_held_once() {
        let work = async {
            let bytes = [7_u8; 4096];
            pending::<()>().await;
            bytes.len()
        };
        let size = size_of_val(&work);
        assert!(size_of_val(&unless(work, pending::<()>())) < size + 64);
    }
}
