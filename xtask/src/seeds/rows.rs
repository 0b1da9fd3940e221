//! Places and rows. The shares are those of the documents: their figure by the limit that they state, or that follows from the links they name.

/// Length of a phase, in seconds: long enough that what a link lets through at once at the beginning does not count.
pub const SECONDS: u32 = 12;
/// Like `SECONDS`, for a run that only checks that everything works.
pub const SECONDS_QUICK: u32 = 3;

/// A cluster of hosts.
pub struct HostCluster {
    /// Name on the command line.
    pub name: &'static str,
    /// The document, and what stands for what.
    pub about: &'static str,
    /// Hosts with OSTs; the MGS and the MDT have one or two of their own.
    pub oss: u32,
    /// Client hosts.
    pub clients: u32,
    /// Links of each host.
    pub rails: u32,
    /// Rate of each link.
    pub kbit_per_second: u32,
    /// Rate of the links of clients, where it is another.
    pub client_kbit_per_second: Option<u32>,
    /// Stripes of a file that belongs to one process, as words of `lfs setstripe`.
    pub stripes: &'static str,
    /// What the loads run on.
    pub kind: Kind,
    /// Rows of the document.
    pub rows: &'static [Row],
}

/// What the loads of a place run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file system on all servers.
    FileSystem,
    /// A burst buffer on the servers of each load.
    BurstBuffers,
    /// A file system on throttled devices of this host, without a network.
    Devices,
    /// Two file systems of hosts on throttled devices: a fast tier, and its archive.
    Tiers,
}

/// A row of a document.
pub struct Row {
    /// Letter of the row in the documents' table, and what it is.
    pub name: &'static str,
    /// Loads of which the best counts.
    pub loads: &'static [Load],
    /// Figures of the document: writing, and reading.
    pub document: [Option<Said>; 2],
}

/// A document's figure.
#[derive(Clone, Copy)]
pub struct Said {
    /// In the document's words.
    pub words: &'static str,
    /// Share of the limit; none where the document states none.
    pub share: Option<f64>,
}

/// A load.
pub struct Load {
    /// Kind of load.
    pub work: Work,
    /// Processes, spread over the clients.
    pub ranks: u32,
    /// Clients in use.
    pub clients: u32,
    /// Hosts with OSTs in use.
    pub oss: u32,
}

/// Kinds of load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A file for each process, 1 MiB calls with O_DIRECT: `iozone -i 0 -i 1 -I -r 1m`.
    FilePerProcess,
    /// A single file, each process one part of it: IOR without `-F`.
    SharedFile,
    /// 4 KiB in random order with O_DIRECT: `iozone -i 2 -I -O -r 4K`.
    Random,
    /// Empty files in a directory for each process, then files of 3901 bytes in one directory: mdtest as IO500 runs it.
    Metadata,
    /// Burst buffers are made and ended, some of them at once.
    MakeBuffers,
    /// As `FilePerProcess`, on throttled devices of this host; the read cache of the OSTs is as the load says.
    Devices,
    /// Checkpoints on throttled devices, archived and released by a policy.
    Checkpoint,
    /// As `FilePerProcess`; one of two links of the server is cut in the middle.
    CutRail,
}

impl Row {
    /// Whether the row has one of these letters, or none is asked for.
    pub fn is_asked(&self, letters: &[&str]) -> bool {
        let own = self.name.split(':').next().unwrap_or_default();
        letters.is_empty() || own.split(", ").any(|letter| letters.contains(&letter))
    }
}

impl Load {
    /// In words.
    pub fn about(&self) -> String {
        let work = match self.work {
            Work::FilePerProcess => "a file per process, 1 MiB direct",
            Work::SharedFile => "one shared file, 1 MiB",
            Work::Random => "4 KiB in random order, direct",
            Work::Metadata => "mdtest",
            Work::MakeBuffers => {
                return format!("small burst buffers on {} servers, made and ended", self.oss);
            }
            Work::CutRail => "a file per process while one of two links is cut",
            Work::Devices => {
                return format!(
                    "a file per process, 1 MiB direct: {} processes on one mount beside the servers",
                    self.ranks
                );
            }
            Work::Checkpoint => "a file per process, 1 MiB, archived and released by a policy",
        };
        format!("{work}: {} processes on {} clients, {} servers", self.ranks, self.clients, self.oss)
    }
}

const fn load(work: Work, ranks: u32, clients: u32, oss: u32) -> Load {
    Load { work, ranks, clients, oss }
}

const fn said(words: &'static str, share: f64) -> Option<Said> {
    Some(Said { words, share: Some(share) })
}

const fn only(words: &'static str) -> Option<Said> {
    Some(Said { words, share: None })
}

