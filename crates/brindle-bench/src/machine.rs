//! The machine of a run: what matters for its figures, and nothing that names it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cores, memory, kernel, processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// Model of the processor, where the kernel tells it.
    pub processor: Option<String>,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// Release of the kernel, numbers only: what distributions add may name a builder.
    pub kernel: String,
}

impl Machine {
    /// Description of this machine.
    pub fn this() -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor(&text("/proc/cpuinfo")),
            memory_bytes: memory_bytes(&text("/proc/meminfo")),
            kernel: kernel(&text("/proc/sys/kernel/osrelease")),
        }
    }
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    line.map(|(_, name)| name.trim().to_owned())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
}

fn kernel(release: &str) -> String {
    release.trim().split('-').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_is_told() {
        assert_eq!(kernel("6.12.3-builder-host\n"), "6.12.3");
        assert_eq!(memory_bytes("MemTotal:       1024 kB\nMemFree: 3 kB\n"), Some(1 << 20));
        assert_eq!(processor("vendor\nmodel name\t: Fast 9000\n").as_deref(), Some("Fast 9000"));
        assert!(Machine::this().cores >= 1);
    }
}
