//! The manager as a browser meets it: requests against the real router.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode, header};
use brindle_admin::place::FsLocation;
use brindle_client::Client;
use brindle_hsm::policy::State;
use brindle_hsm::policy::describe::Description;
use brindle_stdx::{BoxFuture, Clock, Mono, Timestamp};
use brindle_types::{Code, Fault, FsName, Result};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::access::Role;
use crate::access::attempts::OF_ADDRESS_MAX;
use crate::access::pam::Pam;
use crate::access::sessions::IDLE_MAX_MS;
use crate::access::users::Password;
use crate::alerts::notify::Ways;
use crate::buffers::Orchestrator;
use crate::clients::Clients;
use crate::cluster::{At, Managed};
use crate::web::{Peer, router};
use crate::{Manager, Settings, make_dir};

mod policy_text;
mod support;
mod tokens;

/// A clock that the test moves.
pub struct Hand(AtomicU64);

impl Hand {
    pub fn new() -> Arc<Hand> {
        Arc::new(Hand(AtomicU64::new(1)))
    }

    pub fn forward_ms(&self, ms: u64) {
        self.0.fetch_add(ms * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Mono {
        Mono(self.0.load(Ordering::SeqCst))
    }
    fn wall(&self) -> Timestamp {
        let since_s = self.0.load(Ordering::SeqCst) / 1_000_000_000;
        Timestamp::new(1_800_000_000 + since_s.cast_signed(), 0)
    }
    fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Maker of mounts that makes none.
struct NoClients;

impl Clients for NoClients {
    fn connect<'a>(&'a self, _: &'a FsLocation, _: &'a FsName) -> BoxFuture<'a, Result<Arc<Client>>> {
        Box::pin(async { Err(Fault::new(Code::NoMgs)) })
    }
}

const PASSWORD: &str = "correct horse";

/// A manager of a cluster that does not answer, with a user of each role.
struct Desk {
    manager: Arc<Manager>,
    router: Router,
    clock: Arc<Hand>,
    _dir: tempfile::TempDir,
}

/// A browser that is logged in.
#[derive(Clone)]
struct Browser {
    cookie: String,
    csrf: String,
}

impl Desk {
    fn new() -> Desk {
        Desk::running("/nonexistent".into())
    }

    /// One whose own commands are those of another program.
    fn running(program: std::path::PathBuf) -> Desk {
        let dir = tempfile::tempdir().unwrap();
        let clock = Hand::new();
        let mut seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let servers = brindle_host::servers(&seams);
        seams.clock = clock.clone();
        let place = FsLocation { mgs: vec!["127.0.0.1:1".parse().unwrap()], fs: None, dev: None };
        let managed = Managed {
            orchestrator: Orchestrator::new(dir.path().join("bb.sock")),
            policy_state: Some(dir.path().join("policy")),
            ..Managed::new(servers, At::Fs(place), Arc::new(NoClients))
        };
        let settings = Settings {
            is_secure: true,
            certificate_ends_s: None,
            registry: brindle_telemetry::Registry::new("process"),
            ways: Ways::default(),
            quota_report: None,
            pam: Pam { program: "/nonexistent".into(), service: "brindle".to_owned() },
            program,
        };
        let files = dir.path().join("manager");
        make_dir(&files).unwrap();
        let manager = Manager::new(seams, managed, &files, settings).unwrap();
        let router = router(&manager, false);
        Desk { manager, router, clock, _dir: dir }
    }

    fn with_users() -> Desk {
        Desk::new().and_users()
    }

    /// Adds a user of each role.
    fn and_users(self) -> Desk {
        for (name, role) in [("vera", Role::Viewer), ("otto", Role::Operator), ("ada", Role::Administrator)] {
            self.manager.users.add(name, role, Password::Own(PASSWORD)).unwrap();
        }
        self
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.send_from(request, "127.0.0.1:9").await
    }

