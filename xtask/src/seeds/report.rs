//! The documents of a run: a table for people, every figure as JSON, a plot.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::rows::Said;
use crate::Session;
use crate::bench::machine;
use crate::run::capture;

/// Sizes of the plot, in pixels.
const LABEL_WIDTH: f64 = 330.0;
const BAR_WIDTH: f64 = 440.0;
const BAR_HEIGHT: f64 = 11.0;
const ROW_HEIGHT: f64 = 38.0;

/// A figure beside what the document has.
#[derive(Clone)]
pub struct Figure {
    /// The place.
    pub place: &'static str,
    /// The row.
    pub row: &'static str,
    /// The load, in words.
    pub load: String,
    /// `write`, `read`, ...
    pub phase: String,
    /// Unit of the figure.
    pub unit: &'static str,
    /// The figure.
    pub value: f64,
    /// Speed of plain TCP or of plain files, for streams; the shortest possible time, for times.
    pub limit: Option<f64>,
    /// Figure of the document.
    pub document: Option<Said>,
}

impl Figure {
    fn json(&self) -> Value {
        json!({
            "place": self.place, "row": self.row, "load": self.load, "phase": self.phase, "unit": self.unit,
            "value": self.value, "limit": self.limit,
            "document": self.document.map(|said| json!({ "words": said.words, "share": said.share })),
        })
    }

    /// Share of the limit: more is better, also for times.
    pub(super) fn share(&self) -> Option<f64> {
        let is_time = self.unit == "s";
        self.limit.map(|limit| if is_time { limit / self.value } else { self.value / limit })
    }

    fn value(&self) -> String {
        if self.unit == "/s" {
            format!("{:.0}/s", self.value)
        } else {
            format!("{:.1} {}", self.value, self.unit)
        }
    }

    /// In a line for the terminal.
    pub fn line(&self) -> String {
        let of = self.limit.map(|limit| format!(" of {limit:.1}")).unwrap_or_default();
        let share = percent(self.share());
        let document =
            self.document.map(|said| format!("; document: {} {}", said.words, percent(said.share)));
        format!("{}, {}: {}{of} {share}{}", self.row, self.phase, self.value(), document.unwrap_or_default())
    }
}

fn percent(share: Option<f64>) -> String {
    share.map(|share| format!("{:.1} %", share * 100.0)).unwrap_or_default()
}

/// Time for which the processors are watched before a run.
const WATCHED: Duration = Duration::from_secs(2);
/// Share of the processors' time above which other work is taken to have shared the machine.
const BUSY_SHARED: f64 = 0.1;

/// Share of the processors' time that other work takes now; none where the kernel does not tell.
pub fn busy_share() -> Option<f64> {
    let before = processor_times()?;
    // Nothing is waited for: it is the length of the sample.
    std::thread::sleep(WATCHED);
    let after = processor_times()?;
    let (idle, all) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
    (all > 0).then(|| 1.0 - idle as f64 / all as f64)
}

/// Idle time and all time of the processors, in ticks.
fn processor_times() -> Option<(u64, u64)> {
    times_of(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The same from the text of `/proc/stat`: the fourth and fifth number of the first line are idle time and time that waits for disks.
fn times_of(text: &str) -> Option<(u64, u64)> {
    let words = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let ticks: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().take(8).sum()))
}

