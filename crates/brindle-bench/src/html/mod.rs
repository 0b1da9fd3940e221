//! A finished run as one page of HTML that needs nothing else: no script, no style sheet, no font; plots are drawn here.
//! Colours follow the reader's light or dark mode.

mod axis;
mod bars;
mod lines;

use std::fmt::Write;

use brindle_stdx::cast::to_i64;

use crate::run::{Figure, Limit, Run, Sample, Unit};

/// Colours of series, in order, for light and dark backgrounds; chosen to be told apart by colour-blind readers too.
const COLOURS: [(&str, &str); 6] = [
    ("#2a6fc9", "#6ea8f5"),
    ("#d9601f", "#f08a4f"),
    ("#148a60", "#3fc190"),
    ("#8a4fbf", "#b98ae6"),
    ("#b0851a", "#d9b04a"),
    ("#c23b6b", "#ea7ba2"),
];

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#ffffff;--text:#1c1f23;--soft:#5d6670;--line:#dde1e6;--card:#f6f7f9}\
@media(prefers-color-scheme:dark){:root{--bg:#15181c;--text:#e6e9ed;--soft:#9aa4af;--line:#333a42;--card:#1d2126}}\
body{margin:0 auto;padding:2rem 1.25rem;max-width:70rem;background:var(--bg);color:var(--text);\
font:15px/1.5 system-ui,sans-serif}\
h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p.sub{color:var(--soft);margin:.2rem 0 0}\
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line);white-space:nowrap}\
th{color:var(--soft);font-weight:600;font-size:.82rem}td.n,th.n{text-align:right}\
.part{display:inline-block;height:.55em;background:var(--s0);border-radius:2px;margin-right:.5em}\
.room{display:inline-block;width:5rem}\
figure{margin:1rem 0;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:1rem}\
figcaption{font-weight:600;margin-bottom:.5rem}.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;font-size:.85rem;\
color:var(--soft);margin-bottom:.4rem}.legend svg{vertical-align:middle;margin-right:.4em}\
svg.plot{width:100%;height:auto;display:block}svg text{fill:var(--soft);font:12px system-ui,sans-serif}\
svg text.strong{fill:var(--text)}.grid{stroke:var(--line);stroke-width:1}details summary{cursor:pointer;color:var(--soft)}\
ul{padding-left:1.2rem}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;margin:0}\
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}";

/// The page.
pub fn page(run: &Run) -> String {
    let title = match &run.label {
        Some(label) => format!("brindle bench {}: {label}", run.workload),
        None => format!("brindle bench {}", run.workload),
    };
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
    out += &format!("<title>{}</title>\n<style>{STYLE}{}</style></head><body>\n", escape(&title), colours());
    out += &format!("<h1>{}</h1>\n<p class=\"sub\">{}</p>\n", escape(&title), escape(&subtitle(run)));
    out += "<h2>Figures</h2>\n";
    out += &figures(run);
    out += "<h2>Plots</h2>\n";
    out += &plots(&run.figures);
    out += "<h2>What a reader has to know</h2>\n<ul>\n";
    for note in run.notes.iter().chain(&run.memory_note()) {
        out += &format!("<li>{}</li>\n", escape(note));
    }
    out += "</ul>\n<h2>Machine and parameters</h2>\n";
    out += &parameters(run);
    out += "<h2>Every repetition</h2>\n<details><summary>Show</summary>\n";
    out += &repetitions(&run.figures);
    out += "</details>\n</body></html>\n";
    out
}

/// The custom properties `--s0` ... of both modes.
fn colours() -> String {
    let mode = |pick: fn(&(&'static str, &'static str)) -> &'static str| {
        COLOURS.iter().enumerate().map(|(n, both)| format!("--s{n}:{};", pick(both))).collect::<String>()
    };
    format!(":root{{{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}", mode(|c| c.0), mode(|c| c.1))
}

fn subtitle(run: &Run) -> String {
    let dirs = run.directories.iter().map(|d| format!("{} ({})", d.path, d.file_system));
    let dirs = dirs.collect::<Vec<_>>().join(" and ");
    let took = format!("{} UTC, took {:.0} s", time(run.started_unix_seconds), run.duration_seconds);
    if dirs.is_empty() {
        format!("{took}, {}", run.program)
    } else {
        format!("{dirs}; {took}, {}", run.program)
    }
}

