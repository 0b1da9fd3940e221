//! The parameters: one row each, with its name, the source of its value, and its meaning. Only parameters that exist in
//! a running system have a row. Further parameters of Lustre are in [`ABSENT`] with the reason for their absence.

use std::fmt::Write as _;
use std::rc::Rc;

use brindle_fuse::JobFrom;
use brindle_types::{ChangeMask, Code, Fault, Result, Role};
use brindle_wire::map::{Map, TargetState};
use brindle_wire::mds::hsm::HsmSwitchReq;
use brindle_wire::mgs::TargetChange;

use super::node::{Link, Mounted, Node, Served};
use super::{job_stats, read_ahead};
use crate::changelog;
use crate::hsm::params as hsm;
use crate::lfs::lists::target_lines;
use brindle_admin::changelog::mask_request;
use brindle_admin::target::is_draining;

/// Unit of statfs(2) on a mount.
const BLOCK_BYTES: u64 = 4096;

/// A parameter of things of one kind.
pub struct Row<T> {
    /// Name of the parameter, the last part of the path.
    pub name: &'static str,
    /// Meaning of the parameter.
    pub help: &'static str,
    /// Reads the value.
    pub read: fn(&T) -> Result<String>,
    /// Changes the value; `None` if it cannot be changed.
    pub write: Option<Write<T>>,
}

/// Changing a parameter: checked for all that are named before the first one is changed.
pub struct Write<T> {
    /// Objection to a value.
    pub check: fn(&str) -> std::result::Result<(), String>,
    /// Changes it.
    pub apply: fn(&T, &str) -> Result<()>,
    /// Whether it stays after a restart (`set_param -P`).
    pub is_permanent: bool,
}

const fn row<T>(name: &'static str, help: &'static str, read: fn(&T) -> Result<String>) -> Row<T> {
    Row { name, help, read, write: None }
}

/// Parameters of the host.
pub const HOST: &[Row<Node>] = &[
    row("health_check", "whether the targets and mounts of this host are well", health_check),
    row(
        "jobid_var",
        "what a mount attributes requests to jobs by unless it was told otherwise (brindle mount -o job_from=)",
        |_| Ok(JobFrom::default().to_string()),
    ),
    row("version", "version of this command", |_| Ok(env!("CARGO_PKG_VERSION").to_owned())),
];

/// Parameters of a mount: `llite.*`.
const LLITE: &[Row<Mounted>] = &[
    row("blocksize", "unit of statfs(2), in bytes", |_| Ok(BLOCK_BYTES.to_string())),
    row("filesfree", "inodes that still fit, as df -i has it", |m| sum(m, Role::Mdt, |s| s.free_inodes)),
    row("filestotal", "inodes in all", |m| sum(m, Role::Mdt, |s| s.total_inodes)),
    row("kbytesavail", "KiB available to users, each device once", |m| sum(m, Role::Ost, available_kib)),
    row("kbytesfree", "KiB free, each device once", |m| sum(m, Role::Ost, available_kib)),
    row("kbytestotal", "KiB of all OSTs, each device once", |m| sum(m, Role::Ost, total_kib)),
    Row {
        name: "max_read_ahead_mb",
        help: "how far the kernel reads ahead of a program, in MiB; files that are opened later go by it",
        read: |m| read_ahead::get(m.line.minor),
        write: Some(Write {
            check: |text| read_ahead::parse(text).map(drop),
            apply: |m, text| read_ahead::set(m.line.minor, text),
            is_permanent: false,
        }),
    },
    row("uuid", "the session of this mount at the MDT", |m| Ok(m.session.clone())),
];

/// Parameters of a mount's view of the OSTs: `lov.*`.
const LOV: &[Row<Mounted>] = &[
    row("activeobd", "OSTs that are up", |m| Ok(up(&m.map, Role::Ost).to_string())),
    row("numobd", "OSTs", |m| Ok(count(&m.map, Role::Ost).to_string())),
    row("stripecount", "stripes of a file where nobody chose; as lfs getstripe -c of the root", |m| {
        Ok(m.default_layout()?.count().to_string())
    }),
    row("stripeoffset", "first OST of a file where nobody chose; -1 for any", |m| {
        Ok(m.default_layout()?.start().to_string())
    }),
    row("stripesize", "stripe size in bytes where nobody chose", |m| {
        Ok(m.default_layout()?.stripe_bytes().to_string())
    }),
    row("target_obd", "the OSTs, a line each", |m| Ok(target_lines(&m.map, Role::Ost).join("\n"))),
];

