//! Options of the command line.

use std::path::PathBuf;

use super::rows::{GROUPS, Group};
use super::scale::{self, Scale};

/// Measured unless others are named.
const SYSTEMS: &str = "brindle,gluster,moosefs,ceph,passthrough,passthrough-path,ext4,ext4-root";
/// Repetitions unless told otherwise.
const REPEAT: u32 = 5;
/// More says nothing new.
const REPEAT_MAX: u32 = 100;

/// The options, for a person.
pub const USAGE: &str = "usage: cargo xtask peers [OPTIONS]
  --systems A,B     of brindle, gluster, moosefs, moosefs-shipped, ceph, passthrough, passthrough-path, ext4,
                    ext4-root [default: all of these but moosefs-shipped], and with so many copies of everything:
                    brindle-1, brindle-2, brindle-3 (on hosts), gluster-2, gluster-3, ceph-2
  --rows A,B        of easy, shared, hard, random, mdtest-easy, mdtest-hard, tree, ls [default: all]
  --repeat N        repetitions [default: 5]
  --scale SCALE     full, medium or quick [default: full]
  --binary FILE     a brindle to measure and to measure with [default: build that of this source]
  --up SYSTEM       only start this one, and leave it there
  --down [SYSTEM]   end what --up or a killed run left";

/// Action to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Say what the options are.
    Help,
    /// Start, measure, end, report.
    Measure,
    /// Start one system.
    Up(String),
    /// End these, or all.
    Down(Vec<String>),
    /// Remount the clients of a system: run by the benchmark between phases.
    Remount(String),
}

/// The options.
pub struct Options {
    /// Action to take.
    pub action: Action,
    /// Systems to measure.
    pub systems: Vec<String>,
    /// Groups to run.
    pub groups: Vec<&'static Group>,
    /// Repetitions.
    pub repeat: u32,
    /// Amounts.
    pub scale: Scale,
    /// A program other than that of this source.
    pub binary: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments.
    pub fn parse(args: &[String]) -> Result<Options, String> {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<String>>();
        let mut options = Options {
            action: Action::Measure,
            systems: list(SYSTEMS),
            groups: GROUPS.iter().collect(),
            repeat: REPEAT,
            scale: scale::FULL,
            binary: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--down" {
                options.action = Action::Down(args.by_ref().cloned().collect());
                continue;
            }
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--systems" => options.systems = list(value()?),
                "--rows" => {
                    options.groups = list(value()?).iter().map(|n| group(n)).collect::<Result<_, _>>()?
                }
                "--repeat" => options.repeat = repeat(value()?)?,
                "--scale" => options.scale = scale::of(value()?)?,
                "--binary" => options.binary = Some(absolute(value()?)?),
                "--up" => options.action = Action::Up(value()?.clone()),
                "--help" | "-h" => options.action = Action::Help,
                "--remount" => options.action = Action::Remount(value()?.clone()),
                other => return Err(format!("'{other}' is not an option\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

fn group(name: &str) -> Result<&'static Group, String> {
    GROUPS
        .iter()
        .find(|group| group.name == name)
        .ok_or_else(|| format!("no rows are called '{name}'\n{USAGE}"))
}

fn repeat(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=REPEAT_MAX).contains(n));
    number.ok_or_else(|| format!("--repeat {text}: it is a number from 1 to {REPEAT_MAX}"))
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    std::fs::canonicalize(path).map_err(|e| format!("--binary {path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let options = parse("--systems ceph,ext4 --rows hard,tree --repeat 2 --scale quick").unwrap();
        assert_eq!(options.systems, ["ceph", "ext4"]);
        assert_eq!(options.groups.iter().map(|g| g.name).collect::<Vec<_>>(), ["hard", "tree"]);
        assert_eq!((options.repeat, options.scale.name), (2, "quick"));
        assert_eq!(parse("--down ceph").unwrap().action, Action::Down(vec!["ceph".to_owned()]));
        assert_eq!(parse("--up gluster").unwrap().action, Action::Up("gluster".to_owned()));
    }

    #[test]
    fn mistakes_are_told() {
        assert!(parse("--rows fast").err().unwrap().starts_with("no rows are called 'fast'"));
        assert!(parse("--repeat 0").err().unwrap().contains("from 1 to 100"));
        assert!(parse("--repeat").err().unwrap().starts_with("--repeat needs a value"));
        assert!(parse("fast").err().unwrap().starts_with("'fast' is not an option"));
    }
}
