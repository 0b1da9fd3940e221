//! Faults as HTTP answers: `application/problem+json` (RFC 9457) with everything that a [`Fault`] says.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use brindle_admin::document::FaultView;
use brindle_types::errno::{EACCES, EAGAIN, EBUSY, EEXIST, EINVAL, ENOENT, EPERM, ETIMEDOUT};
use brindle_types::{Code, Fault};
use schemars::JsonSchema;
use serde::Serialize;

/// Media type of a problem.
const PROBLEM: &str = "application/problem+json";

/// A fault as an HTTP answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// Names the kind of problem: `urn:brindle:fault:E5004`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code's title.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The fault: code, what, subject, why, data, next.
    #[serde(flatten)]
    pub fault: FaultView,
}

/// The HTTP status of a fault.
pub fn status(code: Code) -> StatusCode {
    match code {
        Code::NotLoggedIn | Code::LogInRefused => StatusCode::UNAUTHORIZED,
        Code::TooManyTries => StatusCode::TOO_MANY_REQUESTS,
        Code::Bug | Code::AuditFailed => StatusCode::INTERNAL_SERVER_ERROR,
        Code::NoMgs | Code::TargetDown | Code::Disconnected | Code::NoOrchestrator => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::UnknownTarget => StatusCode::NOT_FOUND,
        code => match code.errno() {
            ENOENT => StatusCode::NOT_FOUND,
            EACCES | EPERM => StatusCode::FORBIDDEN,
            EEXIST | EBUSY => StatusCode::CONFLICT,
            EINVAL => StatusCode::BAD_REQUEST,
            EAGAIN => StatusCode::SERVICE_UNAVAILABLE,
            ETIMEDOUT => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// The answer for a fault.
pub fn response(fault: &Fault) -> Response<Body> {
    let status = status(fault.code);
    let problem = Problem {
        kind: format!("urn:brindle:fault:{}", fault.code),
        title: fault.code.title(),
        status: status.as_u16(),
        fault: FaultView::from(fault),
    };
    let text = serde_json::to_string(&problem).expect("plain fields always serialise");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
    response
}
