//! Carrying a plan out: a few actions at once, at the policy's pace, until it is done or too much has failed.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use brindle_policy::plan::Chosen;
use brindle_policy::{Action, Entry, Plan, Policy};
use brindle_stdx::Mono;
use brindle_stdx::cast::to_usize;
use brindle_types::attr::Time;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::hsm::{HsmActReq, HsmAsk};
use brindle_wire::mds::path::PathOfReq;
use brindle_wire::mds::policy::PolicyRemoveReq;
use futures_util::StreamExt;
use parking_lot::Mutex;

use super::Engine;
use super::engine::root;

/// Most errors of a run that are kept for people.
const ERRORS_MAX: usize = 5;

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Actions that were taken; those of agents are queued.
    pub done: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Entries that had changed since the scan, or were busy: the next run looks at them again.
    pub left: u64,
    /// Actions that failed.
    pub failed: u64,
    /// The first of their errors.
    pub errors: Vec<String>,
    /// Reason why the run ended before its plan did.
    pub stopped: Option<String>,
}

/// Work of the present period, against the rate limits.
struct Pace<'a> {
    policy: &'a Policy,
    period: Mutex<(Mono, u64, u64)>,
}

impl Pace<'_> {
    /// Time to wait before an action on `bytes` bytes. 0: the action is counted and may begin.
    fn wait_ms(&self, now: Mono, bytes: u64) -> u64 {
        let parameters = &self.policy.parameters;
        let mut period = self.period.lock();
        let passed = now.ms_since(period.0);
        if passed >= parameters.period_ms {
            *period = (now, 0, 0);
        }
        let is_full = parameters.rate_count.is_some_and(|most| period.1 >= most)
            || parameters
                .rate_bytes
                .is_some_and(|most| period.1 > 0 && period.2.saturating_add(bytes) > most);
        if is_full {
            return parameters.period_ms.saturating_sub(now.ms_since(period.0)).max(1);
        }
        period.1 += 1;
        period.2 = period.2.saturating_add(bytes);
        0
    }
}

impl Engine {
    /// Carries a plan out.
    pub async fn carry_out(&self, policy: &Policy, plan: &Plan) -> Outcome {
        let seams = self.client.seams();
        let pace = Pace { policy, period: Mutex::new((seams.now(), 0, 0)) };
        let each = plan.chosen.iter().map(|chosen| {
            let pace = &pace;
            async move {
                loop {
                    match pace.wait_ms(seams.now(), chosen.bytes) {
                        0 => break,
                        wait_ms => seams.sleep_ms(wait_ms).await,
                    }
                }
                (chosen, self.act(policy, chosen).await)
            }
        });
        let mut running =
            futures_util::stream::iter(each).buffer_unordered(to_usize(policy.parameters.threads));
        let mut outcome = Outcome::default();
        while let Some((chosen, ended)) = running.next().await {
            match ended {
                Ok(()) => {
                    tracing::debug!(
                        policy = policy.name,
                        path = chosen.entry.path,
                        action = chosen.action.name(),
                        "done"
                    );
                    outcome.done += 1;
                    outcome.bytes += chosen.bytes;
                }
                Err(fault) if is_passing(fault.code) => outcome.left += 1,
                Err(fault) if matches!(fault.code, Code::Overloaded | Code::HsmOff) => {
                    outcome.stopped = Some(fault.to_string());
                    break;
                }
                Err(fault) => outcome.fails(policy, chosen, &fault),
            }
            if outcome.is_bad(policy) {
                outcome.stopped = Some("too many actions have failed (suspend_error_pct)".to_owned());
                break;
            }
        }
        outcome
    }

    async fn act(&self, policy: &Policy, chosen: &Chosen) -> Result<()> {
        self.check_unread(chosen).await?;
        let hsm = |ask| HsmActReq { ino: chosen.entry.ino, ask, cred: root() };
        match &chosen.action {
            Action::Archive => {
                self.client.ask_as_agent(&hsm(HsmAsk::Archive(chosen.archive.unwrap_or(0)))).await?;
            }
            Action::Release => drop(self.client.ask_as_agent(&hsm(HsmAsk::Release)).await?),
            Action::RemoveCopy => drop(self.client.ask_as_agent(&hsm(HsmAsk::Remove)).await?),
            Action::Unlink | Action::Rmdir => {
                let request = PolicyRemoveReq {
                    path: chosen.entry.path.trim_start_matches('/').as_bytes().to_vec(),
                    ino: chosen.entry.ino,
                    ctime: chosen.entry.ctime,
                    mtime: chosen.entry.mtime,
                    cred: root(),
                };
                self.client.ask_as_agent(&request).await?;
                tracing::info!(policy = policy.name, path = chosen.entry.path, "removed");
            }
            Action::Log => {
                tracing::info!(
                    policy = policy.name,
                    path = chosen.entry.path,
                    bytes = chosen.entry.size_bytes,
                    "matches"
                );
            }
            Action::Command(words) => self.command(policy, words, chosen).await?,
        }
        Ok(())
    }

    /// Refuses an entry that was read since the scan, if the text uses access times.
    async fn check_unread(&self, chosen: &Chosen) -> Result<()> {
        if chosen.entry.unread_since.is_none() {
            return Ok(());
        }
        let request = GetattrReq { ino: chosen.entry.ino, report: None };
        match self.client.ask_as_agent(&request).await?.attr.atime == chosen.entry.atime {
            true => Ok(()),
            false => Err(Fault::new(Code::EntryChanged)
                .why("it was read since the scan")
                .data("nothing was changed")),
        }
    }

