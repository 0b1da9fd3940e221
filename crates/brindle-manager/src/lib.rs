//! The manager: one process that shows a cluster to people and acts for them. REST and live data for programs, a console for browsers.
//!
//! | module | does |
//! |---|---|
//! | [`access`] | users, roles, sessions, tries to log in, the audit log |
//! | [`live`] | numbers of the daemons by the second, their history, the state of the cluster |
//! | [`alerts`] | what is wrong: raised, acknowledged, silenced, ended, told |
//! | [`actions`], [`plan`], [`tasks`] | what a person asks for: plan, progress, result |
//! | [`additions`], [`pools`], [`limits`], [`scrubs`] | what a cluster grows by, and how it is set |
//! | [`tiering`], [`policies`], [`policy_text`], [`buffers`], [`quotas`], [`usage`] | what there is beside targets, and what is asked of it |
//! | [`benchmarks`], [`bundles`] | programs that are run on the manager's host, and what they leave |
//! | [`hardware`] | disks, arrays and links of a host |
//! | [`api`] | the table of REST endpoints, from which the router and the OpenAPI description are made |
//! | [`quota_report`] | who is near a limit, told once a day or week |
//! | [`monitoring`] | what a site's own Prometheus gets |
//! | [`web`] | HTTP and TLS, security headers, the console's files |
//!
//! Called by `brindle manager`. Invariants: no file's data passes through it, and nobody needs it to read or write files; whoever asks
//! is known by a session and has the role that the endpoint needs, before anything is looked at; every change is in the audit log
//! before it is made; everything is bounded.
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod access;
pub mod actions;
pub mod additions;
pub mod alerts;
pub mod api;
pub mod benchmarks;
pub mod buffers;
pub mod bundles;
pub mod clients;
pub mod cluster;
pub mod fault;
pub mod hardware;
pub mod limits;
pub mod live;
pub mod monitoring;
pub mod names;
pub mod plan;
pub mod policies;
pub mod policy_text;
pub mod pools;
pub mod quota_report;
pub mod quotas;
pub mod scrubs;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod tiering;
pub mod usage;
pub mod web;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::Seams;
use brindle_stdx::cast::len_u32;
use brindle_telemetry::Registry;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast};

use access::attempts::Attempts;
use access::audit::Audit;
use access::first::FirstLogIn;
use access::monitoring_token::MonitoringToken;
use access::pam::Pam;
use access::sessions::Sessions;
use access::tokens::Tokens;
use access::users::Users;
use alerts::conditions::{self, Inputs};
use alerts::notify::{Notifier, Ways};
use alerts::numbers::{Numbers, Watcher};
use alerts::store::Alerts;
use api::jobs::Looks;
use benchmarks::Benchmarks;
use bundles::Bundles;
use cluster::Managed;
use live::history::History;
use live::rates::Rates;
use live::state::{self, StateView};
use names::Names;
use policies::Previews;
use quota_report::{Every, Reported};
use tasks::Tasks;
use usage::Usages;

/// How often daemons are asked for their numbers.
const SAMPLE_EVERY_MS: u64 = 1_000;
/// How often the state of the cluster is asked for.
const STATE_EVERY_MS: u64 = 2_000;
/// Events that wait for a slow browser; older ones are lost to it.
const EVENTS_WAITING_MAX: usize = 32;
/// Live views at once.
pub const LIVE_VIEWS_MAX: usize = 128;
/// Questions to PAM at once, apart from passwords that are known here: a server behind PAM that hangs keeps nobody else out.
const PAM_MAX: usize = 4;
/// Longest wait until PAM can be asked.
const PAM_WAIT: Duration = Duration::from_secs(5);
/// Passwords that are hashed at once: each takes 19 MiB and a processor for some time.
const HASHING_MAX: usize = 2;

/// An event of the live view, as a browser gets it.
#[derive(Clone, Debug)]
pub struct LiveEvent {
    /// `sample`, `state`, `tasks` or `alerts`.
    pub name: &'static str,
    /// JSON.
    pub data: Arc<str>,
}

/// Start parameters of a manager.
pub struct Settings {
    /// Whether browsers reach it through TLS.
    pub is_secure: bool,
    /// When its certificate ends, seconds since 1970.
    pub certificate_ends_s: Option<i64>,
    /// Numbers of the process.
    pub registry: Registry,
    /// Receivers of alerts.
    pub ways: Ways,
    /// Interval of the reports on owners near a limit.
    pub quota_report: Option<Every>,
    /// How the host is asked for passwords that it knows.
    pub pam: Pam,
    /// Program of this process, whose other commands the manager runs.
    pub program: PathBuf,
}

