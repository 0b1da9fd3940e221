//! The options of `brindle serve`: declared once here, usable as flags, environment variables and keys of a TOML file.
//!
//! Precedence: file, then environment, then flag. A key of the file is the name of the flag; an unknown one is refused
//! with the nearest known key. The default file and the effective configuration are made from the declaration.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use brindle_auth::Modes;
use brindle_host::enrolment::{CONF_DIR, SERVE_FILE};
use brindle_layout::{HIGH_WATER_PERCENT_DEFAULT, HIGH_WATER_PERCENT_RANGE};
use brindle_net::fair::FairShare;
use brindle_oss::ReadCache;
use brindle_types::hsm::DIVIDE_ABOVE_BYTES_DEFAULT;
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Result};
use clap::parser::ValueSource;
use clap::{Args as _, FromArgMatches};

use crate::cpu_latency::CpuLatency;
use brindle_admin::nearest::nearest;

/// Threads of a server: disk I/O is done where the request runs, so there are some more than processors.
pub const WORKERS_MIN: usize = 4;
/// Most threads that make sense.
const WORKERS_MAX: usize = 256;

/// Arguments of `brindle serve`.
#[derive(clap::Args)]
#[command(
    after_help = "The targets' directories and all options may stand in a file: brindle config default.\n\
                        Without --dir and --config it reads /etc/brindle/serve.toml, which brindle cluster init and brindle join write.\n\
                        Example: brindle serve --dir /data/ost0 --dir /data/ost1 --listen 10.0.0.12"
)]
pub struct Args {
    /// Read options from this file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub options: Options,
    /// Print one line of JSON on standard output when ready
    #[arg(long, hide = true)]
    pub ready_json: bool,
}

