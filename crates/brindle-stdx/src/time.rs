//! Points in time: monotonic ones that leases are measured with, civil ones that people see.

/// Monotonic nanoseconds since an arbitrary origin of this host's boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The point `ms` milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Mono {
        Mono(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Milliseconds from `earlier` to this point; 0 when `earlier` is later.
    pub fn ms_since(self, earlier: Mono) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

/// Civil time: nanoseconds since 1970-01-01T00:00:00Z, negative before. Covers the years 1677 to 2262 in 64 bits,
/// so seconds and nanoseconds are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Nanoseconds, 0 to 999 999 999.
    pub nanos: u32,
}

impl Timestamp {
    /// Builds a time stamp; `nanos` must be below 1e9.
    pub fn new(secs: i64, nanos: u32) -> Timestamp {
        debug_assert!(nanos < 1_000_000_000, "nanoseconds out of range");
        Timestamp { secs, nanos }
    }
}
