//! The machine of a run: the facts that matter for its figures, without its name.

use std::path::Path;

use serde_json::{Value, json};

use crate::run::capture;

/// Cores, kernel, memory, processor.
pub fn describe() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let kernel = capture("uname", &["-r"]).unwrap_or_default();
    // Only the numbers of the release; what distributions add may name a builder.
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "processor": model.map(|(_, name)| name),
        "kernel": kernel,
        "memory_bytes": kib.and_then(|n| n.parse::<u64>().ok()).map(|n| n * 1024),
        "local_file_system": file_system(Path::new("/var/tmp")),
    })
}

/// The kind of file system that holds a path.
pub fn file_system(path: &Path) -> String {
    let path = path.display().to_string();
    let kind = capture("stat", &["-f", "-c", "%T", &path]).unwrap_or_default();
    match kind.trim() {
        "ext2/ext3" => "ext4".to_owned(),
        "" => "the local file system".to_owned(),
        other => other.to_owned(),
    }
}
