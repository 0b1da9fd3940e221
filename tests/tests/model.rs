//! The model test through system calls: random operations of two clients against a POSIX model in memory.
//!
//! `BRINDLE_TEST_DIRS=A:B` names two mounts of one file system; without it, one local directory plays both, which
//! checks the model itself against the kernel's own file system.

use std::path::PathBuf;

/// Operations against mounts (issue: 20 000).
const MOUNT_OPERATIONS: usize = 20_000;
/// Operations against a local directory, over all seeds.
const LOCAL_OPERATIONS: usize = 4_000;

#[test]
fn random_operations_agree_with_the_posix_model() {
    let seed: u64 = std::env::var("BRINDLE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    if let Ok(dirs) = std::env::var("BRINDLE_TEST_DIRS") {
        for round in 0..4 {
            let name = format!("model-{}-{round}", std::process::id());
            let roots: Vec<PathBuf> = dirs.split(':').map(|d| PathBuf::from(d).join(&name)).collect();
            std::fs::create_dir(&roots[0]).expect("test directory");
            let result = brindle_tests::model_run::compare(roots.clone(), seed + round, MOUNT_OPERATIONS / 4);
            std::fs::remove_dir_all(&roots[0]).expect("the tree can be removed");
            judge(result, MOUNT_OPERATIONS / 4);
        }
        return;
    }
    for round in 0..4 {
        let dir = tempfile::tempdir().expect("temporary directory");
        let roots = vec![dir.path().to_path_buf(), dir.path().to_path_buf()];
        let result = brindle_tests::model_run::compare(roots, seed + round, LOCAL_OPERATIONS / 4);
        judge(result, LOCAL_OPERATIONS / 4);
    }
}

/// No difference, and enough operations that did something for that to mean something.
fn judge(result: Result<usize, String>, operations: usize) {
    let succeeded = result.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(succeeded * 3 > operations, "only {succeeded} of {operations} operations succeeded");
}