/// Parameters of a mount's view of the MDTs: `lmv.*`.
const LMV: &[Row<Mounted>] = &[
    row("activeobd", "MDTs that are up", |m| Ok(up(&m.map, Role::Mdt).to_string())),
    row("numobd", "MDTs", |m| Ok(count(&m.map, Role::Mdt).to_string())),
    row("target_obd", "the MDTs, a line each", |m| Ok(target_lines(&m.map, Role::Mdt).join("\n"))),
];

/// Parameters of a mount's way to any target: `osc.*` and `mdc.*`.
const LINK: &[Row<Link>] = &[
    row("active", "1 while the MGS hears of the target", |l| {
        Ok(u8::from(l.entry.state == TargetState::Up).to_string())
    }),
    row("blocksize", "unit of statfs(2), in bytes", |_| Ok(BLOCK_BYTES.to_string())),
    row("filesfree", "inodes (objects) that still fit", |l| Ok(l.space()?.free_inodes.to_string())),
    row("filestotal", "inodes (objects) in all", |l| Ok(l.space()?.total_inodes.to_string())),
    row("import", "state of this mount's connection, as YAML", |l| Ok(import(l))),
    row("kbytesavail", "KiB available to users", |l| Ok(available_kib(l.space()?).to_string())),
    row("kbytesfree", "KiB free", |l| Ok(available_kib(l.space()?).to_string())),
    row("kbytestotal", "KiB in all", |l| Ok(total_kib(l.space()?).to_string())),
];

/// Parameters of a mount's way to an OST.
const OSC: &[Row<Link>] = &[
    row("ost_conn_uuid", "address of the OST", |l| Ok(address(l))),
    row("ost_server_uuid", "the OST, and the state of the connection", server_uuid),
];

/// Parameters of a mount's way to an MDT.
const MDC: &[Row<Link>] = &[
    row("mds_conn_uuid", "address of the MDT", |l| Ok(address(l))),
    row("mds_server_uuid", "the MDT, and the state of the connection", server_uuid),
];

/// Parameters of any target that is served here: `obdfilter.*` and `mdt.*`.
const TARGET: &[Row<Served>] = &[
    row("blocksize", "unit of statfs(2), in bytes", |_| Ok(BLOCK_BYTES.to_string())),
    row("filesfree", "inodes (objects) that still fit", |t| Ok(t.space()?.inodes_free.to_string())),
    row("filestotal", "inodes (objects) in all", |t| {
        t.space().map(|s| s.inodes_used.saturating_add(s.inodes_free).to_string())
    }),
    Row {
        name: "job_stats",
        help: "requests and bytes by job, as YAML; to be set: the name of a job, or clear, which forgets all of them",
        read: |t| Ok(job_stats::text(t.entry.id.role, &t.usage(None)?)),
        write: Some(Write {
            check: job_stats::check,
            apply: |t, text| t.usage(Some(job_stats::named(text))).map(drop),
            is_permanent: false,
        }),
    },
    row("kbytesavail", "KiB available to users", |t| Ok((t.space()?.available_bytes >> 10).to_string())),
    row("kbytesfree", "KiB free", |t| Ok((t.space()?.available_bytes >> 10).to_string())),
    row("kbytestotal", "KiB in all", |t| Ok((t.space()?.total_bytes >> 10).to_string())),
    row("num_exports", "clients (MDT), connections (OST)", |t| Ok(t.info()?.clients.to_string())),
    row("recovery_status", "whether it waits for clients after a restart", |t| {
        let state = if t.info()?.state == "recovering" { "RECOVERING" } else { "COMPLETE" };
        Ok(format!("status: {state}"))
    }),
    row("uuid", "name of the target in Lustre's form", |t| Ok(format!("{}_UUID", t.name))),
];

/// Parameters of an MDT that is served here: tiering.
const MDT: &[Row<Served>] = &[
    Row {
        name: "hsm_control",
        help: "whether tiering is enabled, disabled (what is asked for waits) or stopped; to be set: enabled, disabled, shutdown, purge",
        read: |t| Ok(t.hsm()?.control.to_string()),
        write: Some(Write {
            check: |text| hsm::switch(text).map(drop),
            apply: set_hsm_control,
            is_permanent: true,
        }),
    },
    row("hsm.agents", "the agents that serve archives", |t| Ok(hsm::agents(&t.hsm()?))),
    row("hsm.actions", "actions of tiering: waiting, under way, ended a moment ago", |t| {
        Ok(hsm::actions(&t.hsm()?))
    }),
];