/// A manager.
pub struct Manager {
    /// Time, tasks.
    pub seams: Seams,
    /// Cluster of the manager.
    pub managed: Managed,
    /// Users who may log in.
    pub users: Users,
    /// Present sessions.
    pub sessions: Sessions,
    /// Tokens of programs.
    pub tokens: Tokens,
    /// Passwords that the host knows.
    pub pam: Pam,
    /// Tries to log in.
    pub attempts: Attempts,
    /// The first log-in.
    pub first: FirstLogIn,
    /// Record of changes.
    pub audit: Audit,
    /// Actions.
    pub tasks: Tasks,
    /// Whether browsers reach it through TLS.
    pub is_secure: bool,
    /// Token that a site's monitoring shows.
    pub monitoring_token: MonitoringToken,
    /// Metrics of the manager itself.
    pub registry: Registry,
    /// Present and past alerts.
    pub alerts: Alerts,
    notifier: Notifier,
    reported: Mutex<Option<Reported>>,
    numbers: Mutex<Arc<Numbers>>,
    certificate_ends_s: Option<i64>,
    hashing: Semaphore,
    asking_pam: Semaphore,
    live_views: Arc<Semaphore>,
    /// The last looks at who asks for what.
    pub looks: Looks,
    /// The last looks at usage and limits.
    pub quota_looks: quotas::Looks,
    /// Plans that were shown.
    pub shown: plan::Shown,
    /// Names of users and groups.
    pub names: Arc<Names>,
    /// The last preview of policies.
    pub previews: Previews,
    /// The last look at everything.
    pub usages: Usages,
    /// Runs of benchmarks.
    pub benchmarks: Benchmarks,
    /// Support bundles.
    pub bundles: Bundles,
    history: Mutex<History>,
    state: Mutex<Arc<StateView>>,
    events: broadcast::Sender<LiveEvent>,
}

impl Manager {
    /// A manager with its files in `dir`, a directory that [`make_dir`] has made; its numbers are added to the registry. Called within a
    /// runtime.
    pub fn new(seams: Seams, managed: Managed, dir: &Path, settings: Settings) -> Result<Arc<Manager>> {
        let clock = seams.clock.clone();
        let nothing = Fault::new(Code::NoMgs).what("nobody was asked").subject("yet");
        let state = state::unreachable(clock.wall().secs, &nothing);
        Ok(Arc::new(Manager {
            managed,
            users: Users::load(dir)?,
            sessions: Sessions::new(clock.clone()),
            tokens: Tokens::load(dir, clock.clone())?,
            pam: settings.pam,
            attempts: Attempts::new(clock.clone()),
            first: FirstLogIn::closed(clock.clone()),
            audit: Audit::open(dir, clock.clone())?,
            tasks: Tasks::new(clock),
            is_secure: settings.is_secure,
            monitoring_token: MonitoringToken::load(dir)?,
            registry: settings.registry,
            alerts: Alerts::load(dir, seams.clock.clone())?,
            notifier: Notifier::start(settings.ways),
            reported: Mutex::new(settings.quota_report.map(|every| Reported::new(dir, every))),
            numbers: Mutex::default(),
            certificate_ends_s: settings.certificate_ends_s,
            hashing: Semaphore::new(HASHING_MAX),
            asking_pam: Semaphore::new(PAM_MAX),
            live_views: Arc::new(Semaphore::new(LIVE_VIEWS_MAX)),
            looks: Looks::default(),
            quota_looks: quotas::Looks::default(),
            shown: plan::Shown::default(),
            names: Arc::new(Names::new(seams.clock.clone())),
            previews: Previews::default(),
            usages: Usages::load(dir),
            benchmarks: Benchmarks::load(dir, settings.program.clone())?,
            bundles: Bundles::new(dir, settings.program)?,
            history: Mutex::new(History::open(dir, seams.wall().secs)?),
            state: Mutex::new(Arc::new(state)),
            events: broadcast::Sender::new(EVENTS_WAITING_MAX),
            seams,
        }))
    }

    /// Makes the first log-in possible if there are no users; its secret.
    pub fn open_first_log_in(&self) -> Result<Option<String>> {
        if self.users.is_empty() { self.first.open().map(Some) } else { Ok(None) }
    }

    /// The state of the cluster when it was asked for last.
    pub fn state(&self) -> Arc<StateView> {
        self.state.lock().clone()
    }

    /// Whether a user has this password, here or at the host. A host that cannot be asked is no yes, and the log says why: whoever tries
    /// names is not told which of them exist.
    pub async fn has_password(self: &Arc<Self>, name: &str, password: &str) -> Result<bool> {
        if !self.users.is_by_pam(name) {
            let (name, password) = (name.to_owned(), password.to_owned());
            return self.hashing(move |manager| manager.users.has_password(&name, &password)).await;
        }
        let asked = match tokio::time::timeout(PAM_WAIT, self.asking_pam.acquire()).await {
            Ok(Ok(_permit)) => self.pam.has_password(name, password).await,
            _ => Err(Fault::new(Code::ManagerBusy).what("cannot ask PAM").why("it does not answer others")),
        };
        asked.or_else(|fault| {
            tracing::warn!(code = %fault.code, user = name, "a log-in is refused: {fault}");
            Ok(false)
        })
    }

