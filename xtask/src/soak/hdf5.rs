//! HDF5's own test suite: the library's source is unpacked, built and tested with all its files on the mount.
//!
//! The source is that of Debian's package. The source is fetched with package lists of our own, so that the machine's
//! lists stay as they are.

use super::verdict;
use crate::report::Report;
use crate::suites::script::Script;
use crate::suites::{Ground, Suite};

/// Longest time of one of its parts on a slow machine.
const PART_SECS_MAX: u64 = 5400;

/// The suite.
pub const SUITE: Suite = Suite { name: "hdf5", about: "the test suite of HDF5", run };

fn run(ground: &Ground) -> Report {
    let kept = ground.root.join("target/tools/hdf5-source");
    let fetch = ground.command("sh").args(["-ec", FETCH, "fetch"]).arg(&kept).limit_secs(PART_SECS_MAX);
    let fetched = fetch.run(&ground.log("fetch"));
    if let Err(why) = verdict(&fetched) {
        return Report::fail("fetch", why);
    }
    let mut script = Script::new(ground);
    for (name, text) in [("unpack", UNPACK), ("build", BUILD), ("check", CHECK)] {
        let command = script.command("sh", ["-ec", text, name]).arg(&kept);
        script.case(name, command.limit_secs(PART_SECS_MAX));
    }
    script.end()
}

/// $1 is where the source is kept.
const FETCH: &str = r#"
    ls "$1"/hdf5_*.orig.tar.* >/dev/null 2>&1 && exit 0
    mkdir -p "$1/apt/sources" "$1/apt/lists/partial" "$1/apt/cache/archives/partial"
    sed 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$1/apt/sources/debian.sources"
    cd "$1"
    set -- -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$1/apt/sources" \
        -o "Dir::State::lists=$1/apt/lists" -o "Dir::Cache=$1/apt/cache" -o APT::Sandbox::User=root
    apt-get "$@" update
    apt-get "$@" source --download-only hdf5
"#;
const UNPACK: &str = r#"
    mkdir source build && tar -x -C source --strip-components=1 -f "$1"/hdf5_*.orig.tar.*
"#;
/// Static, so that every test program is a file that is written and run on the mount.
const BUILD: &str = r#"
    cd build
    sh ../source/configure --quiet --disable-shared --disable-fortran --disable-cxx --disable-hl --without-zlib
    make -j2 --quiet
"#;
/// HDF5TestExpress leaves out repetitions, not tests; 0 is everything.
const CHECK: &str = r#"
    cd build
    HDF5TestExpress="${HDF5TestExpress:-1}" make check
    make -C test check-clean >/dev/null
"#;
