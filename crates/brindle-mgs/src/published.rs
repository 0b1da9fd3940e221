//! A value in the config store that callers wait for: limits, durability.
//!
//! Invariant: the value in memory is the one in the store; others are told only after the store has made it durable.

use std::sync::Arc;

use brindle_config::{ConfigStore, Swap};
use brindle_stdx::watch;
use brindle_types::{Code, Fault, Result};
use brindle_wire::form::{self, Form, FormatLevel};
use tokio::sync::Mutex;

use crate::store::ATTEMPTS_MAX;

/// A value, and its place in the store.
pub(crate) struct Published<T> {
    store: Arc<dyn ConfigStore>,
    key: String,
    /// Name of the value in messages: `the limits`.
    what: &'static str,
    /// Version of the store's entry; 0 while there is none.
    entry_version: Mutex<u64>,
    current: watch::Sender<(u64, Arc<T>)>,
}

impl<T: Form + Default + PartialEq + Clone + Send + Sync + 'static> Published<T> {
    /// Reads the value; the default one where there is none.
    pub(crate) async fn open(
        store: Arc<dyn ConfigStore>,
        key: String,
        what: &'static str,
    ) -> Result<Published<T>> {
        let (version, value) = read(&*store, &key, what).await?;
        let current = watch::Sender::new(told(version, value));
        Ok(Published { store, key, what, entry_version: Mutex::new(version), current })
    }

    /// The value and its version, with which callers ask for a newer one. The version is never 0, which stands for no
    /// answer yet.
    pub(crate) fn now(&self) -> (u64, Arc<T>) {
        self.current.borrow().clone()
    }

    /// Completes when the version is another one.
    pub(crate) async fn other_than(&self, version: u64) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.current.subscribe().wait_for(|told| told.0 != version).await;
    }

    /// Replaces the value by the one that `decide` makes of it. Returns whether the value changed, and the second result of `decide`. Calls
    /// `decide` again when another MGS wrote first, or when an earlier write of this one was done although no answer came.
    pub(crate) async fn change<R>(
        &self,
        is_dry_run: bool,
        decide: impl Fn(&T) -> Result<(T, R)>,
    ) -> Result<(bool, R)> {
        let mut version = self.entry_version.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let (_, before) = self.now();
            let (next, said) = decide(&before)?;
            let changed = next != *before;
            if !changed || is_dry_run {
                return Ok((changed, said));
            }
            let value = form::encode(FormatLevel::NEWEST, &next)?;
            match self.store.compare_and_swap(&self.key, *version, Some(&value)).await? {
                Swap::Done(new) => {
                    *version = new;
                    self.current.send_replace(told(new, next));
                    return Ok((true, said));
                }
                Swap::Lost(_) => {
                    let (found, value) = read(&*self.store, &self.key, self.what).await?;
                    *version = found;
                    self.current.send_replace(told(found, value));
                }
            }
        }
        Err(Fault::new(Code::Overloaded)
            .what(format!("cannot change {}", self.what))
            .why(format!("others changed them {ATTEMPTS_MAX} times meanwhile")))
    }
}

fn told<T>(entry_version: u64, value: T) -> (u64, Arc<T>) {
    (entry_version.saturating_add(1), Arc::new(value))
}

async fn read<T: Form + Default>(store: &dyn ConfigStore, key: &str, what: &'static str) -> Result<(u64, T)> {
    let Some(entry) = store.get(key).await? else { return Ok((0, T::default())) };
    let damaged = |why| Fault::new(Code::StoreDamaged).subject(key.to_owned()).why(why);
    let value = form::decode(&entry.value).map_err(|why| why.fault(what, damaged))?;
    Ok((entry.version, value))
}