    /// Runs work that hashes a password: on a thread that may wait, and not many at once.
    pub async fn hashing<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Manager) -> T + Send + 'static,
    ) -> Result<T> {
        let bug = |why: String| Fault::new(Code::Bug).what("cannot hash a password").why(why);
        let _permit = self.hashing.acquire().await.map_err(|e| bug(e.to_string()))?;
        let manager = self.clone();
        tokio::task::spawn_blocking(move || work(&manager)).await.map_err(|e| bug(e.to_string()))
    }

    /// Tells all live views.
    fn tell(&self, name: &'static str, body: &impl serde::Serialize) {
        // Without a live view there is nobody to tell.
        let _ = self.events.send(event(name, body));
    }

    /// Tells all live views of the alerts.
    pub fn tell_alerts(&self) {
        self.tell("alerts", &self.alerts.view());
    }

    /// Tells all live views of the tasks.
    pub fn tell_tasks(&self) {
        self.tell("tasks", &self.tasks.view());
    }

    /// Begins what goes on as long as the process: samples, states and reports.
    pub fn watch(self: &Arc<Self>) {
        if let Some(reported) = self.reported.lock().take() {
            tokio::spawn(quota_report::always(self.clone(), reported));
        }
        tokio::spawn(sample_always(self.clone()));
        tokio::spawn(look_always(self.clone()));
    }

    /// Asks for the state now.
    pub async fn look(&self) {
        let at_s = self.seams.wall().secs;
        let (state, problems, warnings, is_whole) = match self.managed.ask().await {
            Ok(asked) => {
                let (problems, warnings) = (asked.report.problems(), asked.report.warnings());
                (state::view(at_s, &asked), problems, warnings, true)
            }
            Err(fault) => (state::unreachable(at_s, &fault), vec![fault], Vec::new(), false),
        };
        let state = Arc::new(state);
        *self.state.lock() = state.clone();
        self.tell("state", &*state);
        self.alert(&state, &problems, &warnings, is_whole);
    }

    /// Raises and ends alerts. `is_whole`: the cluster has told of itself.
    fn alert(&self, state: &StateView, problems: &[Fault], warnings: &[Fault], is_whole: bool) {
        let numbers = self.numbers.lock().clone();
        let of_hosts =
            state.hosts.iter().filter_map(|host| Some((host.name.clone(), host.certificate_ends_s?)));
        let own = self.certificate_ends_s.map(|ends_s| ("the manager".to_owned(), ends_s));
        let certificates: Vec<(String, i64)> = of_hosts.chain(own).collect();
        let found = conditions::find(&Inputs {
            now_s: state.at_s,
            state,
            problems,
            warnings,
            numbers: &numbers,
            full_in_s: self.history.lock().full_in_s(),
            certificates: &certificates,
            not_sent: self.notifier.not_sent(),
        });
        let fs = state.fs.as_ref().map_or("", |fs| fs.fs.as_str());
        let observed = self.alerts.observe(fs, &found, is_whole);
        observed.notices.into_iter().for_each(|notice| self.notifier.tell(notice));
        if observed.has_changed {
            self.tell_alerts();
        }
    }
}

/// Makes the directory of a manager's files, for root alone, if it is missing.
pub fn make_dir(dir: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| Fault::io(Code::NotWritable, "cannot make", dir.display().to_string(), &e))
}

fn event(name: &'static str, body: &impl serde::Serialize) -> LiveEvent {
    let data = serde_json::to_string(body).expect("plain fields always serialise");
    LiveEvent { name, data: data.into() }
}

async fn look_always(manager: Arc<Manager>) {
    loop {
        manager.look().await;
        manager.seams.sleep_ms(STATE_EVERY_MS).await;
    }
}

async fn sample_always(manager: Arc<Manager>) {
    let (mut rates, mut watcher, mut before) = (Rates::default(), Watcher::default(), manager.seams.now());
    loop {
        let state = manager.state();
        let daemons = manager.managed.daemons(&state);
        let urls: Vec<String> = daemons.iter().map(|daemon| daemon.url.clone()).collect();
        let asked = len_u32(urls.len());
        let texts = live::scrape::all(urls).await;
        let now = manager.seams.now();
        let seconds = now.ms_since(before) as f64 / 1_000.0;
        before = now;
        let wall = manager.seams.wall();
        let clock_s = wall.secs as f64 + f64::from(wall.nanos) / 1e9;
        *manager.numbers.lock() = Arc::new(watcher.take(&daemons, &texts, now, clock_s));
        let (mut sample, targets) = rates.since_last(&texts, seconds);
        sample.at_s = manager.seams.wall().secs;
        (sample.used_bytes, sample.total_bytes) = (state.used_bytes, state.total_bytes);
        (sample.daemons_heard, sample.daemons_asked) = (len_u32(texts.len()), asked);
        manager.history.lock().add(sample);
        manager.tell("sample", &api::views::SampleView { sample, targets });
        manager.seams.clock.sleep_until(now.plus_ms(SAMPLE_EVERY_MS)).await;
    }
}