fn figures(run: &Run) -> String {
    let mut names: Vec<&str> = Vec::new();
    for limit in run.figures.iter().flat_map(|f| &f.limits) {
        if !names.contains(&limit.name.as_str()) {
            names.push(&limit.name);
        }
    }
    let with_x = run.figures.iter().find_map(|f| f.x.as_ref()).map(|x| x.name.as_str());
    let mut out = String::from("<div class=\"scroll\"><table><tr><th>Case</th>");
    if let Some(name) = with_x {
        let _ = write!(out, "<th class=\"n\">{}</th>", escape(name));
    }
    out += "<th>Phase</th><th class=\"n\">Median</th><th class=\"n\">Quartiles</th><th>Unit</th>";
    for name in &names {
        let _ = write!(out, "<th class=\"n\">{0}</th><th>of {0}</th>", escape(name));
    }
    out += "<th class=\"n\">CPU s/GiB</th><th class=\"n\">CPU us/op</th></tr>\n";
    for f in &run.figures {
        out += &row(f, with_x.is_some(), &names);
    }
    out + "</table></div>\n"
}

fn row(f: &Figure, with_x: bool, limits: &[&str]) -> String {
    let number = |text: &str| format!("<td class=\"n\">{text}</td>");
    let mut out = format!("<tr><td>{}</td>", escape(&f.case));
    if with_x {
        out += &number(&f.x.as_ref().map(|x| x.value.to_string()).unwrap_or_default());
    }
    out += &format!("<td>{}</td>", escape(&f.phase));
    out += &number(&format!("<b>{}</b>", axis::figure(f.summary.median)));
    let (low, high) = (axis::figure(f.summary.quartile_1), axis::figure(f.summary.quartile_3));
    out += &number(&format!("{low} \u{2013} {high}"));
    out += &format!("<td>{}</td>", f.unit.text());
    for name in limits {
        let found: Option<&Limit> = f.limits.iter().find(|limit| limit.name == *name);
        out += &number(&found.map_or("-".to_owned(), |l| axis::figure(l.summary.median)));
        out += &found.map_or("<td>-</td>".to_owned(), |l| part(l.fraction));
    }
    let cost = |value: Option<f64>| value.map_or("-".to_owned(), axis::figure);
    let per_gib = f.cpu_seconds_per_gib.filter(|_| f.unit == Unit::MibPerSecond);
    out + &number(&cost(per_gib)) + &number(&cost(f.cpu_microseconds_per_operation)) + "</tr>\n"
}

/// A fraction as a bar and a number; beyond the whole the bar is full.
fn part(fraction: f64) -> String {
    let width = (fraction * 5.0).clamp(0.0, 5.0);
    format!(
        "<td><span class=\"room\"><span class=\"part\" style=\"width:{width:.2}rem\"></span></span>{}</td>",
        crate::stats::percent(fraction)
    )
}

/// Lines where something is varied, bars where not; one plot for each unit.
fn plots(figures: &[Figure]) -> String {
    let mut units: Vec<Unit> = Vec::new();
    for f in figures {
        if !units.contains(&f.unit) {
            units.push(f.unit);
        }
    }
    let mut out = String::new();
    for unit in units {
        let of_unit = || figures.iter().filter(move |f| f.unit == unit);
        let varied: Vec<&Figure> = of_unit().filter(|f| f.x.is_some()).collect();
        let single: Vec<&Figure> = of_unit().filter(|f| f.x.is_none()).collect();
        out += &lines::plots(&varied, unit);
        if !single.is_empty() {
            out += &bars::plot(&single, unit);
        }
    }
    out
}

