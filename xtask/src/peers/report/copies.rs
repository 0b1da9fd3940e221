//! Systems with the same number of copies of everything, beside each other.

use brindle_bench::stats::Summary;

use super::super::measure::figure;
use super::super::verdict::{self, Speeds};
use super::{Line, Table, aligned, cells, ratio_text};

/// Numbers of copies that are compared.
const COPIES: [&str; 2] = ["2", "3"];
/// Speed that is asked for, by that of the best other system.
const TIMES: f64 = 2.0;
/// What the last column means.
const OF_DISK: &str = "All copies lie on one disk here. `of disk` is Brindle's speed times the copies by that with one copy: 1 is as fast as that disk lets all copies be written. It says nothing of reads, which the serving copy alone answers.";

/// The table; nothing where no system has copies.
pub fn ratios(table: &Table<'_>, lines: &[Line]) -> Option<String> {
    let mut rows =
        vec![cells(&["workload", "copies", "brindle", "best other", "ratio", "verdict", "of disk"])];
    for copies in COPIES {
        rows.extend(lines.iter().filter_map(|line| row(table, line, copies)));
    }
    (rows.len() > 1).then(|| format!("{}\n{OF_DISK}\n", aligned(&rows)))
}

fn row(table: &Table<'_>, line: &Line, copies: &str) -> Option<Vec<String>> {
    let speeds = |name: &str| table.speeds(name, line.row, line.mounts);
    let name = format!("brindle-{copies}");
    let ours = line.systems.get(name.as_str())?;
    let is_other = |other: &&str| other.rsplit_once('-').is_some_and(|(_, n)| n == copies) && **other != name;
    let others: Vec<(&str, Speeds)> =
        line.systems.keys().copied().filter(is_other).map(|other| (other, speeds(other))).collect();
    let best = verdict::best(others.iter().map(|(other, speeds)| (*other, speeds)));
    let best = others.iter().find(|(other, _)| Some(*other) == best);
    let none = Speeds::new();
    let judged = verdict::judge(&speeds(&name), (best.map_or(&none, |(_, speeds)| speeds), TIMES), None);
    let said = |speed: f64| format!("{} {}", figure(speed), line.unit.text());
    let other = best
        .and_then(|(other, _)| Some(format!("{other} {}", figure(line.systems.get(other)?.value.median))));
    Some(vec![
        line.row.name.to_owned(),
        copies.to_owned(),
        said(ours.value.median),
        other.unwrap_or_else(|| "-".to_owned()),
        ratio_text(judged.to_peer, Some(TIMES)),
        judged.verdict.text().to_owned(),
        of_disk(&speeds(&name), &speeds("brindle-1"), copies).map_or("-".to_owned(), |s| figure(s.median)),
    ])
}

/// Speed with copies, times their number, by the speed with one.
fn of_disk(ours: &Speeds, one: &Speeds, copies: &str) -> Option<Summary> {
    let times: f64 = copies.parse().ok()?;
    let ratios: Vec<f64> = ours
        .iter()
        .filter_map(|(n, speed)| Some(speed * times / one.get(n).filter(|one| **one > 0.0)?))
        .collect();
    Summary::of(&ratios)
}
