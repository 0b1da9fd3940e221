//! The table of ratios: the runs, and the ratio that Brindle has to reach in each row.

use std::path::Path;

use super::scale::Scale;
use super::system::Role;

/// Workloads that one run of `brindle bench` does.
pub struct Group {
    /// Name of the group on the command line.
    pub name: &'static str,
    /// Whether it goes through one mount and through two, where a system has two.
    pub two_mounts: bool,
    /// Arguments of `brindle bench`.
    pub arguments: fn(&Scale, &Path) -> Vec<String>,
}

impl Group {
    /// Files and directories that are there at once where there are many, as many as a FUSE daemon has to know.
    pub fn inodes(&self, scale: &Scale) -> u32 {
        match self.name {
            "tree" => scale.entries,
            "ls" => scale.listed,
            "mdtest-easy" | "mdtest-hard" => 2 * scale.files,
            _ => 0,
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// All groups, in the order in which they run.
pub const GROUPS: &[Group] = &[
    Group {
        name: "easy",
        two_mounts: false,
        arguments: |s, _| words(&format!("ior --ranks 2 --case easy --size {}", s.ior)),
    },
    Group {
        name: "shared",
        two_mounts: true,
        arguments: |s, _| words(&format!("ior --ranks 2 --case segmented,strided --size {}", s.ior)),
    },
    Group {
        name: "hard",
        two_mounts: true,
        arguments: |s, _| words(&format!("ior --ranks 2 --case hard --size {}", s.ior)),
    },
    Group {
        name: "random",
        two_mounts: false,
        arguments: |s, _| words(&format!("random --ranks 2 --size {} --seconds {}", s.random.0, s.random.1)),
    },
    Group {
        name: "mdtest-easy",
        two_mounts: false,
        arguments: |s, _| words(&format!("mdtest --ranks 2 --case easy --files {}", s.files)),
    },
    Group {
        name: "mdtest-hard",
        two_mounts: true,
        arguments: |s, _| words(&format!("mdtest --ranks 2 --case hard --files {}", s.files)),
    },
    Group {
        name: "tree",
        two_mounts: false,
        arguments: |s, source| {
            let source = source.display().to_string();
            let entries = s.entries.to_string();
            ["tree", "--source", &source, "--entries", &entries].map(str::to_owned).to_vec()
        },
    },
    Group {
        name: "ls",
        two_mounts: false,
        arguments: |s, _| words(&format!("ls --ranks 2 --files {}", s.listed)),
    },
];

/// First group of every run: it writes much and takes seconds.
pub const WARM_UP: &Group = &GROUPS[0];

/// Reference of a row beside the best peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Local ext4 on an image.
    Ext4,
    /// The passthrough.
    Passthrough,
    /// Brindle's own file per process.
    OwnEasy,
}

impl Beside {
    /// The role of the system that it is, unless it is Brindle itself.
    pub fn role(self) -> Role {
        match self {
            Beside::Ext4 => Role::Local,
            Beside::Passthrough => Role::Passthrough,
            Beside::OwnEasy => Role::Ours,
        }
    }

    /// Text in the table.
    pub fn text(self) -> &'static str {
        match self {
            Beside::Ext4 => "ext4",
            Beside::Passthrough => "passthrough",
            Beside::OwnEasy => "own N-to-N",
        }
    }
}

/// A row of the table: a phase of a case.
pub struct Row {
    /// Name of the row, for people.
    pub name: &'static str,
    /// The group that measures it.
    pub group: &'static str,
    /// Beginning of the name of its case.
    pub case: &'static str,
    /// The phase.
    pub phase: &'static str,
    /// Wanted multiple of the speed of the best peer.
    pub peers: f64,
    /// Wanted multiple of another reference.
    pub beside: Option<(Beside, f64)>,
}

const fn row(
    name: &'static str,
    (group, case, phase): (&'static str, &'static str, &'static str),
    peers: f64,
    beside: Option<(Beside, f64)>,
) -> Row {
    Row { name, group, case, phase, peers, beside }
}

const SEGMENTED: &str = "shared file, one piece each";
const STRIDED: &str = "shared file, in turns";

/// The table of what is to be reached.
pub const ROWS: &[Row] = &[
    row("IOR easy write", ("easy", "easy", "write"), 2.0, Some((Beside::Ext4, 0.8))),
    row("IOR easy read", ("easy", "easy", "read"), 1.5, Some((Beside::Ext4, 0.5))),
    row("IOR shared segmented write", ("shared", SEGMENTED, "write"), 1.5, Some((Beside::OwnEasy, 0.9))),
    row("IOR shared segmented read", ("shared", SEGMENTED, "read"), 1.5, Some((Beside::OwnEasy, 0.9))),
    row("IOR shared strided write", ("shared", STRIDED, "write"), 1.5, Some((Beside::OwnEasy, 0.9))),
    row("IOR shared strided read", ("shared", STRIDED, "read"), 1.5, Some((Beside::OwnEasy, 0.9))),
    row("IOR hard write", ("hard", "hard", "write"), 2.0, Some((Beside::Passthrough, 0.8))),
    row("IOR hard read", ("hard", "hard", "read"), 1.5, Some((Beside::Passthrough, 0.8))),
    row("random 4 KiB write", ("random", "4 KiB", "write"), 2.0, Some((Beside::Passthrough, 0.5))),
    row("random 4 KiB read", ("random", "4 KiB", "read"), 2.0, Some((Beside::Passthrough, 0.5))),
    row("mdtest easy create", ("mdtest-easy", "easy", "create"), 1.5, Some((Beside::Passthrough, 1.0))),
    row("mdtest easy stat", ("mdtest-easy", "easy", "stat"), 1.5, None),
    row("mdtest easy remove", ("mdtest-easy", "easy", "remove"), 1.5, None),
    row("mdtest hard create", ("mdtest-hard", "hard", "create"), 3.0, Some((Beside::Ext4, 1.0))),
    row("mdtest hard stat", ("mdtest-hard", "hard", "stat"), 1.5, None),
    row("mdtest hard read", ("mdtest-hard", "hard", "read"), 3.0, None),
    row("mdtest hard remove", ("mdtest-hard", "hard", "remove"), 1.5, None),
    row("untar + fsync", ("tree", "", "untar + fsync"), 1.5, Some((Beside::Passthrough, 0.8))),
    row("tar (read)", ("tree", "", "tar (read)"), 1.5, Some((Beside::Passthrough, 0.8))),
    row("find", ("tree", "", "find -size"), 1.0, Some((Beside::Passthrough, 0.8))),
    row("du", ("tree", "", "du -s"), 1.0, Some((Beside::Passthrough, 0.8))),
    row("rm -rf", ("tree", "", "rm -rf"), 1.0, Some((Beside::Passthrough, 0.8))),
    row("ls -l", ("ls", "", "ls -l"), 2.0, None),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_measured_and_every_group_has_a_row() {
        for row in ROWS {
            assert!(GROUPS.iter().any(|group| group.name == row.group), "{}", row.name);
        }
        for group in GROUPS {
            assert!(ROWS.iter().any(|row| row.group == group.name), "{}", group.name);
        }
    }
}