    async fn send_from(&self, mut request: Request<Body>, peer: &str) -> Response<Body> {
        request.extensions_mut().insert(Peer(peer.parse::<SocketAddr>().unwrap()));
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn ask(
        &self,
        browser: Option<&Browser>,
        method: Method,
        path: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let response = self.send(request(browser, method, path, body)).await;
        read(response).await
    }

    async fn log_in(&self, name: &str) -> Browser {
        let body = json!({ "name": name, "password": PASSWORD });
        let response = self.send(request(None, Method::POST, "/api/v1/session", body)).await;
        assert_eq!(response.status(), StatusCode::OK);
        browser(response).await
    }
}

async fn browser(response: Response<Body>) -> Browser {
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    for word in ["__Host-brindle-session=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let (_, body) = read(response).await;
    Browser {
        cookie: cookie.split(';').next().unwrap().to_owned(),
        csrf: body["csrf"].as_str().unwrap().to_owned(),
    }
}

fn request(browser: Option<&Browser>, method: Method, path: &str, body: Value) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path).header("content-type", "application/json");
    builder = match browser {
        Some(browser) => builder.header("cookie", &browser.cookie).header("x-brindle-csrf", &browser.csrf),
        None => builder.header("x-brindle-csrf", "log-in"),
    };
    builder.body(Body::from(body.to_string())).unwrap()
}

async fn read(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn code(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), answer.1["code"].as_str().unwrap_or(""))
}

#[tokio::test]
async fn the_first_log_in_makes_an_administrator_once() {
    let desk = Desk::new();
    let token = desk.manager.open_first_log_in().unwrap().expect("there is nobody yet");
    let first = |token: &str, name: &str, password: &str| json!({ "token": token, "name": name, "password": password });
    let wrong = desk.ask(None, Method::POST, "/api/v1/first", first("0", "ada", PASSWORD)).await;
    assert_eq!(code(&wrong), (401, "E5040"));
    let weak = desk.ask(None, Method::POST, "/api/v1/first", first(&token, "ada", "short")).await;
    assert_eq!(code(&weak), (400, "E1001"), "a bad password does not use the address up");
    let good = request(None, Method::POST, "/api/v1/first", first(&token, "ada", PASSWORD));
    let ada = browser(desk.send(good).await).await;
    let (status, session) = desk.ask(Some(&ada), Method::GET, "/api/v1/session", json!({})).await;
    assert_eq!((status, session["role"].as_str()), (StatusCode::OK, Some("administrator")));
    let again = desk.ask(None, Method::POST, "/api/v1/first", first(&token, "eve", PASSWORD)).await;
    assert_eq!(code(&again), (401, "E5040"));
    assert!(desk.manager.open_first_log_in().unwrap().is_none(), "there is somebody");
}

#[tokio::test]
async fn nothing_is_told_without_a_session_and_forged_ones_are_none() {
    let desk = Desk::with_users();
    let paths = [
        "session",
        "state",
        "history/10m",
        "live",
        "alerts",
        "tasks",
        "users",
        "audit",
        "openapi.json",
        "hsm",
        "hsm/actions",
        "policies",
        "policies/preview",
        "policies/text",
        "hosts/x/hardware",
        "benchmarks",
        "benchmarks/1/compare/2",
        "support-bundles",
        "support-bundles/x.tar.gz",
        "buffers",
        "quotas/users",
        "usage",
        "tokens",
        "limits",
        "pools",
        "scrubs",
    ];
    let forged =
        Browser { cookie: format!("__Host-brindle-session={}", "a".repeat(64)), csrf: "x".to_owned() };
    let plain = Browser { cookie: "brindle-session=1".to_owned(), csrf: "x".to_owned() };
    for path in paths {
        for shown in [None, Some(&forged), Some(&plain)] {
            let answer = desk.ask(shown, Method::GET, &format!("/api/v1/{path}"), json!({})).await;
            assert_eq!(code(&answer), (401, "E5041"), "{path}");
            assert_eq!(answer.1["next"], "log in");
        }
    }
    let answer = desk
        .ask(Some(&forged), Method::POST, "/api/v1/targets/dev-OST0000/stop", json!({"dry_run": false}))
        .await;
    assert_eq!(code(&answer), (401, "E5041"));
}

