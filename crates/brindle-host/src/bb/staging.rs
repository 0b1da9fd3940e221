//! The process that copies for a job: started, fed, stopped.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use brindle_bb::{Buffer, Transfer};
use brindle_types::{Code, Fault, Result};

use super::copy::{CopyOutcome, CopyWork};
use super::job_lock::JobLock;
use super::orchestrator::stopped;
use crate::Host;
use crate::process::Identity;

/// Copies the files of a job into buffers or out of them. With each copy stands the directory of the buffer, in the mount for staging.
pub fn run(
    host: &Host,
    buffer: &Buffer,
    transfers: Vec<(Transfer, PathBuf)>,
    stages_in: bool,
    job: &JobLock,
) -> Result<()> {
    let work = CopyWork { uid: buffer.uid, gid: buffer.gid, stages_in, transfers };
    let failed = |e: std::io::Error| {
        Fault::io(Code::StageFailed, "cannot stage files of job", buffer.token.clone(), &e)
    };
    let input = serde_json::to_vec(&work).map_err(|e| failed(e.into()))?;
    let mut command = Command::new(&host.program);
    command
        .args(["bb", "copy"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    job.copies(Identity::of(child.id()));
    if let Some(mut pipe) = child.stdin.take() {
        // A child that was stopped already does not read its input.
        let _ = pipe.write_all(&input);
    }
    let out = child.wait_with_output();
    job.copies(None);
    if job.stops() {
        return Err(stopped(&buffer.token));
    }
    let out = out.map_err(failed)?;
    let outcome: std::result::Result<Result<CopyOutcome>, _> = serde_json::from_slice(&out.stdout);
    let Ok(outcome) = outcome else {
        return Err(Fault::new(Code::StageFailed)
            .what("the copy ended before it was done for job")
            .subject(buffer.token.clone())
            .why(out.status.to_string()));
    };
    let done = outcome?;
    tracing::info!(
        job = buffer.token,
        stages_in,
        files = done.files,
        bytes = done.bytes,
        unchanged = done.unchanged,
        skipped = done.skipped,
        links = done.links,
        attributes_lost = done.attributes_lost,
        "staged"
    );
    Ok(())
}
