//! The parts of Brindle on this host: mounts, their connections, and the targets that are served here.
//!
//! Facts are asked for when they are needed, and once. Mounts report their state without asking a server; daemons and
//! servers are asked in bounded time.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use brindle_client::control::{self, Answer, Request, TargetSpace, TargetStatus};
use brindle_types::{Code, Fault, Ino, Result, Role};
use brindle_wire::Message;
use brindle_wire::job::{MdtUsageReq, OstUsageReq, UsageBy, UsageReq, UsageResp};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::changelog::{ChangelogInfoReq, ChangelogInfoResp};
use brindle_wire::mds::hsm::{HsmInfoReq, HsmInfoResp};
use brindle_wire::mds::session::TargetInfoResp;

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, resolve};
use crate::changelog::own_cred;
use crate::control::{socket, unexpected};
use crate::exit;
use crate::format::runtime;
use crate::lfs::lists::instance;
use crate::stripe::Striped;
use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_admin::space::{self, Space};
use brindle_host::mounts::{self, MountLine};
use brindle_host::name as host_name;

/// Longest wait for the daemon of a mount, which may have to wait for an OST that is away.
const PATIENCE: Duration = Duration::from_secs(4);

/// The way to daemons and servers.
pub struct Way {
    runtime: tokio::runtime::Runtime,
    asker: Servers,
}

impl Way {
    fn new() -> Result<Rc<Way>> {
        let runtime = runtime()?;
        let asker = runtime.block_on(async { servers() });
        Ok(Rc::new(Way { runtime, asker }))
    }

    /// Runs something that asks servers.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&Servers) -> T) -> T {
        self.runtime.block_on(work(&self.asker))
    }
}

/// A mount on this host whose daemon answers.
pub struct Mounted {
    /// Line of the mount in the mount table.
    pub line: MountLine,
    /// The map that it goes by.
    pub map: Map,
    /// Session of the mount at the MDT.
    pub session: String,
    /// Existing connections of the mount.
    connections: Vec<TargetStatus>,
    way: Rc<Way>,
    spaces: OnceCell<Result<Vec<TargetSpace>>>,
    default: OnceCell<Result<Striped>>,
}

impl Mounted {
    fn look(way: &Rc<Way>, line: &MountLine) -> Result<Mounted> {
        let status = match ask(way, line, &Request::Status)? {
            Answer::Status { session, targets, .. } => (session, targets),
            other => return Err(unexpected(&other)),
        };
        let map = match ask(way, line, &Request::Map)? {
            Answer::Map(map) => map,
            other => return Err(unexpected(&other)),
        };
        let (session, connections) = status;
        let (line, way) = (line.clone(), way.clone());
        let (spaces, default) = (OnceCell::new(), OnceCell::new());
        Ok(Mounted { line, map, session, connections, way, spaces, default })
    }

    /// Number that tells this mount from others of the file system, in Lustre's form.
    pub fn instance(&self) -> String {
        instance(self.line.minor)
    }

    /// Space of each target, as this mount is told.
    pub fn spaces(&self) -> Result<&[TargetSpace]> {
        let spaces = self.spaces.get_or_init(|| match ask(&self.way, &self.line, &Request::Df)? {
            Answer::Df(spaces) => Ok(spaces),
            other => Err(unexpected(&other)),
        });
        spaces.as_ref().map(Vec::as_slice).map_err(Fault::clone)
    }

    /// Layout of a file for which neither its user nor its directory chose one.
    pub fn default_layout(&self) -> Result<&Striped> {
        let default = self.default.get_or_init(|| {
            match ask(&self.way, &self.line, &Request::Getstripe { ino: Ino::ROOT.0 })? {
                Answer::Stripe { effective, policy, layout_gen, .. } => Ok(Striped {
                    path: self.line.mount_point.clone(),
                    layout: None,
                    effective,
                    own_default: policy.is_some(),
                    layout_gen,
                    ino: Ino::ROOT,
                    size_bytes: 0,
                    is_dir: true,
                }),
                other => Err(unexpected(&other)),
            }
        });
        default.as_ref().map_err(Fault::clone)
    }
}