    /// Refuses an entry that is not what the scan has found, or not where it was. The program opens the path a moment later: a change in
    /// between is not seen.
    async fn check_unchanged(&self, chosen: &Chosen) -> Result<()> {
        let ino = chosen.entry.ino;
        let now = self.client.ask_as_agent(&GetattrReq { ino, report: None }).await?.attr;
        let paths = self.client.ask_as_agent(&PathOfReq { ino }).await?.paths;
        unchanged(&chosen.entry, (now.ctime, now.mtime), &paths)
    }

    /// Starts a program, without a shell, and waits for it.
    async fn command(&self, policy: &Policy, words: &[String], chosen: &Chosen) -> Result<()> {
        let failed = |why: String| {
            Fault::new(Code::PolicyCommandFailed)
                .subject(words.join(" "))
                .why(why)
                .why(chosen.entry.path.clone())
        };
        let (uid, gid) = self
            .options
            .command_user
            .ok_or_else(|| failed("no user is set for commands (--cmd-user)".into()))?;
        let path = &chosen.entry.path;
        let full = match &self.options.mount {
            Some(mount) => format!("{}{path}", mount.trim_end_matches('/')),
            None => return Err(failed("it is not known where the file system is mounted".into())),
        };
        self.check_unchanged(chosen).await?;
        let filled = |word: &String| fill(word, path, &full, chosen);
        let arguments: Vec<String> = words.iter().map(filled).collect();
        let mut command = std::process::Command::new(&arguments[0]);
        command.args(&arguments[1..]).env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        // (The groups of this process are dropped with its user.)
        command.stderr(Stdio::null()).uid(uid).gid(gid).process_group(0);
        let mut command = tokio::process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().map_err(|e| failed(e.to_string()))?;
        let limit_ms = policy.parameters.action_timeout_secs.saturating_mul(1000);
        match self.client.seams().timeout_ms(limit_ms, child.wait()).await {
            Some(Ok(status)) if status.success() => Ok(()),
            Some(Ok(status)) => Err(failed(status.to_string())),
            Some(Err(e)) => Err(failed(e.to_string())),
            None => {
                // The child is killed when it is dropped; here its end is awaited.
                if let Err(e) = child.kill().await {
                    return Err(failed(format!("it took too long, and cannot be killed: {e}")));
                }
                Err(failed(format!("it took longer than {} s, and was killed", limit_ms / 1000)))
            }
        }
    }
}

/// Refuses an entry whose times or path are others now.
fn unchanged(entry: &Entry, (ctime, mtime): (Time, Time), paths: &[Vec<u8>]) -> Result<()> {
    let changed = |why| Err(Fault::new(Code::EntryChanged).why(why).data("nothing was done with it"));
    if (ctime, mtime) != (entry.ctime, entry.mtime) {
        return changed("it was changed since the scan");
    }
    // The paths of the MDT begin at the root of the file system, without a slash in front.
    let path = entry.path.trim_start_matches('/').as_bytes();
    match paths.iter().any(|now| now == path) {
        true => Ok(()),
        false => changed("its path is another one now"),
    }
}

/// A word of a command line with its placeholders replaced, in one pass: replacements are not replaced again.
fn fill(word: &str, path: &str, full: &str, chosen: &Chosen) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('{') {
        out.push_str(before);
        let (name, behind) = behind.split_once('}').unwrap_or((behind, ""));
        match name {
            "fullpath" => out.push_str(full),
            "path" => out.push_str(path),
            "name" => out.push_str(chosen.entry.name()),
            "fid" => out.push_str(&chosen.entry.ino.fid().to_string()),
            _ => out.push_str(&chosen.archive.unwrap_or(chosen.entry.archive).to_string()),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Errors that only mean that the entry is looked at again: it changed, it is in use, it is gone.
fn is_passing(code: Code) -> bool {
    matches!(code, Code::EntryChanged | Code::FileBusy | Code::NotFound | Code::NotEmpty | Code::HsmRefused)
}

impl Outcome {
    fn fails(&mut self, policy: &Policy, chosen: &Chosen, fault: &Fault) {
        tracing::warn!(
            policy = policy.name,
            path = chosen.entry.path,
            action = chosen.action.name(),
            "failed: {fault}"
        );
        self.failed += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(format!("{}: {fault}", chosen.entry.path));
        }
    }

    fn is_bad(&self, policy: &Policy) -> bool {
        let parameters = &policy.parameters;
        let share = self.failed as f64 * 100.0 / (self.failed + self.done).max(1) as f64;
        self.failed >= parameters.suspend_error_min.max(1)
            && parameters.suspend_error_pct.is_some_and(|percent| percent > 0.0 && share >= percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_was_changed_or_moved_since_the_scan_is_left() {
        let time = |secs| Time { secs, nanos: 0 };
        let entry = Entry { ctime: time(5), mtime: time(4), ..Entry::new("/a/b") };
        let paths = [b"x/other-name".to_vec(), b"a/b".to_vec()];
        unchanged(&entry, (time(5), time(4)), &paths).unwrap();
        for (times, paths) in [
            ((time(6), time(4)), &paths[..]),
            ((time(5), time(5)), &paths[..]),
            ((time(5), time(4)), &paths[..1]),
            ((time(5), time(4)), &paths[..0]),
        ] {
            assert_eq!(unchanged(&entry, times, paths).unwrap_err().code, Code::EntryChanged);
        }
    }

    #[test]
    fn a_placeholder_is_one_argument_whatever_is_in_the_name() {
        let entry = Entry::new("/a/x; rm -rf {name} $(y)");
        let chosen = Chosen { entry, rule: 0, action: Action::Log, archive: None, bytes: 0 };
        let filled = fill("--f={fullpath}", &chosen.entry.path, "/mnt/a/x; rm -rf {name} $(y)", &chosen);
        assert_eq!(filled, "--f=/mnt/a/x; rm -rf {name} $(y)");
    }
}
