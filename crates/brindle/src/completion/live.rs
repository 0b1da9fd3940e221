//! Names that exist now, for completions: targets, pools, file systems, mounts, parameters, processes of a development
//! cluster, codes.
//!
//! Servers are asked only when the word under the cursor can be such a name, and for at most [`LIMIT`]: a shell that
//! hangs at TAB because a server is down is worse than one that offers no names. The words typed so far choose the
//! file system.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use brindle_types::{Code, Nid, Role, TargetId};
use brindle_wire::map::Map;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, resolve};
use crate::{dev, format, lctl};
use brindle_admin::place::FsLocation;
use brindle_admin::target::{is_draining, state_word};
use brindle_host::mounts;

/// Most time that a TAB may take.
const LIMIT: Duration = Duration::from_millis(800);

/// OSTs by name.
pub fn osts() -> ArgValueCandidates {
    named_osts(|_, _| true)
}

/// OSTs that get new files.
pub fn osts_to_drain() -> ArgValueCandidates {
    named_osts(|map, index| !map.draining.contains(&index))
}

/// OSTs that were drained.
pub fn drained_osts() -> ArgValueCandidates {
    named_osts(|map, index| map.draining.contains(&index))
}

fn named_osts(wanted: fn(&Map, u16) -> bool) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        from_maps(move |map| {
            let osts = map.targets.iter().filter(|t| t.id.role == Role::Ost && wanted(map, t.id.index));
            let state = |t| if is_draining(map, t) { "draining" } else { state_word(t.state) };
            osts.map(|t| (map.fs.target(t.id), format!("{} on {}", state(t), t.host()))).collect()
        })
    })
}

/// Hosts by name, as far as the map has them.
pub fn nodes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        from_maps(|map| {
            let served = |host: &str| {
                let targets = map.targets.iter().filter(|t| t.host() == host);
                targets.map(|t| t.id.to_string()).collect::<Vec<_>>().join(" ")
            };
            map.hosts.iter().map(|host| (host.name.clone(), served(&host.name))).collect()
        })
    })
}

/// Targets by name.
pub fn targets() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        from_maps(|map| {
            let named = map.targets.iter().filter(|t| t.id.role != Role::Mgt);
            named.map(|t| (t.id.to_string(), format!("{} on {}", state_word(t.state), t.host()))).collect()
        })
    })
}

/// MDTs by name.
pub fn mdts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        from_maps(|map| {
            let mdts = map.targets.iter().filter(|t| t.id.role == Role::Mdt);
            mdts.map(|t| (map.fs.target(t.id), format!("{} on {}", state_word(t.state), t.host()))).collect()
        })
    })
}

/// Indices of OSTs.
pub fn ost_indices() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        from_maps(|map| {
            let osts = map.targets.iter().filter(|t| t.id.role == Role::Ost);
            osts.map(|t| (t.id.index.to_string(), map.fs.target(t.id))).collect()
        })
    })
}

/// Pools by name.
pub fn pools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| from_maps(|map| listed_pools(map, "")))
}

/// Pools with their file systems: `scratch.flash`.
pub fn full_pools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| from_maps(|map| listed_pools(map, &format!("{}.", map.fs))))
}

/// File systems, and pools with theirs.
pub fn file_systems_and_pools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        from_maps(|map| {
            let mut names = vec![(map.fs.to_string(), "file system".to_owned())];
            names.extend(listed_pools(map, &format!("{}.", map.fs)));
            names
        })
    })
}

fn listed_pools(map: &Map, prefix: &str) -> Vec<(String, String)> {
    let osts = |pool: &brindle_wire::map::Pool| {
        let names: Vec<String> = pool.osts.iter().map(|ost| TargetId::ost(*ost).to_string()).collect();
        if names.is_empty() { "no OSTs".to_owned() } else { names.join(" ") }
    };
    map.pools.iter().map(|pool| (format!("{prefix}{}", pool.name), osts(pool))).collect()
}

/// Mount points, and paths.
pub fn mount_points() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let mut found: Vec<PathBuf> = ours().map(|line| line.mount_point).collect();
        found.retain(|at| at.as_os_str().as_bytes().starts_with(typed.as_bytes()));
        let mut candidates: Vec<CompletionCandidate> =
            found.iter().map(|at| CompletionCandidate::new(at.as_os_str())).collect();
        if !typed.is_empty() || candidates.is_empty() {
            let paths = PathCompleter::any().complete(typed);
            candidates.extend(
                paths.into_iter().filter(|path| !found.iter().any(|at| Path::new(path.get_value()) == at)),
            );
        }
        candidates
    })
}

/// Processes of the development cluster.
pub fn processes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let dir = Words::typed().option("--dir").map_or_else(dev::default_dir, |dir| from_home(&dir));
        let names = dev::process_names(&dir).unwrap_or_default();
        names.into_iter().map(|(name, state)| candidate((name, state.to_owned()))).collect()
    })
}

/// Hosts of the development cluster.
pub fn hosts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let dir = Words::typed().option("--dir").map_or_else(dev::default_dir, |dir| from_home(&dir));
        let names = dev::host_names(&dir).unwrap_or_default();
        names.into_iter().map(|(name, state)| candidate((name, state.to_owned()))).collect()
    })
}