/// Parameters of an OST that is served here.
const OBDFILTER: &[Row<Served>] = &[
    row("degraded", "1 while its disk returns errors", |t| Ok(u8::from(t.space()?.degraded).to_string())),
    Row {
        name: "no_create",
        help: "1: it gets no new files (as under 'brindle target drain', which also empties it)",
        read: |t| Ok(u8::from(is_draining(&t.map, &t.entry)).to_string()),
        write: Some(Write {
            check: |text| match text {
                "0" | "1" => Ok(()),
                _ => Err("it is 0 or 1".to_owned()),
            },
            apply: set_no_create,
            is_permanent: true,
        }),
    },
];

/// Parameters of the changelog of an MDT that is served here: `mdd.*`.
const MDD: &[Row<Served>] = &[
    Row {
        name: "changelog_mask",
        help: "types of records for readers that asked for none; a list, or changes of it: '+ATIME -CLOSE'",
        read: |t| Ok(t.changelog()?.mask.to_string()),
        write: Some(Write {
            check: |text| text.parse::<ChangeMask>().map(drop),
            apply: set_changelog_mask,
            is_permanent: true,
        }),
    },
    row("changelog_size", "bytes that the records of the changelog take", |t| {
        Ok(t.changelog()?.bytes.to_string())
    }),
    row("changelog_users", "readers of the changelog, and how far each has cleared it", |t| {
        Ok(changelog::users(&t.changelog()?))
    }),
];

/// Parameters of Lustre that Brindle lacks, with the reason.
pub const ABSENT: &[(&[&str], &str)] = &[
    (
        &["stats", "md_stats", "rpc_stats", "brw_stats", "extents_stats", "read_ahead_stats"],
        "requests are counted in the metrics of each daemon (http://HOST:PORT/metrics) and in 'brindle status -o json'",
    ),
    (
        &["read_cache_enable", "writethrough_cache_enable", "readcache_max_filesize"],
        "an OST keeps in the page cache of its host what is read again, and writes long pieces past it; the switch of reads is read-cache in serve.toml: auto, on or off",
    ),
    (
        &["enable_remote_dir", "enable_remote_dir_gid", "commit_on_sharing", "evict_client"],
        "this version has one MDT, which answers for every directory; clients that are silent are ended by their lease",
    ),
    (
        &[
            "max_rpcs_in_flight",
            "max_dirty_mb",
            "max_pages_per_rpc",
            "max_cached_mb",
            "checksums",
            "statahead_max",
            "at_max",
            "at_min",
            "timeout",
            "lru_size",
            "lru_max_age",
            "lock_count",
            "debug",
            "panic_on_lbug",
        ],
        "Lustre has it; Brindle has nothing of the kind that could be read or set",
    ),
];

/// The kinds of devices, which are the first part of a path.
pub const KINDS: &[&str] = &["llite", "lmv", "lov", "mdc", "mdd", "mdt", "obdfilter", "osc"];

/// Reads a parameter of one device.
type Reading<'n> = dyn Fn() -> Result<String> + 'n;
/// Changes a parameter of one device.
type Writing<'n> = dyn Fn(&str) -> Result<()> + 'n;

/// A parameter of one device.
pub struct Leaf<'n> {
    /// Kind, device, name; of the host only the name.
    pub path: Vec<String>,
    /// Meaning of the parameter.
    pub help: &'static str,
    /// Reads the value.
    pub read: Box<Reading<'n>>,
    /// Changes the value; `None` if it cannot be changed.
    pub write: Option<LeafWrite<'n>>,
}

/// Change of a parameter of one device.
pub struct LeafWrite<'n> {
    /// Objection to a value.
    pub check: fn(&str) -> std::result::Result<(), String>,
    /// Changes it.
    pub apply: Box<Writing<'n>>,
    /// Whether it stays after a restart.
    pub is_permanent: bool,
}

impl Leaf<'_> {
    /// Name with dots, as it is printed.
    pub fn name(&self) -> String {
        self.path.join(".")
    }
}

/// The parameters of a kind, by name: what each means, and whether it can be set.
pub fn names(kind: &str) -> Vec<(&'static str, &'static str, bool)> {
    fn of<T>(tables: &[&[Row<T>]]) -> Vec<(&'static str, &'static str, bool)> {
        let rows = tables.iter().flat_map(|t| t.iter());
        let mut names: Vec<_> = rows.map(|r| (r.name, r.help, r.write.is_some())).collect();
        names.sort_unstable();
        names
    }
    match kind {
        "llite" => of(&[LLITE]),
        "lmv" => of(&[LMV]),
        "lov" => of(&[LOV]),
        "mdc" => of(&[LINK, MDC]),
        "mdd" => of(&[MDD]),
        "mdt" => of(&[TARGET, MDT]),
        "obdfilter" => of(&[TARGET, OBDFILTER]),
        "osc" => of(&[LINK, OSC]),
        _ => Vec::new(),
    }
}

