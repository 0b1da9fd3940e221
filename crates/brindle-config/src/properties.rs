//! Promises of every config store, tried on each of them: against a model, step by step.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::store::{ConfigStore, Swap, Write};

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
    together(store, prefix, last).await
}

/// Checks that all writes of a group are made, or none.
async fn together(store: &dyn ConfigStore, prefix: &str, last: u64) -> Result<(), TestCaseError> {
    let (one, two) = (format!("{prefix}t/one"), format!("{prefix}t/two"));
    let write = |key: &String, expected_version, value: Option<&[u8]>| Write {
        key: key.clone(),
        expected_version,
        value: value.map(<[u8]>::to_vec),
    };
    let swap = store.swap_all(vec![write(&one, 0, Some(b"1")), write(&two, 0, Some(b"2"))]).await.unwrap();
    let Swap::Done(version) = swap else { return Err(TestCaseError::fail("it was lost")) };
    prop_assert!(version > last, "versions rise");
    for (key, value) in [(&one, b"1"), (&two, b"2")] {
        let entry = store.get(key).await.unwrap().map(|entry| (entry.version, entry.value));
        prop_assert_eq!(entry, Some((version, value.to_vec())));
    }
    // The second one has another version.
    let lost = store.swap_all(vec![write(&one, version, None), write(&two, 0, Some(b"3"))]).await.unwrap();
    prop_assert_eq!(lost, Swap::Lost(version));
    prop_assert!(store.get(&one).await.unwrap().is_some(), "none was made");
    prop_assert!(store.swap_all(vec![write(&one, version, None), write(&one, version, None)]).await.is_err());
    let moved = store.swap_all(vec![write(&one, version, None), write(&two, version, None)]).await.unwrap();
    prop_assert!(matches!(moved, Swap::Done(_)));
    let left = store.list(&format!("{prefix}t/")).await.unwrap();
    prop_assert!(left.is_empty());
    Ok(())
}