/// Codes of messages.
pub fn codes() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        Code::ALL.iter().map(|code| candidate((code.to_string(), code.title().to_owned()))).collect()
    })
}

/// Parameters of this host.
pub fn parameters() -> ArgValueCandidates {
    ArgValueCandidates::new(|| listed_parameters(false))
}

/// Parameters of this host that can be set, up to their values.
pub fn settable_parameters() -> ArgValueCandidates {
    ArgValueCandidates::new(|| listed_parameters(true))
}

fn listed_parameters(settable: bool) -> Vec<CompletionCandidate> {
    let places = Words::typed().places();
    let names = bounded(move || lctl::parameter_names(places, settable));
    let shown = |(name, help): (String, &str)| (if settable { name + "=" } else { name }, help.to_owned());
    distinct(names.into_iter().map(shown))
}

/// File systems of the same name have targets of the same names.
fn distinct(names: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let mut told = BTreeSet::new();
    names.filter(|(name, _)| told.insert(name.clone())).map(candidate).collect()
}

fn candidate((name, help): (String, String)) -> CompletionCandidate {
    CompletionCandidate::new(name).help(Some(help.into()))
}

fn ours() -> impl Iterator<Item = mounts::MountLine> {
    mounts::all().into_iter().filter(|line| line.fs_type == mounts::FUSE_TYPE)
}

/// Names with explanations from the maps of the file systems that are meant.
fn from_maps(names: impl Fn(&Map) -> Vec<(String, String)>) -> Vec<CompletionCandidate> {
    let places = Words::typed().places();
    let maps = bounded(move || maps(&places));
    distinct(maps.iter().flat_map(&names))
}

/// Result of `work`, or an empty one if that takes too long.
fn bounded<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    // The thread ends with the process.
    std::thread::spawn(move || {
        // After the time limit nobody listens any more.
        let _ = done.send(work());
    });
    result.recv_timeout(LIMIT).unwrap_or_default()
}

/// The maps of file systems: from mounts, which have them at hand, else from the MGS.
fn maps(places: &PlaceArgs) -> Vec<Map> {
    let (Ok(places), Ok(runtime)) = (resolve(places), format::runtime()) else { return Vec::new() };
    let map = async |place: &FsLocation| {
        let asker = servers();
        match asker.other_map(place).await {
            Some(map) => Some(map),
            None => asker.mgs_map(place).await.ok(),
        }
    };
    let found = places.iter().filter_map(|place| runtime.block_on(map(place))).collect();
    runtime.shutdown_background();
    found
}

/// The words of the command line that is completed.
struct Words(Vec<OsString>);

impl Words {
    fn typed() -> Words {
        Words(std::env::args_os().skip_while(|word| word != "--").skip(1).collect())
    }

    /// The value of an option: `--dir X` or `--dir=X`.
    fn option(&self, name: &str) -> Option<String> {
        let mut words = self.0.iter().map(|word| word.to_string_lossy());
        while let Some(word) = words.next() {
            match word.strip_prefix(name) {
                Some("") => return words.next().map(|value| value.into_owned()),
                Some(value) if value.starts_with('=') => return Some(value[1..].to_owned()),
                _ => {}
            }
        }
        None
    }

    /// Options that choose the file system: `--mgs`, `--dir`, a path in a mount, or the mount on this
    /// machine.
    fn places(&self) -> PlaceArgs {
        if let Some(mgs) = self.option("--mgs") {
            let mgs: Vec<Nid> = mgs.split(',').filter_map(|nid| nid.parse().ok()).collect();
            if !mgs.is_empty() {
                return PlaceArgs { mgs, ..PlaceArgs::default() };
            }
        }
        if let Some(dir) = self.option("--dir").filter(|dir| !dir.is_empty()) {
            return PlaceArgs { dir: Some(from_home(&dir)), ..PlaceArgs::default() };
        }
        // In a directory of a mount every word could be a name; what is meant as a path shows it.
        let is_path = |word: &&OsString| word.as_bytes().contains(&b'/') || word.as_bytes().starts_with(b".");
        let path = self
            .0
            .iter()
            .skip(1)
            .filter(is_path)
            .map(PathBuf::from)
            .find(|path| std::path::absolute(path).is_ok_and(|path| mounts::holding(&path).is_some()));
        PlaceArgs { path, ..PlaceArgs::default() }
    }
}

/// The shell has not yet put the home directory in the place of `~`.
fn from_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        Words(text.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn the_words_say_which_file_system() {
        let places = words("brindle pool list --mgs h1,h2:9 ").places();
        assert_eq!(places.mgs.len(), 2);
        assert_eq!(words("brindle pool list --dir=/x ").places().dir, Some(PathBuf::from("/x")));
        assert_eq!(words("brindle dev kill --dir /x o").option("--dir").as_deref(), Some("/x"));
        assert_eq!(words("brindle dev kill --directory /x o").option("--dir"), None);
        let none = words("brindle pool list /").places();
        assert!(none.path.is_none() && none.dir.is_none() && none.mgs.is_empty());
    }

    #[test]
    fn whatever_takes_too_long_gives_nothing() {
        // The answer cannot come before the caller has stopped waiting.
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let slow = move || {
            let _ = held.recv();
            vec![1]
        };
        assert_eq!(bounded(slow), Vec::<i32>::new());
        drop(hold);
        assert_eq!(bounded(|| vec![1]), [1]);
    }
}
