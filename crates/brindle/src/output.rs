//! Tables for people, JSON for programs.
//!
//! JSON documents carry `schema` and `version` ([`brindle_admin::document`]).

use brindle_admin::document::{Document, json, line};
use brindle_types::{Code, Fault, Result};
use clap::ValueEnum;
use serde::Serialize;

use crate::print;

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

/// Prints a document.
pub fn print_json<T: Document>(body: &T) -> Result<()> {
    println!("{}", json(body)?);
    Ok(())
}

/// Prints a document in one line, at once.
pub fn print_document_line<T: Document>(body: &T) -> Result<()> {
    print_text_line(&line(body)?)
}

/// Prints one line of JSON at once.
pub fn print_line<T: Serialize>(body: &T) -> Result<()> {
    let line = serde_json::to_string(body)
        .map_err(|e| Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string()))?;
    print_text_line(&line)
}

fn print_text_line(line: &str) -> Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| print::fault(&e))
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
}
