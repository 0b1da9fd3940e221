//! Options of a mount: from flags, from `-o`, and from the command line that mount(8) gives to `mount.brindle`.

use std::ffi::OsString;
use std::path::PathBuf;

use brindle_auth::Modes;
use brindle_types::{Code, Fault, Result};

use brindle_client::Switches;
use brindle_fuse::JobFrom;

use super::Args;
use super::switches::{SWITCHES, find};
use crate::cli;
use crate::cpu_latency::CpuLatency;
use brindle_admin::nearest::nearest;
use brindle_admin::place::Source;

/// Options of fstab that are others' business, or that change nothing here: reads change times of last access as `relatime` has it, directories
/// have none that reading changes, the kernel keeps no times, and changes of names are as durable as the MDT's `durability=` says, for every client alike.
const ACCEPTED: [&str; 20] = [
    "defaults",
    "auto",
    "noauto",
    "_netdev",
    "nofail",
    "user",
    "nouser",
    "users",
    "dirsync",
    "nodirsync",
    "relatime",
    "nodiratime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "lazytime",
    "nolazytime",
    "flock",
    "allow_other",
];
/// Options that do something.
const KNOWN: [&str; 17] = [
    "ro",
    "nodev",
    "nosuid",
    "noexec",
    "remount",
    "log",
    "identity",
    "security",
    "metrics",
    "cpu-latency",
    "sync",
    "async",
    "no_recall",
    "job_from",
    "failout",
    "noatime",
    "atime",
];
/// Longest time that `failout=` takes: a day.
const FAILOUT_MAX_S: u32 = 86_400;
/// Options that /proc/mounts shows of a mount, and that mount(8) repeats at a remount.
const SHOWN: [&str; 6] = ["user_id", "group_id", "default_permissions", "allow_other", "max_read", "blksize"];

/// Settings of a mount.
#[derive(Clone, Debug)]
pub struct Settings {
    /// File system to mount.
    pub source: Source,
    /// Mount point.
    pub mount_point: PathBuf,
    /// Change what is mounted there instead of mounting.
    pub remount: bool,
    /// Refuse changes.
    pub read_only: bool,
    /// Ignore device nodes.
    pub nodev: bool,
    /// Ignore set-id bits.
    pub nosuid: bool,
    /// Refuse to execute.
    pub noexec: bool,
    /// Log file.
    pub log: Option<PathBuf>,
    /// The host's identity, if another one than usual.
    pub identity: Option<PathBuf>,
    /// The weakest protection of frames, if another one than usual.
    pub security: Option<Modes>,
    /// Address of the metrics, or `none`.
    pub metrics: String,
    /// Threads.
    pub workers: u16,
    /// Latency within which processors have to wake up while the mount is busy.
    pub cpu_latency: CpuLatency,
    /// Mechanisms that it does without.
    pub switches: Switches,
    /// Whether every write(2) is durable when it is answered.
    pub sync: bool,
    /// The source of a job's name.
    pub job_from: JobFrom,
    /// Seconds after which what needs an unreachable OST fails; `None`: it waits.
    pub failout_s: Option<u32>,
    /// Keep all memory locked.
    pub lock_memory: bool,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Announce on standard output.
    pub ready_json: bool,
}

/// Takes the options apart.
pub fn settle(args: Args) -> Result<Settings> {
    let mut settings = Settings {
        mount_point: PathBuf::from(cli::text(&args.mount_point)?),
        source: args.source,
        remount: false,
        read_only: false,
        nodev: false,
        nosuid: false,
        noexec: false,
        log: args.log,
        identity: args.identity,
        security: args.security,
        metrics: args.metrics,
        workers: args.workers,
        cpu_latency: args.cpu_latency,
        switches: Switches::default(),
        sync: false,
        job_from: JobFrom::default(),
        failout_s: None,
        lock_memory: args.lock_memory,
        foreground: args.foreground,
        ready_json: args.ready_json,
    };
    settings.remount = args.options.iter().any(|o| o == "remount");
    for option in args.options.iter().filter(|o| !o.is_empty()) {
        apply(&mut settings, option)?;
    }
    if settings.read_only && !settings.remount {
        settings.switches.access_times = false;
    }
    Ok(settings)
}

