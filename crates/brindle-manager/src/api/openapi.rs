//! The description of the interface, OpenAPI 3.1, made from the table of endpoints. The committed copy is `docs/reference/openapi.json`.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::guard::CSRF_HEADER;
use super::{BASE, Call, Endpoint, Needs, Nothing, endpoints};
use crate::fault::Problem;

/// An OpenAPI description.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Description(Map<String, Value>);

/// The description.
pub async fn show(_: Arc<Call>, _: Nothing) -> Result<Description> {
    match document() {
        Value::Object(document) => Ok(Description(document)),
        _ => Err(Fault::new(Code::Bug).why("the description is no object")),
    }
}

/// The description as text, as it is in the repository.
pub fn text() -> String {
    serde_json::to_string_pretty(&document()).expect("plain data") + "\n"
}

/// The description.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths = Map::new();
    for endpoint in endpoints() {
        let operation = operation(&endpoint, &mut generator, &problem);
        let path = paths.entry(format!("{BASE}{}", endpoint.path)).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Brindle manager",
            "version": "1",
            "description": "What the console does, for programs. Generated from the table in crates/brindle-manager/src/api/mod.rs.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "session": { "type": "apiKey", "in": "cookie", "name": super::guard::cookie_name(true) },
                "token": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn operation(endpoint: &Endpoint, generator: &mut SchemaGenerator, problem: &schemars::Schema) -> Value {
    let answer = (endpoint.answer)(generator);
    let mut parameters: Vec<Value> = names_in(endpoint.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    if endpoint.method != axum::http::Method::GET {
        parameters.push(json!({
            "name": CSRF_HEADER, "in": "header", "required": false, "schema": { "type": "string" },
            "description": "The number `csrf` of the session; any value where nobody is logged in yet; not needed with a token",
        }));
    }
    let who = match endpoint.needs {
        Needs::Nothing => "Anybody may ask.".to_owned(),
        Needs::Role(role) => format!("Needs the role {}.", role.word()),
    };
    let mut operation = json!({
        "summary": endpoint.summary,
        "description": who,
        "responses": {
            "200": { "description": "Done", "content": { endpoint.media: { "schema": answer } } },
            "default": {
                "description": "A fault",
                "content": { "application/problem+json": { "schema": problem } },
            },
        },
    });
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if endpoint.needs != Needs::Nothing {
        operation["security"] = json!([{ "session": [] }, { "token": [] }]);
    }
    if let Some(request) = endpoint.request {
        let schema = request(generator);
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

/// Names in braces of a path.
fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference to a schema leads somewhere, and every endpoint is described once.
    #[test]
    fn the_description_is_whole() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for name in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(schemas.contains_key(name), "{name}");
        }
        let described: usize =
            document["paths"].as_object().unwrap().values().map(|p| p.as_object().unwrap().len()).sum();
        assert_eq!(described, endpoints().len());
        let act = &document["paths"]["/api/v1/targets/{target}/{action}"]["post"];
        assert_eq!(act["parameters"].as_array().unwrap().len(), 3);
        assert!(act["requestBody"]["content"]["application/json"]["schema"].is_object());
        assert!(text.contains("Needs the role operator."));
    }
}