#[tokio::test]
async fn monitoring_shows_its_token_and_that_opens_nothing_else() {
    let desk = Desk::with_users();
    let token = std::fs::read_to_string(desk._dir.path().join("manager/monitoring-token")).unwrap();
    let get = |path: &str, shown: Option<String>| {
        let mut builder = Request::builder().uri(path);
        if let Some(shown) = shown {
            builder = builder.header("authorization", shown);
        }
        builder.body(Body::empty()).unwrap()
    };
    let wrong =
        [None, Some(String::new()), Some("Bearer ".to_owned()), Some(format!("Bearer {}", "0".repeat(64)))];
    for path in ["/sd/prometheus", "/metrics"] {
        for shown in wrong.clone().into_iter().chain([Some(token.clone()), Some(format!("Basic {token}"))]) {
            let answer = read(desk.send(get(path, shown)).await).await;
            assert_eq!(code(&answer), (401, "E5041"), "{path}");
        }
    }
    let (status, groups) =
        read(desk.send(get("/sd/prometheus", Some(format!("Bearer {token}")))).await).await;
    assert_eq!((status, groups), (StatusCode::OK, json!([])), "nobody tells of the daemons");
    let response = desk.send(get("/metrics", Some(format!("Bearer {token}")))).await;
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains("brindle_manager_health{state=\"unreachable\"} 1\n"), "{text}");
    for path in ["/api/v1/state", "/api/v1/users"] {
        let answer = read(desk.send(get(path, Some(format!("Bearer {token}")))).await).await;
        assert_eq!(code(&answer), (401, "E5041"), "{path}");
    }
}

