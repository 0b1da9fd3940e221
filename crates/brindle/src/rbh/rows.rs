//! Tables as Robinhood prints them: columns joined by a comma, right-aligned, sizes in words or, with `--csv`, in bytes.

use std::fmt::Write as _;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Title of the column.
    pub name: &'static str,
    /// Width with `--csv`.
    csv: usize,
    /// Width otherwise.
    full: usize,
}

const fn column(name: &'static str, width: usize) -> Column {
    Column { name, csv: width, full: width }
}

const fn sized(name: &'static str) -> Column {
    Column { name, csv: 15, full: 10 }
}

pub const PATH: Column = column("path", 40);
pub const TYPE: Column = column("type", 8);
pub const USER: Column = column("user", 10);
pub const GROUP: Column = column("group", 10);
pub const COUNT: Column = column("count", 10);
pub const DIRCOUNT: Column = column("dircount", 8);
pub const FILECLASS: Column = column("fileclass", 30);
pub const STATUS: Column = column("lhsm.status", 15);
pub const LAST_ACCESS: Column = column("last_access", 20);
pub const LAST_MOD: Column = column("last_mod", 20);
pub const STRIPE: Column = column("stripe_cnt, stripe_size,      pool", 35);
pub const STRIPES: Column = column("stripes", 30);
pub const SIZE: Column = sized("size");
pub const VOLUME: Column = sized("volume");
pub const SPC_USED: Column = sized("spc_used");
pub const MIN_SIZE: Column = sized("min_size");
pub const MAX_SIZE: Column = sized("max_size");
pub const AVG_SIZE: Column = sized("avg_size");
pub const AVGSIZE: Column = sized("avgsize");

/// Style of tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether the output is for programs.
    pub csv: bool,
    /// Whether titles and sums are left out.
    pub no_header: bool,
}

impl Style {
    /// A size.
    pub fn size(self, bytes: u64) -> String {
        if self.csv { bytes.to_string() } else { in_words(bytes) }
    }

    /// The line of titles; `ranked` for tables with a rank.
    pub fn titles(self, columns: &[Column], ranked: bool) -> String {
        let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
        let row = self.row(columns, &names);
        if ranked { format!("rank, {row}") } else { row }
    }

    /// A line.
    pub fn row(self, columns: &[Column], cells: &[String]) -> String {
        let mut line = String::new();
        for (n, (column, cell)) in columns.iter().zip(cells).enumerate() {
            let width = if self.csv { column.csv } else { column.full };
            // Writing to a String cannot fail.
            let _ = write!(line, "{}{cell:>width$}", if n == 0 { "" } else { ", " });
        }
        line
    }

    /// A line with its rank.
    pub fn ranked(self, rank: usize, columns: &[Column], cells: &[String]) -> String {
        format!("{rank:>4}, {}", self.row(columns, cells))
    }
}

/// A size with a unit.
pub fn in_words(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// Sums over entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries.
    pub count: u64,
    /// Sum of their sizes.
    pub size_bytes: u64,
    /// Space that they take.
    pub used_bytes: u64,
    min_bytes: u64,
    max_bytes: u64,
}

impl Stats {
    /// Adds an entry.
    pub fn add(&mut self, size_bytes: u64, used_bytes: u64) {
        self.min_bytes = if self.count == 0 { size_bytes } else { self.min_bytes.min(size_bytes) };
        self.max_bytes = self.max_bytes.max(size_bytes);
        self.count += 1;
        self.size_bytes = self.size_bytes.saturating_add(size_bytes);
        self.used_bytes = self.used_bytes.saturating_add(used_bytes);
    }

    /// Average size.
    pub fn average(&self) -> u64 {
        // Rounded, as a database does.
        (self.size_bytes + self.count / 2).checked_div(self.count).unwrap_or(0)
    }

    /// Cells of [`Stats::COLUMNS`].
    pub fn cells(&self, style: Style) -> Vec<String> {
        let sizes = [self.size_bytes, self.used_bytes, self.min_bytes, self.max_bytes, self.average()];
        std::iter::once(self.count.to_string()).chain(sizes.map(|bytes| style.size(bytes))).collect()
    }

    /// Columns of [`Stats::cells`].
    pub const COLUMNS: [Column; 6] = [COUNT, VOLUME, SPC_USED, MIN_SIZE, MAX_SIZE, AVG_SIZE];
}

/// The line below a table.
pub fn total(all: &[Stats]) -> String {
    let sum = |of: fn(&Stats) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    let (count, size, used) = (sum(|s| s.count), sum(|s| s.size_bytes), sum(|s| s.used_bytes));
    format!(
        "\nTotal: {count} entries, volume: {size} bytes ({}), space used: {used} bytes ({})",
        in_words(size),
        in_words(used)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_look_as_robinhoods() {
        let columns = [&[TYPE][..], &Stats::COLUMNS].concat();
        let (words, csv) = (Style::default(), Style { csv: true, no_header: false });
        assert_eq!(
            words.titles(&columns, false),
            "    type,      count,     volume,   spc_used,   min_size,   max_size,   avg_size"
        );
        let mut stats = Stats::default();
        [(0, 0), (1536, 4096), (3 << 20, 3 << 20)].iter().for_each(|(size, used)| stats.add(*size, *used));
        let row = |style: Style| {
            let cells: Vec<String> = std::iter::once("file".to_owned()).chain(stats.cells(style)).collect();
            style.row(&columns, &cells)
        };
        assert_eq!(
            row(words),
            "    file,          3,    3.00 MB,    3.00 MB,          0,    3.00 MB,    1.00 MB"
        );
        assert_eq!(
            row(csv),
            "    file,          3,         3147264,         3149824,               0,         3145728,         1049088"
        );
        assert_eq!(
            total(&[stats]),
            "\nTotal: 3 entries, volume: 3147264 bytes (3.00 MB), space used: 3149824 bytes (3.00 MB)"
        );
        assert!(words.titles(&[USER], true).starts_with("rank,       user"));
    }

    #[test]
    fn sizes_have_two_decimals() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1024, "1.00 KB"), (1 << 40, "1.00 TB"), (u64::MAX, "16.00 EB")]
        {
            assert_eq!(in_words(bytes), text);
        }
    }
}
