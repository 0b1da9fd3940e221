//! Tables for people, JSON for programs.
//!
//! JSON documents carry `schema` and `version`; within a version fields are only added. Bytes and seconds are plain
//! numbers.

use brindle_types::{Code, Fault, Result};
use clap::ValueEnum;
use serde::Serialize;

use crate::{paths, print};

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// The option that every command with a result has.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Output {
    /// How to print the result
    #[arg(short = 'o', long = "output", value_name = "FORMAT", value_enum, default_value_t)]
    pub format: Format,
}

impl Output {
    /// Whether JSON is wanted.
    pub fn json(self) -> bool {
        self.format == Format::Json
    }
}

#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// A JSON document as text.
pub fn json<T: Serialize>(schema: &'static str, version: u32, body: &T) -> Result<String> {
    serde_json::to_string_pretty(&Document { schema, version, body })
        .map(|text| paths::lossy(&text).into_owned())
        .map_err(|e| Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string()))
}

/// Prints a JSON document.
pub fn print_json<T: Serialize>(schema: &'static str, version: u32, body: &T) -> Result<()> {
    println!("{}", json(schema, version, body)?);
    Ok(())
}

/// Prints one line of JSON at once.
pub fn print_line<T: Serialize>(body: &T) -> Result<()> {
    use std::io::Write as _;
    let line = serde_json::to_string(body)
        .map_err(|e| Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| print::fault(&e))
}

/// A fault as JSON shows it.
#[derive(Debug, Serialize)]
pub struct FaultView {
    code: String,
    what: String,
    subject: String,
    why: Vec<String>,
    data: String,
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

/// Rows under headings, columns aligned, two blanks apart; no lines around them.
pub fn table(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    table.set_header(headings);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_plain() {
        let rows = vec![vec!["ost0".to_owned(), "12".to_owned()], vec!["mdt0".to_owned(), "7".to_owned()]];
        assert_eq!(table(&["NAME", "PID"], rows), "NAME  PID\nost0  12\nmdt0  7");
    }

    #[test]
    fn documents_say_what_they_are() {
        #[derive(Serialize)]
        struct Body {
            bytes: u64,
        }
        assert_eq!(
            json("brindle.test", 1, &Body { bytes: 5 }).unwrap(),
            "{\n  \"schema\": \"brindle.test\",\n  \"version\": 1,\n  \"bytes\": 5\n}"
        );
    }
}