#[tokio::test]
async fn sessions_end_at_log_out_in_time_and_with_their_user() {
    let desk = Desk::with_users();
    let vera = desk.log_in("vera").await;
    let show = || desk.ask(Some(&vera), Method::GET, "/api/v1/session", json!({}));
    assert_eq!(show().await.0, StatusCode::OK);
    let out = desk.send(request(Some(&vera), Method::DELETE, "/api/v1/session", json!({}))).await;
    assert!(out.headers()[header::SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(code(&show().await), (401, "E5041"), "logged out");
    let vera = desk.log_in("vera").await;
    desk.clock.forward_ms(IDLE_MAX_MS);
    let late = desk.ask(Some(&vera), Method::GET, "/api/v1/session", json!({})).await;
    assert_eq!(code(&late), (401, "E5041"), "quiet for an hour");
    let (vera, ada) = (desk.log_in("vera").await, desk.log_in("ada").await);
    let removed = desk.ask(Some(&ada), Method::DELETE, "/api/v1/users/vera", json!({})).await;
    assert_eq!(removed.0, StatusCode::OK);
    let gone = desk.ask(Some(&vera), Method::GET, "/api/v1/state", json!({})).await;
    assert_eq!(code(&gone), (401, "E5041"), "the user was removed");
}

#[tokio::test]
async fn a_session_cannot_be_fixed_by_somebody_else() {
    let desk = Desk::with_users();
    let eve = desk.log_in("otto").await;
    let mut log_in =
        request(None, Method::POST, "/api/v1/session", json!({ "name": "ada", "password": PASSWORD }));
    log_in.headers_mut().insert(header::COOKIE, eve.cookie.parse().unwrap());
    let ada = browser(desk.send(log_in).await).await;
    assert_ne!(ada.cookie, eve.cookie, "a log-in begins a session of a new number");
    let old = desk.ask(Some(&eve), Method::GET, "/api/v1/session", json!({})).await;
    assert_eq!(code(&old), (401, "E5041"));
}

#[tokio::test]
async fn other_pages_cannot_change_anything() {
    let desk = Desk::with_users();
    let ada = desk.log_in("ada").await;
    let add = json!({ "name": "eve", "role": "administrator", "password": PASSWORD });
    let with = |name: &'static str, value: Option<&'static str>| {
        let mut request = request(Some(&ada), Method::POST, "/api/v1/users", add.clone());
        match value {
            Some(value) => drop(request.headers_mut().insert(name, value.parse().unwrap())),
            None => drop(request.headers_mut().remove(name)),
        }
        request
    };
    let forgeries = [
        with("x-brindle-csrf", None),
        with("x-brindle-csrf", Some("")),
        with("x-brindle-csrf", Some("0000")),
        with("content-type", Some("text/plain")),
        with("content-type", Some("application/x-www-form-urlencoded")),
        with("sec-fetch-site", Some("cross-site")),
        with("sec-fetch-site", Some("same-site")),
        with("origin", Some("https://evil.example")),
    ];
    for forgery in forgeries {
        let answer = read(desk.send(forgery).await).await;
        assert_eq!(code(&answer), (403, "E5044"));
    }
    assert_eq!(desk.manager.users.role("eve"), None);
    let mut log_in =
        request(None, Method::POST, "/api/v1/session", json!({ "name": "ada", "password": PASSWORD }));
    log_in.headers_mut().remove("x-brindle-csrf");
    assert_eq!(
        code(&read(desk.send(log_in).await).await),
        (403, "E5044"),
        "a log-in cannot be forged either"
    );
    let mut own = with("sec-fetch-site", Some("same-origin"));
    own.headers_mut().insert("origin", "https://manager:8443".parse().unwrap());
    own.headers_mut().insert("host", "manager:8443".parse().unwrap());
    assert_eq!(desk.send(own).await.status(), StatusCode::OK);
    assert_eq!(desk.manager.users.role("eve"), Some(Role::Administrator));
}

#[tokio::test]
async fn each_role_may_do_what_it_may_and_no_more() {
    let desk = Desk::with_users();
    let (vera, otto, ada) = (desk.log_in("vera").await, desk.log_in("otto").await, desk.log_in("ada").await);
    let stop = ("/api/v1/targets/dev-OST0000/stop", json!({ "dry_run": true }));
    let refused = desk.ask(Some(&vera), Method::POST, stop.0, stop.1.clone()).await;
    assert_eq!(code(&refused), (403, "E5042"));
    assert_eq!(refused.1["why"][0], "the role is viewer, and operator is needed");
    // The cluster does not answer; that it is asked shows that the role sufficed.
    for browser in [&otto, &ada] {
        let asked = desk.ask(Some(browser), Method::POST, stop.0, stop.1.clone()).await;
        assert_eq!(code(&asked), (503, "E5001"), "{asked:?}");
    }
    let (dry, archive) = (json!({ "dry_run": false }), json!({ "path": "/a", "dry_run": false }));
    let resize = json!({ "bytes": 1, "dry_run": false });
    for (path, body) in [
        ("hsm/archive", archive.clone()),
        ("policies/purge/disable", dry.clone()),
        ("policies/preview", dry.clone()),
        ("buffers/7.1/retry", dry.clone()),
        ("buffers/7.1/resize", resize),
        ("usage", dry.clone()),
        ("tasks/1/cancel", dry.clone()),
    ] {
        let refused = desk.ask(Some(&vera), Method::POST, &format!("/api/v1/{path}"), body.clone()).await;
        assert_eq!(code(&refused), (403, "E5042"), "{path}");
        if path == "usage" {
            continue;
        }
        let asked = desk.ask(Some(&otto), Method::POST, &format!("/api/v1/{path}"), body).await;
        assert!(!matches!(code(&asked), (403, _) | (401, _) | (200, _)), "{path} {asked:?}");
    }
    let limit = json!({ "owner": "7", "inodes_hard": 1, "dry_run": true });
    for (path, body) in [("buffers/7.1/destroy", dry), ("quotas/users", limit)] {
        for browser in [&vera, &otto] {
            let refused =
                desk.ask(Some(browser), Method::POST, &format!("/api/v1/{path}"), body.clone()).await;
            assert_eq!(code(&refused), (403, "E5042"), "{path}");
        }
        let asked = desk.ask(Some(&ada), Method::POST, &format!("/api/v1/{path}"), body).await;
        assert_eq!(asked.0.as_u16(), 503, "{path} {asked:?}");
    }
    let add = json!({ "name": "eve", "role": "administrator", "password": PASSWORD });
    for browser in [&vera, &otto] {
        let attempts = [
            desk.ask(Some(browser), Method::GET, "/api/v1/users", json!({})).await,
            desk.ask(Some(browser), Method::POST, "/api/v1/users", add.clone()).await,
            desk.ask(Some(browser), Method::DELETE, "/api/v1/users/ada", json!({})).await,
            desk.ask(Some(browser), Method::GET, "/api/v1/audit", json!({})).await,
        ];
        for attempt in attempts {
            assert_eq!(code(&attempt), (403, "E5042"));
        }
    }
    assert_eq!(desk.manager.users.list().len(), 3);
    assert_eq!(desk.ask(Some(&vera), Method::GET, "/api/v1/state", json!({})).await.0, StatusCode::OK);
    let last = desk.ask(Some(&ada), Method::DELETE, "/api/v1/users/ada", json!({})).await;
    assert_eq!(code(&last), (403, "E5042"), "the last administrator stays");
}

#[tokio::test]
async fn passwords_cannot_be_tried_without_end() {
    let desk = Desk::with_users();
    let wrong = || {
        request(None, Method::POST, "/api/v1/session", json!({ "name": "ada", "password": "a wrong one" }))
    };
    for _ in 0..crate::access::attempts::OF_ADDRESS_MAX {
        let answer = read(desk.send_from(wrong(), "10.0.0.1:1").await).await;
        assert_eq!(code(&answer), (401, "E5040"));
    }
    let good =
        || request(None, Method::POST, "/api/v1/session", json!({ "name": "ada", "password": PASSWORD }));
    let refused = read(desk.send_from(good(), "10.0.0.1:2").await).await;
    assert_eq!(code(&refused), (429, "E5043"), "not even the right one");
    assert_eq!(desk.send_from(good(), "10.0.0.2:1").await.status(), StatusCode::OK, "others can");
    let unknown = json!({ "name": "nobody", "password": "a wrong one" });
    let unknown =
        read(desk.send_from(request(None, Method::POST, "/api/v1/session", unknown), "10.0.0.3:1").await)
            .await;
    let wrong = read(desk.send_from(wrong(), "10.0.0.3:1").await).await;
    assert_eq!(unknown, wrong, "whether a name exists is not told");
}

#[tokio::test]
async fn refusals_are_noted_once_and_apart_from_changes() {
    let desk = Desk::with_users();
    let wrong = || {
        request(None, Method::POST, "/api/v1/session", json!({ "name": "ada", "password": "a wrong one" }))
    };
    for _ in 0..3 * OF_ADDRESS_MAX {
        drop(desk.send_from(wrong(), "10.0.0.1:1").await);
    }
    let codes: Vec<String> = desk.manager.audit.last().into_iter().map(|record| record.code).collect();
    let of = |code: &str| codes.iter().filter(|known| *known == code).count();
    assert_eq!((of("E5040"), of("E5043")), (OF_ADDRESS_MAX as usize, 1), "{codes:?}");
}

#[tokio::test]
async fn changes_are_audited_without_passwords() {
    let desk = Desk::with_users();
    let ada = desk.log_in("ada").await;
    let add = json!({ "name": "eve", "role": "operator", "password": PASSWORD });
    assert_eq!(desk.ask(Some(&ada), Method::POST, "/api/v1/users", add.clone()).await.0, StatusCode::OK);
    let twice = desk.ask(Some(&ada), Method::POST, "/api/v1/users", add).await;
    assert_eq!(code(&twice), (409, "E5046"));
    let (_, audit) = desk.ask(Some(&ada), Method::GET, "/api/v1/audit", json!({})).await;
    let lines: Vec<String> = audit["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            ["user", "from", "action", "subject", "outcome", "code"]
                .map(|key| r[key].as_str().unwrap())
                .join(" ")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "ada 127.0.0.1 user.add eve (operator) refused E5046",
            "ada 127.0.0.1 user.add eve (operator) accepted ",
            "ada 127.0.0.1 user.add eve (operator) accepted ",
            "ada 127.0.0.1 log-in  done ",
        ]
    );
    assert!(!audit.to_string().contains(PASSWORD));
}

#[tokio::test]
async fn only_the_files_of_the_console_are_served_with_headers_that_protect() {
    let desk = Desk::new();
    for path in [
        "/../../etc/passwd",
        "/assets/../../../etc/passwd",
        "/assets/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/etc/passwd",
        "/assets/",
        "/users.json",
        "/api/v1/../../users.json",
        "/api/v1/nothing",
        "/.git/config",
    ] {
        let answer = desk.ask(None, Method::GET, path, json!({})).await;
        assert_eq!(code(&answer), (404, "E5048"), "{path}");
    }
    let page = desk.send(Request::get("/").body(Body::empty()).unwrap()).await;
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(page.headers()[name], value);
    }
    assert!(
        page.headers().get("strict-transport-security").is_none(),
        "nobody could come in with our own certificate"
    );
    let tag = page.headers()["etag"].clone();
    let again = Request::get("/").header("if-none-match", tag).body(Body::empty()).unwrap();
    assert_eq!(desk.send(again).await.status(), StatusCode::NOT_MODIFIED);
    let session = desk.send(request(None, Method::GET, "/api/v1/session", json!({}))).await;
    assert_eq!(session.headers()["cache-control"], "no-store");
    assert_eq!(session.headers()["content-type"], "application/problem+json");
}

