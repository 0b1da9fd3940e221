//! Programs with tokens, and users whose password the host knows.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::{Desk, PASSWORD, code, read};
use crate::access::Role;
use crate::access::attempts::OF_ADDRESS_MAX;
use crate::access::users::Password;

/// A request of a program with a token.
fn with_token(secret: &str, method: Method, path: &str, body: &Value) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path).header("content-type", "application/json");
    builder.header("authorization", format!("Bearer {secret}")).body(Body::from(body.to_string())).unwrap()
}

#[tokio::test]
async fn a_token_has_the_rights_it_was_given_and_no_more_than_its_user() {
    let desk = Desk::with_users();
    let (otto, ada) = (desk.log_in("otto").await, desk.log_in("ada").await);
    let wish = |role: &str| json!({ "name": "report", "role": role, "days": 7 });
    let above = desk.ask(Some(&otto), Method::POST, "/api/v1/tokens", wish("administrator")).await;
    assert_eq!(code(&above), (403, "E5042"));
    let mut secrets = Vec::new();
    for role in ["viewer", "operator"] {
        let (status, made) = desk.ask(Some(&otto), Method::POST, "/api/v1/tokens", wish(role)).await;
        assert_eq!(status, StatusCode::OK, "{made}");
        secrets.push(made["secret"].as_str().unwrap().to_owned());
    }
    let send = async |secret: &str, method: Method, path: &str, body: Value| {
        read(desk.send(with_token(secret, method, path, &body)).await).await
    };
    for secret in &secrets {
        let (status, session) = send(secret, Method::GET, "/api/v1/session", json!({})).await;
        assert_eq!((status, session["user"].as_str()), (StatusCode::OK, Some("otto")));
        for (method, path, body) in [
            (Method::GET, "/api/v1/users", json!({})),
            (Method::POST, "/api/v1/users", json!({ "name": "eve", "role": "viewer", "password": PASSWORD })),
            (Method::POST, "/api/v1/tokens", wish("viewer")),
            (Method::DELETE, "/api/v1/tokens/1", json!({})),
        ] {
            assert_eq!(code(&send(secret, method, path, body).await), (403, "E5042"), "{path}");
        }
    }
    let silence = json!({ "code": "E5005", "subject": "", "seconds": 60, "why": "" });
    let by_viewer = send(&secrets[0], Method::POST, "/api/v1/silences", silence.clone()).await;
    assert_eq!(code(&by_viewer), (403, "E5042"));
    let by_operator = send(&secrets[1], Method::POST, "/api/v1/silences", silence).await;
    assert_eq!(by_operator.0, StatusCode::OK, "{}", by_operator.1);
    // Users see their own tokens, administrators all of them.
    let vera = desk.log_in("vera").await;
    for (browser, count) in [(&otto, 2), (&vera, 0), (&ada, 2)] {
        let (_, list) = desk.ask(Some(browser), Method::GET, "/api/v1/tokens", json!({})).await;
        assert_eq!(list["tokens"].as_array().unwrap().len(), count);
    }
    let others = desk.ask(Some(&vera), Method::DELETE, "/api/v1/tokens/1", json!({})).await;
    assert_eq!(others.0, StatusCode::NOT_FOUND);
    let revoked = desk.ask(Some(&ada), Method::DELETE, "/api/v1/tokens/1", json!({})).await;
    assert_eq!(revoked.0, StatusCode::OK);
    assert_eq!(code(&send(&secrets[0], Method::GET, "/api/v1/state", json!({})).await), (401, "E5041"));
    // Tokens end with their user, and in time.
    desk.clock.forward_ms(7 * 86_400_000);
    assert_eq!(code(&send(&secrets[1], Method::GET, "/api/v1/state", json!({})).await), (401, "E5041"));
}

#[tokio::test]
async fn an_administrators_token_manages_neither_users_nor_tokens() {
    let desk = Desk::with_users();
    let ada = desk.log_in("ada").await;
    let wish = json!({ "name": "backup", "role": "administrator", "days": 7 });
    let (_, made) = desk.ask(Some(&ada), Method::POST, "/api/v1/tokens", wish.clone()).await;
    let secret = made["secret"].as_str().unwrap().to_owned();
    let eve = json!({ "name": "eve", "role": "administrator", "password": PASSWORD });
    for (method, path, body) in [
        (Method::POST, "/api/v1/users", eve),
        (Method::DELETE, "/api/v1/users/ada", json!({})),
        (Method::POST, "/api/v1/tokens", wish),
        (Method::DELETE, "/api/v1/tokens/1", json!({})),
    ] {
        let answer = read(desk.send(with_token(&secret, method, path, &body)).await).await;
        assert_eq!(code(&answer), (403, "E5042"), "{path}");
    }
    let listed = read(desk.send(with_token(&secret, Method::GET, "/api/v1/users", &json!({}))).await).await;
    assert_eq!(listed.1["users"].as_array().unwrap().len(), 3, "it may look");
}

#[tokio::test]
async fn tokens_end_with_their_user_and_guesses_of_others_do_not_matter() {
    let desk = Desk::with_users();
    let (otto, ada) = (desk.log_in("otto").await, desk.log_in("ada").await);
    let wish = json!({ "name": "report", "role": "viewer", "days": 7 });
    let (_, made) = desk.ask(Some(&otto), Method::POST, "/api/v1/tokens", wish).await;
    let secret = made["secret"].as_str().unwrap().to_owned();
    let state = async |secret: &str| {
        read(desk.send(with_token(secret, Method::GET, "/api/v1/state", &json!({}))).await).await
    };
    for n in 0..2 * OF_ADDRESS_MAX {
        assert_eq!(code(&state(&n.to_string()).await), (401, "E5041"));
    }
    assert_eq!(state(&secret).await.0, StatusCode::OK);
    desk.ask(Some(&ada), Method::DELETE, "/api/v1/users/otto", json!({})).await;
    desk.manager.users.add("otto", Role::Operator, Password::Own(PASSWORD)).unwrap();
    assert_eq!(code(&state(&secret).await), (401, "E5041"), "another otto");
}

#[tokio::test]
async fn a_user_of_the_host_is_not_let_in_when_nobody_can_be_asked() {
    let desk = Desk::with_users();
    let ada = desk.log_in("ada").await;
    for both in [
        json!({ "name": "hans", "role": "viewer", "by_pam": true, "password": PASSWORD }),
        json!({ "name": "hans", "role": "viewer" }),
    ] {
        assert_eq!(code(&desk.ask(Some(&ada), Method::POST, "/api/v1/users", both).await), (400, "E1001"));
    }
    let by_pam = json!({ "name": "hans", "role": "viewer", "by_pam": true });
    let (status, users) = desk.ask(Some(&ada), Method::POST, "/api/v1/users", by_pam).await;
    assert_eq!(status, StatusCode::OK, "{users}");
    let body = json!({ "name": "hans", "password": PASSWORD });
    let answer = desk.ask(None, Method::POST, "/api/v1/session", body).await;
    assert_eq!(code(&answer), (401, "E5040"));
    assert!(!answer.1.to_string().contains("PAM"), "{}", answer.1);
}