/// Keys that may also stand in the file.
#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Directory of a formatted target; may be given several times
    #[arg(long, env = "BRINDLE_DIR", value_name = "DIR")]
    pub dir: Vec<PathBuf>,
    /// Serve what the cluster assigns to this host, which has joined it: brindle target add --node
    #[arg(long, env = "BRINDLE_ASSIGNED", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub assigned: bool,
    /// Address to listen at; where the host is in several networks one in each, separated by commas: 10.0.0.12,10.1.0.12 are its rails
    /// tcp and tcp1. Without an identity whoever reaches it is believed, so keep it to trusted networks then
    #[arg(long, env = "BRINDLE_LISTEN", value_name = "HOST", default_value = "127.0.0.1")]
    pub listen: String,
    /// Port of the first target; each further one takes the next. 0 for any free ones
    #[arg(long, env = "BRINDLE_PORT", default_value_t = brindle_types::ids::DEFAULT_PORT)]
    pub port: u16,
    /// Host name or address that others reach this server at, where it is not the one it listens at
    #[arg(long, env = "BRINDLE_ADVERTISE", value_name = "HOST")]
    pub advertise: Option<String>,
    /// Name of this host in messages; that of its identity, else the system's, by default
    #[arg(long, env = "BRINDLE_HOST", value_name = "NAME")]
    pub host: Option<String>,
    /// The host's identity: others must prove that they are of the same cluster. /etc/brindle/identity.pem where there is one
    #[arg(long, env = "BRINDLE_IDENTITY", value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// The weakest protection that mounts may use: auth, integrity, privacy or none; 'auth' with an identity, else 'none'. Networks can have
    /// modes of their own: auth:tcp1=privacy
    #[arg(long, env = "BRINDLE_SECURITY", value_name = "MODE", value_parser = crate::format::parse::<Modes>)]
    pub security: Option<Modes>,
    /// Keys of hosts that are not let in, one a line, beside those that the cluster has removed; for burst buffers that have given a node up
    #[arg(long, env = "BRINDLE_REFUSE", value_name = "FILE")]
    pub refuse: Option<PathBuf>,
    /// Where to serve metrics over HTTP; port 0 for any free one, 'none' for not at all
    #[arg(long, env = "BRINDLE_METRICS", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub metrics: String,
    /// Program that asks disks for their health once a minute, from smartmontools; 'none' for not asking
    #[arg(long, env = "BRINDLE_SMARTCTL", value_name = "PROGRAM", default_value = "smartctl")]
    pub smartctl: String,
    /// A program of the site, called once a minute without arguments: the JSON that it writes within 20 s is shown with the health of this host
    #[arg(long, env = "BRINDLE_HARDWARE_PROGRAM", value_name = "PROGRAM")]
    pub hardware_program: Option<PathBuf>,
    /// Directory with /sys and /proc of this host, where a container has those of its host elsewhere
    #[arg(long, env = "BRINDLE_HARDWARE_ROOT", value_name = "DIR", default_value = "/")]
    pub hardware_root: PathBuf,
    /// Write the log to the end of this file instead of standard error
    #[arg(long, env = "BRINDLE_LOG_FILE", value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// An MDT puts nothing new on OSTs that are fuller than this, in percent, while others can take it
    #[arg(long, env = "BRINDLE_HIGH_WATER", value_name = "PERCENT", value_parser = high_water, default_value_t = HIGH_WATER_PERCENT_DEFAULT)]
    pub high_water: u64,
    /// Seconds for which an MDT lets a write wait for somebody to add room, where all OSTs are full
    #[arg(long, env = "BRINDLE_ROOM_WAIT", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=ROOM_WAIT_MAX_S), default_value_t = 0)]
    pub room_wait: u64,
    /// An MDT divides files that are longer over all agents of their archive, such as 1GiB. Shorter ones are copied by one agent each
    #[arg(long, env = "BRINDLE_HSM_DIVIDE_ABOVE", value_name = "SIZE", value_parser = parse_bytes, default_value_t = DIVIDE_ABOVE_BYTES_DEFAULT)]
    pub hsm_divide_above: u64,
    /// Requests of jobs that an MDT or OST serves at once; when there are more, jobs take turns. 'auto' for 8 (MDT) and 16 (OST), 'off' to serve
    /// requests as they come
    #[arg(long, env = "BRINDLE_FAIR_SHARE", value_name = "REQUESTS", value_parser = crate::format::parse::<FairShare>, default_value_t = FairShare::Auto)]
    pub fair_share: FairShare,
    /// Which reads of 256 KiB and more go through the page cache of an OST's host: 'auto' for those of bytes that are read again, 'on' for all,
    /// 'off' for none
    #[arg(long, env = "BRINDLE_READ_CACHE", value_name = "WHICH", value_parser = crate::format::parse::<ReadCache>, default_value_t = ReadCache::Auto)]
    pub read_cache: ReadCache,
    /// Program that switches hosts off, on the host of the MGS: called with the name of a host, it ends with 0 when that host cannot write any more
    #[arg(long, env = "BRINDLE_FENCE", value_name = "PROGRAM")]
    pub fence: Option<PathBuf>,
    /// A target that was taken over goes back to its preferred host when that has stood by for so many seconds, on the host of the MGS; only by
    /// brindle target failback without it
    #[arg(long, env = "BRINDLE_FAILBACK_AFTER", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..=604_800))]
    pub failback_after: Option<u64>,
    /// Run on the processors of this NUMA node only, best the one that the disk and the network card are at
    #[arg(long, env = "BRINDLE_NUMA_NODE", value_name = "NODE")]
    pub numa_node: Option<u32>,
    /// How fast processors have to wake up while this server is busy, in microseconds; 'auto' for what suits the
    /// machine, 'system' to leave them alone
    #[arg(long, env = "BRINDLE_CPU_LATENCY", value_name = "MICROSECONDS", default_value_t = CpuLatency::Auto)]
    pub cpu_latency: CpuLatency,
    /// Keep all memory locked, where swap lies on a target: a server that waits for its own pages would wait for itself
    #[arg(long, env = "BRINDLE_LOCK_MEMORY", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub lock_memory: bool,
    /// Threads
    #[arg(long, env = "BRINDLE_WORKERS", value_parser = workers, default_value_t = WORKERS_MIN)]
    pub workers: usize,
}

fn workers(text: &str) -> std::result::Result<usize, String> {
    let n = text.parse().ok().filter(|n| (WORKERS_MIN..=WORKERS_MAX).contains(n));
    n.ok_or_else(|| format!("it must be {WORKERS_MIN} to {WORKERS_MAX}"))
}

/// Longest wait for room: whoever writes hangs meanwhile.
const ROOM_WAIT_MAX_S: u64 = 60;

fn high_water(text: &str) -> std::result::Result<u64, String> {
    let range = HIGH_WATER_PERCENT_RANGE;
    let percent = text.trim_end_matches('%').parse().ok().filter(|n| range.contains(n));
    percent.ok_or_else(|| format!("it must be {} to {}", range.start(), range.end()))
}

fn declaration() -> clap::Command {
    Options::augment_args(clap::Command::new("serve").no_binary_name(true))
}

/// Keys of the file.
fn keys(command: &clap::Command) -> Vec<String> {
    command.get_arguments().filter_map(|a| a.get_long()).map(str::to_owned).collect()
}

