//! `lctl get_param`, `set_param` and `list_param`.

use std::collections::BTreeSet;

use brindle_types::{Code, Fault, Result};

use super::node::Node;
use super::params::{KINDS, Leaf, names};
use super::select::{ParameterMatch, select};
use super::{MgsArgs, nrs};
use crate::completion::live;
use crate::exit::{self, Done};

/// Arguments of `lctl get_param`.
#[derive(clap::Args)]
#[command(after_help = PATTERNS)]
pub struct GetArgs {
    /// Print values without names
    #[arg(short = 'n', conflicts_with_all = ["names", "classify"])]
    values: bool,
    /// Print names without values
    #[arg(short = 'N')]
    names: bool,
    /// With -N: '/' behind what has parameters below it, '=' behind what can be set
    #[arg(short = 'F', requires = "names")]
    classify: bool,
    /// Everything below what is named too
    #[arg(short = 'R')]
    recursive: bool,
    /// Parameters
    #[arg(required = true, value_name = "PATTERN", add = live::parameters())]
    patterns: Vec<String>,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Arguments of `lctl list_param`.
#[derive(clap::Args)]
#[command(after_help = PATTERNS)]
pub struct ListArgs {
    /// Print '/' behind what has parameters below it, '=' behind what can be set
    #[arg(short = 'F')]
    classify: bool,
    /// Everything below what is named too
    #[arg(short = 'R')]
    recursive: bool,
    /// Parameters
    #[arg(required = true, value_name = "PATTERN", add = live::parameters())]
    patterns: Vec<String>,
    #[command(flatten)]
    mgs: MgsArgs,
}

/// Arguments of `lctl set_param`.
#[derive(clap::Args)]
#[command(after_help = "All names and values are checked before the first is set.\n\
                        Example: lctl set_param obdfilter.scratch-OST0003.no_create=1")]
pub struct SetArgs {
    /// Do not print what was set
    #[arg(short = 'n')]
    quiet: bool,
    /// Refuse what would not stay after a restart
    #[arg(short = 'P')]
    permanent: bool,
    /// Parameters and their new values
    #[arg(required = true, value_name = "PATTERN=VALUE", add = live::settable_parameters())]
    settings: Vec<String>,
    #[command(flatten)]
    mgs: MgsArgs,
}

const PATTERNS: &str = "A pattern has dots or slashes between its parts, and *, ?, [a-z] and {a,b} in them.\n\
                        Examples: lctl get_param osc.*.import; lctl get_param -n version; lctl list_param -R '*'";

/// Runs `lctl get_param`.
pub fn get(args: &GetArgs) -> Result<Done> {
    if args.names {
        return print_names(&args.patterns, args.classify, args.recursive, &args.mgs);
    }
    let node = Node::new(args.mgs.place_args());
    let mut done = Done::Ok;
    for pattern in &args.patterns {
        let found = select(&node, pattern)?;
        let named: Vec<&ParameterMatch<'_>> =
            found.iter().filter(|f| args.recursive || f.is_named()).collect();
        if named.is_empty() {
            return Err(Fault::new(Code::BadArgument)
                .what("no parameter")
                .subject(pattern.clone())
                .why("there are only parameters below it")
                .next(format!(
                    "lctl get_param -R '{pattern}' shows them; lctl list_param -R '{pattern}' lists them"
                )));
        }
        for one in named {
            match (one.leaf.read)() {
                Ok(value) if args.values => println!("{value}"),
                Ok(value) => println!("{}", shown(&one.leaf.name(), &value)),
                Err(fault) => {
                    done = Done::Partly;
                    exit::warn(&fault.why(format!("asked for {}", one.leaf.name())));
                }
            }
        }
    }
    Ok(done)
}

/// `name=value`; a value of several lines begins on a line of its own.
fn shown(name: &str, value: &str) -> String {
    let newline = if value.contains('\n') { "\n" } else { "" };
    format!("{name}={newline}{value}")
}

/// Runs `lctl list_param`.
pub fn list(args: &ListArgs) -> Result<Done> {
    print_names(&args.patterns, args.classify, args.recursive, &args.mgs)
}

fn print_names(patterns: &[String], classify: bool, recursive: bool, mgs: &MgsArgs) -> Result<Done> {
    let node = Node::new(mgs.place_args());
    for pattern in patterns {
        for line in name_lines(&select(&node, pattern)?, classify, recursive) {
            println!("{line}");
        }
    }
    Ok(Done::Ok)
}

fn name_lines(found: &[ParameterMatch<'_>], classify: bool, recursive: bool) -> Vec<String> {
    let mut told = BTreeSet::new();
    let mut lines = Vec::new();
    for one in found {
        let path = &one.leaf.path;
        let last = if recursive { path.len() } else { one.depth };
        for depth in one.depth..=last {
            let name = path[..depth].join(".");
            if !told.insert(name.clone()) {
                continue;
            }
            let mark = match (depth < path.len(), one.leaf.write.is_some()) {
                _ if !classify => "",
                (true, _) => "/",
                (false, true) => "=",
                (false, false) => "",
            };
            lines.push(format!("{name}{mark}"));
        }
    }
    lines
}

/// Runs `lctl set_param`.
pub fn set(args: &SetArgs) -> Result<Done> {
    let node = Node::new(args.mgs.place_args());
    let (mut changes, mut limits) = (Vec::new(), Vec::new());
    for setting in &args.settings {
        let Some((pattern, value)) = setting.split_once('=') else {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot set")
                .subject(setting.clone())
                .why("no value is given")
                .data("nothing was changed")
                .next("a parameter and its value have a '=' between them"));
        };
        if let Some(limit) = nrs::setting(pattern, value) {
            limits.push((setting, limit?));
            continue;
        }
        let found = select(&node, pattern).map_err(|fault| fault.data("nothing was changed"))?;
        let mut told = BTreeSet::new();
        for one in found {
            check(&one, value, args.permanent)?;
            if !told.insert(one.leaf.name()) {
                return Err(ambiguous(&one.leaf.name()));
            }
            changes.push((one.leaf, value));
        }
    }
    for (leaf, value) in &changes {
        if let Some(write) = &leaf.write {
            (write.apply)(value).map_err(|fault| about(leaf, fault))?;
        }
        if !args.quiet {
            println!("{}={value}", leaf.name());
        }
    }
    for (setting, limit) in limits {
        nrs::apply(&args.mgs, limit)?;
        if !args.quiet {
            println!("{setting}");
        }
    }
    Ok(Done::Ok)
}

/// A name in two file systems.
fn ambiguous(name: &str) -> Fault {
    Fault::new(Code::BadArgument)
        .what("which one is meant by")
        .subject(name.to_owned())
        .why("file systems of the same name are mounted here, and each has it")
        .data("nothing was changed")
        .next("name the MGS of the one that is meant: --mgs HOST[:PORT]")
}

fn about(leaf: &Leaf<'_>, fault: Fault) -> Fault {
    fault.why(format!("asked to set {}", leaf.name()))
}

fn check(one: &ParameterMatch<'_>, value: &str, permanent: bool) -> Result<()> {
    let name = one.leaf.path[..one.depth].join(".");
    let refused = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot set")
            .subject(name.clone())
            .why(why)
            .data("nothing was changed")
    };
    let Some(write) = one.leaf.write.as_ref().filter(|_| one.is_named()) else {
        let why = if one.is_named() { "it can only be read" } else { "there are only parameters below it" };
        return Err(refused(why.to_owned()).next(format!("these can be set: {}", settable().join(", "))));
    };
    (write.check)(value).map_err(|why| {
        refused(format!("the value '{value}' is wrong: {why}")).next(format!("it means: {}", one.leaf.help))
    })?;
    if permanent && !write.is_permanent {
        return Err(refused("it does not stay after an unmount".to_owned())
            .next("leave -P out, and set it again after each mount"));
    }
    Ok(())
}

