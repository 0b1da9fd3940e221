//! Pinning a server to a NUMA node: its threads run on the node's processors only. Memory that they touch first is
//! therefore the node's, too.

use std::path::Path;

use brindle_types::{Code, Fault, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Directory in which the kernel shows the nodes.
const NODES: &str = "/sys/devices/system/node";
/// Longest list of processors that is read.
const CPUS_MAX: usize = CpuSet::MAX_CPU;

/// Pins this thread, and those that it starts later.
pub fn pin(node: u32) -> Result<()> {
    let cpus = cpus_of(Path::new(NODES), node)?;
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).map_err(|e| {
        Fault::io(Code::BadConfigValue, "cannot run on NUMA node", node.to_string(), &e.into())
            .why(format!("its processors are {cpus:?}"))
    })?;
    tracing::info!(node, cpus = cpus.len(), "pinned to a NUMA node");
    Ok(())
}

/// The processors of a node.
fn cpus_of(nodes: &Path, node: u32) -> Result<Vec<usize>> {
    let refuse = |why: String| {
        Fault::new(Code::BadConfigValue).what("cannot run on NUMA node").subject(node.to_string()).why(why)
    };
    let path = nodes.join(format!("node{node}/cpulist"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(match nodes_of(nodes)[..] {
                [] => refuse("this machine shows no NUMA nodes".to_owned()).next("leave numa-node out"),
                ref known => {
                    let nearest = known.iter().min_by_key(|n| n.abs_diff(node)).copied().unwrap_or(0);
                    let shown: Vec<String> = known.iter().map(ToString::to_string).collect();
                    refuse(format!("the nodes of this machine are: {}", shown.join(", ")))
                        .next(format!("the nearest one is {nearest}"))
                }
            });
        }
        Err(e) => return Err(refuse(format!("{}: {e}", path.display()))),
    };
    let cpus = parse(text.trim()).ok_or_else(|| refuse(format!("cannot understand '{}'", text.trim())))?;
    if cpus.is_empty() {
        return Err(
            refuse("it has memory, and no processors".to_owned()).next("give a node that has processors")
        );
    }
    Ok(cpus)
}

/// The nodes that there are, in order.
fn nodes_of(nodes: &Path) -> Vec<u32> {
    let names = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    let numbers = names.filter_map(|e| e.file_name().to_str()?.strip_prefix("node")?.parse().ok());
    let mut found: Vec<u32> = numbers.collect();
    found.sort_unstable();
    found
}

/// `0-3,8`; `None` for anything else.
fn parse(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if last < first || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse(""), Some(Vec::new()));
        for wrong in ["3-1", "x", "0-99999999", "1-"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_with_the_nearest() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(cpus_of(dir.path(), 0).unwrap_err().next, "leave numa-node out");
        for (node, cpus) in [(0, "0-1\n"), (2, "2,3\n"), (4, "\n")] {
            std::fs::create_dir(dir.path().join(format!("node{node}"))).unwrap();
            std::fs::write(dir.path().join(format!("node{node}/cpulist")), cpus).unwrap();
        }
        assert_eq!(cpus_of(dir.path(), 2), Ok(vec![2, 3]));
        assert_eq!(cpus_of(dir.path(), 4).unwrap_err().why, ["it has memory, and no processors"]);
        assert_eq!(
            cpus_of(dir.path(), 9).unwrap_err().to_string(),
            "cannot run on NUMA node 9\
             \n  why:  the nodes of this machine are: 0, 2, 4\
             \n  next: the nearest one is 4\
             \n  code: E1003 (brindle explain E1003)"
        );
    }
}