fn apply(settings: &mut Settings, option: &str) -> Result<()> {
    let (key, value) = option.split_once('=').map_or((option, None), |(k, v)| (k, Some(v)));
    match (key, value) {
        ("ro", None) => settings.read_only = true,
        ("nodev", None) => settings.nodev = true,
        ("nosuid", None) => settings.nosuid = true,
        ("noexec", None) => settings.noexec = true,
        ("rw", None) => settings.read_only = false,
        ("dev", None) => settings.nodev = false,
        ("suid", None) => settings.nosuid = false,
        ("exec", None) => settings.noexec = false,
        ("remount", None) => {}
        (shown, _) if settings.remount && SHOWN.contains(&shown) => {}
        ("log" | "metrics" | "cpu-latency" | "identity" | "security" | "job_from" | "failout", Some(_))
        | ("sync", None)
            if settings.remount =>
        {
            return Err(fixed(key));
        }
        (name, Some(_)) if settings.remount && find(name).is_some() => return Err(fixed(key)),
        ("no_recall" | "atime", None) if settings.remount => return Err(fixed(key)),
        // (mount(8) repeats the options of fstab at a remount of anything: the mount may have it.)
        ("noatime", None) => settings.switches.access_times = false,
        ("atime", None) => settings.switches.access_times = true,
        ("no_recall", None) => settings.switches.recall = false,
        ("sync", None) => settings.sync = true,
        ("async", None) => settings.sync = false,
        ("log", Some(path)) => settings.log = Some(PathBuf::from(path)),
        ("identity", Some(path)) => settings.identity = Some(PathBuf::from(path)),
        ("security", Some(mode)) => {
            settings.security = Some(mode.parse().map_err(|why| bad_value(option, why))?);
        }
        ("metrics", Some(address)) => address.clone_into(&mut settings.metrics),
        ("cpu-latency", Some(latency)) => {
            settings.cpu_latency = latency.parse().map_err(|why| bad_value(option, why))?;
        }
        ("job_from", Some(from)) => {
            settings.job_from = from.parse().map_err(|why| bad_value(option, why))?;
        }
        ("failout", Some(seconds)) => settings.failout_s = Some(failout(option, seconds)?),
        (known, None) if ACCEPTED.contains(&known) => {}
        (name, value) if find(name).is_some() => {
            let Some(switch) = find(name) else { return Err(unknown(name)) };
            *(switch.of)(&mut settings.switches) = match value {
                Some("on") => true,
                Some("off") => false,
                _ => return Err(bad_value(option, "it must be 'on' or 'off'".to_owned())),
            };
        }
        (other, _) if other.starts_with("x-") || other == "comment" => {}
        (other, _) => return Err(unknown(other)),
    }
    Ok(())
}

fn failout(option: &str, seconds: &str) -> Result<u32> {
    let why = format!("it takes whole seconds, from 0 (at once) to {FAILOUT_MAX_S}");
    let seconds: Option<u32> = seconds.parse().ok();
    seconds.filter(|seconds| *seconds <= FAILOUT_MAX_S).ok_or_else(|| bad_value(option, why))
}

/// Refuses to change options with which the daemon of a mount was started.
pub(super) fn fixed(option: &str) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot remount with the option")
        .subject(option.to_owned())
        .why("it is fixed while the daemon of the mount runs")
        .data("nothing was changed")
        .next("unmount it, and mount it again with the new options")
}

fn bad_value(option: &str, why: String) -> Fault {
    Fault::new(Code::BadArgument).what("cannot mount with the option").subject(option.to_owned()).why(why)
}

fn unknown(option: &str) -> Fault {
    let fault = Fault::new(Code::BadArgument)
        .what("cannot mount with the option")
        .subject(option.to_owned())
        .why("it is not known, or misses or has a value that it should not");
    let switches = SWITCHES.iter().map(|switch| switch.name);
    match nearest(option, KNOWN.into_iter().chain(ACCEPTED).chain(switches.clone())) {
        Some(near) => fault.next(format!("did you mean '{near}'?")),
        None => {
            let all: Vec<&str> = KNOWN.into_iter().chain(switches).collect();
            fault.next(format!("the options are: {}", all.join(", ")))
        }
    }
}

/// A source as mount(8) and mountinfo show it.
pub fn source_text(source: &Source) -> String {
    let text = |nid: &brindle_types::Nid| {
        let text = nid.to_string();
        text.strip_suffix("@tcp").map(str::to_owned).unwrap_or(text)
    };
    let hosts: Vec<String> = source.mgs.iter().map(text).collect();
    let sub = if source.subdir.is_empty() { String::new() } else { format!("/{}", source.subdir) };
    format!("{}:/{}{sub}", hosts.join(","), source.fs)
}

impl Settings {
    /// The source as mount(8) and mountinfo show it.
    pub fn source_text(&self) -> String {
        source_text(&self.source)
    }

