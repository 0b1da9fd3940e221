//! `brindle nodemap`: the rights of hosts that are not trusted fully.

use brindle_admin::nodemaps::{self, NodemapChanged, NodemapView};
use brindle_types::Result;
use brindle_wire::mgs::id_map::{IdMapEdit, IdRange};
use brindle_wire::mgs::nodemap::{NodemapChange, NodemapEdit, Squash};

use crate::admin::ask::servers;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};
use crate::pool::FsArgs;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make a nodemap: a set of hosts that are not trusted fully
    Add(AddArgs),
    /// List nodemaps
    List(ListArgs),
    /// Show one nodemap
    Show(ShowArgs),
    /// Change a nodemap; 'default' is that of all hosts that no other one names
    Set(SetArgs),
    /// Remove a nodemap: its hosts are those of the default one from then on
    Remove(RemoveArgs),
}

/// Users that become nobody.
#[derive(Clone, Copy, clap::ValueEnum)]
enum SquashArg {
    /// None: root of the host is root
    None,
    /// Root
    Root,
    /// All
    All,
}

impl SquashArg {
    fn squash(self) -> Squash {
        match self {
            SquashArg::None => Squash::None,
            SquashArg::Root => Squash::Root,
            SquashArg::All => Squash::All,
        }
    }
}

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum YesNo {
    /// Yes
    Yes,
    /// No
    No,
}

/// Properties of a nodemap.
#[derive(clap::Args)]
struct PropertyArgs {
    /// The tree that the hosts see, such as /projects/a; '' for the whole file system
    #[arg(long, value_name = "PATH")]
    subtree: Option<String>,
    /// Users of the hosts who become nobody
    #[arg(long, value_enum, value_name = "WHO")]
    squash: Option<SquashArg>,
    /// The user that they become [default: 65534]
    #[arg(long, value_name = "UID")]
    squash_uid: Option<u32>,
    /// The group that they become [default: 65534]
    #[arg(long, value_name = "GID")]
    squash_gid: Option<u32>,
    /// Users with another number in the file system, such as 1000:5000 or 1000-1999:5000 (HOST:FILESYSTEM); root is squashed then, and so are
    /// users without a mapping
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    map_uid: Vec<IdRange>,
    /// Groups likewise
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    map_gid: Vec<IdRange>,
    /// Refuse users and groups without a mapping; otherwise they become those of --squash-uid and --squash-gid
    #[arg(long, value_enum, value_name = "YES|NO", num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    deny_unknown: Option<YesNo>,
}

impl PropertyArgs {
    fn ids(&self, remove: (&[IdRange], &[IdRange])) -> IdMapEdit {
        IdMapEdit {
            add_uids: self.map_uid.clone(),
            remove_uids: remove.0.to_vec(),
            add_gids: self.map_gid.clone(),
            remove_gids: remove.1.to_vec(),
            deny_unknown: self.deny_unknown.map(|answer| answer == YesNo::Yes),
        }
    }

    fn edit(&self) -> NodemapEdit {
        NodemapEdit {
            squash: self.squash.map(SquashArg::squash),
            squash_uid: self.squash_uid,
            squash_gid: self.squash_gid,
            subtree: self.subtree.clone(),
            ..NodemapEdit::default()
        }
    }
}

/// Arguments of `brindle nodemap add`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle nodemap add workstations --host ws1,ws2 --squash root\n\
                        Servers hear of it within seconds. Files that programs on those hosts have open are closed for them (E2002); what they \
                        have written and not synced is lost, as with a power cut. docs/operations/security.md says what a nodemap protects.")]
pub struct AddArgs {
    /// Name of the nodemap
    #[arg(value_name = "NAME")]
    name: String,
    /// Hosts, by the name in their certificate
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// Ranges of addresses, such as 10.0.3.0/24; they count in networks of mode 'none' only
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    address: Vec<String>,
    /// The hosts change nothing
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    properties: PropertyArgs,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle nodemap set`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle nodemap set default --squash root\n\
                        The default nodemap counts for hosts that have joined as client only; hosts with the role server, agent or admin \
                        are limited by a nodemap that names them. Where hosts may do less than before, files that programs have open there are \
                        closed for them (E2002), and what is written and not synced is lost, as with a power cut.")]
pub struct SetArgs {
    /// Name of the nodemap
    #[arg(value_name = "NAME")]
    name: String,
    /// Hosts to add
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    add_host: Vec<String>,
    /// Hosts to take out
    #[arg(long, value_name = "HOST", value_delimiter = ',', add = live::nodes())]
    remove_host: Vec<String>,
    /// Ranges of addresses to add
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    add_address: Vec<String>,
    /// Ranges of addresses to take out
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    remove_address: Vec<String>,
    /// Whether the hosts change nothing
    #[arg(long, value_enum, value_name = "YES|NO")]
    read_only: Option<YesNo>,
    /// Mappings of users to take out, as they are shown
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    unmap_uid: Vec<IdRange>,
    /// Mappings of groups to take out, as they are shown
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    unmap_gid: Vec<IdRange>,
    #[command(flatten)]
    properties: PropertyArgs,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle nodemap list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle nodemap show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    /// Name of the nodemap
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle nodemap remove`.
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// Name of the nodemap
    #[arg(value_name = "NAME")]
    name: String,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Add(args) => {
            let edit = NodemapEdit {
                add_hosts: args.host.clone(),
                add_addresses: args.address.clone(),
                read_only: Some(args.read_only),
                ..args.properties.edit()
            };
            let ids = args.properties.ids((&[], &[]));
            change(&args.fs, &args.name, (NodemapChange::Add(edit), ids), args.dry_run, args.output)
        }
        Command::Set(args) => {
            let edit = NodemapEdit {
                add_hosts: args.add_host.clone(),
                remove_hosts: args.remove_host.clone(),
                add_addresses: args.add_address.clone(),
                remove_addresses: args.remove_address.clone(),
                read_only: args.read_only.map(|answer| answer == YesNo::Yes),
                ..args.properties.edit()
            };
            let ids = args.properties.ids((&args.unmap_uid, &args.unmap_gid));
            change(&args.fs, &args.name, (NodemapChange::Set(edit), ids), args.dry_run, args.output)
        }
        Command::Remove(args) => {
            let change_of = (NodemapChange::Remove, IdMapEdit::default());
            change(&args.fs, &args.name, change_of, args.dry_run, args.output)
        }
        Command::List(args) => list(args),
        Command::Show(args) => show(args),
    }
}

