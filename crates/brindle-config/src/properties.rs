//! Promises of every config store, tried on each of them: against a model, step by step.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::store::{ConfigStore, Swap};

/// One attempt to write: which key, how far behind its expected version is, and the value (`None` removes).
pub(crate) type Step = (u8, u64, Option<u8>);

/// Some attempts.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..4u8, 0..3u64, prop::option::of(0..9u8)), 1..20)
}

/// A store that is empty below `prefix` and the model agree about `steps`: a write is done exactly
/// when its version is the current one, versions rise over the whole store, and what is read is what was written.
pub(crate) async fn check(
    store: &dyn ConfigStore,
    prefix: &str,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let mut model: BTreeMap<String, (u64, Vec<u8>)> = BTreeMap::new();
    let mut last = 0;
    for (key, back, value) in steps {
        let key = format!("{prefix}{key}");
        let have = model.get(&key).map_or(0, |(version, _)| *version);
        let expected = have.saturating_sub(back);
        let value = value.map(|value| vec![value]);
        match store.compare_and_swap(&key, expected, value.as_deref()).await.unwrap() {
            Swap::Done(version) => {
                prop_assert_eq!(expected, have);
                prop_assert!(version > last, "versions rise");
                last = version;
                match value {
                    Some(value) => drop(model.insert(key.clone(), (version, value))),
                    None => drop(model.remove(&key)),
                }
            }
            Swap::Lost(now) => prop_assert!(now == have && expected != have),
        }
        let entry = store.get(&key).await.unwrap().map(|entry| (entry.version, entry.value));
        prop_assert_eq!(entry.as_ref(), model.get(&key));
        let listed = store.list(prefix).await.unwrap();
        prop_assert!(listed.is_sorted_by(|a, b| a.key < b.key));
        let listed: BTreeMap<_, _> = listed.into_iter().map(|e| (e.key, (e.version, e.value))).collect();
        prop_assert_eq!(&listed, &model);
    }
    Ok(())
}
