//! Panics that are answers: a library that panics on damaged input is run here, and its caller names the damage.
//!
//! A process's panic hook (`brindle_telemetry::panic`) asks [`is_caught`] and stays silent for them; any other panic is a
//! bug of ours.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs `work`; `Err` is what it panicked with. State that it had half changed must not be used afterwards.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    DEPTH.set(DEPTH.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    outcome
}

/// Whether a panic of this thread would be caught now.
pub fn is_caught() -> bool {
    DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_panics_inside_are_caught() {
        assert!(!is_caught());
        let outcome = caught(|| {
            assert!(caught(is_caught).is_ok_and(|yes| yes) && is_caught());
            panic!("a damaged page");
        });
        let payload: Result<(), _> = outcome;
        assert_eq!(payload.unwrap_err().downcast_ref::<&str>(), Some(&"a damaged page"));
        assert!(!is_caught());
    }
}
