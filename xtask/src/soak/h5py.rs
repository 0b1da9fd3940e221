//! The tests of h5py, which exercise the HDF5 library, with all their files on the mount; again and again.

use super::script;
use crate::report::Report;
use crate::suites::{Ground, Suite};

/// Time beyond that of the step: the last run.
const MARGIN_SECS: u64 = 900;

/// The suite.
pub const SUITE: Suite = Suite { name: "h5py", about: "the tests of HDF5's Python library", run };

fn run(ground: &Ground) -> Report {
    script(ground, "h5py", SCRIPT, MARGIN_SECS)
}

/// $1 is how many seconds. Debian's Python, because that is where Debian's h5py is.
const SCRIPT: &str = r#"
    TMPDIR="$PWD"; export TMPDIR
    end=$(( $(date +%s) + $1 )); runs=0
    while [ "$(date +%s)" -lt "$end" ]; do
        /usr/bin/python3 -m pytest -q -p no:cacheprovider --pyargs h5py.tests
        runs=$(( runs + 1 ))
    done
    echo "$runs runs"
"#;