/// The options with the file's filled in where neither flag nor environment said otherwise.
pub fn effective(args: &Args, command_line: &[OsString]) -> Result<Options> {
    let own = Path::new(CONF_DIR).join(SERVE_FILE);
    let is_given = !args.options.dir.is_empty() || args.options.assigned;
    // A host that has joined a cluster needs no options.
    let path = match &args.config {
        Some(path) => path,
        None if !is_given && own.exists() => &own,
        None => return Ok(args.options.clone()),
    };
    let from_file = read_file(path)?;
    let given = given_keys(command_line);
    let missing = from_file.into_iter().filter(|(key, _)| !given.contains(key));
    let mut merged: Vec<OsString> = missing.map(|(_, argument)| argument.into()).collect();
    merged.extend(without_config(command_line));
    parse(&merged).map_err(|e| in_file(path, &e))
}

/// Checks a file by itself.
pub fn check_file(path: &Path) -> Result<Options> {
    let from_file = read_file(path)?;
    let arguments: Vec<OsString> = from_file.into_iter().map(|(_, argument)| argument.into()).collect();
    parse(&arguments).map_err(|e| in_file(path, &e))
}

fn parse(arguments: &[OsString]) -> std::result::Result<Options, clap::Error> {
    let matches = declaration().try_get_matches_from(arguments)?;
    Options::from_arg_matches(&matches)
}

/// Keys that flags or the environment have set.
fn given_keys(command_line: &[OsString]) -> Vec<String> {
    let command = declaration();
    let Ok(matches) = command.clone().try_get_matches_from(without_config(command_line)) else {
        return Vec::new();
    };
    let set = |id: &str| {
        matches!(matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let arguments = command.get_arguments().filter(|a| set(a.get_id().as_str()));
    arguments.filter_map(|a| a.get_long()).map(str::to_owned).collect()
}

/// The words behind `serve`, without those that cannot stand in the file.
fn without_config(command_line: &[OsString]) -> Vec<OsString> {
    let mut words = command_line.iter().skip_while(|w| *w != "serve").skip(1);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == "--config" {
            words.next();
        } else if text != "--ready-json" && !text.starts_with("--config=") {
            kept.push(word.clone());
        }
    }
    kept
}

/// The file as (key, `--key=value`).
fn read_file(path: &Path) -> Result<Vec<(String, String)>> {
    let subject = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Fault::io(Code::BadArgument, "cannot read", subject.clone(), &e))?;
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        Fault::new(Code::BadConfigValue)
            .what("cannot read")
            .subject(subject.clone())
            .why(format!("line {line}: {}", e.message()))
    })?;
    let known = keys(&declaration());
    let mut arguments = Vec::new();
    for (key, value) in &table {
        if !known.contains(key) {
            return Err(unknown_key(&subject, key, &known));
        }
        let values = match value {
            toml::Value::Array(items) => items.iter().collect(),
            one => vec![one],
        };
        for value in values {
            arguments.push((key.clone(), format!("--{key}={}", plain(&subject, key, value)?)));
        }
    }
    Ok(arguments)
}

fn plain(subject: &str, key: &str, value: &toml::Value) -> Result<String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(n) => Ok(n.to_string()),
        toml::Value::Boolean(b) => Ok(b.to_string()),
        other => Err(Fault::new(Code::BadConfigValue)
            .subject(subject.to_owned())
            .why(format!("{key}: a {} is not possible here", other.type_str()))),
    }
}

fn unknown_key(subject: &str, key: &str, known: &[String]) -> Fault {
    let fault = Fault::new(Code::UnknownConfigKey)
        .subject(subject.to_owned())
        .why(format!("'{key}' is not a key of brindle serve"));
    match nearest(key, known.iter().map(String::as_str)) {
        Some(near) => fault.next(format!("did you mean '{near}'?")),
        None => fault.next(format!("the keys are: {}", known.join(", "))),
    }
}

/// Objection of clap to a value of the file.
fn in_file(path: &Path, e: &clap::Error) -> Fault {
    let text = e.to_string();
    let first = text.lines().next().unwrap_or_default();
    Fault::new(Code::BadConfigValue)
        .subject(path.display().to_string())
        .why(first.trim_start_matches("error: ").to_owned())
}

/// A file with every key, its meaning and its default.
pub fn default_file() -> String {
    let mut file = String::from(
        "# Configuration of `brindle serve --config FILE`. Every key is also a flag (--key) and an environment\n\
         # variable (BRINDLE_KEY). A flag wins over the environment, the environment over this file.\n",
    );
    for argument in declaration().get_arguments() {
        let Some(key) = argument.get_long() else { continue };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let default = argument.get_default_values().first().map(|v| v.to_string_lossy().into_owned());
        let line = match default {
            Some(value) => format!("{key} = {}", as_toml(&value)),
            None if matches!(argument.get_action(), clap::ArgAction::Append) => format!("#{key} = []"),
            None => format!("#{key} = \"\""),
        };
        // Writing to a String cannot fail.
        let _ = write!(file, "\n# {help}\n{line}\n");
    }
    file
}

