//! The REST interface below `/api/v1`: one table of endpoints. The router and the OpenAPI description are both made from the table, so
//! they cannot differ.
//!
//! A request passes here, in this order: does it come from the console ([`guard`]), who asks, with which role; only then its body is
//! read and its handler called.

pub mod additions;
pub mod alerts;
pub mod buffers;
pub mod guard;
pub mod jobs;
pub mod limits;
pub mod live;
pub mod logs;
pub mod openapi;
pub mod policies;
pub mod pools;
pub mod quotas;
pub mod scrubs;
pub mod session;
pub mod support;
pub mod targets;
pub mod tasks;
pub mod tiering;
pub mod tokens;
pub mod users;
pub mod views;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use axum::routing::{MethodFilter, on};
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::Role;
use crate::access::audit::Doer;
use crate::access::sessions::Session;
use crate::web::Peer;
use crate::web::local::Local;
use crate::{Manager, fault};

/// Where the interface begins.
pub const BASE: &str = "/api/v1";
/// Largest body of a request.
const BODY_MAX_BYTES: usize = 64 << 10;

/// Rights that an endpoint needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Anybody: this is how one logs in.
    Nothing,
    /// A user with at least this role.
    Role(Role),
}

/// A user who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The session.
    pub session: Session,
    /// Number of the session, as the cookie has it.
    pub session_id: String,
    /// The present role of the user; that of a token, if it is less.
    pub role: Role,
    /// Whether a program asks, with a token.
    pub is_token: bool,
}

/// A request on its way through a handler.
pub struct Call {
    /// The manager.
    pub manager: Arc<Manager>,
    /// The caller; `None` only where an endpoint needs no known caller.
    pub caller: Option<Caller>,
    /// Address of the browser.
    pub peer: Peer,
    /// Headers of the request.
    pub headers: HeaderMap,
    params: Vec<(String, String)>,
    cookie: Mutex<Option<String>>,
}

impl Call {
    /// The user who asks.
    pub fn caller(&self) -> Result<&Caller> {
        self.caller.as_ref().ok_or_else(|| Fault::new(Code::NotLoggedIn))
    }

    /// The part of the path that stands for `name`.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// Gives the browser a cookie with the answer.
    pub fn set_cookie(&self, cookie: String) {
        *self.cookie.lock() = Some(cookie);
    }

    /// The user, for the audit log.
    pub fn doer(&self) -> Doer {
        let user = self.caller.as_ref().map(|caller| caller.session.user.clone()).unwrap_or_default();
        self.doer_named(user)
    }

    /// A user who is still unknown, for the audit log.
    pub fn doer_named(&self, user: String) -> Doer {
        Doer { user, from: self.peer.0.ip().to_string() }
    }
}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;
type Handler = Arc<dyn Fn(Call, Bytes) -> BoxFuture<'static, Result<Response<Body>>> + Send + Sync>;

/// An endpoint of the table.
#[derive(Clone)]
pub struct Endpoint {
    /// Method of the request.
    pub method: Method,
    /// Path of the request below [`BASE`].
    pub path: &'static str,
    /// Rights that the endpoint needs.
    pub needs: Needs,
    /// Purpose, in a line.
    pub summary: &'static str,
    /// Schema of the request's body; none without a body.
    pub request: Option<SchemaOf>,
    /// Schema of the answer.
    pub answer: SchemaOf,
    /// Media type of the answer.
    pub media: &'static str,
    handler: Handler,
}

/// No body.
#[derive(Debug, Default, Serialize, serde::Deserialize, JsonSchema)]
pub struct Nothing {}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// An endpoint with JSON on both sides; the types of its handler are its description.
fn json<Q, A, F, R>(
    method: Method,
    path: &'static str,
    needs: Needs,
    summary: &'static str,
    handler: F,
) -> Endpoint
where
    Q: DeserializeOwned + JsonSchema + 'static,
    A: Serialize + JsonSchema + 'static,
    F: Fn(Arc<Call>, Q) -> R + Send + Sync + 'static,
    R: Future<Output = Result<A>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let has_body = std::any::TypeId::of::<Q>() != std::any::TypeId::of::<Nothing>();
    let run = move |call: Call, body: Bytes| -> BoxFuture<'static, Result<Response<Body>>> {
        let handler = handler.clone();
        Box::pin(async move {
            let text: &[u8] = if has_body { &body } else { b"{}" };
            let request: Q = serde_json::from_slice(text).map_err(|e| bad_body(&e))?;
            let call = Arc::new(call);
            let answer = handler(call.clone(), request).await?;
            let text = serde_json::to_string(&answer)
                .map_err(|e| Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string()))?;
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if let Some(cookie) = call.cookie.lock().take() {
                let cookie = HeaderValue::try_from(cookie)
                    .map_err(|e| Fault::new(Code::Bug).what("cannot set a cookie").why(e.to_string()))?;
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            Ok(response)
        })
    };
    Endpoint {
        method,
        path,
        needs,
        summary,
        request: has_body.then_some(schema_of::<Q> as SchemaOf),
        answer: schema_of::<A>,
        media: "application/json",
        handler: Arc::new(run),
    }
}

