//! The text of the policy engine, as it is edited: checked, saved, confirmed.

use std::path::PathBuf;

use axum::http::{Method, StatusCode};
use brindle_host::policy;
use brindle_hsm::policy::State;
use serde_json::{Value, json};

use super::{Browser, Desk, code};

const GOOD: &str = "purge_rules { rule default { condition { last_mod > 1h } } }\n";
const DELETES: &str = "rmdir_rules { rule default { condition { dircount == 0 and last_mod > 7d } } }\n";

/// A manager with an engine that has run a text.
struct Engine {
    desk: Desk,
    file: PathBuf,
    state: State,
    ada: Browser,
    otto: Browser,
}

impl Engine {
    async fn new() -> Engine {
        let desk = Desk::with_users();
        let (ada, otto) = (desk.log_in("ada").await, desk.log_in("otto").await);
        let file = desk._dir.path().join("p.conf");
        std::fs::write(&file, GOOD).unwrap();
        let mut state = State::take(&desk._dir.path().join("policy")).unwrap();
        state.history.file = file.display().to_string();
        state.history.source = "mgs:/dev".to_owned();
        state.save().unwrap();
        Engine { desk, file, state, ada, otto }
    }

    async fn post(&self, browser: &Browser, verb: &str, body: Value) -> (StatusCode, Value) {
        self.desk.ask(Some(browser), Method::POST, &format!("/api/v1/policies/{verb}"), body).await
    }

    async fn version(&self) -> Value {
        let (_, text) =
            self.desk.ask(Some(&self.otto), Method::GET, "/api/v1/policies/text", json!({})).await;
        text["version"].clone()
    }

    fn now(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap()
    }
}

#[tokio::test]
async fn a_mistake_has_line_and_column_and_nobody_else_edits() {
    let engine = Engine::new().await;
    let wrong = json!({ "text": "purge_rules {\n  rule default { conditio { } }\n}\n" });
    let (status, checked) = engine.post(&engine.ada, "check", wrong.clone()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&checked["mistake"]["line"], &checked["mistake"]["column"]),
        (&json!(2), &json!(18)),
        "{checked}"
    );
    assert_eq!(checked["sum"], Value::Null);
    let (_, checked) = engine.post(&engine.ada, "check", json!({ "text": DELETES })).await;
    assert_eq!((&checked["mistake"], &checked["deleting"]), (&Value::Null, &json!(["rmdir"])), "{checked}");
    assert_eq!(checked["is_previewed"], false);
    let elsewhere = "cleanup_rules { rule default { condition { path == \"/elsewhere/x\" } } }\n";
    let (_, checked) = engine.post(&engine.ada, "check", json!({ "text": elsewhere })).await;
    assert_eq!(checked["mistake"]["line"], 1, "the engine would refuse it: {checked}");
    let save = json!({ "text": elsewhere, "version": engine.version().await, "dry_run": false });
    assert_eq!(code(&engine.post(&engine.ada, "text", save).await), (400, "E6010"));
    let save = json!({ "text": wrong["text"], "version": engine.version().await, "dry_run": false });
    let refused = engine.post(&engine.ada, "text", save.clone()).await;
    assert_eq!(code(&refused), (400, "E6010"), "{refused:?}");
    let preview = json!({ "text": "%include \"/etc/shadow\"\n", "dry_run": true });
    let confirm = json!({ "sum": "0", "dry_run": false });
    for (verb, body) in [("check", wrong), ("text", save), ("preview", preview), ("confirm", confirm)] {
        let refused = engine.post(&engine.otto, verb, body).await;
        assert_eq!(code(&refused), (403, "E5042"), "{verb}");
    }
    assert_eq!(engine.now(), GOOD);
}

#[tokio::test]
async fn a_text_is_saved_as_it_was_shown_and_audited() {
    let engine = Engine::new().await;
    let version = engine.version().await;
    let save = |text: &str, is_dry: bool| json!({ "text": text, "version": version, "dry_run": is_dry });
    let (_, plan) = engine.post(&engine.ada, "text", save(DELETES, true)).await;
    assert_eq!(plan["changes"], true, "{plan}");
    assert!(plan["effects"][1].as_str().unwrap().starts_with("rmdir stays off: it deletes"), "{plan}");
    assert_eq!(engine.now(), GOOD, "a plan changes nothing");
    let (status, _) = engine.post(&engine.ada, "text", save(DELETES, false)).await;
    assert_eq!((status, engine.now().as_str()), (StatusCode::OK, DELETES));
    let late = engine.post(&engine.ada, "text", save(GOOD, false)).await;
    assert_eq!(code(&late), (409, "E6019"), "it is another text by now");
    let long = format!("#{}", "x".repeat(49 << 10));
    assert_eq!(code(&engine.post(&engine.ada, "text", save(&long, true)).await), (400, "E1001"));
    assert_eq!(engine.now(), DELETES);
    let (_, audit) = engine.desk.ask(Some(&engine.ada), Method::GET, "/api/v1/audit", json!({})).await;
    let noted = &audit["records"][0];
    assert_eq!(
        (&noted["action"], &noted["user"], &noted["outcome"]),
        (&json!("policy.save"), &json!("ada"), &json!("done"))
    );
}

#[tokio::test]
async fn what_deletes_is_confirmed_only_as_it_was_previewed() {
    let engine = Engine::new().await;
    let confirm = |sum: &str| json!({ "sum": sum, "dry_run": false });
    let sum = |text: &str| {
        let file = engine.file.display().to_string();
        brindle_host::policy_text::load(&file, text, &Default::default()).unwrap().sum
    };
    let deletes = sum(DELETES);
    let early = engine.post(&engine.ada, "confirm", confirm(&deletes)).await;
    assert_eq!(code(&early), (409, "E6019"), "another text is in force");
    std::fs::write(&engine.file, DELETES).unwrap();
    let unseen = engine.post(&engine.ada, "confirm", confirm(&deletes)).await;
    assert_eq!(code(&unseen), (403, "E6012"), "{unseen:?}");
    // A preview of other words counts for those.
    let other = DELETES.replace("7d", "1d");
    engine.state.previewed(&sum(&other), &policy::mark(&engine.file)).unwrap();
    assert_eq!(code(&engine.post(&engine.ada, "confirm", confirm(&deletes)).await), (403, "E6012"));
    assert!(!engine.state.is_confirmed(&deletes));
    engine.state.previewed(&deletes, &policy::mark(&engine.file)).unwrap();
    let (_, plan) = engine.post(&engine.ada, "confirm", json!({ "sum": deletes, "dry_run": true })).await;
    assert_eq!((&plan["changes"], engine.state.is_confirmed(&deletes)), (&json!(true), false), "{plan}");
    let (status, _) = engine.post(&engine.ada, "confirm", confirm(&deletes)).await;
    assert_eq!((status, engine.state.is_confirmed(&deletes)), (StatusCode::OK, true));
    std::fs::write(&engine.file, &other).unwrap();
    assert_eq!(code(&engine.post(&engine.ada, "confirm", confirm(&deletes)).await), (409, "E6019"));
    assert!(!engine.state.is_confirmed(&sum(&other)), "another number is confirmed anew");
}