fn ask(way: &Way, line: &MountLine, request: &Request) -> Result<Answer> {
    let path = socket(line.minor);
    let named = |why: String| {
        Fault::new(Code::NotMounted)
            .what("no answer from the daemon of")
            .subject(line.mount_point.display().to_string())
            .why(why)
            .next(format!(
                "look what it waits for: brindle waits {}; if it is dead, mount it again",
                line.mount_point.display()
            ))
    };
    let asking = async { tokio::time::timeout(PATIENCE, control::ask(&path, request)).await };
    match way.runtime.block_on(asking) {
        Ok(Err(fault)) if fault.code == Code::NotABrindlePath => Err(named(fault.why.join("; "))),
        Ok(answered) => answered,
        Err(_) => Err(named(format!("it does not answer for {} s", PATIENCE.as_secs()))),
    }
}

/// A mount's end of the way to a target.
pub struct Link {
    /// The mount.
    pub mount: Rc<Mounted>,
    /// The target.
    pub entry: TargetEntry,
    /// The connection; none before the first use.
    pub connection: Option<TargetStatus>,
}

impl Link {
    /// Name of the device: `scratch-OST0000-osc-ffff000000000039`.
    pub fn device(&self) -> String {
        format!("{}-{}-{}", self.target(), self.kind(), self.mount.instance())
    }

    /// `osc` or `mdc`.
    pub fn kind(&self) -> &'static str {
        if self.entry.id.role == Role::Ost { "osc" } else { "mdc" }
    }

    /// Full name of the target.
    pub fn target(&self) -> String {
        self.mount.map.fs.target(self.entry.id)
    }

    /// State of the connection in Lustre's words.
    pub fn state(&self) -> &'static str {
        match &self.connection {
            None => "IDLE",
            Some(connection) if connection.connected => "FULL",
            Some(_) => "DISCONN",
        }
    }

    /// Space of the target.
    pub fn space(&self) -> Result<&TargetSpace> {
        let (spaces, name) = (self.mount.spaces()?, self.target());
        let found = spaces.iter().find(|space| space.name == name);
        found.filter(|space| space.answered).ok_or_else(|| {
            Fault::new(Code::TargetDown)
                .what("does not answer:")
                .subject(format!("{name} on {}", self.entry.host()))
                .next(format!("see brindle status {}", self.mount.line.mount_point.display()))
        })
    }
}

/// A target that is served on this host.
pub struct Served {
    /// Full name.
    pub name: String,
    /// Entry of the target in the map.
    pub entry: TargetEntry,
    /// The map of its file system.
    pub map: Rc<Map>,
    place: FsLocation,
    way: Rc<Way>,
    info: OnceCell<Result<TargetInfoResp>>,
    space: OnceCell<Result<Space>>,
}

impl Served {
    /// State and counters of the target.
    pub fn info(&self) -> Result<&TargetInfoResp> {
        let asked = || self.way.run(async |asker| asker.info(&self.map, &self.entry).await);
        self.info.get_or_init(asked).as_ref().map_err(|fault| self.silent(fault))
    }

    /// Space of the target.
    pub fn space(&self) -> Result<&Space> {
        let asked = || self.way.run(async |asker| space::space(asker, &self.entry, &self.map).await);
        self.space.get_or_init(asked).as_ref().map_err(|fault| self.silent(fault))
    }

    /// The readers of its changelog.
    pub fn changelog(&self) -> Result<ChangelogInfoResp> {
        self.ask(&ChangelogInfoReq { cred: own_cred() })
    }

    /// Tiering queue of the target, and its agents.
    pub fn hsm(&self) -> Result<HsmInfoResp> {
        self.ask(&HsmInfoReq { behind: None, cred: own_cred() })
    }

    /// Requests to the target by job. Forgets the counters of `clear`, or all if that is empty.
    pub fn usage(&self, clear: Option<&str>) -> Result<UsageResp> {
        let request = UsageReq { by: UsageBy::Job, clear: clear.map(str::to_owned) };
        match self.entry.id.role {
            Role::Mdt => self.ask(&MdtUsageReq(request)),
            _ => self.ask(&OstUsageReq(request)),
        }
    }

    /// Asks it something.
    pub fn ask<M: Message>(&self, request: &M) -> Result<M::Resp> {
        let id = self.entry.id;
        let answer = self.way.run(async |asker| asker.ask(&self.map, id, request).await);
        answer.map_err(|fault| if fault.code == Code::TargetDown { self.silent(&fault) } else { fault })
    }

    fn silent(&self, fault: &Fault) -> Fault {
        let named = Fault::new(fault.code).what("does not answer:").subject(self.name.clone());
        fault.why.iter().cloned().fold(named, Fault::why)
    }

    /// The way to its MGS, for changes.
    pub fn mgs(&self) -> (&Way, &FsLocation) {
        (&self.way, &self.place)
    }
}

