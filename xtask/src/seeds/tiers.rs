//! Two file systems of hosts on throttled devices: a fast tier, and its archive, a second Brindle.
//!
//! Each host with OSTs of the fast tier has an agent. It writes through a mount of the archive that has a link of its own, so what is archived goes
//! over another network than what is written. One policy engine has the text of the document.
//!
//! Invariant: when [`Tiers`] is dropped, no process, device, rule, host, mount or file of it is left.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::commands::Commands;
use super::place::Limit;
use super::rows::HostCluster;
use super::throttle::{self, Rate, Throttles};
use crate::Session;
use crate::run::{self, interrupted};

/// Hosts of each file system: two for the MGS and the MDT, four with OSTs.
const HOSTS: u32 = 6;
/// OSTs of the fast tier, as many as the document has devices; and of its archive.
const OSTS: u32 = 16;
const ARCHIVE_OSTS: u32 = 4;
/// What a device of the fast tier lets pass: a sixteenth of 16 GB/s of writes and 43.2 GB/s of reads, by 133.
const RATE: Rate = Rate { write: 7_500_000, read: 20_250_000 };
/// What a device of the archive lets pass: a quarter of 6 GB/s, by 133.
const ARCHIVE_RATE: Rate = Rate { write: 11_250_000, read: 11_250_000 };
/// Links of the archive's network: QDR lets pass 3.2 GB/s.
const ARCHIVE_LINK: &str = "192mbit";
/// Interval at which states are asked for.
const POLL: Duration = Duration::from_millis(100);
/// Longest time of one step of the experiment.
const STEP_MAX: Duration = Duration::from_secs(600);
/// The policy that releases.
const PURGE: &str = "purge";

/// Sizes and times of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// What each process writes, in MiB.
    pub file_mib: u64,
    /// What stands for 300 s.
    pub wait_secs: u64,
    /// Sizes of the OSTs. With what OSTs keep for clients a checkpoint is less than 33 % of the fast tier, two are less than 66 %, three are
    /// more.
    ost_size: &'static str,
    archive_ost_size: &'static str,
}

/// 128 GB of each process, by 1000.
pub const FULL: Scale =
    Scale { file_mib: 122, wait_secs: 40, ost_size: "512MiB", archive_ost_size: "2560MiB" };
/// A quarter of that, for a run that only checks that everything works.
pub const QUICK: Scale =
    Scale { file_mib: 30, wait_secs: 10, ost_size: "160MiB", archive_ost_size: "768MiB" };

/// What the devices of both file systems let pass.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the fast tier.
    pub fast: Limit,
    /// Of the archive.
    pub archive: Limit,
}

/// A process that stays: an agent, or the policy engine.
struct Service {
    name: String,
    child: Child,
}

impl Drop for Service {
    fn drop(&mut self) {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if !has_ended && !run::kill_group(&mut self.child) {
            eprintln!("{} did not go away when killed (process {})", self.name, self.child.id());
        }
    }
}

/// The tiers, running.
pub struct Tiers<'a> {
    commands: Commands<'a>,
    scale: Scale,
    /// Directories of the two clusters.
    fast: PathBuf,
    archive: PathBuf,
    /// The text of the policies, and the directory of their engine.
    policy: PathBuf,
    services: Vec<Service>,
    /// Lifted before the devices go.
    throttles: Option<Throttles>,
}

