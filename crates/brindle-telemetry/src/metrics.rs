//! Counters, gauges and histograms, and the registry that shows them.
//!
//! Names are `brindle_<service>_<noun>_<unit>` (counters end in `_total`, which the encoder adds). A registry carries
//! labels, so that several targets of one process write their own series of one family:
//! `registry.label("target", "scratch-OST0000")`. Families and series are shown in the order of their names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Most series of one family; further ones are counted in one series with the label `overflow`.
const SERIES_MAX: usize = 4096;
/// Upper bounds of a histogram's buckets in seconds; longer times go into the last bucket.
const BUCKETS_SECONDS: [f64; 16] = [
    0.000_05,
    0.000_1,
    0.000_2,
    0.000_5,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.5,
    1.0,
    5.0,
    30.0,
    f64::MAX,
];

type Labels = Vec<(String, String)>;

/// Kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// Counts events; cheap to clone and to raise.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Replaces it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Changes it by `n`.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Histogram of durations.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    counts: [AtomicU64; BUCKETS_SECONDS.len()],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Histogram(Arc::new(Buckets { counts, sum_ns: AtomicU64::new(0) }))
    }
}

impl Histogram {
    /// Adds one duration.
    pub fn observe_ns(&self, ns: u64) {
        let seconds = ns as f64 / 1e9;
        let at =
            BUCKETS_SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS_SECONDS.len() - 1);
        self.0.counts[at].fetch_add(1, Ordering::Relaxed);
        self.0.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Number of durations that were added.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }
}

/// The values of a label, and the number of each.
type List = dyn Fn() -> Vec<(String, f64)> + Send + Sync;

enum Source {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    Read(Kind, Box<dyn Fn() -> f64 + Send + Sync>),
    /// A series for each value of a label.
    List(Kind, String, Box<List>),
}

impl Source {
    fn metric_type(&self) -> MetricType {
        match self {
            Source::Counter(_) | Source::Read(Kind::Counter, _) | Source::List(Kind::Counter, ..) => {
                MetricType::Counter
            }
            Source::Gauge(_) | Source::Read(Kind::Gauge, _) | Source::List(Kind::Gauge, ..) => {
                MetricType::Gauge
            }
            Source::Histogram(_) => MetricType::Histogram,
        }
    }

    /// The series of a list.
    fn listed(&self) -> Option<Vec<(String, f64)>> {
        match self {
            Source::List(_, _, list) => Some(list()),
            Source::Counter(_) | Source::Gauge(_) | Source::Histogram(_) | Source::Read(..) => None,
        }
    }

    fn encode(&self, encoder: &mut MetricEncoder) -> Result<(), fmt::Error> {
        match self {
            Source::Counter(c) => encoder.encode_counter::<NoLabelSet, u64, f64>(&c.get(), None),
            Source::Gauge(g) => encoder.encode_gauge(&g.get()),
            Source::Read(kind, read) => encode_number(encoder, *kind, read()),
            Source::List(..) => Ok(()),
            Source::Histogram(h) => {
                let counts = h.0.counts.iter().map(|c| c.load(Ordering::Relaxed));
                let buckets: Vec<(f64, u64)> = BUCKETS_SECONDS.into_iter().zip(counts).collect();
                let count = buckets.iter().map(|(_, n)| n).sum();
                let sum = h.0.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
                encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            }
        }
    }
}

fn encode_number(encoder: &mut MetricEncoder, kind: Kind, value: f64) -> Result<(), fmt::Error> {
    match kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        Kind::Gauge => encoder.encode_gauge(&value),
    }
}

struct Family {
    help: String,
    series: BTreeMap<Labels, Source>,
}