/// Writes the documents of a run. `busy`: what [`busy_share`] said before it.
pub fn write(
    session: &Session,
    figures: &[Figure],
    seconds: u32,
    program: &Path,
    busy: Option<f64>,
) -> Result<(), String> {
    if figures.is_empty() {
        return Err("no row was measured: no place that is named has a row of these letters".to_owned());
    }
    let dir = session.root.join("bench/seeds");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let said = |program: &str, args: &[&str]| capture(program, args).map(|text| text.trim().to_owned());
    let date = said("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default();
    let commit = said("git", &["rev-parse", "--short", "HEAD"]).unwrap_or_default();
    let name = format!("{date}-{commit}");
    let document = json!({
        "schema": "brindle.seeds", "version": 1, "date": date, "commit": commit,
        "seconds": seconds, "command": command(session), "binary": shown(session, program), "busy_before": busy, "machine": machine::describe(), "figures": figures.iter().map(Figure::json).collect::<Vec<Value>>(),
    });
    let json = serde_json::to_string_pretty(&document).map_err(|e| e.to_string())?;
    put(&dir.join(format!("{name}.json")), &format!("{json}\n"))?;
    put(&dir.join(format!("{name}.svg")), &plot(figures))?;
    put(&dir.join(format!("{name}.md")), &page(figures, &name, &preamble(session, seconds, program, busy)))?;
    println!("\nwritten: bench/seeds/{name}.md, .json, .svg");
    Ok(())
}

/// The command of this run, without paths of this machine.
fn command(session: &Session) -> String {
    let word = |word: &String| if word.starts_with("--binary=") { "--binary=FILE" } else { word }.to_owned();
    match session.args.iter().map(word).collect::<Vec<_>>().join(" ") {
        words if words.is_empty() => "make seeds".to_owned(),
        words => format!("make seeds SEEDS=\"{words}\""),
    }
}

/// The path of the binary below the source, or its name.
fn shown(session: &Session, program: &Path) -> String {
    let below = program.strip_prefix(&session.root).ok();
    below.or(program.file_name().map(Path::new)).unwrap_or(program).display().to_string()
}

/// How the run was made, and whether its figures can be taken.
fn preamble(session: &Session, seconds: u32, program: &Path, busy: Option<f64>) -> String {
    let mut out = format!("Phases take about {seconds} s where the links are full. ");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "Command: `{}`, of `{}`.\n", command(session), shown(session, program));
    let is_shared = busy.is_none_or(|busy| busy > BUSY_SHARED);
    let why = match (is_shared, seconds == super::rows::SECONDS_QUICK) {
        (true, _) => "other work shared the machine",
        (false, true) => "phases were short",
        (false, false) => return out,
    };
    let busy = busy.map_or("unknown".to_owned(), |busy| percent(Some(busy)));
    let _ =
        writeln!(out, "**A trial, not a measurement**: {why} (processors busy before the run: {busy}).\n");
    out
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn page(figures: &[Figure], name: &str, preamble: &str) -> String {
    let mut out = format!("# The seeds' figures again: {name}\n\n");
    out += "Clusters of hosts (network namespaces) on one machine, with links that let pass a thousandth or a tenth of those in the documents.\n";
    out += "LIMIT is plain TCP (`iperf3`) between the same hosts in the same run. For devices, which let pass a hundredth of the documents', it is plain files on them (O_DIRECT), all at once. ";
    out += "For times it is the shortest that these limits allow; a share is then limit by figure. ";
    out += preamble;
    let _ = writeln!(out, "![shares of the limit]({name}.svg)\n");
    out += "| place | row | phase | figure | limit | share | document | its share |\n|---|---|---|---|---|---|---|---|\n";
    for figure in figures {
        let limit = figure.limit.map(|limit| format!("{limit:.1} {}", figure.unit)).unwrap_or_default();
        let (words, share) = figure.document.map_or(("", None), |said| (said.words, said.share));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {limit} | {} | {words} | {} |",
            figure.place,
            figure.row,
            figure.phase,
            figure.value(),
            percent(figure.share()),
            percent(share)
        );
    }
    out += "\n## Loads\n\n";
    for figure in figures {
        let _ = writeln!(out, "* {}, {}: {}", figure.row, figure.phase, figure.load);
    }
    out
}

/// Bars of ours above those of the documents, to 100 % of the limit.
fn plot(figures: &[Figure]) -> String {
    let shown: Vec<&Figure> = figures.iter().filter(|figure| figure.limit.is_some()).collect();
    let height = ROW_HEIGHT * shown.len() as f64 + 40.0;
    let width = LABEL_WIDTH + BAR_WIDTH + 90.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LABEL_WIDTH}\" y=\"16\" fill=\"#2a6fc9\">Brindle</text>\
         <text x=\"{}\" y=\"16\" fill=\"#d9601f\">document</text>\
         <text x=\"{}\" y=\"16\" fill=\"#5d6670\">share of the limit</text>\n",
        LABEL_WIDTH + 60.0,
        LABEL_WIDTH + 130.0
    );
    for (n, figure) in shown.iter().enumerate() {
        let top = 30.0 + ROW_HEIGHT * n as f64;
        let label = format!("{}: {}, {}", figure.place, figure.row, figure.phase);
        let _ = writeln!(out, "<text x=\"4\" y=\"{}\" fill=\"#1c1f23\">{label}</text>", top + 15.0);
        let document = figure.document.and_then(|said| said.share);
        for (line, (share, colour)) in
            [(figure.share(), "#2a6fc9"), (document, "#d9601f")].into_iter().enumerate()
        {
            let Some(share) = share else { continue };
            let y = top + (BAR_HEIGHT + 2.0) * line as f64;
            let long = BAR_WIDTH * share.clamp(0.0, 1.1);
            let _ = writeln!(
                out,
                "<rect x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{long:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"10\" fill=\"#5d6670\">{}</text>",
                LABEL_WIDTH + long + 4.0,
                y + 9.0,
                percent(Some(share))
            );
        }
    }
    let right = LABEL_WIDTH + BAR_WIDTH;
    let _ = writeln!(
        out,
        "<line x1=\"{right}\" x2=\"{right}\" y1=\"22\" y2=\"{height}\" stroke=\"#dde1e6\"/>\n</svg>"
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_processors_are_read() {
        let text = "cpu  100 1 20 300 40 0 5 2 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(times_of(text), Some((340, 468)));
        assert_eq!(times_of("cpu  1 2 3\n"), None);
        assert_eq!(times_of(""), None);
    }
}