/// The mounts on this host.
#[derive(Default)]
struct Mounts {
    answering: Vec<Rc<Mounted>>,
    silent: Vec<PathBuf>,
}

/// Mounts and targets on this host; the options choose the file systems.
pub struct Node {
    places: PlaceArgs,
    /// Whether a map that may be a second old is better than waiting for the MGS.
    is_hurried: bool,
    way: OnceCell<Result<Rc<Way>>>,
    mounts: OnceCell<Result<Mounts>>,
    targets: OnceCell<Result<Vec<Rc<Served>>>>,
    elsewhere: OnceCell<Vec<String>>,
}

impl Node {
    /// Asks nobody yet.
    pub fn new(places: PlaceArgs) -> Node {
        let (way, mounts) = (OnceCell::new(), OnceCell::new());
        let (targets, elsewhere) = (OnceCell::new(), OnceCell::new());
        Node { places, is_hurried: false, way, mounts, targets, elsewhere }
    }

    /// Node that asks the MGS only for facts that no mount knows.
    pub fn hurried(places: PlaceArgs) -> Node {
        Node { is_hurried: true, ..Node::new(places) }
    }

    fn way(&self) -> Result<&Rc<Way>> {
        self.way.get_or_init(Way::new).as_ref().map_err(Fault::clone)
    }

    /// The mounts whose daemons answer.
    pub fn mounts(&self) -> Result<&[Rc<Mounted>]> {
        Ok(&self.all_mounts()?.answering)
    }

    /// Mount points whose daemons do not answer.
    pub fn silent_mounts(&self) -> Result<&[PathBuf]> {
        Ok(&self.all_mounts()?.silent)
    }

    fn all_mounts(&self) -> Result<&Mounts> {
        let look = || {
            let (way, places) = (self.way()?, resolve(&self.places)?);
            let ours = |line: &MountLine| {
                line.fs_type == mounts::FUSE_TYPE
                    && places.iter().any(|place| place.is_mounted_from(&line.source))
            };
            let mut found = Mounts::default();
            for line in mounts::all().into_iter().filter(ours) {
                match Mounted::look(way, &line) {
                    Ok(mount) => found.answering.push(Rc::new(mount)),
                    Err(fault) => {
                        exit::warn(&fault);
                        found.silent.push(line.mount_point);
                    }
                }
            }
            Ok(found)
        };
        self.mounts.get_or_init(look).as_ref().map_err(Fault::clone)
    }

    /// The ways from mounts to targets.
    pub fn links(&self) -> Result<Vec<Rc<Link>>> {
        let mut links = Vec::new();
        for mount in self.mounts()? {
            for entry in mount.map.targets.iter().filter(|entry| entry.id.role != Role::Mgt) {
                let name = mount.map.fs.target(entry.id);
                let connection = mount.connections.iter().find(|c| c.name == name).cloned();
                links.push(Rc::new(Link { mount: mount.clone(), entry: entry.clone(), connection }));
            }
        }
        Ok(links)
    }

    /// The targets that are served on this host, as the MGS has them (or, when it is silent, a mount).
    pub fn targets(&self) -> Result<&[Rc<Served>]> {
        let look = || {
            let (way, host) = (self.way()?, host_name());
            let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
            for place in resolve(&self.places)? {
                let known = match self.is_hurried {
                    true => way.run(async |asker| asker.other_map(&place).await),
                    false => None,
                };
                let map = match known {
                    Some(map) => Rc::new(map),
                    None => Rc::new(way.run(async |asker| asker.map(&place).await)?.0),
                };
                for entry in &map.targets {
                    let name = map.fs.target(entry.id);
                    if entry.host() != host {
                        elsewhere.push(format!("{name} on {}", entry.host()));
                        continue;
                    }
                    here.push(Rc::new(Served {
                        name,
                        entry: entry.clone(),
                        map: map.clone(),
                        place: FsLocation { fs: Some(map.fs.clone()), ..place.clone() },
                        way: way.clone(),
                        info: OnceCell::new(),
                        space: OnceCell::new(),
                    }));
                }
            }
            // The cell is set here only.
            let _ = self.elsewhere.set(elsewhere);
            Ok(here)
        };
        self.targets.get_or_init(look).as_ref().map(Vec::as_slice).map_err(Fault::clone)
    }

    /// Targets on other hosts, with their hosts; known once [`Node::targets`] was asked.
    pub fn elsewhere(&self) -> &[String] {
        self.elsewhere.get().map_or(&[], Vec::as_slice)
    }
}
