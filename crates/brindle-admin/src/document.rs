//! Results as documents: JSON with a name and a version, and the schema of each.
//!
//! Commands print documents with `-o json`. Within a version fields are only added. Bytes and seconds are plain numbers. The
//! schemas (JSON Schema, draft 2020-12) are in `docs/reference/schema/`.

use brindle_types::{Code, Fault, Result};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::paths;

/// The body of a document.
pub trait Document: Serialize + JsonSchema {
    /// Name of the schema, such as `brindle.status`.
    const NAME: &'static str;
    /// Version of the schema.
    const VERSION: u32;
}

/// Gives a type its document name and version.
#[macro_export]
macro_rules! document {
    ($body:ty, $name:literal, $version:literal) => {
        impl $crate::document::Document for $body {
            const NAME: &'static str = $name;
            const VERSION: u32 = $version;
        }
    };
}

#[derive(Serialize)]
struct Named<'a, T: Serialize> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

fn named<T: Document>(body: &T) -> Named<'_, T> {
    Named { schema: T::NAME, version: T::VERSION, body }
}

fn cannot_print(e: &serde_json::Error) -> Fault {
    Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string())
}

/// A document as text.
pub fn json<T: Document>(body: &T) -> Result<String> {
    serde_json::to_string_pretty(&named(body))
        .map(|text| paths::lossy(&text).into_owned())
        .map_err(|e| cannot_print(&e))
}

/// A document as text in one line, for streams of them.
pub fn line<T: Document>(body: &T) -> Result<String> {
    serde_json::to_string(&named(body)).map_err(|e| cannot_print(&e))
}

/// The schema of a document, with its name and version among its properties.
pub fn schema<T: Document>() -> Schema {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), T::NAME.into());
    let object = schema.ensure_object();
    let name = serde_json::json!({ "const": T::NAME });
    let version = serde_json::json!({ "const": T::VERSION });
    if let Some(properties) = object.get_mut("properties").and_then(|p| p.as_object_mut()) {
        properties.insert("schema".to_owned(), name);
        properties.insert("version".to_owned(), version);
    }
    if let Some(required) = object.get_mut("required").and_then(|r| r.as_array_mut()) {
        required.insert(0, "version".into());
        required.insert(0, "schema".into());
    }
    schema
}

/// A fault in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FaultView {
    /// The code, such as `E4003`; `brindle explain` tells more.
    code: String,
    /// The event.
    what: String,
    /// The file, target or host that it happened to.
    subject: String,
    /// The causes, the nearest first.
    why: Vec<String>,
    /// The meaning for data.
    data: String,
    /// The next thing to do.
    next: String,
}

impl From<&Fault> for FaultView {
    fn from(fault: &Fault) -> FaultView {
        let next = if fault.next.is_empty() { fault.code.advice() } else { &fault.next };
        FaultView {
            code: fault.code.to_string(),
            what: fault.what.to_string(),
            subject: fault.subject.to_string(),
            why: fault.why.iter().map(ToString::to_string).collect(),
            data: fault.data.to_string(),
            next: next.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result.
    #[derive(Serialize, JsonSchema)]
    struct Body {
        /// A number.
        bytes: u64,
    }
    document!(Body, "brindle.test", 1);

    #[test]
    fn documents_say_what_they_are() {
        assert_eq!(
            json(&Body { bytes: 5 }).expect("plain"),
            "{\n  \"schema\": \"brindle.test\",\n  \"version\": 1,\n  \"bytes\": 5\n}"
        );
    }

    #[test]
    fn schemas_tell_of_every_field_of_a_document() {
        let schema = serde_json::to_value(schema::<Body>()).expect("plain");
        assert_eq!(schema["title"], "brindle.test");
        assert_eq!(schema["required"], serde_json::json!(["schema", "version", "bytes"]));
        assert_eq!(schema["properties"]["bytes"]["type"], "integer");
        assert_eq!(schema["properties"]["version"]["const"], 1);
    }
}