fn as_toml(value: &str) -> String {
    if value.parse::<i64>().is_ok() { value.to_owned() } else { format!("{value:?}") }
}

impl Options {
    /// Every option with its value in force, in one line for the log.
    pub fn line(&self) -> String {
        let shown: Vec<String> = self.values().into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        shown.join(" ")
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let dirs: Vec<String> = self.dir.iter().map(|d| d.display().to_string()).collect();
        let or_none = |v: &Option<String>| v.clone().unwrap_or_default();
        vec![
            ("dir", dirs.join(",")),
            ("assigned", self.assigned.to_string()),
            ("listen", self.listen.clone()),
            ("port", self.port.to_string()),
            ("advertise", or_none(&self.advertise)),
            ("host", or_none(&self.host)),
            ("identity", self.identity.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
            ("security", self.security.map(|modes| modes.to_string()).unwrap_or_default()),
            ("refuse", self.refuse.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
            ("metrics", self.metrics.clone()),
            ("smartctl", self.smartctl.clone()),
            (
                "hardware-program",
                self.hardware_program.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            ),
            ("hardware-root", self.hardware_root.display().to_string()),
            ("log", self.log.as_ref().map(|l| l.display().to_string()).unwrap_or_default()),
            ("high-water", self.high_water.to_string()),
            ("room-wait", self.room_wait.to_string()),
            ("hsm-divide-above", self.hsm_divide_above.to_string()),
            ("fair-share", self.fair_share.to_string()),
            ("read-cache", self.read_cache.to_string()),
            ("fence", self.fence.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
            ("failback-after", self.failback_after.map(|s| s.to_string()).unwrap_or_default()),
            ("numa-node", self.numa_node.map(|n| n.to_string()).unwrap_or_default()),
            ("cpu-latency", self.cpu_latency.to_string()),
            ("lock-memory", self.lock_memory.to_string()),
            ("workers", self.workers.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn options(file: &str, flags: &[&str]) -> Result<Options> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serve.toml");
        std::fs::write(&path, file).unwrap();
        let config = format!("--config={}", path.display());
        let mut line: Vec<OsString> = vec!["brindle".into(), "serve".into(), config.clone().into()];
        line.extend(flags.iter().map(OsString::from));
        let words = ["brindle", &config].into_iter().chain(flags.iter().copied());
        let args = Line::try_parse_from(words).unwrap().args;
        effective(&args, &line)
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let file = "dir = [\"/a\", \"/b\"]\nport = 7\nlisten = \"::1\"\n";
        let o = options(file, &["--port", "8"]).unwrap();
        assert_eq!((o.port, o.listen.as_str(), o.dir.len()), (8, "::1", 2));
        let o = options(file, &["--dir", "/c"]).unwrap();
        assert_eq!(o.dir, [PathBuf::from("/c")], "a list is replaced, not joined");
    }

    #[test]
    fn the_default_file_changes_nothing() {
        let o = options(&default_file(), &["--dir", "/a"]).unwrap();
        assert_eq!((o.port, o.workers, o.metrics.as_str()), (9880, WORKERS_MIN, "127.0.0.1:0"));
    }

    #[test]
    fn mistakes_are_named() {
        let f = options("lisen = \"x\"\n", &[]).unwrap_err();
        assert_eq!((f.code, f.next.as_ref()), (Code::UnknownConfigKey, "did you mean 'listen'?"));
        let f = options("workers = 1\n", &[]).unwrap_err();
        assert_eq!(f.code, Code::BadConfigValue);
        assert_eq!(f.why, ["invalid value '1' for '--workers <WORKERS>': it must be 4 to 256"]);
        let f = options("port = 1\nx = [\n", &[]).unwrap_err();
        assert!(f.why[0].starts_with("line "), "{f}");
        assert_eq!(options("port = 1.5\n", &[]).unwrap_err().why, ["port: a float is not possible here"]);
    }

    #[test]
    fn every_option_is_printed_at_start() {
        let o = options("", &["--dir", "/a"]).unwrap();
        let printed: Vec<String> = o.values().into_iter().map(|(k, _)| k.to_owned()).collect();
        assert_eq!(printed, keys(&declaration()));
    }
}
