//! Support bundles and benchmarks: a shell script stands for the commands that the manager runs.

use std::path::{Path, PathBuf};

use axum::http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::{Browser, Desk, code, read, request};
use crate::benchmarks::{Benchmarks, RUNS_MAX};
use crate::bundles::KEPT_MAX;

/// A program of these lines. A shell writes it: a file that this process had open could not be run while another test forks.
fn program(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("brindle");
    let write = "printf '#!/bin/sh\n%s\n' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    let written = std::process::Command::new("sh").args(["-c", write]).arg(&path).arg(script).status();
    assert!(written.unwrap().success());
    path
}

/// Waits for the end of a task; it as the list has it.
async fn ended(desk: &Desk, browser: &Browser, id: &Value) -> Value {
    loop {
        let (_, list) = desk.ask(Some(browser), Method::GET, "/api/v1/tasks", json!({})).await;
        let task = list["tasks"].as_array().unwrap().iter().find(|task| task["id"] == *id).unwrap().clone();
        if task["state"] != "running" {
            return task;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_bundle_is_made_kept_and_fetched_by_administrators() {
    let dir = tempfile::tempdir().unwrap();
    // The file is named behind --to.
    let script = "echo 'warning: not in it: the journal' >&2\nwhile [ $# -gt 0 ]; do [ \"$1\" = --to ] && printf bytes > \"$2\"; shift; done; exit 5";
    let desk = Desk::running(program(dir.path(), script)).and_users();
    let (otto, ada) = (desk.log_in("otto").await, desk.log_in("ada").await);
    let path = "/api/v1/support-bundles";
    for (method, path) in
        [(Method::GET, path), (Method::POST, path), (Method::GET, "/api/v1/support-bundles/x.tar.gz")]
    {
        let refused = desk.ask(Some(&otto), method, path, json!({ "dry_run": true })).await;
        assert_eq!(code(&refused), (403, "E5042"), "{path}");
    }
    let (_, plan) = desk.ask(Some(&ada), Method::POST, path, json!({ "dry_run": true })).await;
    assert!(
        plan["command"].as_str().unwrap().starts_with("brindle support bundle --mgs 127.0.0.1:1"),
        "{plan}"
    );
    for round in 0..=KEPT_MAX {
        let (_, begun) = desk.ask(Some(&ada), Method::POST, path, json!({ "dry_run": false })).await;
        let task = ended(&desk, &ada, &begun["task"]).await;
        assert_eq!(task["state"], "done", "{round}: {task}");
        assert_eq!(task["lines"][0], "warning: not in it: the journal");
        // Their names are those of the seconds.
        desk.clock.forward_ms(1_000);
    }
    let (_, list) = desk.ask(Some(&ada), Method::GET, path, json!({})).await;
    let bundles = list["bundles"].as_array().unwrap();
    assert_eq!((bundles.len(), &bundles[0]["bytes"]), (KEPT_MAX, &json!(5)), "{list}");
    let name = bundles[0]["name"].as_str().unwrap();
    let fetched = desk.send(request(Some(&ada), Method::GET, &format!("{path}/{name}"), json!({}))).await;
    assert_eq!(
        (fetched.status(), &fetched.headers()[header::CONTENT_LENGTH]),
        (StatusCode::OK, &"5".parse().unwrap())
    );
    let bytes = axum::body::to_bytes(fetched.into_body(), 100).await.unwrap();
    assert_eq!(&bytes[..], b"bytes");
    for other in ["x.tar.gz", "..%2Fusers.json", "%2Fetc%2Fpasswd"] {
        let none = desk.send(request(Some(&ada), Method::GET, &format!("{path}/{other}"), json!({}))).await;
        assert_eq!(code(&read(none).await), (404, "E5048"), "{other}");
    }
    let (_, audit) = desk.ask(Some(&ada), Method::GET, "/api/v1/audit", json!({})).await;
    assert_eq!(
        (&audit["records"][0]["action"], &audit["records"][0]["subject"]),
        (&json!("support.download"), &json!(name))
    );
}

#[tokio::test]
async fn a_bundle_that_cannot_be_made_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let desk = Desk::running(program(dir.path(), "echo 'error: no tar' >&2; exit 1")).and_users();
    let ada = desk.log_in("ada").await;
    let ask = json!({ "dry_run": false });
    let (_, begun) = desk.ask(Some(&ada), Method::POST, "/api/v1/support-bundles", ask).await;
    let task = ended(&desk, &ada, &begun["task"]).await;
    assert_eq!(
        (&task["state"], &task["fault"]["why"][0]),
        (&json!("failed"), &json!("error: no tar")),
        "{task}"
    );
    let (_, list) = desk.ask(Some(&ada), Method::GET, "/api/v1/support-bundles", json!({})).await;
    assert_eq!(list["bundles"], json!([]));
}

#[tokio::test]
async fn nothing_is_measured_outside_of_the_file_system() {
    let desk = Desk::with_users();
    let (vera, otto) = (desk.log_in("vera").await, desk.log_in("otto").await);
    let ask = |directory: &str| json!({ "directory": directory, "dry_run": false });
    let post = |browser: Browser, body: Value| {
        let desk = &desk;
        async move { desk.ask(Some(&browser), Method::POST, "/api/v1/benchmarks", body).await }
    };
    assert_eq!(code(&post(vera.clone(), ask("/tmp")).await), (403, "E5042"));
    for directory in ["/tmp", "tmp", "/nonexistent", ""] {
        assert_eq!(code(&post(otto.clone(), ask(directory)).await), (400, "E1001"), "{directory}");
    }
    let long = json!({ "directory": "/", "label": "x".repeat(81), "dry_run": true });
    assert_eq!(code(&post(otto.clone(), long).await), (400, "E1001"));
    let (_, list) = desk.ask(Some(&vera), Method::GET, "/api/v1/benchmarks", json!({})).await;
    assert_eq!((&list["runs"], &list["is_running"]), (&json!([]), &json!(false)));
    for pair in ["1/compare/2", "x/compare/1"] {
        let none = desk.ask(Some(&vera), Method::GET, &format!("/api/v1/benchmarks/{pair}"), json!({})).await;
        assert_eq!(code(&none), (404, "E5048"), "{pair}");
    }
}

/// A run with one figure.
fn run(median: f64) -> brindle_bench::run::Run {
    use brindle_bench::run::{Figure, Run, Sample, Unit};
    let sample = Sample { value: median, seconds: 1.0, ..Sample::default() };
    let mut figure = Figure::new("easy", "write", Unit::MibPerSecond, None, vec![sample]).unwrap();
    figure.limit("disk", &[2.0 * median]);
    Run {
        workload: "quick".to_owned(),
        program: "brindle".to_owned(),
        label: None,
        started_unix_seconds: 7,
        duration_seconds: 1.0,
        machine: brindle_bench::machine::Machine::this(),
        directories: Vec::new(),
        limit: None,
        parameters: Default::default(),
        notes: Vec::new(),
        memory: Vec::new(),
        figures: vec![figure],
    }
}

#[test]
fn runs_are_kept_over_a_restart_and_the_oldest_goes() {
    let dir = tempfile::tempdir().unwrap();
    let benchmarks = Benchmarks::load(dir.path(), "/nonexistent".into()).unwrap();
    for n in 0..=RUNS_MAX {
        assert_eq!(benchmarks.keep("ada".to_owned(), run(100.0 + n as f64)).unwrap(), n as u64 + 1);
    }
    std::fs::write(dir.path().join("benchmarks/77.json"), "{").unwrap();
    let again = Benchmarks::load(dir.path(), "/nonexistent".into()).unwrap();
    let kept = again.runs();
    assert_eq!((kept.len(), kept[0].id, kept[0].user.as_str()), (RUNS_MAX, 2, "ada"));
    assert_eq!(kept[0].run.figures[0].limits[0].fraction, 0.5);
    assert!(again.compare("1", "2").is_err(), "the first is gone");
    let compared = serde_json::to_value(again.compare("2", "51").unwrap()).unwrap();
    assert_eq!(compared["rows"][0]["ratio"], json!(150.0 / 101.0), "{compared}");
    let room = again.room().unwrap();
    assert!(again.room().is_err(), "one at a time");
    drop(room);
    drop(again.room().unwrap());
}
