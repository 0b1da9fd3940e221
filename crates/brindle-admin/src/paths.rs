//! Paths in text. Names of files are bytes, and seldom not UTF-8; commands print them as they are.
//!
//! A byte that is no part of UTF-8 stands in our text as the character U+10FF00 + byte, which nobody uses; what is printed has the
//! byte again ([`write_raw`]). Any text may therefore hold a path, and nothing of the path is lost. (The idea is that of PEP 383.)
//! JSON is text: there `path` shows U+FFFD in the place of such bytes, and `path_bytes` has all bytes as numbers.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

/// The character of byte 0.
const FIRST: u32 = 0x10_FF00;
/// The first byte of these characters in UTF-8.
const LEAD: u8 = 0xF4;

/// The byte that a character stands for.
fn byte_of(c: char) -> Option<u8> {
    u8::try_from(u32::from(c).checked_sub(FIRST)?).ok()
}

/// A name or path as text.
pub fn bytes_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                None => text.push(c),
                // The name holds this very character: its bytes stand for themselves.
                Some(_) => push_bytes(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_bytes(&mut text, chunk.invalid());
    }
    text
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    // In range: the last of these characters is the last there is.
    text.extend(bytes.iter().filter_map(|byte| char::from_u32(FIRST + u32::from(*byte))));
}

/// Whether JSON can show a name or path unchanged.
pub fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(|c| byte_of(c).is_none()))
}

/// A path as text.
pub fn text(path: &Path) -> String {
    bytes_text(path.as_os_str().as_bytes())
}

/// Writes text with the bytes of the paths in it.
pub fn write_raw(out: &mut impl Write, text: &str) -> io::Result<()> {
    if !text.as_bytes().contains(&LEAD) {
        return out.write_all(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.write_all(&bytes)
}

/// Text for JSON.
pub fn lossy(text: &str) -> Cow<'_, str> {
    match text.chars().any(|c| byte_of(c).is_some()) {
        false => Cow::Borrowed(text),
        true => text.chars().map(|c| byte_of(c).map_or(c, |_| char::REPLACEMENT_CHARACTER)).collect(),
    }
}

/// A path in JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PathView {
    /// The path as text.
    path: String,
    /// Bytes of the path, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<Vec<u8>>,
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for PathView {
    fn from(path: &T) -> PathView {
        let bytes = path.as_ref().as_bytes();
        PathView {
            path: lossy(&bytes_text(bytes)).into_owned(),
            path_bytes: (!is_text(bytes)).then(|| bytes.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_out_as_it_was() {
        let last = "\u{10FFFF}x\u{10FF00}";
        for name in [
            &b"plain"[..],
            b"caf\xe9.dat",
            "caf\u{e9}".as_bytes(),
            b"\xff\xfe\x80",
            last.as_bytes(),
            b"\xf4\x8f",
        ] {
            let text = format!("<{}>", bytes_text(name));
            let mut out = Vec::new();
            write_raw(&mut out, &text).expect("a vector");
            assert_eq!(out, [b"<", name, b">"].concat());
        }
        assert_eq!(lossy(&bytes_text(b"caf\xe9.dat")), "caf\u{fffd}.dat");
    }

    #[test]
    fn json_has_the_bytes_where_the_text_is_not_enough() {
        let json =
            |name: &[u8]| serde_json::to_string(&PathView::from(OsStr::from_bytes(name))).expect("JSON");
        assert_eq!(json(b"a"), r#"{"path":"a"}"#);
        assert!(json("a\u{10FF61}".as_bytes()).contains("\"path_bytes\":[97,244,143,189,161]"));
        assert_eq!(json(b"a\xe9"), "{\"path\":\"a\u{fffd}\",\"path_bytes\":[97,233]}");
    }
}