fn parameters(run: &Run) -> String {
    let m = &run.machine;
    let mut out = String::from("<dl>");
    let mut entry = |name: &str, value: &str| {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    entry("processor", &format!("{} cores, {}", m.cores, m.processor.as_deref().unwrap_or("unknown model")));
    if let Some(bytes) = m.memory_bytes {
        entry("memory", &brindle_types::units::format_bytes(bytes));
    }
    entry("kernel", &m.kernel);
    for (name, value) in &run.parameters {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        entry(name, &text);
    }
    out + "</dl>\n"
}

fn repetitions(figures: &[Figure]) -> String {
    let mut out = String::from(
        "<div class=\"scroll\"><table><tr><th>Case</th><th>Phase</th><th class=\"n\">Value</th><th>Unit</th>\
         <th class=\"n\">Seconds</th><th class=\"n\">Operations</th><th class=\"n\">Bytes</th>\
         <th class=\"n\">CPU s</th><th class=\"n\">CPU of benchmark s</th><th class=\"n\">CPU of machine s</th></tr>\n",
    );
    for f in figures {
        let case = match &f.x {
            Some(x) => format!("{}, {} {}", f.case, x.value, x.name),
            None => f.case.clone(),
        };
        for s in &f.samples {
            out += &repetition(&case, f, s);
        }
    }
    out + "</table></div>\n"
}

fn repetition(case: &str, f: &Figure, s: &Sample) -> String {
    let cpu = s.cpu_seconds.map_or("-".to_owned(), axis::figure);
    let numbers = [
        axis::figure(s.seconds),
        s.operations.to_string(),
        s.bytes.to_string(),
        cpu,
        axis::figure(s.benchmark_cpu_seconds),
        axis::figure(s.machine_cpu_seconds),
    ];
    let numbers: String = numbers.iter().map(|n| format!("<td class=\"n\">{n}</td>")).collect();
    format!(
        "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td>{numbers}</tr>\n",
        escape(case),
        escape(&f.phase),
        axis::figure(s.value),
        f.unit.text()
    )
}

/// Text as HTML shows it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `2026-11-22 10:54` of seconds since 1970.
fn time(unix_seconds: u64) -> String {
    let (days, second) = (to_i64(unix_seconds / 86_400), unix_seconds % 86_400);
    // Days are counted in eras of 400 years that begin on the first of March, so that leap days come last.
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::RunClock;
    use crate::run::X;

    fn figure(case: &str, phase: &str, threads: Option<f64>, rate: f64) -> Figure {
        let sample = |factor: f64| {
            let made = Sample { seconds: factor / rate, bytes: 1 << 20, operations: 1, ..Sample::default() };
            made.valued(Unit::MibPerSecond)
        };
        let x = threads.map(|value| X { name: "threads".to_owned(), value });
        let samples = vec![sample(1.0), sample(1.1), sample(0.9)];
        let mut figure = Figure::new(case, phase, Unit::MibPerSecond, x, samples).expect("samples");
        figure.limit("disk", &[rate * 2.0]);
        figure
    }

    fn balanced(page: &str) {
        for tag in ["table", "svg", "figure", "dl", "ul", "details", "div", "tr", "td", "g", "style"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "<{tag}>");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "every place is a number");
        assert!(!page.contains("<script") && !page.contains("http"), "the page needs nothing else");
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let mut run = RunClock::start().run(
            "ior",
            vec!["a < b & c".to_owned()],
            vec![figure("easy", "write", None, 500.0)],
        );
        run.label = Some("<commit>".to_owned());
        let page = page(&run);
        balanced(&page);
        assert!(page.contains("<title>brindle bench ior: &lt;commit&gt;</title>"));
        assert!(page.contains("<li>a &lt; b &amp; c</li>"));
        assert!(page.contains("50 %"));
    }

    #[test]
    fn a_sweep_is_drawn_as_lines() {
        let counts = [1.0, 2.0, 4.0, 256.0];
        let figures = counts.iter().flat_map(|n| {
            ["write", "read"].map(|phase| figure("file per thread", phase, Some(*n), 100.0 * n.sqrt()))
        });
        let run = RunClock::start().run("threads", Vec::new(), figures.collect());
        let page = page(&run);
        balanced(&page);
        assert_eq!(page.matches("<polyline").count(), 4, "two phases and the limit of each");
    }

    #[test]
    fn a_run_without_figures_is_a_page_too() {
        balanced(&page(&RunClock::start().run("ior", Vec::new(), Vec::new())));
    }

    #[test]
    fn times_are_civil() {
        assert_eq!(time(0), "1970-01-01 00:00");
        assert_eq!(time(951_782_399), "2000-02-28 23:59");
        assert_eq!(time(951_782_400), "2000-02-29 00:00");
        assert_eq!(time(1_795_344_840), "2026-11-22 10:54");
    }
}