    /// The command line that makes the daemon do the same in the foreground.
    pub fn foreground_arguments(&self, log: &std::path::Path) -> Vec<String> {
        let flags =
            [(self.read_only, "ro"), (self.nodev, "nodev"), (self.nosuid, "nosuid"), (self.noexec, "noexec")];
        let flags = flags.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned());
        let mut switches = self.switches;
        let off = SWITCHES.iter().filter(|switch| !*(switch.of)(&mut switches));
        let mut options: Vec<String> = off.map(|switch| format!("{}=off", switch.name)).collect();
        options.extend(flags);
        options.extend(self.sync.then(|| "sync".to_owned()));
        let is_default = self.job_from == JobFrom::default();
        options.extend((!is_default).then(|| format!("job_from={}", self.job_from)));
        options.extend(self.failout_s.map(|seconds| format!("failout={seconds}")));
        let mut arguments = vec![
            "mount".to_owned(),
            "--foreground".to_owned(),
            "--ready-json".to_owned(),
            format!("--log={}", log.display()),
            format!("--metrics={}", self.metrics),
            format!("--workers={}", self.workers),
            format!("--cpu-latency={}", self.cpu_latency),
        ];
        arguments.extend(self.lock_memory.then(|| "--lock-memory".to_owned()));
        arguments.extend(self.identity.iter().map(|path| format!("--identity={}", path.display())));
        arguments.extend(self.security.iter().map(|mode| format!("--security={mode}")));
        if !options.is_empty() {
            arguments.push(format!("-o{}", options.join(",")));
        }
        arguments.push(self.source_text());
        arguments.push(self.mount_point.display().to_string());
        arguments
    }
}

/// Whether this is a command line of mount(8): `mount.brindle SOURCE DIR ...`, or `brindle SOURCE DIR ...` as mount.fuse
/// puts it for the type `fuse.brindle`.
pub fn is_asked_by_mount(arguments: &[OsString]) -> bool {
    let name = arguments.first().map(std::path::Path::new).and_then(std::path::Path::file_name);
    let is_source = |word: &OsString| word.to_str().is_some_and(|word| word.contains(":/"));
    match name.and_then(std::ffi::OsStr::to_str) {
        Some("mount.brindle" | "mount.fuse.brindle") => true,
        Some("brindle") => arguments.get(1).is_some_and(is_source) && arguments.len() > 2,
        _ => false,
    }
}

/// The command line of `mount.brindle` as ours. mount(8) calls it as `mount.brindle SOURCE DIR [-sfnv] [-N NS] [-o OPTIONS]
/// [-t TYPE]`.
pub fn mount_helper(arguments: &[OsString]) -> Vec<OsString> {
    let mut ours: Vec<OsString> = vec!["brindle".into(), "mount".into()];
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-t" | "-N") => {
                words.next();
            }
            Some("-o" | "--help" | "-h") => ours.push(word.clone()),
            Some(flags) if is_ours_to_read(flags) => {
                if flags.contains('f') {
                    ours.push("--dry-run".into());
                }
            }
            _ => ours.push(word.clone()),
        }
    }
    ours
}