use Work::{Checkpoint, CutRail, Devices, FilePerProcess, MakeBuffers, Metadata, Random, SharedFile};

/// Places, in the order in which they are measured.
pub const PLACES: &[HostCluster] = &[
    HostCluster {
        name: "beegfs",
        about: "BeeGFS on 11 links of 12.4 GB/s, 32 clients; here 11 servers and 12 clients with 12.4 MB/s each (1:1000), files in three stripes as there",
        oss: 11,
        clients: 12,
        rails: 1,
        kbit_per_second: 99_200,
        client_kbit_per_second: None,
        stripes: "-c 3 -S 2M",
        kind: Kind::FileSystem,
        rows: &[
            Row {
                name: "A, B: streams, the best of the sweep",
                loads: &[
                    load(FilePerProcess, 12, 12, 11),
                    load(FilePerProcess, 24, 12, 11),
                    load(FilePerProcess, 48, 12, 11),
                    load(FilePerProcess, 96, 12, 11),
                ],
                document: [said("121 of 136.4 GB/s", 0.89), said("132 of 136.4 GB/s", 0.97)],
            },
            Row {
                name: "C: one process",
                loads: &[load(FilePerProcess, 1, 1, 11)],
                document: [said("3 of 12.4 GB/s", 0.24), said("3 of 12.4 GB/s", 0.24)],
            },
            Row {
                name: "D: random",
                loads: &[load(Random, 48, 12, 11)],
                document: [only("3.6 million/s"), only("3.5 million/s")],
            },
        ],
    },
    HostCluster {
        name: "gsi",
        about: "GSI's 10 OSS with 1 Gbit each; here 10 servers and 20 clients with 92 Mbit/s each (1:10)",
        oss: 10,
        clients: 20,
        rails: 1,
        kbit_per_second: 92_000,
        client_kbit_per_second: None,
        stripes: "-c 1",
        kind: Kind::FileSystem,
        rows: &[
            Row {
                name: "H: one client, one server",
                loads: &[load(FilePerProcess, 4, 1, 1)],
                document: [said("114 of 115 MB/s", 0.99), said("114 of 115 MB/s", 0.99)],
            },
            Row {
                name: "I: 5 servers, 10 clients, 40 processes",
                loads: &[load(FilePerProcess, 40, 10, 5)],
                document: [said("480 of 575 MB/s", 0.83), None],
            },
            Row {
                name: "I: 10 servers, 20 clients, 100 processes",
                loads: &[load(FilePerProcess, 100, 20, 10)],
                document: [said("970 of 1150 MB/s", 0.84), None],
            },
        ],
    },
    HostCluster {
        name: "gsi-rails",
        about: "GSI's two bonded 1 Gbit links of one OSS; here two links of 92 Mbit/s (1:10)",
        oss: 1,
        clients: 1,
        rails: 2,
        kbit_per_second: 92_000,
        client_kbit_per_second: None,
        stripes: "-c 1",
        kind: Kind::FileSystem,
        rows: &[
            Row {
                name: "J: two links",
                loads: &[load(FilePerProcess, 4, 1, 1)],
                document: [said("225 of 230 MB/s", 0.98), None],
            },
            Row {
                name: "J: two links, one is pulled",
                loads: &[load(CutRail, 4, 1, 1)],
                document: [said("115 of 115 MB/s", 1.0), None],
            },
        ],
    },
    HostCluster {
        name: "dell",
        about: "Dell's three QDR links, some 12 GB/s, up to 64 clients; here 3 servers with 4 MB/s each and 8 clients (1:1000)",
        oss: 3,
        clients: 8,
        rails: 1,
        kbit_per_second: 32_000,
        client_kbit_per_second: None,
        stripes: "-c 1",
        kind: Kind::FileSystem,
        rows: &[
            Row {
                name: "O: streams",
                loads: &[load(FilePerProcess, 8, 8, 3), load(FilePerProcess, 64, 8, 3)],
                document: [said("7 of 12 GB/s", 0.58), said("11 of 12 GB/s", 0.92)],
            },
            Row {
                name: "O: one shared file",
                loads: &[load(SharedFile, 8, 8, 3), load(SharedFile, 32, 8, 3)],
                document: [None, None],
            },
        ],
    },
    HostCluster {
        name: "dac",
        about: "burst buffers of the Data Accelerator, servers with 25 GB/s each and 8 clients with 12.4; here buffers on 1, 2 and 4 servers with 25 MB/s, 8 clients with 12.4 (1:1000)",
        oss: 4,
        clients: 8,
        rails: 1,
        kbit_per_second: 200_000,
        client_kbit_per_second: Some(99_200),
        stripes: "-c 1",
        kind: Kind::BurstBuffers,
        rows: &[
            Row {
                name: "L: 1 server, 128 processes",
                loads: &[load(FilePerProcess, 128, 8, 1)],
                document: [said("23.9 of 25 GB/s", 0.956), said("23.5 of 25 GB/s", 0.94)],
            },
            Row {
                name: "L: 1 server, random",
                loads: &[load(Random, 128, 8, 1)],
                document: [only("346 000/s"), only("478 000/s")],
            },
            Row {
                name: "M: 2 servers, 128 processes",
                loads: &[load(FilePerProcess, 128, 8, 2)],
                document: [said("47.6 of 50 GB/s", 0.95), said("47.1 of 50 GB/s", 0.94)],
            },
            Row { name: "M: 2 servers, random", loads: &[load(Random, 128, 8, 2)], document: [None, None] },
            Row {
                name: "N: 4 servers, 128 processes",
                loads: &[load(FilePerProcess, 128, 8, 4)],
                document: [said("92.7 of 100 GB/s", 0.93), said("76.8 of 100 GB/s", 0.77)],
            },
            Row { name: "N: 4 servers, random", loads: &[load(Random, 128, 8, 4)], document: [None, None] },
            Row {
                name: "N: 4 servers, one shared file",
                loads: &[load(SharedFile, 8, 8, 4), load(SharedFile, 64, 8, 4)],
                document: [only("left for later"), only("left for later")],
            },
            Row {
                name: "N: 4 servers, mdtest",
                loads: &[load(Metadata, 32, 8, 4)],
                document: [only("left for later"), only("left for later")],
            },
            Row {
                name: "L, M, N: time of a buffer",
                loads: &[load(MakeBuffers, 8, 8, 4)],
                document: [only("a playbook each, about a minute"), only("a playbook each")],
            },
        ],
    },
    HostCluster {
        name: "survey",
        about: "Intel's 16 P3700 of 2.7 GB/s reads and 1.08 GB/s writes; here 16 loop devices of 27 and 10.8 MB/s (1:100), with an OST each, and a mount on the same host",
        oss: 1,
        clients: 1,
        rails: 1,
        // There is no network.
        kbit_per_second: 0,
        client_kbit_per_second: None,
        stripes: "-c 1",
        kind: Kind::Devices,
        rows: &[
            Row {
                name: "E, F: 16 devices, read cache as it is (auto)",
                loads: &[load(Devices, 16, 1, 1), load(Devices, 48, 1, 1)],
                document: [said("16-17 of 17.28 GB/s", 0.955), said("40-43 of 43.2 GB/s", 0.961)],
            },
            Row {
                name: "E, F: 16 devices, read cache off",
                loads: &[load(Devices, 16, 1, 1), load(Devices, 48, 1, 1)],
                document: [said("16-17 of 17.28 GB/s", 0.955), said("40-43 of 43.2 GB/s", 0.961)],
            },
            Row {
                name: "E, F: 16 devices, read cache on",
                loads: &[load(Devices, 16, 1, 1), load(Devices, 48, 1, 1)],
                document: [None, only("slower; a plot without figures")],
            },
        ],
    },
    HostCluster {
        name: "checkpoint",
        about: "Intel's checkpoint of 16 nodes and 2 TB, 16 GB/s into the fast tier and 6 GB/s into the archive; here 2 GB, 120 and 45 MB/s: bytes 1:1000, time 1:7.5",
        oss: 4,
        clients: 16,
        rails: 1,
        // FDR lets pass 6.8 GB/s.
        kbit_per_second: 408_000,
        client_kbit_per_second: None,
        stripes: "-c 1",
        kind: Kind::Tiers,
        rows: &[Row {
            name: "G: a checkpoint, its archive, its release",
            loads: &[load(Checkpoint, 16, 16, 4)],
            document: [None, None],
        }],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_letters() {
        let found = |letters: &[&str]| {
            let rows = PLACES.iter().flat_map(|place| place.rows);
            rows.filter(|row| row.is_asked(letters)).map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(found(&["C"]), ["C: one process"]);
        assert_eq!(found(&["B"]), ["A, B: streams, the best of the sweep"]);
        assert!(found(&["M"]).contains(&"L, M, N: time of a buffer"));
        assert!(found(&["Z"]).is_empty() && found(&[]).len() > 10);
    }

    #[test]
    fn loads_fit_their_places() {
        for place in PLACES {
            for load in place.rows.iter().flat_map(|row| row.loads) {
                assert!(load.clients <= place.clients && load.oss <= place.oss, "{}", place.name);
                assert!(load.ranks >= load.clients, "{}: {}", place.name, load.about());
                assert!(load.work != CutRail || place.rails == 2);
                assert!(load.work != MakeBuffers || place.kind == Kind::BurstBuffers, "{}", place.name);
            }
        }
    }
}
