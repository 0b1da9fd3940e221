//! A plot of lines: throughput against threads.

use std::fmt::Write;

use super::{COLOURS, axis, escape};
use crate::run::{Figure, Unit};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 48.0;

/// A line: the figures of a phase in the order of x.
struct Series<'a> {
    name: String,
    points: Vec<(f64, &'a Figure)>,
}

fn series<'a>(figures: &[&'a Figure]) -> Vec<Series<'a>> {
    let mut all: Vec<Series<'a>> = Vec::new();
    for f in figures {
        let point = (f.x.as_ref().map_or(1.0, |x| x.value), *f);
        match all.iter_mut().find(|s| s.name == f.phase) {
            Some(s) => s.points.push(point),
            None => all.push(Series { name: f.phase.clone(), points: vec![point] }),
        }
    }
    for s in &mut all {
        s.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// Places of values on the drawing; x is logarithmic, because threads double.
struct Scale {
    x_min: f64,
    x_max: f64,
    y_max: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        let (low, high) = (self.x_min.log2(), self.x_max.log2());
        let part = if high > low { (value.log2() - low) / (high - low) } else { 0.5 };
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value / self.y_max).min(1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The limit of a figure that a dashed line shows: the first.
fn limit_of(f: &Figure) -> Option<f64> {
    f.limits.first().map(|l| l.summary.median)
}

/// A plot for each case, all on one scale, so that they can be compared.
pub(super) fn plots(figures: &[&Figure], unit: Unit) -> String {
    let tops = figures.iter().flat_map(|f| [Some(f.summary.quartile_3), limit_of(f)]).flatten();
    let ticks = axis::ticks(tops.fold(0.0, f64::max));
    let mut cases: Vec<&str> = Vec::new();
    for f in figures {
        if !cases.contains(&f.case.as_str()) {
            cases.push(&f.case);
        }
    }
    let of_case = |case: &&str| figures.iter().copied().filter(|f| f.case == *case).collect::<Vec<_>>();
    cases.iter().map(|case| plot(case, &of_case(case), unit, &ticks)).collect()
}

/// The plot of one case, with its legend.
fn plot(case: &str, figures: &[&Figure], unit: Unit, ticks: &[f64]) -> String {
    let all = series(figures);
    let xs: Vec<f64> = all.iter().flat_map(|s| s.points.iter().map(|p| p.0.max(f64::MIN_POSITIVE))).collect();
    let scale = Scale {
        x_min: xs.iter().copied().fold(f64::INFINITY, f64::min),
        x_max: xs.iter().copied().fold(0.0, f64::max),
        y_max: ticks.last().copied().unwrap_or(1.0),
    };
    let x_name = figures.iter().find_map(|f| f.x.as_ref()).map_or("", |x| x.name.as_str());
    let (case, against) = (escape(case), escape(x_name));
    let mut out = format!("<figure><figcaption>{case}: {} against {against}</figcaption>\n", unit.text());
    out += &legend(&all);
    let _ = writeln!(out, "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    out += &grid(&scale, ticks, xs, x_name, unit);
    for (n, s) in all.iter().enumerate() {
        out += &line(s, &scale, n % COLOURS.len());
    }
    out + "</svg></figure>\n"
}

fn legend(all: &[Series<'_>]) -> String {
    let mut out = String::from("<div class=\"legend\">");
    for (n, s) in all.iter().enumerate() {
        let colour = n % COLOURS.len();
        let _ = write!(
            out,
            "<span><svg width=\"22\" height=\"10\"><line x1=\"0\" y1=\"5\" x2=\"22\" y2=\"5\" stroke=\"var(--s{colour})\" \
             stroke-width=\"3\"/></svg>{}</span>",
            escape(&s.name)
        );
    }
    let mut limits = all.iter().flat_map(|s| &s.points).filter_map(|p| p.1.limits.first());
    if let Some(limit) = limits.next() {
        let _ = write!(
            out,
            "<span><svg width=\"22\" height=\"10\"><line x1=\"0\" y1=\"5\" x2=\"22\" y2=\"5\" stroke=\"var(--soft)\" \
             stroke-width=\"2\" stroke-dasharray=\"5 4\"/></svg>limit: {}, in the colour of its phase</span>",
            escape(&limit.name)
        );
    }
    out + "</div>\n"
}

fn grid(scale: &Scale, ticks: &[f64], mut xs: Vec<f64>, x_name: &str, unit: Unit) -> String {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let mut out = String::new();
    for tick in ticks {
        let y = scale.y(*tick);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            axis::label(*tick)
        );
    }
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    for value in xs {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            scale.x(value),
            bottom + 18.0,
            axis::label(value)
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"strong\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text class=\"strong\" x=\"14\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {:.1})\">{}</text>",
        (LEFT + right) / 2.0,
        bottom + 40.0,
        escape(x_name),
        (TOP + bottom) / 2.0,
        (TOP + bottom) / 2.0,
        unit.text()
    );
    out
}

fn line(s: &Series<'_>, scale: &Scale, colour: usize) -> String {
    let places = |value: fn(&Figure) -> Option<f64>| {
        let each = s.points.iter().filter_map(|(x, f)| Some((scale.x(*x), scale.y(value(f)?))));
        each.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
    };
    let stroke = format!("fill=\"none\" stroke=\"var(--s{colour})\" stroke-linejoin=\"round\"");
    let mut out = format!(
        "<g><polyline {stroke} stroke-width=\"2.5\" points=\"{}\"/>\n",
        places(|f| Some(f.summary.median))
    );
    let limit = places(limit_of);
    if !limit.is_empty() {
        let _ = writeln!(
            out,
            "<polyline {stroke} stroke-width=\"1.5\" stroke-dasharray=\"5 4\" opacity=\"0.75\" points=\"{limit}\"/>"
        );
    }
    for (x, f) in &s.points {
        let (x, low, high) = (scale.x(*x), scale.y(f.summary.quartile_1), scale.y(f.summary.quartile_3));
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{low:.1}\" x2=\"{x:.1}\" y2=\"{high:.1}\" stroke=\"var(--s{colour})\"/>\
             <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"var(--s{colour})\"><title>{}: {} {}</title></circle>",
            scale.y(f.summary.median),
            escape(&s.name),
            axis::figure(f.summary.median),
            f.unit.text()
        );
    }
    out + "</g>\n"
}