fn bad_body(e: &serde_json::Error) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot read the body of the request")
        .why(e.to_string())
        .data("nothing was changed")
        .next("send JSON as docs/reference/openapi.json has it")
}

const VIEWER: Needs = Needs::Role(Role::Viewer);
const OPERATOR: Needs = Needs::Role(Role::Operator);
const ADMINISTRATOR: Needs = Needs::Role(Role::Administrator);

/// The table.
pub fn endpoints() -> Vec<Endpoint> {
    [of_the_cluster(), of_its_settings(), of_tiering(), of_buffers_and_quotas(), of_help(), of_the_manager()]
        .concat()
}

fn of_the_cluster() -> Vec<Endpoint> {
    vec![
        json(Method::POST, "/first", Needs::Nothing, "Become the first administrator", session::first),
        json(Method::POST, "/session", Needs::Nothing, "Log in", session::log_in),
        json(Method::GET, "/session", VIEWER, "Who is logged in", session::show),
        json(Method::DELETE, "/session", VIEWER, "Log out", session::log_out),
        json(Method::GET, "/state", VIEWER, "Health, hosts and targets", targets::state),
        json(
            Method::GET,
            "/history/{span}",
            VIEWER,
            "Samples of the last ten minutes (10m), hours (6h), days (1d, 7d, 30d) or the year (1y)",
            targets::history,
        ),
        live::endpoint(VIEWER),
        json(
            Method::POST,
            "/targets/{target}/{action}",
            OPERATOR,
            "Plan (dry_run) or begin start, stop, failover or failback of a target",
            targets::act,
        ),
        json(
            Method::GET,
            "/hosts/{host}/hardware",
            VIEWER,
            "Disks, arrays, file systems and links of a host, and what the site's own program says of it",
            targets::hardware,
        ),
        // Lines may name files.
        json(
            Method::POST,
            "/logs",
            OPERATOR,
            "Lines of the logs of all servers, the oldest first",
            logs::read,
        ),
        json(Method::GET, "/alerts", VIEWER, "What is wrong, and what was; silences", alerts::list),
        json(
            Method::POST,
            "/alerts/{id}/acknowledge",
            OPERATOR,
            "Say that somebody knows of an alert: it is told no more",
            alerts::acknowledge,
        ),
        json(Method::POST, "/silences", OPERATOR, "Tell nobody of some alerts for a while", alerts::silence),
        json(Method::DELETE, "/silences/{id}", OPERATOR, "End a silence", alerts::unsilence),
        json(
            Method::GET,
            "/top/{by}",
            VIEWER,
            "Who asks the servers for what: jobs, users, clients or targets",
            jobs::top,
        ),
    ]
}

fn of_its_settings() -> Vec<Endpoint> {
    vec![
        json(
            Method::POST,
            "/join-tokens",
            ADMINISTRATOR,
            "Make a token for a host that is to join",
            additions::join_token,
        ),
        json(
            Method::POST,
            "/targets",
            ADMINISTRATOR,
            "Plan (dry_run) or begin to add a target on a host that has joined",
            additions::add_target,
        ),
        json(Method::GET, "/pools", VIEWER, "Pools and their OSTs", pools::list),
        json(
            Method::POST,
            "/pools/{pool}/{action}",
            ADMINISTRATOR,
            "Plan (dry_run) or do create, add, remove or destroy of a pool",
            pools::change,
        ),
        json(
            Method::GET,
            "/limits",
            VIEWER,
            "Limits of jobs, users and hosts, and what they have held back",
            limits::list,
        ),
        json(Method::POST, "/limits/{name}", OPERATOR, "Plan (dry_run) or make a limit", limits::add),
        json(
            Method::POST,
            "/limits/{name}/remove",
            OPERATOR,
            "Plan (dry_run) to remove a limit, or do",
            limits::remove,
        ),
        json(
            Method::GET,
            "/scrubs",
            VIEWER,
            "How far the scrub of each OST is, and its findings",
            scrubs::list,
        ),
        json(
            Method::POST,
            "/scrubs/{target}/{action}",
            OPERATOR,
            "Plan (dry_run) or give an order to a scrub: start, stop",
            scrubs::act,
        ),
    ]
}

