//! Reads the numbers that daemons publish (OpenMetrics text).

/// Most series that are taken from one daemon.
pub const SERIES_MAX: usize = 20_000;

/// A metric with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Series<'a> {
    /// Name, such as `brindle_oss_read_bytes_total`.
    pub name: &'a str,
    /// Labels as they stand between the braces.
    labels: &'a str,
    /// The number.
    pub value: f64,
}

impl<'a> Series<'a> {
    /// The value of a label. Names of targets and operations have no escapes in them.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while !rest.is_empty() {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = after.split_once('"')?;
            if key == name {
                return Some(value);
            }
            rest = after.trim_start_matches(',');
        }
        None
    }
}

/// All series of a text, [`SERIES_MAX`] at most. Lines that are none are passed over.
pub fn parse(text: &str) -> impl Iterator<Item = Series<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(series).take(SERIES_MAX)
}

fn series(line: &str) -> Option<Series<'_>> {
    let (head, value) = line.rsplit_once(' ')?;
    let value = value.parse::<f64>().ok().filter(|value| value.is_finite())?;
    match head.split_once('{') {
        Some((name, labels)) => Some(Series { name, labels: labels.strip_suffix('}')?, value }),
        None => Some(Series { name: head, labels: "", value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_daemon_is_read() {
        let registry = brindle_telemetry_text();
        let found: Vec<_> = parse(&registry).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!((found[0].name, found[0].value), ("brindle_oss_reads_total", 7.0));
        assert_eq!(found[0].label("target"), Some("dev-OST0000"));
        assert_eq!(found[1].label("op"), Some("create"));
        assert_eq!(found[1].label("none"), None);
        assert_eq!((found[2].name, found[2].label("target")), ("brindle_process_threads", None));
    }

    fn brindle_telemetry_text() -> String {
        "# HELP brindle_oss_reads Reads.\n# TYPE brindle_oss_reads counter\n\
         brindle_oss_reads_total{target=\"dev-OST0000\"} 7\n\
         brindle_mds_operations_total{op=\"create\",target=\"dev-MDT0000\"} 1.5\n\
         brindle_process_threads 12\n\
         broken{x 1\nbroken NaN\nbroken\n# EOF\n"
            .to_owned()
    }

    #[test]
    fn garbage_is_passed_over_and_bounded() {
        for text in ["", "{", "a{b=\"} 1", "a{=\"\"} 1", "\u{e9}{\"} 1 2 3", "a{b=\"c\"d=\"e} 1"] {
            for series in parse(text) {
                let _ = series.label("b");
            }
        }
        let many = "a 1\n".repeat(SERIES_MAX + 10);
        assert_eq!(parse(&many).count(), SERIES_MAX);
    }
}