#[derive(Default)]
struct Families(Mutex<BTreeMap<String, Family>>);

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} families", self.0.lock().len())
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for (name, family) in &*self.0.lock() {
            let Some(first) = family.series.values().next() else { continue };
            let lists: Vec<Option<Vec<(String, f64)>>> = family.series.values().map(Source::listed).collect();
            // A family without a series says nothing.
            if lists.iter().all(|list| list.as_ref().is_some_and(Vec::is_empty)) {
                continue;
            }
            let mut metric = encoder.encode_descriptor(name, &family.help, None, first.metric_type())?;
            for ((labels, source), list) in family.series.iter().zip(lists) {
                if let (Source::List(kind, label, _), Some(list)) = (source, list) {
                    for (value, number) in list.into_iter().take(SERIES_MAX) {
                        let mut labels = labels.clone();
                        labels.push((label.clone(), value));
                        encode_number(&mut metric.encode_family(&labels)?, *kind, number)?;
                    }
                } else if labels.is_empty() {
                    source.encode(&mut metric)?;
                } else {
                    source.encode(&mut metric.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}

/// Collection of the metrics of a process; clones share them.
#[derive(Clone)]
pub struct Registry {
    families: Arc<Families>,
    shown: Arc<prometheus_client::registry::Registry>,
    service: &'static str,
    labels: Labels,
}

impl Registry {
    /// An empty registry for `service` (`mgs`, `mds`, `oss`, `client`, `process`).
    pub fn new(service: &'static str) -> Registry {
        let families = Arc::new(Families::default());
        let mut shown = prometheus_client::registry::Registry::default();
        shown.register_collector(Box::new(families.clone()));
        Registry { families, shown: Arc::new(shown), service, labels: Vec::new() }
    }

    /// Collection for another service of the process; it shares the metrics.
    pub fn service(&self, service: &'static str) -> Registry {
        Registry { service, ..self.clone() }
    }

    /// Collection that shares the metrics; metrics made through it carry one more label.
    pub fn label(&self, key: &str, value: impl Into<String>) -> Registry {
        let mut with = self.clone();
        with.labels.push((key.to_owned(), value.into()));
        with
    }

    /// Forgets all series with a label: the labelled object is gone.
    pub fn forget(&self, key: &str, value: &str) {
        let has = |labels: &Labels| labels.iter().any(|(k, v)| k == key && v == value);
        for family in self.families.0.lock().values_mut() {
            family.series.retain(|labels, _| !has(labels));
        }
    }

    /// A counter `brindle_<service>_<noun_unit>_total`. Asked for again, it is the same counter.
    pub fn counter(&self, noun_unit: &str, help: &str) -> Counter {
        let make = || Source::Counter(Counter::default());
        self.series(noun_unit, help, make, |s| match s {
            Source::Counter(c) => Some(c.clone()),
            _ => None,
        })
    }

    /// A gauge `brindle_<service>_<noun_unit>`.
    pub fn gauge(&self, noun_unit: &str, help: &str) -> Gauge {
        let make = || Source::Gauge(Gauge::default());
        self.series(noun_unit, help, make, |s| match s {
            Source::Gauge(g) => Some(g.clone()),
            _ => None,
        })
    }

    /// A histogram of durations `brindle_<service>_<noun>_seconds`.
    pub fn histogram(&self, noun_seconds: &str, help: &str) -> Histogram {
        let make = || Source::Histogram(Histogram::default());
        self.series(noun_seconds, help, make, |s| match s {
            Source::Histogram(h) => Some(h.clone()),
            _ => None,
        })
    }

    /// A number that lies elsewhere (an atomic of a service) and is read when somebody looks. The last one given for
    /// a name and its labels counts.
    pub fn read(
        &self,
        noun_unit: &str,
        help: &str,
        kind: Kind,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let mut families = self.families.0.lock();
        let family = family(&mut families, self.name(noun_unit), help);
        let labels = room(family, self.labels.clone());
        family.series.insert(labels, Source::Read(kind, Box::new(read)));
    }

    /// Registers numbers that lie elsewhere and come and go: one series for each value of `label`. The code that lists
    /// them must bound their number.
    pub fn list(
        &self,
        noun_unit: &str,
        help: &str,
        kind: Kind,
        label: &str,
        list: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static,
    ) {
        let mut families = self.families.0.lock();
        let family = family(&mut families, self.name(noun_unit), help);
        let labels = room(family, self.labels.clone());
        family.series.insert(labels, Source::List(kind, label.to_owned(), Box::new(list)));
    }

    /// Text of all metrics in OpenMetrics form.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let encoded = prometheus_client::encoding::text::encode(&mut text, &self.shown);
        encoded.expect("writing to a string cannot fail");
        text
    }

    fn name(&self, noun_unit: &str) -> String {
        format!("brindle_{}_{noun_unit}", self.service)
    }

    fn series<T: Default>(
        &self,
        noun_unit: &str,
        help: &str,
        make: impl FnOnce() -> Source,
        get: impl Fn(&Source) -> Option<T>,
    ) -> T {
        let mut families = self.families.0.lock();
        let family = family(&mut families, self.name(noun_unit), help);
        let labels = room(family, self.labels.clone());
        let found = get(family.series.entry(labels).or_insert_with(make));
        assert!(found.is_some(), "{} is used as two kinds of metric", self.name(noun_unit));
        found.unwrap_or_default()
    }
}

fn family<'a>(families: &'a mut BTreeMap<String, Family>, name: String, help: &str) -> &'a mut Family {
    families.entry(name).or_insert_with(|| Family { help: help.to_owned(), series: BTreeMap::new() })
}