#[tokio::test]
async fn bodies_are_bounded_and_bad_ones_are_named() {
    let desk = Desk::with_users();
    let ada = desk.log_in("ada").await;
    for body in [
        json!({}),
        json!({ "dry_run": "yes" }),
        json!({ "dry_run": true, "force": true }),
        json!([]),
        json!("x".repeat(100_000)),
    ] {
        let answer = desk.ask(Some(&ada), Method::POST, "/api/v1/targets/dev-OST0000/stop", body).await;
        assert_eq!(code(&answer), (400, "E1001"));
    }
    let unknown = desk
        .ask(Some(&ada), Method::POST, "/api/v1/targets/dev-OST0000/destroy", json!({ "dry_run": false }))
        .await;
    assert_eq!(code(&unknown), (404, "E5048"));
    let method = desk.ask(Some(&ada), Method::PUT, "/api/v1/users", json!({})).await;
    assert_eq!(code(&method), (404, "E5048"));
}

#[tokio::test]
async fn what_is_asked_of_tiering_buffers_and_quotas_must_make_sense() {
    let desk = Desk::with_users();
    let ada = desk.log_in("ada").await;
    let post = async |path: &str, body: Value| {
        desk.ask(Some(&ada), Method::POST, &format!("/api/v1/{path}"), body).await
    };
    let asked = |key: &str, value: &str| json!({ key: value, "dry_run": true });
    for (path, body) in [
        ("hsm/archive", json!({ "dry_run": true })),
        ("hsm/archive", json!({ "path": "/a", "fid": "[0x200000401:0x1:0x0]", "dry_run": true })),
        ("hsm/archive", json!({ "path": "/a", "archive": 33, "dry_run": true })),
        ("hsm/archive", asked("path", "relative")),
        ("hsm/archive", asked("path", "/a/../../b")),
        ("hsm/archive", asked("path", "/a\u{0}b")),
        ("hsm/archive", asked("path", &format!("/{}", "x".repeat(5000)))),
        ("hsm/cancel", asked("fid", "7")),
        ("hsm/cancel", asked("fid", "[0x1:0x1:0x0]")),
        ("quotas/users", json!({ "owner": "7", "dry_run": true })),
        ("quotas/users", json!({ "owner": "7", "inodes_hard": -1, "dry_run": true })),
        ("policies/none/disable", json!({ "dry_run": true })),
        ("policies/preview", json!({ "dry_run": true })),
    ] {
        let answer = post(path, body.clone()).await;
        assert_eq!(code(&answer), (400, "E1001"), "{path} {body}: {answer:?}");
    }
    for path in ["hsm/remove", "policies/none/delete", "tasks/77/cancel", "tasks/x/cancel"] {
        let body = if path.starts_with("hsm") { asked("path", "/a") } else { json!({ "dry_run": true }) };
        assert_eq!(code(&post(path, body).await), (404, "E5048"), "{path}");
    }
    assert_eq!(code(&post("quotas/everybody", json!({ "dry_run": true })).await), (404, "E5048"));
    let silent = desk.ask(Some(&ada), Method::GET, "/api/v1/buffers", json!({})).await;
    assert_eq!(code(&silent), (503, "E7008"));
    let silent = post("logs", json!({ "level": "warn", "of": "buffers" })).await;
    assert_eq!(code(&silent), (503, "E7008"), "no orchestrator has been started here");
    let (status, engine) = desk.ask(Some(&ada), Method::GET, "/api/v1/policies", json!({})).await;
    assert_eq!((status, engine["is_running"].as_bool()), (StatusCode::OK, Some(false)), "{engine}");
    assert!(engine["start"].as_str().unwrap().starts_with("brindle policy run --state "), "{engine}");
    let (_, usage) = desk.ask(Some(&ada), Method::GET, "/api/v1/usage", json!({})).await;
    assert_eq!(usage, json!({ "usage": null }));
}