impl Tiers<'_> {
    /// Starts both file systems, throttles their devices, and starts the agents.
    pub fn up<'a>(
        session: &'a Session,
        program: &Path,
        place: &HostCluster,
        scale: Scale,
    ) -> Result<Tiers<'a>, String> {
        let commands = Commands::new(session, place.name, program);
        let dir = commands.place_dir(place.name);
        let mut tiers = Tiers {
            commands,
            scale,
            fast: dir.join("fast"),
            archive: dir.join("archive"),
            policy: dir.join("policy"),
            services: Vec::new(),
            throttles: Some(Throttles::new()?),
        };
        tiers.end_former()?;
        std::fs::create_dir_all(&tiers.policy).map_err(|e| format!("{}: {e}", tiers.policy.display()))?;
        let fast = [
            format!("--clients={}", place.clients),
            format!("--osts={OSTS}"),
            format!("--ost-size={}", scale.ost_size),
            format!("--rate={}kbit", place.kbit_per_second),
        ];
        let archive = [
            format!("--clients={}", place.oss),
            format!("--osts={ARCHIVE_OSTS}"),
            format!("--ost-size={}", scale.archive_ost_size),
            format!("--rate={ARCHIVE_LINK}"),
            "--fsname=archive".to_owned(),
        ];
        let hosts = format!("--hosts={HOSTS}");
        tiers.commands.dev(&tiers.fast, &["up"], &[std::slice::from_ref(&hosts), &fast[..]].concat())?;
        tiers.commands.dev(&tiers.archive, &["up"], &[&[hosts], &archive[..]].concat())?;
        tiers.start_agents(place.oss)?;
        Ok(tiers)
    }

    /// Ends what a run that was killed has left.
    fn end_former(&self) -> Result<(), String> {
        self.commands.end_former(&self.fast)?;
        self.commands.end_former(&self.archive)
    }

    /// Throttles all devices, and measures what they let pass.
    pub fn limits(&mut self, seconds: u32) -> Result<Limits, String> {
        let throttles = self.throttles.as_mut().ok_or("the throttles were lifted")?;
        let mut measured = Vec::new();
        for (dir, count, rate) in [(&self.fast, OSTS, RATE), (&self.archive, ARCHIVE_OSTS, ARCHIVE_RATE)] {
            let devices = throttle::devices_below(dir)?;
            if devices.len() != count as usize {
                return Err(format!("{} has {} devices, not {count}", dir.display(), devices.len()));
            }
            devices.iter().try_for_each(|device| throttles.set(device, rate))?;
            measured.push(throttle::limit(&devices, rate, seconds)?);
        }
        Ok(Limits { fast: measured[0], archive: measured[1] })
    }

    /// A mount of the fast tier.
    pub fn mount(&self, client: u32) -> PathBuf {
        self.fast.join("mnt").join(format!("c{client}"))
    }

    /// Commands of the program.
    pub fn commands(&self) -> &Commands<'_> {
        &self.commands
    }

    /// Files of the experiment itself.
    pub fn control_dir(&self) -> &Path {
        &self.policy
    }

    /// Sizes and times.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// An agent on each host with OSTs.
    fn start_agents(&mut self, oss: u32) -> Result<(), String> {
        let first = self.archive.join("mnt/c1/tier");
        std::fs::create_dir(&first).map_err(|e| format!("{}: {e}", first.display()))?;
        self.stripe(&first, -1)?;
        // Files that come back are put together in one that has the layout of the root.
        self.stripe(&self.mount(1), -1)?;
        let hosts = self.commands.hosts(&self.fast)?;
        for n in 1..=oss {
            let name = format!("oss{n}");
            let host = hosts.iter().find(|host| host["name"] == name.as_str());
            let namespace = host.and_then(|host| host["namespace"].as_str());
            let namespace = namespace.ok_or_else(|| format!("the fast tier has no host {name}"))?;
            let backend = self.archive.join(format!("mnt/c{n}/tier"));
            // `nsenter` becomes the agent, so that its end is seen.
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={namespace}")).arg(self.commands.program()).args([
                "agent".to_owned(),
                "--archive=1".to_owned(),
                format!("--backend=posix:{}", backend.display()),
                format!("--identity={}", self.fast.join("identities").join(format!("{name}.pem")).display()),
                format!("--log={}", self.commands.log(&format!("agent-{name}")).display()),
                self.mount(1).display().to_string(),
            ]);
            self.start(&format!("agent-{name}"), command)?;
        }
        self.until("all agents have reported", |tiers| {
            Ok(tiers.status()?["mdts"][0]["agents"].as_array().is_some_and(|all| all.len() == oss as usize))
        })?;
        Ok(())
    }

    fn start(&mut self, name: &str, mut command: Command) -> Result<(), String> {
        use std::os::unix::process::CommandExt;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(|e| format!("cannot start {name}: {e}"))?;
        self.services.push(Service { name: name.to_owned(), child });
        Ok(())
    }

    /// New files in a directory lie on so many OSTs; -1: on all.
    pub fn stripe(&self, dir: &Path, count: i32) -> Result<(), String> {
        let words = ["lfs", "setstripe", "-c", &count.to_string(), &dir.display().to_string()];
        self.commands.brindle(&words, "setstripe").map(drop)
    }

    /// The document's policies with this condition. The engine is started with the first text, and takes the next ones by itself.
    pub fn policies(&mut self, condition: &str) -> Result<(), String> {
        let file = self.policy.join("policy.conf");
        let fresh = self.policy.join("policy.new");
        let text = policy_text(condition, self.scale.wait_secs);
        std::fs::write(&fresh, text)
            .and_then(|()| std::fs::rename(&fresh, &file))
            .map_err(|e| format!("{}: {e}", file.display()))?;
        self.commands.brindle(&["policy", "check", &file.display().to_string()], "policy-check")?;
        if !self.services.iter().any(|service| service.name == "policy") {
            let log = format!("--log={}", self.commands.log("policy").display());
            let mut command = self.commands.process();
            let identity = format!("--identity={}", self.fast.join("identity.pem").display());
            command.args(["policy", "run", &self.state(), &log, &identity]).args([&file, &self.mount(1)]);
            self.start("policy", command)?;
        }
        Ok(())
    }

    fn state(&self) -> String {
        format!("--state={}", self.policy.display())
    }

    /// Switches off or on what releases.
    pub fn switch_purge(&self, verb: &str) -> Result<(), String> {
        self.commands.brindle(&["policy", verb, PURGE, &self.state()], &format!("policy-{verb}")).map(drop)
    }

    /// What `brindle hsm status` says.
    fn status(&self) -> Result<Value, String> {
        self.commands.json(&["hsm", "status", &self.mount(1).display().to_string()], "hsm-status")
    }

    /// Part of the fast tier that is used, in percent.
    pub fn fill_percent(&self) -> Result<f64, String> {
        let status = self.status()?;
        let bytes = |name: &str| status["tier"][name].as_f64().ok_or("brindle hsm status tells no bytes");
        Ok(bytes("used_bytes")? * 100.0 / bytes("total_bytes")?)
    }

    /// Whether agents have files.
    pub fn is_moving(&self) -> Result<bool, String> {
        let status = self.status()?;
        let agents = status["mdts"][0]["agents"].as_array();
        Ok(agents.into_iter().flatten().any(|agent| agent["current"].as_u64().is_some_and(|count| count > 0)))
    }

    /// What `brindle hsm state` says of files.
    pub fn states(&self, files: &[PathBuf]) -> Result<Vec<Value>, String> {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let words: Vec<&str> = ["hsm", "state"].into_iter().chain(files.iter().map(String::as_str)).collect();
        let mut said = self.commands.json(&words, "hsm-state")?;
        match said["files"].take() {
            Value::Array(states) => Ok(states),
            _ => Err("brindle hsm state names no files".to_owned()),
        }
    }

    /// Asks until something is so; when it was found to be.
    pub fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&Self) -> Result<bool, String>,
    ) -> Result<SystemTime, String> {
        let since = std::time::Instant::now();
        loop {
            if interrupted() {
                return Err("interrupted".to_owned());
            }
            for service in &mut self.services {
                if let Ok(Some(status)) = service.child.try_wait() {
                    let log = self.commands.log(&service.name);
                    let said = std::fs::read_to_string(&log).unwrap_or_default();
                    return Err(format!(
                        "{} has ended ({status}):\n{}",
                        service.name,
                        run::tail(&said, run::TAIL_LINES)
                    ));
                }
            }
            if is_so(self)? {
                return Ok(SystemTime::now());
            }
            if since.elapsed() > STEP_MAX {
                return Err(format!("it was waited for {} s until {what}", STEP_MAX.as_secs()));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// The document's text, with its times scaled. Policies run every second, so that the interval is no part of the figure.
fn policy_text(condition: &str, interval_secs: u64) -> String {
    format!(
        "Migration_policies {{\n  policy default {{\n    condition {{\n      {condition}\n    }}\n  }}\n}}\n\
         Migration_parameters {{\n  runtime_interval = 1s;\n  nb_threads_migration = 16;\n}}\n\
         Purge_trigger {{\n  trigger_on          = global_usage;\n  high_threshold_pct = 66%;\n  \
         low_threshold_pct  = 33%;\n  check_interval     = {interval_secs}s;\n}}\n"
    )
}

impl Drop for Tiers<'_> {
    fn drop(&mut self) {
        // Mounts and devices are in use until the processes are gone, and devices are slow until the throttles are lifted.
        self.services.clear();
        drop(self.throttles.take());
        for dir in [&self.fast, &self.archive] {
            if let Err(why) = self.commands.end(dir, &["down"], &["--purge"]) {
                eprintln!("the hosts of {} could not be ended: {why}", dir.display());
            }
        }
        let dir = self.policy.parent().unwrap_or(&self.policy);
        if let Err(e) = std::fs::remove_dir_all(&self.policy).and_then(|()| std::fs::remove_dir(dir)) {
            eprintln!("{}: {e}", dir.display());
        }
    }
}
