//! Faults of an S3 server, in the project's codes.

use std::error::Error as StdError;
use std::fmt;

use brindle_types::{Code, Fault};
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// The longest text of a server that goes on.
const TEXT_CHARS_MAX: usize = 300;

/// The answer of a server that has refused something.
#[derive(Debug, PartialEq, Eq)]
struct Said<'a> {
    code: &'a str,
    message: &'a str,
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = text.split_once(&format!("<{name}>"))?;
    behind.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
}

fn said(text: &str) -> Option<Said<'_>> {
    Some(Said { code: element(text, "Code")?, message: element(text, "Message").unwrap_or_default() })
}

fn code_of(said: &str) -> Option<Code> {
    Some(match said {
        "NoSuchBucket" | "InvalidBucketName" | "PermanentRedirect" | "AuthorizationHeaderMalformed" => {
            Code::S3NoBucket
        }
        "AccessDenied"
        | "AllAccessDisabled"
        | "ExpiredToken"
        | "InvalidAccessKeyId"
        | "InvalidToken"
        | "NotSignedUp"
        | "RequestTimeTooSkewed"
        | "SignatureDoesNotMatch" => Code::S3Refused,
        "InsufficientCapacity" | "QuotaExceeded" | "XMinioAdminBucketQuotaExceeded" | "XMinioStorageFull" => {
            Code::S3Full
        }
        "BadDigest" | "InvalidDigest" | "XAmzContentChecksumMismatch" | "XAmzContentSHA256Mismatch" => {
            Code::S3Damaged
        }
        "RequestTimeout" | "ServiceUnavailable" | "SlowDown" => Code::S3Unreachable,
        _ => return None,
    })
}

fn shortened(text: &str) -> String {
    // The text of a server may hold any characters.
    text.chars().filter(|c| !c.is_control()).take(TEXT_CHARS_MAX).collect()
}

type Cause<'a> = &'a (dyn StdError + 'static);

fn cause<'a>(e: &Cause<'a>) -> Option<Cause<'a>> {
    let e: Cause<'a> = *e;
    e.source()
}

/// The errors below one, itself first.
fn chain(e: &Error) -> impl Iterator<Item = Cause<'_>> {
    std::iter::successors(Some(e as Cause<'_>), cause)
}

fn is_unreachable(e: Cause<'_>) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    e.downcast_ref::<HttpError>()
        .is_some_and(|e| matches!(e.kind(), Connect | Timeout | Interrupted | Request))
}

/// The fault of an error.
pub fn explain(what: &'static str, subject: &dyn fmt::Display, e: &Error) -> Fault {
    let texts: Vec<String> = chain(e).map(ToString::to_string).collect();
    let heard = texts.iter().find_map(|text| said(text));
    let deepest = texts.last().map_or("", String::as_str);
    let code = match (&heard, e) {
        (Some(heard), _) => code_of(heard.code),
        (None, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => Some(Code::S3Refused),
        (None, _) if chain(e).any(is_unreachable) => Some(Code::S3Unreachable),
        (None, _) if deepest.contains("507 Insufficient Storage") => Some(Code::S3Full),
        (None, _) => None,
    };
    let why = match &heard {
        Some(Said { code, message: "" }) => shortened(code),
        Some(Said { code, message }) => format!("{}: {}", shortened(code), shortened(message)),
        None => shortened(deepest),
    };
    Fault::new(code.unwrap_or(Code::ArchiveFailed)).what(what).subject(subject.to_string()).why(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    fn explained(e: &Error) -> Fault {
        explain("cannot write the copy", &"s3://b/k", e)
    }

    #[test]
    fn what_servers_say_has_a_code_of_ours() {
        for (said, code) in [
            ("NoSuchBucket", Code::S3NoBucket),
            ("SignatureDoesNotMatch", Code::S3Refused),
            ("QuotaExceeded", Code::S3Full),
            ("BadDigest", Code::S3Damaged),
            ("SlowDown", Code::S3Unreachable),
            ("MalformedXML", Code::ArchiveFailed),
        ] {
            let body = format!("400: <Error><Code>{said}</Code><Message>that is it</Message></Error>");
            let fault = explained(&generic(&body));
            assert_eq!(fault.code, code, "{said}");
            let text = fault.to_string();
            assert!(text.contains(&format!("{said}: that is it")) && text.contains("s3://b/k"), "{text}");
        }
    }

    #[test]
    fn a_server_that_says_nothing_is_understood_too() {
        let denied = Error::PermissionDenied { path: "k".to_owned(), source: "403".into() };
        assert_eq!(explained(&denied).code, Code::S3Refused);
        let full = generic("Server returned non-2xx status code: 507 Insufficient Storage: ");
        assert_eq!(explained(&full).code, Code::S3Full);
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let source = Box::new(HttpError::new(HttpErrorKind::Connect, io));
        assert_eq!(explained(&Error::Generic { store: "S3", source }).code, Code::S3Unreachable);
        let noise = generic(&"\u{7}x".repeat(1000));
        assert!(explained(&noise).to_string().len() < 600);
    }
}