#[tokio::test]
async fn a_policy_is_switched_and_the_audit_log_has_it() {
    let desk = Desk::with_users();
    let otto = desk.log_in("otto").await;
    let dir = desk._dir.path().join("policy");
    let mut state = State::take(&dir).unwrap();
    state.history.file = "/etc/p.conf".to_owned();
    state.history.policies = vec![Description { name: "purge".to_owned(), ..Description::default() }];
    state.save().unwrap();
    let path = "/api/v1/policies/purge/disable";
    let (_, plan) = desk.ask(Some(&otto), Method::POST, path, json!({ "dry_run": true })).await;
    assert_eq!(plan["changes"], true, "{plan}");
    assert!(!state.is_off("purge"));
    let (_, done) = desk.ask(Some(&otto), Method::POST, path, json!({ "dry_run": false })).await;
    assert_eq!(done["command"], format!("brindle policy disable --state {} purge", dir.display()));
    assert!(state.is_off("purge"));
    let ada = desk.log_in("ada").await;
    let (_, audit) = desk.ask(Some(&ada), Method::GET, "/api/v1/audit", json!({})).await;
    let noted: Vec<String> = audit["records"].as_array().unwrap()[1..3]
        .iter()
        .map(|r| format!("{} {} {}", r["action"], r["subject"], r["outcome"]).replace('"', ""))
        .collect();
    assert_eq!(noted, ["policy.disable purge done", "policy.disable purge accepted"]);
    state.history.policies[0].deletes = true;
    state.save().unwrap();
    let path = "/api/v1/policies/purge/enable";
    let (status, _) = desk.ask(Some(&otto), Method::POST, path, json!({ "dry_run": false })).await;
    assert!(status == StatusCode::FORBIDDEN && state.is_off("purge"), "{status}: it deletes");
    let (_, done) = desk.ask(Some(&ada), Method::POST, path, json!({ "dry_run": false })).await;
    assert!(done["effects"][0].as_str().unwrap().starts_with("It deletes."), "{done}");
    assert!(!state.is_off("purge"));
}