fn change(
    fs: &FsArgs,
    name: &str,
    change: (NodemapChange, IdMapEdit),
    dry_run: bool,
    output: Output,
) -> Result<Done> {
    let place = fs.place()?;
    let changed =
        runtime()?.block_on(async { servers().change_nodemap(&place, name, change, dry_run).await })?;
    if output.json() {
        print_json(&changed)?;
        return Ok(Done::Ok);
    }
    println!("{}", told(&changed));
    Ok(Done::Ok)
}

/// A change in a sentence.
fn told(changed: &NodemapChanged) -> String {
    let name = &changed.name;
    match (&changed.nodemap, changed.changed, changed.dry_run) {
        (Some(nodemap), false, _) => format!("{name} is like that already: {}", in_words(nodemap)),
        (Some(nodemap), true, true) => format!("would make {name}: {}", in_words(nodemap)),
        (Some(nodemap), true, false) => {
            format!("{name}: {}; servers hear of it within seconds", in_words(nodemap))
        }
        (None, _, true) => format!("would remove {name}: its hosts would be those of the default nodemap"),
        (None, _, false) => {
            format!("removed {name}: its hosts are those of the default nodemap within seconds")
        }
    }
}

/// Limits of a nodemap, in words.
fn in_words(nodemap: &NodemapView) -> String {
    if nodemap.trusted {
        return "trusted fully".to_owned();
    }
    let who = match nodemap.squash {
        "none" => None,
        who => Some(format!("{who} squashed to {}:{}", nodemap.squash_uid, nodemap.squash_gid)),
    };
    let subtree = (!nodemap.subtree.is_empty()).then(|| format!("{} only", nodemap.subtree));
    let read_only = nodemap.read_only.then(|| "read-only".to_owned());
    let mapped = |kind: &str, ranges: &[String]| match ranges {
        [] => None,
        ranges if ranges.len() <= 3 => Some(format!("{kind}s {}", ranges.join(" "))),
        ranges => Some(format!("{kind}s in {} ranges", ranges.len())),
    };
    let users = mapped("user", &nodemap.map_uid);
    let groups = mapped("group", &nodemap.map_gid);
    let unknown = nodemap.deny_unknown.then(|| "others refused".to_owned());
    let parts = [subtree, read_only, who, users, groups, unknown];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Hosts and addresses of a nodemap.
fn members(nodemap: &NodemapView) -> String {
    match nodemap.name == brindle_wire::mgs::nodemap::DEFAULT_NODEMAP {
        true => "all others".to_owned(),
        false => nodemap.hosts.iter().chain(&nodemap.addresses).cloned().collect::<Vec<_>>().join(" "),
    }
}

fn list(args: &ListArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let view = runtime()?.block_on(async { servers().nodemaps(&place).await })?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let rows =
        view.nodemaps.iter().map(|nodemap| vec![nodemap.name.clone(), in_words(nodemap), members(nodemap)]);
    println!("{}", table(&["NODEMAP", "MAY", "HOSTS"], rows.collect()));
    Ok(Done::Ok)
}

fn show(args: &ShowArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let all = runtime()?.block_on(async { servers().nodemaps(&place).await })?;
    let nodemap = nodemaps::one(all, &args.name)?;
    if args.output.json() {
        print_json(&nodemap)?;
        return Ok(Done::Ok);
    }
    println!("  nodemap: {}", nodemap.name);
    println!("    hosts: {}", members(&nodemap));
    println!("  trusted: {}", if nodemap.trusted { "fully" } else { "not fully" });
    println!(
        "  subtree: {}",
        if nodemap.subtree.is_empty() { "the whole file system" } else { &nodemap.subtree }
    );
    println!("read-only: {}", if nodemap.read_only { "yes" } else { "no" });
    println!("   squash: {}, to {}:{}", nodemap.squash, nodemap.squash_uid, nodemap.squash_gid);
    for (kind, ranges) in [("users", &nodemap.map_uid), ("groups", &nodemap.map_gid)] {
        let ranges = if ranges.is_empty() {
            "same numbers as in the file system".to_owned()
        } else {
            ranges.join(" ")
        };
        println!("{kind:>9}: {ranges}");
    }
    if !nodemap.map_uid.is_empty() || !nodemap.map_gid.is_empty() {
        println!("   others: {}", if nodemap.deny_unknown { "refused" } else { "squashed" });
    }
    Ok(Done::Ok)
}
