//! Copies that other hosts share: each unit is copied by the code of an agent, which answers, is lost, or is late.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;

use brindle_bb::CopyEnd;
use brindle_wire::bb::{StageFile, StageUnit, StagedFile};

use super::partial::{PARTIAL, partial};
use super::share::ending_of;
use super::*;

/// Units that may be under way.
const STREAMS: usize = 5;

/// Behaviour of the other hosts with a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Host {
    /// One copies it, and answers.
    Copies,
    /// One is lost before it has begun.
    Lost,
    /// One is lost in its midst, and what it has copied stays.
    LostLate,
    /// The last one is lost.
    LastLost,
}

/// Everything of an entry that a copy keeps.
#[derive(Debug, PartialEq)]
struct Kept {
    mode: u32,
    times: (i64, i64),
    bytes: Vec<u8>,
    /// The first name of the file, in the order of paths.
    first_name: String,
    attribute: Option<Vec<u8>>,
    is_sparse: bool,
}

struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    /// A source with many small files, names of one file in two directories, holes, and two files that are divided.
    fn new() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let (home, root) = (dir.path().join("home"), dir.path().join("buffer"));
        for sub in ["a/deep/deeper", "b"] {
            std::fs::create_dir_all(home.join(sub)).unwrap();
        }
        std::fs::create_dir(&root).unwrap();
        for number in 0..300_u32 {
            let file = home.join(if number % 2 == 0 { "a/deep" } else { "b" }).join(format!("f{number}"));
            std::fs::write(&file, vec![u8::try_from(number % 251).unwrap(); number as usize * 7]).unwrap();
            let mode = if number % 3 == 0 { 0o440 } else { 0o755 };
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let at = Timespec { tv_sec: i64::from(number) * 1000, tv_nsec: i64::from(number) };
            rustix::fs::utimensat(
                CWD,
                &file,
                &Timestamps { last_access: at, last_modification: at },
                AtFlags::empty(),
            )
            .unwrap();
        }
        std::fs::hard_link(home.join("a/deep/f2"), home.join("b/second-name")).unwrap();
        std::fs::hard_link(home.join("a/deep/f2"), home.join("third-name")).unwrap();
        symlink("../b/f1", home.join("a/link")).unwrap();
        rustix::fs::setxattr(home.join("b/f1"), "user.origin", b"here", rustix::fs::XattrFlags::empty())
            .unwrap();
        for (name, len) in [("large", 100 << 20), ("large-too", 65 << 20)] {
            let large = File::create(home.join(name)).unwrap();
            large.set_len(len).unwrap();
            for (at, byte) in [(0, 1_u8), (40 << 20, 2), (64 << 20, 3)] {
                large.write_all_at(&[byte; 12_345], at).unwrap();
            }
        }
        std::fs::set_permissions(home.join("b"), std::fs::Permissions::from_mode(0o500)).unwrap();
        Site { dir }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Copies `home` into the buffer, as the hosts behave.
    fn copy(
        &self,
        host: impl FnMut(usize, &StageUnit) -> Host + Send + 'static,
    ) -> (Result<CopyOutcome>, usize) {
        let outside = self.at("home").display().to_string();
        let inside = "in".to_owned();
        let transfer = Transfer { entry: Entry::Directory, outside, place: CopyEnd::Striped, inside };
        let transfers = vec![(transfer, self.at("buffer"))];
        let work = CopyWork { uid: 1, gid: 1, stages_in: true, serial: 7, buffers: vec![7], transfers };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (offers, root) = (vec![self.dir.path().display().to_string()], self.at("buffer"));
        let hosts = std::thread::spawn(move || serve(&theirs, &root, &offers, host));
        let input = BufReader::new(ours.try_clone().unwrap());
        let mut share = Share::told(Box::new(ours), Box::new(input));
        let outcome = copy_all(&work, Path::new("/nowhere"), &mut share);
        drop(share);
        (outcome, hosts.join().unwrap())
    }

    /// The copy is the source, and nothing else is there.
    fn is_whole(&self) {
        let (source, copy) = (kept(&self.at("home")), kept(&self.at("buffer/in")));
        assert_eq!(source.keys().collect::<Vec<_>>(), copy.keys().collect::<Vec<_>>());
        for (name, kept) in &source {
            assert!(copy[name] == *kept, "{name} is another one: {:?}", copy[name].mode);
        }
    }
}