fn of_tiering() -> Vec<Endpoint> {
    vec![
        json(Method::GET, "/hsm", VIEWER, "Tiering: agents, queue, backlog, failures", tiering::status),
        json(
            Method::GET,
            "/hsm/actions",
            VIEWER,
            "Actions of tiering: the first thousand of each MDT",
            tiering::list,
        ),
        json(
            Method::POST,
            "/hsm/{action}",
            OPERATOR,
            "Plan (dry_run) or begin archive, release, restore or cancel of a file or a tree",
            tiering::act,
        ),
        json(Method::GET, "/policies", VIEWER, "The policy engine of the manager's host", policies::list),
        json(Method::GET, "/policies/preview", VIEWER, "The last preview", policies::last_preview),
        json(
            Method::POST,
            "/policies/preview",
            OPERATOR,
            "Plan (dry_run) or begin a look at what the engine's text would do, or another text in its place",
            policies::preview,
        ),
        // A command of a policy may have a secret among its words.
        json(Method::GET, "/policies/text", OPERATOR, "The text of the policy engine", policies::text),
        // Includes are read with the rights of the manager, and mistakes quote them.
        json(
            Method::POST,
            "/policies/check",
            ADMINISTRATOR,
            "Say whether a text is understood: its first mistake, or its policies in words",
            policies::check,
        ),
        json(
            Method::POST,
            "/policies/text",
            ADMINISTRATOR,
            "Plan (dry_run) to replace the engine's text, or do; what deletes stays off until it is confirmed",
            policies::save,
        ),
        json(
            Method::POST,
            "/policies/confirm",
            ADMINISTRATOR,
            "Plan (dry_run) to allow what the previewed text of the engine deletes, or do",
            policies::confirm,
        ),
        json(
            Method::POST,
            "/policies/{policy}/{action}",
            OPERATOR,
            "Plan (dry_run) or do enable or disable of a policy",
            policies::switch,
        ),
    ]
}

fn of_buffers_and_quotas() -> Vec<Endpoint> {
    vec![
        json(Method::GET, "/buffers", VIEWER, "Burst buffers and the pools of their bricks", buffers::list),
        json(
            Method::POST,
            "/buffers/{buffer}/retry",
            OPERATOR,
            "Plan (dry_run) or begin to stage the files of a kept buffer out again",
            buffers::retry,
        ),
        json(
            Method::POST,
            "/buffers/{buffer}/resize",
            OPERATOR,
            "Plan (dry_run) or begin to give a buffer another size",
            buffers::resize,
        ),
        json(
            Method::POST,
            "/buffers/{buffer}/destroy",
            ADMINISTRATOR,
            "Plan (dry_run) or begin to destroy a buffer with all it holds",
            buffers::destroy,
        ),
        json(
            Method::POST,
            "/bricks/{pool}/{brick}/{action}",
            OPERATOR,
            "Plan (dry_run) or do drain or undrain of a brick",
            buffers::drain,
        ),
        json(
            Method::GET,
            "/quotas/{kind}",
            VIEWER,
            "Usage and limits of users, groups or projects, the nearest to a limit first",
            quotas::list,
        ),
        json(Method::POST, "/quotas/{kind}", ADMINISTRATOR, "Plan (dry_run) or set limits", quotas::set),
        json(
            Method::GET,
            "/usage",
            VIEWER,
            "What is in the file system, as it was looked at last: sizes, ages, the largest directories",
            quotas::usage,
        ),
        json(Method::POST, "/usage", OPERATOR, "Plan (dry_run) or begin a look at everything", quotas::look),
    ]
}

