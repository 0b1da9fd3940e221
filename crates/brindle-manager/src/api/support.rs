//! Support bundles, and benchmarks.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Response, header};
use brindle_stdx::BoxFuture;
use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, Result};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tasks::{self, Progress};
use super::{Call, Endpoint, Needs, Nothing, schema_of};
use crate::benchmarks::{self, BenchmarksView, ComparedView};
use crate::bundles::BundlesView;
use crate::plan::PlanView;
use crate::policies::on_a_thread;
use crate::tasks::Room;

/// Bytes of a bundle that are read at once.
const PIECE_BYTES: u64 = 256 << 10;

/// A bundle that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BundleReq {
    /// Takes whole lines of logs, which may have names of files in them.
    #[serde(default)]
    pub with_names: bool,
    /// Says what would be done, and makes nothing.
    pub dry_run: bool,
}

/// A benchmark that is to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BenchmarkReq {
    /// A directory in a mount of the file system on the manager's host, which belongs to root.
    pub directory: String,
    /// Name of the run in reports: a release, a change.
    #[serde(default)]
    pub label: String,
    /// Says what would be done, and measures nothing.
    pub dry_run: bool,
}

/// The bundles that are kept.
pub async fn bundles(call: Arc<Call>, _: Nothing) -> Result<BundlesView> {
    on_a_thread(move || call.manager.bundles.view()).await
}

/// Plans a bundle, or begins to make it.
pub async fn make_bundle(call: Arc<Call>, request: BundleReq) -> Result<PlanView> {
    let (manager, with_names) = (call.manager.clone(), request.with_names);
    let plan = manager.bundles.plan(&manager.managed, with_names)?;
    if request.dry_run {
        return Ok(plan);
    }
    let room = manager.bundles.room()?;
    let stamp = brindle_telemetry::log::rfc3339(manager.seams.wall());
    let work = move |progress: Progress| async move {
        let made = manager.bundles.make(&manager.managed, with_names, &stamp, &progress).await;
        drop(room);
        made
    };
    tasks::begin(&call, plan, "support.bundle".to_owned(), Room::Files, true, work)
}

/// The endpoint from which a bundle is fetched.
pub fn download(needs: Needs) -> Endpoint {
    let handler = |call: Call, _: Bytes| -> BoxFuture<'static, Result<Response<Body>>> {
        Box::pin(async move { send(call).await })
    };
    Endpoint {
        method: Method::GET,
        path: "/support-bundles/{name}",
        needs,
        summary: "A support bundle, packed by tar and gzip",
        request: None,
        answer: schema_of::<String>,
        media: "application/gzip",
        handler: Arc::new(handler),
    }
}

async fn send(call: Call) -> Result<Response<Body>> {
    let name = call.param("name").to_owned();
    let (manager, asked) = (call.manager.clone(), name.clone());
    let (path, length) = on_a_thread(move || manager.bundles.file(&asked)).await?;
    call.manager.audit.note(&call.doer(), "support.download", &name, "done", None)?;
    let pieces = stream::try_unfold((path, 0), move |(path, at)| piece(path, at, length));
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    let attached = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    let attached =
        attached.map_err(|e| Fault::new(Code::Bug).what("cannot name a file").why(e.to_string()))?;
    headers.insert(header::CONTENT_DISPOSITION, attached);
    Ok(response)
}

/// The next piece of a file, and the place behind it; none behind the last one. A file that is gone meanwhile ends the connection.
async fn piece(path: PathBuf, at: u64, length: u64) -> std::io::Result<Option<(Bytes, (PathBuf, u64))>> {
    if at >= length {
        return Ok(None);
    }
    let read = move || {
        use std::os::unix::fs::FileExt as _;
        let mut bytes = vec![0; to_usize(PIECE_BYTES.min(length - at))];
        std::fs::File::open(&path)?.read_exact_at(&mut bytes, at)?;
        let next = at + bytes.len() as u64;
        Ok(Some((Bytes::from(bytes), (path, next))))
    };
    tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)?
}

/// Runs that are kept.
pub async fn list_benchmarks(call: Arc<Call>, _: Nothing) -> Result<BenchmarksView> {
    Ok(call.manager.benchmarks.view(&call.manager.managed))
}

/// Two runs beside each other.
pub async fn compare(call: Arc<Call>, _: Nothing) -> Result<ComparedView> {
    call.manager.benchmarks.compare(call.param("first"), call.param("second"))
}

/// Plans a benchmark, or begins it.
pub async fn benchmark(call: Arc<Call>, request: BenchmarkReq) -> Result<PlanView> {
    let asked = benchmarks::plan(&call.manager.managed, request.directory, request.label).await?;
    let plan = asked.plan.clone();
    if request.dry_run {
        return Ok(plan);
    }
    let room = call.manager.benchmarks.room()?;
    let (manager, user) = (call.manager.clone(), call.doer().user);
    let work = move |progress: Progress| async move {
        let measured = manager.benchmarks.run(asked, user, &progress).await;
        drop(room);
        measured
    };
    tasks::begin(&call, plan, "benchmark".to_owned(), Room::Files, true, work)
}