/// The other hosts. Number of units that they were given.
fn serve(
    line: &UnixStream,
    root: &Path,
    offers: &[String],
    mut host: impl FnMut(usize, &StageUnit) -> Host,
) -> usize {
    let (mut units, mut streams) = (0, STREAMS);
    let tell = |heard: &Heard| {
        let text = serde_json::to_string(heard).unwrap();
        // The copy may have ended with a fault.
        let _ = (&*line).write_all(format!("{text}\n").as_bytes());
    };
    for said in BufReader::new(line.try_clone().unwrap()).lines() {
        match serde_json::from_str(&said.unwrap()).unwrap() {
            Said::Plan { tops, .. } => {
                assert!(!tops.is_empty());
                tell(&Heard::Hosts { streams });
            }
            Said::Unit { id, unit } => {
                let behaves = host(units, &unit);
                units += 1;
                let (root, offers) = (root.to_owned(), offers.to_vec());
                let copies = || unit::copy_files(&UnitWork { root, offers, unit });
                let files = match behaves {
                    Host::Copies => Some(copies().unwrap()),
                    Host::Lost => None,
                    Host::LostLate => {
                        copies().unwrap();
                        None
                    }
                    Host::LastLost => {
                        streams = 0;
                        None
                    }
                };
                tell(&Heard::Unit { id, streams, files });
            }
            Said::Own { .. } | Said::End(_) => {}
        }
    }
    units
}