fn of_help() -> Vec<Endpoint> {
    vec![
        json(
            Method::GET,
            "/benchmarks",
            VIEWER,
            "Runs of benchmarks that are kept, with their limits; where one can run",
            support::list_benchmarks,
        ),
        json(
            Method::POST,
            "/benchmarks",
            OPERATOR,
            "Plan (dry_run) or begin brindle bench quick in a directory of a mount on the manager's host",
            support::benchmark,
        ),
        json(
            Method::GET,
            "/benchmarks/{first}/compare/{second}",
            VIEWER,
            "Two runs beside each other: what is faster or slower by more than noise",
            support::compare,
        ),
        // Logs and states of all servers.
        json(
            Method::GET,
            "/support-bundles",
            ADMINISTRATOR,
            "Support bundles that are kept",
            support::bundles,
        ),
        json(
            Method::POST,
            "/support-bundles",
            ADMINISTRATOR,
            "Plan (dry_run) or begin to make a support bundle",
            support::make_bundle,
        ),
        support::download(ADMINISTRATOR),
    ]
}

fn of_the_manager() -> Vec<Endpoint> {
    vec![
        json(Method::GET, "/tasks", VIEWER, "Actions that run, and those that ran", tasks::list),
        json(Method::POST, "/tasks/{id}/cancel", OPERATOR, "Give a task up", tasks::cancel),
        json(Method::GET, "/users", ADMINISTRATOR, "List the users", users::list),
        json(Method::POST, "/users", ADMINISTRATOR, "Add a user", users::add),
        json(Method::DELETE, "/users/{name}", ADMINISTRATOR, "Remove a user", users::remove),
        json(
            Method::GET,
            "/tokens",
            VIEWER,
            "Tokens of programs: one's own; all for an administrator",
            tokens::list,
        ),
        json(Method::POST, "/tokens", VIEWER, "Make a token; its secret is shown this once", tokens::add),
        json(Method::DELETE, "/tokens/{id}", VIEWER, "Revoke a token", tokens::revoke),
        json(Method::GET, "/audit", ADMINISTRATOR, "Who changed what, the newest first", users::audit),
        json(Method::GET, "/openapi.json", VIEWER, "This description", openapi::show),
    ]
}

/// The router of the table.
pub fn router(manager: &Arc<Manager>) -> Router {
    let mut router = Router::new();
    for endpoint in endpoints() {
        let filter = MethodFilter::try_from(endpoint.method.clone()).expect("the table has usual methods");
        let path = format!("{BASE}{}", endpoint.path);
        let serve = move |State(manager): State<Arc<Manager>>, params: RawPathParams, request: Request| {
            let endpoint = endpoint.clone();
            let params = params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            async move { answer(&endpoint, manager, params, request).await }
        };
        router = router.route(&path, on(filter, serve));
    }
    let nothing_there = || async { fault::response(&Fault::new(Code::UnknownResource)) };
    router.fallback(nothing_there).method_not_allowed_fallback(nothing_there).with_state(manager.clone())
}

async fn answer(
    endpoint: &Endpoint,
    manager: Arc<Manager>,
    params: Vec<(String, String)>,
    request: Request,
) -> Response<Body> {
    let answered = try_answer(endpoint, manager, params, request).await;
    answered.unwrap_or_else(|fault| {
        if fault.code == Code::Bug {
            tracing::error!(code = %fault.code, path = endpoint.path, "{fault}");
        }
        fault::response(&fault)
    })
}

async fn try_answer(
    endpoint: &Endpoint,
    manager: Arc<Manager>,
    params: Vec<(String, String)>,
    request: Request,
) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let peer =
        parts.extensions.get::<Peer>().copied().ok_or_else(|| Fault::new(Code::Bug).why("nobody asks"))?;
    let caller = match parts.extensions.get::<Local>() {
        Some(Local) => Some(guard::local(&manager)),
        None => guard::check(&manager, endpoint, &parts.headers)?,
    };
    let body = axum::body::to_bytes(body, BODY_MAX_BYTES).await.map_err(|e| {
        Fault::new(Code::BadArgument)
            .what("cannot read the body of the request")
            .why(e.to_string())
            .why(format!("it may have {BODY_MAX_BYTES} bytes"))
            .data("nothing was changed")
    })?;
    let call = Call { manager, caller, peer, headers: parts.headers, params, cookie: Mutex::new(None) };
    (endpoint.handler)(call, body).await
}