/// `-s` (sloppy), `-f` (fake: check only), `-n` (no mtab), `-v` (verbose), in any combination.
fn is_ours_to_read(flags: &str) -> bool {
    flags.strip_prefix('-').is_some_and(|f| !f.is_empty() && f.chars().all(|c| "sfnvr".contains(c)))
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

    fn settings(words: &[&str]) -> Result<Settings> {
        settle(Line::try_parse_from(["brindle"].iter().chain(words)).unwrap().args)
    }

    #[test]
    fn options_of_fstab_are_understood_and_misspelt_ones_named() {
        let s = settings(&["mgs1:/scratch", "/mnt", "-o", "defaults,ro,_netdev,x-systemd.automount,log=/l"])
            .unwrap();
        assert!(s.read_only && !s.nodev);
        assert_eq!(s.log, Some(PathBuf::from("/l")));
        let fault = settings(&["mgs1:/scratch", "/mnt", "-o", "nosiud"]).unwrap_err();
        assert_eq!(fault.next, "did you mean 'nosuid'?");
        assert!(settings(&["mgs1:/scratch", "/mnt", "-o", "ro=1"]).is_err());
        let fault = settings(&["mgs1:/scratch", "/mnt", "-o", "cpu-latency=fast"]).unwrap_err();
        assert!(fault.to_string().contains("it must be 'auto', 'system'"), "{fault}");
        let fault = settings(&["mgs1:/scratch", "/mnt", "-o", "write-behind=maybe"]).unwrap_err();
        assert!(fault.to_string().contains("it must be 'on' or 'off'"), "{fault}");
        assert!(settings(&["mgs1:/scratch", "/mnt", "-o", "write-behind=on"]).unwrap().switches.write_behind);
        assert!(settings(&["mgs1:/scratch", "/mnt"]).unwrap().switches.write_behind, "the default");
    }

    #[test]
    fn failout_takes_seconds_and_is_off_unless_asked_for() {
        let failout =
            |option: &str| settings(&["m:/a", "/mnt", "-o", option]).map(|settings| settings.failout_s);
        assert_eq!(failout("rw").unwrap(), None);
        assert_eq!(failout("failout=90").unwrap(), Some(90));
        for wrong in ["failout=-1", "failout=2s", "failout=", "failout=86401"] {
            let fault = failout(wrong).unwrap_err();
            assert!(fault.to_string().contains("whole seconds"), "{fault}");
        }
        assert!(failout("failout").is_err() && failout("remount,failout=1").is_err());
    }

    #[test]
    fn noatime_and_ro_leave_times_of_access_as_they_are() {
        let keeps = |option: &str| settings(&["m:/a", "/mnt", "-o", option]).map(|s| s.switches.access_times);
        for on in ["rw", "relatime", "strictatime", "noatime,atime", "access-times=on", "ro,rw"] {
            assert!(keeps(on).unwrap(), "{on}");
        }
        for off in ["noatime", "ro", "access-times=off", "ro,access-times=on"] {
            assert!(!keeps(off).unwrap(), "{off}");
        }
        assert!(
            !keeps("remount,noatime").unwrap() && keeps("remount,ro").unwrap(),
            "the mount must have it already"
        );
        assert!(keeps("remount,access-times=off").is_err());
    }

    #[test]
    fn sync_is_honoured_and_what_changes_nothing_here_is_taken() {
        let s = settings(&["m:/a", "/mnt", "-o", "sync,dirsync,strictatime,lazytime"]).unwrap();
        assert!(s.sync);
        assert!(s.foreground_arguments(std::path::Path::new("/log")).iter().any(|a| a == "-osync"));
        assert!(!settings(&["m:/a", "/mnt", "-o", "sync,async"]).unwrap().sync);
        assert!(settings(&["m:/a", "/mnt", "-o", "remount,sync"]).is_err(), "the daemon runs without");
    }

    #[test]
    fn a_remount_takes_what_the_kernel_keeps_and_refuses_what_the_daemon_has() {
        let shown = "rw,nosuid,relatime,user_id=0,group_id=0,allow_other,max_read=1048576,remount,ro,suid";
        let s = settings(&["mgs:/a", "/mnt", "-o", shown]).unwrap();
        assert!(s.remount && s.read_only && !s.nosuid);
        let fault = settings(&["mgs:/a", "/mnt", "-o", "remount,log=/l"]).unwrap_err();
        assert!(fault.to_string().contains("unmount it"), "{fault}");
        assert!(settings(&["mgs:/a", "/mnt", "-o", "user_id=0"]).is_err(), "the kernel gives it");
    }

    #[test]
    fn the_daemon_gets_what_the_command_got() {
        let options = "ro,nodev,cpu-latency=20,write-behind=off,event-loop=off,job_from=PBS_JOBID,failout=0";
        let words = ["m1,m2:77:/scratch/a/b", "/mnt", "-o", options, "--metrics", "none"];
        let s = settings(&words).unwrap();
        let again = s.foreground_arguments(std::path::Path::new("/log"));
        let again: Vec<&str> = again.iter().skip(1).map(String::as_str).collect();
        let t = settings(&again).unwrap();
        assert!(t.foreground && t.ready_json && t.read_only && t.nodev && !t.noexec);
        let off =
            Switches { write_behind: false, event_loop: false, access_times: false, ..Switches::default() };
        assert_eq!(t.switches, off, "a read-only mount changes no times either");
        assert_eq!(t.failout_s, Some(0));
        assert_eq!(t.job_from, JobFrom::Variable("PBS_JOBID".to_owned()));
        assert_eq!((t.source, t.metrics.as_str()), (s.source, "none"));
        assert_eq!((t.mount_point, t.cpu_latency), (s.mount_point, CpuLatency::Micros(20)));
    }

    #[test]
    fn mount_8_is_understood() {
        let words = ["mount.brindle", "mgs:/a", "/mnt", "-sn", "-t", "brindle", "-o", "ro"];
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        assert_eq!(mount_helper(&words), ["brindle", "mount", "mgs:/a", "/mnt", "-o", "ro"]);
        let words: Vec<OsString> =
            ["mount.brindle", "mgs:/a", "/mnt", "-fv"].iter().map(OsString::from).collect();
        assert_eq!(mount_helper(&words), ["brindle", "mount", "mgs:/a", "/mnt", "--dry-run"]);
        let is_asked =
            |words: &[&str]| is_asked_by_mount(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(
            is_asked(&["/sbin/mount.brindle", "a"]) && is_asked(&["mount.fuse.brindle", "mgs:/a", "/mnt"])
        );
        assert!(is_asked(&["brindle", "mgs:/a", "/mnt", "-o", "ro"]));
        assert!(!is_asked(&["brindle", "mount", "mgs:/a", "/mnt"]) && !is_asked(&["brindle", "mgs:/a"]));
    }
}
