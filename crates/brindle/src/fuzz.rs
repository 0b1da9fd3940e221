//! Garbage on the command line: every grammar takes a text or says why not, and never panics.

use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;

use brindle_admin::osts::OstList;
use brindle_admin::place::Source;
use brindle_host::cluster::network::parse_rate;
use brindle_stdx::fuzz::try_texts;
use brindle_types::units::parse_bytes;
use brindle_types::{ChangeMask, Fid, FsName, Nid, PoolName};

use crate::cli;
use crate::find::query::Query;

const PARTS: &[&str] = &[
    "0",
    "1",
    "-1",
    "7",
    "4096",
    "65536",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999",
    "-",
    ",",
    ":",
    "/",
    "[",
    "]",
    "@",
    "@tcp",
    "tcp1",
    "OST",
    "OST000a",
    "OST[0-f/2]",
    "scratch",
    "_UUID",
    "0x",
    "0x200000400:0x1:0x0",
    "M",
    "MiB",
    "kB",
    "gbit",
    "mbit",
    "k",
    "+",
    ".",
    "e9",
    "nan",
    "inf",
    "mgs1",
    "10.0.0.1",
    "::1",
    "9880",
    "CREAT",
    "ALL",
    "eof",
];

const SIZES: &[&str] =
    &["1", "7", "99.2", "1e9", "-", "M", "MiB", "kB", "gbit", "mbit", "bit", "none", "inf", " "];

/// Texts of a type; those that are taken are printed, and read again as the same.
fn try_type<T: FromStr<Err = String> + Display + PartialEq>(what: &str) {
    let taken = try_texts(what, PARTS, |text| {
        let Ok(value) = text.parse::<T>() else { return Ok(false) };
        match value.to_string().parse::<T>() {
            Ok(again) if again == value => Ok(true),
            _ => Err(format!("it is printed as '{value}', which is something else")),
        }
    });
    assert!(taken > 0, "{what}: no text is taken, the test tries nothing");
}

#[test]
fn values_are_taken_or_refused() {
    try_type::<Nid>("nid");
    try_type::<FsName>("file system name");
    try_type::<PoolName>("pool name");
    let takes = |taken: bool| Ok(taken);
    try_texts("fid", PARTS, |text| takes(text.parse::<Fid>().is_ok()));
    try_texts("source", PARTS, |text| takes(text.parse::<Source>().is_ok()));
    try_texts("change mask", PARTS, |text| takes(ChangeMask::DEFAULT.changed(text).is_ok()));
    assert!(try_texts("osts", PARTS, |text| takes(text.parse::<OstList>().is_ok())) > 0);
    assert!(try_texts("bytes", SIZES, |text| takes(parse_bytes(text).is_ok())) > 0);
    assert!(try_texts("rate", SIZES, |text| takes(parse_rate(text).is_ok())) > 0);
}

#[test]
fn searches_are_taken_or_refused() {
    let words = &[
        " -name ",
        " -iname ",
        "*.dat",
        " -type ",
        "f",
        "d,l",
        " -size ",
        "+1G",
        "-4k",
        " -mtime ",
        "+30",
        " -mmin ",
        " -newer ",
        "/",
        " -user ",
        "root",
        " -uid ",
        " -perm ",
        "/222",
        "-0644",
        " -ost ",
        "3",
        " -stripe-count ",
        " -layout ",
        "raid0",
        " -maxdepth ",
        " ( ",
        " ) ",
        " ! ",
        " -o ",
        " -a ",
        " -print0 ",
        " -exec ",
        "--",
        " ",
    ];
    let taken = try_texts("search", words, |text| {
        let words: Vec<OsString> =
            text.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        Ok(Query::parse(&words).is_ok())
    });
    assert!(taken > 0);
}

#[test]
fn layouts_are_taken_or_refused() {
    let words = &[
        " -c ", "4", "-1", "0", " -S ", "1M", "64k", " -i ", " -o ", "0-3,7", " -p ", "pool", " -E ", "1G",
        "-1", "eof", " -L ", "mdt", "raid0", " -d ", "/mnt/f", " ",
    ];
    for verb in ["setstripe", "migrate"] {
        let taken = try_texts(verb, words, |text| {
            let words = text.split(' ').filter(|word| !word.is_empty());
            let line = ["brindle", "lfs", verb].into_iter().chain(words);
            Ok(cli::declaration().try_get_matches_from(line).is_ok())
        });
        assert!(taken > 0, "{verb}");
    }
}
