//! The files of the console, built from `console/` and kept in the program: a request cannot reach a file of the
//! machine.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::routing::get;

/// A file: its path, its media type, its bytes.
struct File {
    path: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

const FILES: &[File] = &[
    File {
        path: "/",
        media: "text/html; charset=utf-8",
        bytes: include_bytes!("../../../../console/dist/index.html"),
    },
    File {
        path: "/assets/console.js",
        media: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../../../console/dist/assets/console.js"),
    },
    File {
        path: "/assets/console.css",
        media: "text/css; charset=utf-8",
        bytes: include_bytes!("../../../../console/dist/assets/console.css"),
    },
    File {
        path: "/icon.svg",
        media: "image/svg+xml",
        bytes: include_bytes!("../../../../console/dist/icon.svg"),
    },
];

/// A route for each file.
pub fn router() -> Router {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(move |request: Request| async move { answer(file, &request) }))
    })
}

/// The file, or that the browser has it already.
fn answer(file: &'static File, request: &Request) -> Response<Body> {
    let tag = format!("\"{}\"", &blake3::hash(file.bytes).to_hex()[..32]);
    let has_it = request.headers().get(header::IF_NONE_MATCH).is_some_and(|shown| *shown == *tag);
    let mut response = Response::new(if has_it { Body::empty() } else { Body::from(file.bytes) });
    if has_it {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("hexadecimal digits"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_runs_no_script_in_the_page_and_asks_nobody_else() {
        let page = std::str::from_utf8(FILES[0].bytes).unwrap();
        assert!(page.contains("/assets/console.js") && page.contains("/assets/console.css"));
        for script in page.split("<script").skip(1) {
            assert!(script.split('>').next().unwrap().contains("src="), "a script in the page");
        }
        assert!(!page.contains("<style") && !page.contains(" style="));
        assert!(!page.contains("http://") && !page.contains("https://"), "something from elsewhere");
    }
}