/// The parameters of the host.
pub fn of_host(node: &Node) -> Vec<Leaf<'_>> {
    let leaf = |row: &'static Row<Node>| Leaf {
        path: vec![row.name.to_owned()],
        help: row.help,
        read: Box::new(move || (row.read)(node)),
        write: None,
    };
    HOST.iter().map(leaf).collect()
}

/// The parameters of the devices of a kind.
pub fn of_kind(node: &Node, kind: &'static str) -> Result<Vec<Leaf<'static>>> {
    let mut leaves = Vec::new();
    match kind {
        "llite" | "lmv" | "lov" => {
            let (infix, table) = match kind {
                "llite" => ("", LLITE),
                "lmv" => ("clilmv-", LMV),
                _ => ("clilov-", LOV),
            };
            for mount in node.mounts()? {
                let device = format!("{}-{infix}{}", mount.map.fs, mount.instance());
                add(&mut leaves, kind, &device, mount, &[table]);
            }
        }
        "mdc" | "osc" => {
            let own = if kind == "osc" { OSC } else { MDC };
            for link in node.links()?.iter().filter(|link| link.kind() == kind) {
                add(&mut leaves, kind, &link.device(), link, &[LINK, own]);
            }
        }
        _ => {
            let (role, tables): (Role, &[&'static [Row<Served>]]) = match kind {
                "mdd" => (Role::Mdt, &[MDD]),
                "mdt" => (Role::Mdt, &[TARGET, MDT]),
                _ => (Role::Ost, &[TARGET, OBDFILTER]),
            };
            for target in node.targets()?.iter().filter(|target| target.entry.id.role == role) {
                add(&mut leaves, kind, &target.name, target, tables);
            }
        }
    }
    Ok(leaves)
}

/// Names of all parameters of this host, with what they mean; what cannot be found out is left out.
pub fn listed(node: &Node, settable: bool) -> Vec<(String, &'static str)> {
    let kinds = KINDS.iter().filter_map(|kind| of_kind(node, kind).ok());
    let leaves = kinds.flatten().chain(of_host(node)).filter(|leaf| !settable || leaf.write.is_some());
    leaves.map(|leaf| (leaf.name(), leaf.help)).collect()
}

fn add<T: 'static>(
    leaves: &mut Vec<Leaf<'static>>,
    kind: &str,
    device: &str,
    of: &Rc<T>,
    tables: &[&'static [Row<T>]],
) {
    let mut rows: Vec<&'static Row<T>> = tables.iter().flat_map(|table| table.iter()).collect();
    rows.sort_by_key(|row| row.name);
    for row in rows {
        let reading = of.clone();
        let write = row.write.as_ref().map(|write| {
            let writing = of.clone();
            LeafWrite {
                check: write.check,
                apply: Box::new(move |value| (write.apply)(&writing, value)),
                is_permanent: write.is_permanent,
            }
        });
        leaves.push(Leaf {
            path: [kind, device].into_iter().chain(row.name.split('.')).map(str::to_owned).collect(),
            help: row.help,
            read: Box::new(move || (row.read)(&reading)),
            write,
        });
    }
}

fn health_check(node: &Node) -> Result<String> {
    let is_well = |target: &&Rc<Served>| target.info().is_ok_and(|info| info.state != "failed");
    let ill = node.targets()?.iter().filter(|target| !is_well(target)).map(|target| target.name.clone());
    // Mounts are well where nobody mounts anything.
    let silent = node.silent_mounts().unwrap_or_default().iter().map(|at| at.display().to_string());
    let line = |name: String| format!("device {name} reported unhealthy\n");
    let text: String = ill.chain(silent).map(line).collect();
    Ok(if text.is_empty() { "healthy".to_owned() } else { text + "NOT HEALTHY" })
}

type TargetSpace = brindle_client::control::TargetSpace;

fn available_kib(space: &TargetSpace) -> u64 {
    space.available_bytes >> 10
}

fn total_kib(space: &TargetSpace) -> u64 {
    space.total_bytes >> 10
}

/// Adds up over the targets of a role that answer, each device once.
fn sum(mount: &Mounted, role: Role, of: fn(&TargetSpace) -> u64) -> Result<String> {
    let spaces = mount.spaces()?;
    let mut devices = std::collections::BTreeSet::new();
    let mut sum = 0_u64;
    for entry in mount.map.targets.iter().filter(|entry| entry.id.role == role) {
        let name = mount.map.fs.target(entry.id);
        let Some(space) = spaces.iter().find(|s| s.name == name && s.answered) else { continue };
        if devices.insert(space.device_id) {
            sum = sum.saturating_add(of(space));
        }
    }
    Ok(sum.to_string())
}

fn of_role(map: &Map, role: Role) -> impl Iterator<Item = &brindle_wire::map::TargetEntry> {
    map.targets.iter().filter(move |entry| entry.id.role == role)
}

fn count(map: &Map, role: Role) -> usize {
    of_role(map, role).count()
}

fn up(map: &Map, role: Role) -> usize {
    of_role(map, role).filter(|entry| entry.state == TargetState::Up).count()
}

fn address(link: &Link) -> String {
    link.entry.nids.first().map(ToString::to_string).unwrap_or_default()
}

fn server_uuid(link: &Link) -> Result<String> {
    Ok(format!("{}_UUID\t{}", link.target(), link.state()))
}

/// The fields of Lustre's `import` that Brindle has.
fn import(link: &Link) -> String {
    let target = link.target();
    let nids: Vec<String> = link.entry.nids.iter().map(ToString::to_string).collect();
    let current = match &link.connection {
        Some(connection) if connection.connected => nids.first().map_or("<none>", String::as_str),
        _ => "<none>",
    };
    let in_flight = link.connection.as_ref().map_or(0, |c| c.requests_in_flight);
    let seconds = link.connection.as_ref().map_or(0, |c| c.since_ms / 1000);
    let mut text = format!(
        "import:\n    name: {}\n    target: {target}_UUID\n    state: {}\n    connection:\n       \
         failover_nids: [ {} ]\n       current_connection: {current}\n       in_this_state: {seconds} sec\n    rpcs:\n       \
         inflight: {in_flight}",
        link.device(),
        link.state(),
        nids.join(", "),
    );
    let last_error =
        link.connection.as_ref().and_then(|c| c.last_error.as_ref()).filter(|_| link.state() != "FULL");
    if let Some(first) = last_error.and_then(|why| why.lines().next()) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n    last_error: {first:?}");
    }
    text
}

fn set_no_create(target: &Served, value: &str) -> Result<()> {
    let change = if value == "1" { TargetChange::Drain } else { TargetChange::Undrain };
    let (way, place) = target.mgs();
    let ost = target.entry.id.index;
    way.run(async |asker| {
        let done = asker.change_target(place, ost, change).await?;
        for name in asker.until_known(&done.map).await {
            crate::exit::warn(
                &Fault::new(Code::NoMgs)
                    .what("does not know of the change yet:")
                    .subject(name)
                    .data("the change is made")
                    .next("nothing: it takes the change in when it finds the MGS"),
            );
        }
        Ok(())
    })
}

fn set_hsm_control(target: &Served, value: &str) -> Result<()> {
    let wrong = |why: String| Fault::new(Code::BadArgument).what("cannot set hsm_control").why(why);
    let switch = hsm::switch(value).map_err(wrong)?;
    target.ask(&HsmSwitchReq { switch, cred: changelog::own_cred() }).map(drop)
}

fn set_changelog_mask(target: &Served, value: &str) -> Result<()> {
    let wrong = |why: String| Fault::new(Code::BadArgument).what("cannot record").why(why);
    let request = mask_request(&target.changelog()?, value, changelog::own_cred()).map_err(wrong)?;
    target.ask(&request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_once_and_nothing_absent_is_there() {
        for kind in KINDS {
            let mut names: Vec<&str> = names(kind).iter().map(|(name, _, _)| *name).collect();
            assert!(!names.is_empty(), "{kind}");
            names.sort_unstable();
            let told = names.len();
            names.dedup();
            assert_eq!(names.len(), told, "{kind}");
            let absent = ABSENT.iter().flat_map(|(names, _)| names.iter());
            assert_eq!(absent.filter(|name| names.contains(*name)).count(), 0, "{kind}");
        }
    }

    #[test]
    fn no_create_takes_a_switch() {
        let row = OBDFILTER.iter().find(|row| row.name == "no_create").expect("it is there");
        let check = row.write.as_ref().expect("it can be set").check;
        assert!(check("1").is_ok() && check("0").is_ok());
        assert!(check("2").is_err() && check("").is_err() && check("on").is_err());
    }
}