fn kept(root: &Path) -> BTreeMap<String, Kept> {
    let mut paths = vec![root.to_owned()];
    let mut at = 0;
    while at < paths.len() {
        if std::fs::symlink_metadata(&paths[at]).unwrap().is_dir() {
            paths.extend(std::fs::read_dir(&paths[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    paths.sort();
    let mut first_names = HashMap::new();
    let one = |path: PathBuf| {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let mut value = [0; 16];
        let attribute = rustix::fs::lgetxattr(&path, "user.origin", &mut value[..]).ok();
        let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let first: &mut String = first_names.entry(meta.ino()).or_insert_with(|| name.clone());
        let kept = Kept {
            mode: meta.mode(),
            times: (meta.mtime(), meta.mtime_nsec()),
            bytes,
            first_name: first.clone(),
            attribute: attribute.map(|n| value[..n].to_vec()),
            is_sparse: meta.len() > 1 << 20 && meta.blocks() * 512 < meta.len() / 2,
        };
        (name, kept)
    };
    paths.into_iter().map(one).collect()
}

#[test]
fn hosts_that_share_a_copy_make_the_same_one_and_find_it_done() {
    let site = Site::new();
    let (first, units) = site.copy(|_, _| Host::Copies);
    let first = first.unwrap();
    assert_eq!((first.files, first.links, first.unchanged), (302, 2, 0));
    // 5 batches of files, and the parts of two large ones that are no holes.
    assert!(units > 10, "{units} units");
    site.is_whole();
    let (second, units) = site.copy(|_, _| Host::Copies);
    let second = second.unwrap();
    assert_eq!((second.files, second.links, second.unchanged, second.bytes), (0, 0, 302, 0));
    assert!(units > 10, "{units} units: files are compared by other hosts, too");
    site.is_whole();
    // A large file that only looks the same is copied again.
    let (large, mtime) = (site.at("buffer/in/large"), site.at("home/large").metadata().unwrap());
    let file = File::options().write(true).open(&large).unwrap();
    file.write_all_at(&[9], 50 << 20).unwrap();
    rustix::fs::futimens(&file, &times_of(&mtime)).unwrap();
    let third = site.copy(|_, _| Host::Copies).0.unwrap();
    assert_eq!((third.files, third.unchanged), (1, 301));
    site.is_whole();
}

#[test]
fn hosts_that_are_lost_lose_nothing_and_leave_nothing() {
    for (every, lost) in [(2, Host::Lost), (2, Host::LostLate), (3, Host::LostLate), (1, Host::Lost)] {
        let site = Site::new();
        let (outcome, _) = site.copy(move |number, _| if number % every == 0 { lost } else { Host::Copies });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.files, outcome.links, outcome.unchanged), (302, 2, 0), "{every} {lost:?}");
        site.is_whole();
    }
    for last in [0, 1, 4, 9] {
        let site = Site::new();
        let (outcome, units) =
            site.copy(move |number, _| if number >= last { Host::LastLost } else { Host::Copies });
        assert_eq!(outcome.unwrap().files, 302, "the last host is lost with unit {last}");
        assert!(units <= last + STREAMS, "{units} units");
        site.is_whole();
    }
}

#[test]
fn what_a_killed_copy_has_left_is_removed() {
    let site = Site::new();
    let dir = site.at("buffer/in/b");
    std::fs::create_dir_all(&dir).unwrap();
    let left = partial(&dir.join("f1"), &ending_of(".s7-0000", 3));
    let of_others = partial(&dir.join("f1"), ".s8-0000.3");
    std::fs::write(&left, b"left").unwrap();
    std::fs::write(&of_others, b"of another job").unwrap();
    site.copy(|_, _| Host::Copies).0.unwrap();
    assert!(!left.exists() && of_others.exists());
    std::fs::remove_file(of_others).unwrap();
    // Its directory has got another time.
    site.copy(|_, _| Host::Copies).0.unwrap();
    site.is_whole();
}

/// The answers of an agent to a unit whose paths a user has chosen.
fn answers(site: &Site, change: impl FnOnce(&mut UnitWork)) -> Result<Vec<StagedFile>> {
    let (sender, units) = std::sync::mpsc::channel();
    let (root, offers) = (site.at("buffer"), vec![site.dir.path().display().to_string()]);
    let host = move |_: usize, unit: &StageUnit| {
        sender.send(unit.clone()).unwrap();
        Host::Lost
    };
    site.copy(host).0.unwrap();
    let is_deep = |file: &StageFile| file.from.contains("a/deep/");
    let mut unit = units.iter().find(|unit| unit.range.is_none() && unit.files.iter().any(is_deep)).unwrap();
    unit.files.retain(is_deep);
    let mut work = UnitWork { root, offers, unit };
    change(&mut work);
    unit::copy_files(&work)
}

fn all_failed(site: &Site, change: impl FnOnce(&mut UnitWork)) {
    let files = answers(site, change).unwrap();
    assert!(files.iter().all(|file| matches!(file, StagedFile::Failed { .. })), "{files:?}");
    assert!(!files.is_empty());
}

#[test]
fn an_agent_leaves_neither_the_buffer_nor_the_directories_that_it_offers() {
    let site = Site::new();
    let out = site.at("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(site.at("secret"), b"secret").unwrap();
    assert!(answers(&site, |_| ()).is_ok());
    // Directories that it does not offer, also by way of a link.
    let refused = |change: &dyn Fn(&mut UnitWork), why: &str| {
        let fault = answers(&site, |work| change(work)).unwrap_err();
        assert!(fault.why.join(" ").contains(why), "{fault}");
    };
    refused(&|work| work.offers = vec!["/usr".to_owned()], "stages files below /usr only");
    refused(&|work| work.offers.clear(), "stages files below");
    symlink("/etc", site.at("way")).unwrap();
    let offer = site.dir.path().display().to_string();
    refused(&|work| work.unit.outside.path = format!("{offer}/way"), "stages files below");
    refused(&|work| work.unit.outside.inode += 1, "is another directory there");
    refused(&|work| work.unit.inside = "../out".to_owned(), "");
    refused(&|work| work.unit.inside = "/etc".to_owned(), "");
    // Paths of files.
    for path in ["../secret", "/etc/passwd", "a/../../secret", ""] {
        all_failed(&site, |work| work.unit.files.iter_mut().for_each(|file| file.from = path.to_owned()));
        all_failed(&site, |work| work.unit.files.iter_mut().for_each(|file| file.to = path.to_owned()));
    }
    // Directories that have become links meanwhile.
    all_failed(&site, |_| {
        std::fs::rename(site.at("buffer/in/a/deep"), site.at("buffer/in/a/was")).unwrap();
        symlink(&out, site.at("buffer/in/a/deep")).unwrap();
    });
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
    std::fs::remove_file(site.at("buffer/in/a/deep")).unwrap();
    std::fs::rename(site.at("buffer/in/a/was"), site.at("buffer/in/a/deep")).unwrap();
    // Files that have been replaced.
    all_failed(&site, |work| work.unit.files.iter_mut().for_each(|file| file.inode += 1));
    all_failed(&site, |work| work.unit.files.iter_mut().for_each(|file| file.into += 1));
    all_failed(&site, |work| {
        for file in &work.unit.files {
            std::fs::remove_file(site.at("home").join(&file.from)).unwrap();
            symlink(site.at("secret"), site.at("home").join(&file.from)).unwrap();
        }
    });
    let names = std::fs::read_dir(site.at("buffer/in/a/deep")).unwrap();
    let partials =
        names.filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().contains(PARTIAL));
    assert_eq!(partials.count(), 0, "what failed leaves nothing");
}
