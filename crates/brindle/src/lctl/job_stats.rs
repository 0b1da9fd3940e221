//! `job_stats` in Lustre's text: YAML with the names, the columns and the order of `lustre/obdclass/lprocfs_jobstats.c`.
//!
//! [`OST`] and [`MDT`] translate Brindle's operations into Lustre's words; operations without a word there (locks, sessions, listing
//! directories) are in `brindle top -o json`.

use std::fmt::Write as _;

use brindle_types::Role;
use brindle_wire::Op;
use brindle_wire::job::{NAME_BYTES_MAX, Tally, UsageResp, UsageRow};

/// Columns of the names of fields.
const FIELD_COLUMNS: usize = 16;

/// A counter: its name, and the operations that it counts.
type Counter = (&'static str, &'static [Op]);

/// Counters of an OST, in Lustre's order; the first two are bytes.
const OST: &[Counter] = &[
    ("read_bytes", &[]),
    ("write_bytes", &[]),
    ("read", &[Op::Read]),
    ("write", &[Op::Write]),
    ("getattr", &[Op::StatObjects]),
    ("setattr", &[]),
    ("punch", &[Op::Punch, Op::TruncateObject]),
    ("sync", &[Op::SyncObjects]),
    ("destroy", &[Op::DestroyObjects]),
    ("create", &[]),
    ("statfs", &[Op::OstStatfs]),
    ("get_info", &[Op::Seek]),
    ("set_info", &[]),
    ("quotactl", &[]),
    ("prealloc", &[Op::Allocate]),
];

/// Counters of an MDT.
const MDT: &[Counter] = &[
    ("open", &[Op::Open, Op::OpenAhead, Op::Create, Op::Tmpfile]),
    ("close", &[Op::Close]),
    ("mknod", &[Op::Mknod, Op::Symlink]),
    ("link", &[Op::Link]),
    ("unlink", &[Op::Unlink]),
    ("mkdir", &[Op::Mkdir]),
    ("rmdir", &[Op::Rmdir]),
    ("rename", &[Op::Rename]),
    ("getattr", &[Op::Lookup, Op::Getattr]),
    ("setattr", &[Op::Setattr]),
    ("getxattr", &[Op::Getxattr, Op::Listxattr]),
    ("setxattr", &[Op::Setxattr, Op::Removexattr]),
    ("statfs", &[Op::MdtStatfs]),
    ("sync", &[Op::Fsync, Op::SyncAll]),
    ("read_bytes", &[]),
    ("write_bytes", &[]),
    ("read", &[Op::InlineRead]),
    ("write", &[Op::InlineWrite]),
];

/// The text of a target.
pub fn text(role: Role, found: &UsageResp) -> String {
    let counters = if role == Role::Mdt { MDT } else { OST };
    let mut rows: Vec<&UsageRow> = found.rows.iter().collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    let mut text = "job_stats:".to_owned();
    for row in rows {
        write(&mut text, counters, row, found.now_ns);
    }
    text
}

fn write(text: &mut String, counters: &[Counter], row: &UsageRow, now_ns: i64) {
    let columns = FIELD_COLUMNS;
    // Writing to a string cannot fail.
    let _ = write!(text, "\n- {:columns$} {}", "job_id:", in_yaml(&row.name));
    let times =
        [("snapshot_time:", now_ns), ("start_time:", row.since_ns), ("elapsed_time:", now_ns - row.since_ns)];
    for (name, ns) in times {
        let (secs, nanos) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
        let _ = write!(text, "\n  {name:columns$} {secs}.{nanos:09} secs.nsecs");
    }
    for (name, ops) in counters {
        let (tally, unit) = match *name {
            "read_bytes" => (row.read, "bytes"),
            "write_bytes" => (row.written, "bytes"),
            _ => (together(row, ops), "usecs"),
        };
        let Tally { count, min, max, sum, sum_squares } = tally;
        let _ = write!(
            text,
            "\n  {:columns$} {{ samples: {count:11}, unit: {unit:>5}, min: {min:8}, max: {max:8}, sum: {sum:16}, sumsq: {sum_squares:18} }}",
            format!("{name}:")
        );
    }
}

/// A name as YAML takes it: plain where that means the name and nothing else, else in quotes. No byte of a job's name has to be escaped.
fn in_yaml(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._/+-".contains(c));
    if is_plain { name.to_owned() } else { format!("\"{name}\"") }
}

/// Sum over several operations.
fn together(row: &UsageRow, ops: &[Op]) -> Tally {
    let counted = row.ops.iter().filter(|(number, _)| ops.iter().any(|op| *op as u16 == *number));
    counted.fold(Tally::default(), |all, (_, one)| Tally {
        count: all.count + one.count,
        min: if all.count == 0 { one.min } else { all.min.min(one.min) },
        max: all.max.max(one.max),
        sum: all.sum.saturating_add(one.sum),
        sum_squares: all.sum_squares.saturating_add(one.sum_squares),
    })
}

/// Objection to what is written.
pub fn check(text: &str) -> Result<(), String> {
    match text.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err("it is the name of a job, or 'clear'".to_owned()),
    }
}

/// The job that is meant; empty for all.
pub fn named(text: &str) -> &str {
    if text == "clear" { "" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(values: &[u64]) -> Tally {
        let mut tally = Tally::default();
        values.iter().for_each(|value| tally.add(*value));
        tally
    }

    #[test]
    fn the_text_is_lustres() {
        let row = |name: &str| UsageRow {
            name: name.to_owned(),
            since_ns: 1_700_000_000_500_000_000,
            last_ns: 0,
            read: Tally::default(),
            written: tally(&[1_048_576, 4096]),
            ops: vec![(Op::Punch as u16, tally(&[7])), (Op::TruncateObject as u16, tally(&[3, 9]))],
        };
        let found = UsageResp {
            now_ns: 1_700_000_002_000_000_001,
            rows: vec![row("dd.0"), row("4711")],
            left_out: 0,
        };
        let text = text(Role::Ost, &found);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..6],
            [
                "job_stats:",
                "- job_id:          4711",
                "  snapshot_time:   1700000002.000000001 secs.nsecs",
                "  start_time:      1700000000.500000000 secs.nsecs",
                "  elapsed_time:    1.500000001 secs.nsecs",
                "  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, sum:                0, sumsq:                  0 }",
            ]
        );
        assert_eq!(
            lines[6],
            "  write_bytes:     { samples:           2, unit: bytes, min:     4096, max:  1048576, sum:          1052672, sumsq:      1099528404992 }"
        );
        let punch = lines.iter().find(|line| line.starts_with("  punch:")).expect("a counter");
        assert_eq!(
            *punch,
            "  punch:           { samples:           3, unit: usecs, min:        3, max:        9, sum:               19, sumsq:                139 }"
        );
        assert_eq!(lines.len(), 1 + 2 * (4 + OST.len()));
        assert_eq!(text_of_nothing(), "job_stats:");
    }

    fn text_of_nothing() -> String {
        text(Role::Mdt, &UsageResp { now_ns: 0, rows: Vec::new(), left_out: 0 })
    }

    #[test]
    fn each_operation_is_counted_once() {
        for table in [OST, MDT] {
            let mut all: Vec<u16> =
                table.iter().flat_map(|(_, ops)| ops.iter()).map(|op| *op as u16).collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count);
        }
        assert_eq!((named("clear"), named("dd.0")), ("", "dd.0"));
        assert!(check("").is_err() && check("4711").is_ok() && check(&"x".repeat(40)).is_err());
    }
}