/// The labels under which a series is kept: its own while there is room.
fn room(family: &Family, labels: Labels) -> Labels {
    if family.series.len() < SERIES_MAX || family.series.contains_key(&labels) {
        return labels;
    }
    vec![("overflow".to_owned(), "true".to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_openmetrics() {
        let r = Registry::new("oss");
        let a = r.label("target", "scratch-OST0000");
        let b = r.label("target", "scratch-OST0001");
        a.counter("written_bytes", "Bytes written by clients").add(5);
        a.counter("written_bytes", "Bytes written by clients").add(2);
        b.counter("written_bytes", "Bytes written by clients").inc();
        r.service("process").gauge("threads", "Threads").set(-3);
        r.read("free_bytes", "Bytes free", Kind::Gauge, || 0.5);
        assert_eq!(
            r.encode(),
            "# HELP brindle_oss_free_bytes Bytes free\n\
             # TYPE brindle_oss_free_bytes gauge\n\
             brindle_oss_free_bytes 0.5\n\
             # HELP brindle_oss_written_bytes Bytes written by clients\n\
             # TYPE brindle_oss_written_bytes counter\n\
             brindle_oss_written_bytes_total{target=\"scratch-OST0000\"} 7\n\
             brindle_oss_written_bytes_total{target=\"scratch-OST0001\"} 1\n\
             # HELP brindle_process_threads Threads\n\
             # TYPE brindle_process_threads gauge\n\
             brindle_process_threads -3\n\
             # EOF\n"
        );
    }

    #[test]
    fn lists_have_a_series_for_each_value() {
        let r = Registry::new("oss");
        let jobs = || vec![("4711".to_owned(), 2.0), ("dd.0".to_owned(), 0.5)];
        r.label("target", "a").list("job_seconds", "Time", Kind::Counter, "job", jobs);
        r.label("target", "b").list("job_seconds", "Time", Kind::Counter, "job", Vec::new);
        r.list("nobody_seconds", "A family without a series", Kind::Counter, "job", Vec::new);
        assert_eq!(
            r.encode(),
            "# HELP brindle_oss_job_seconds Time\n\
             # TYPE brindle_oss_job_seconds counter\n\
             brindle_oss_job_seconds_total{target=\"a\",job=\"4711\"} 2.0\n\
             brindle_oss_job_seconds_total{target=\"a\",job=\"dd.0\"} 0.5\n\
             # EOF\n"
        );
    }

    #[test]
    fn histograms_count_each_duration_once() {
        let r = Registry::new("mds");
        let h = r.histogram("request_seconds", "Time to answer");
        for ns in [0, 50_000, 50_001, 2_000_000_000, u64::MAX / 4] {
            h.observe_ns(ns);
        }
        let text = r.encode();
        assert!(text.contains("brindle_mds_request_seconds_bucket{le=\"0.00005\"} 2\n"), "{text}");
        assert!(text.contains("brindle_mds_request_seconds_bucket{le=\"+Inf\"} 5\n"), "{text}");
        assert!(text.contains("brindle_mds_request_seconds_count 5\n"), "{text}");
    }

    #[test]
    fn families_are_bounded() {
        let r = Registry::new("x");
        for n in 0..SERIES_MAX + 10 {
            r.label("n", n.to_string()).counter("things", "Things").inc();
        }
        let text = r.encode();
        assert!(text.contains("brindle_x_things_total{overflow=\"true\"} 10\n"));
    }
}