/// Patterns of everything that can be set.
fn settable() -> Vec<String> {
    let of = |kind: &&'static str| {
        let kind = *kind;
        names(kind).into_iter().filter(|(_, _, set)| *set).map(move |(name, _, _)| format!("{kind}.*.{name}"))
    };
    KINDS.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lctl::params::LeafWrite;

    fn found(path: &str, depth: usize, can_be_set: bool) -> ParameterMatch<'static> {
        let write = can_be_set.then(|| LeafWrite {
            check: |value| if value == "1" { Ok(()) } else { Err("it is 1".to_owned()) },
            apply: Box::new(|_| Ok(())),
            is_permanent: false,
        });
        let path = path.split('.').map(str::to_owned).collect();
        ParameterMatch { leaf: Leaf { path, help: "", read: Box::new(|| Ok(String::new())), write }, depth }
    }

    #[test]
    fn values_are_printed_as_in_lustre() {
        assert_eq!(shown("version", "0.1.0"), "version=0.1.0");
        assert_eq!(shown("lov.x.target_obd", "0: a\n1: b"), "lov.x.target_obd=\n0: a\n1: b");
    }

    #[test]
    fn names_are_listed_level_by_level() {
        let all =
            [found("osc.a.active", 2, false), found("osc.a.x", 2, true), found("osc.b.active", 2, false)];
        assert_eq!(name_lines(&all, false, false), ["osc.a", "osc.b"]);
        assert_eq!(
            name_lines(&all, true, true),
            ["osc.a/", "osc.a.active", "osc.a.x=", "osc.b/", "osc.b.active"]
        );
    }

    #[test]
    fn only_what_can_be_set_is_set() {
        assert!(check(&found("a.b.c", 3, true), "1", false).is_ok());
        let fault = check(&found("a.b.c", 3, true), "2", false).expect_err("a wrong value");
        assert_eq!(fault.why, ["the value '2' is wrong: it is 1"]);
        let fault = check(&found("a.b.c", 3, false), "1", false).expect_err("read only");
        assert_eq!(
            fault.next,
            "these can be set: llite.*.max_read_ahead_mb, mdd.*.changelog_mask, mdt.*.hsm_control, mdt.*.job_stats, obdfilter.*.job_stats, obdfilter.*.no_create"
        );
        assert!(check(&found("a.b.c", 2, true), "1", false).is_err());
        assert!(check(&found("a.b.c", 3, true), "1", true).is_err());
    }
}