#[tokio::test]
async fn live_views_are_bounded_and_end_with_their_session() {
    use futures_util::StreamExt as _;
    let desk = Desk::with_users();
    let vera = desk.log_in("vera").await;
    let live = || desk.send(request(Some(&vera), Method::GET, "/api/v1/live", json!({})));
    let first = live().await;
    assert_eq!(first.headers()["content-type"], "text/event-stream");
    let mut events = first.into_body().into_data_stream();
    let event = events.next().await.unwrap().unwrap();
    assert!(event.starts_with(b"event: state\ndata: {"), "{event:?}");
    assert!(events.next().await.unwrap().unwrap().starts_with(b"event: tasks\n"));
    assert!(events.next().await.unwrap().unwrap().starts_with(b"event: alerts\n"));
    let mut open = Vec::new();
    for _ in 1..crate::LIVE_VIEWS_MAX {
        open.push(live().await);
    }
    let refused = read(live().await).await;
    assert_eq!(code(&refused), (409, "E5047"));
    drop(open);
    assert_eq!(live().await.status(), StatusCode::OK, "closed ones make room");
    desk.ask(Some(&vera), Method::DELETE, "/api/v1/session", json!({})).await;
    desk.manager.tell_tasks();
    assert!(events.next().await.is_none(), "logged out");
}
