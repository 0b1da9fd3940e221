//! `brindle explain CODE`: the meaning of a code; without a code, the list of all.

use std::fmt::Write as _;

use brindle_admin::document;
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::exit::Done;
use crate::output::{Output, print_json};

/// Headings of the ranges of numbers, by thousands.
pub const RANGES: &[(u16, &str)] = &[
    (1, "Configuration and command line"),
    (2, "Client I/O"),
    (3, "Metadata (MDS)"),
    (4, "Data (OSS)"),
    (5, "Management and map (MGS)"),
    (6, "HSM and policies"),
    (7, "Burst buffers"),
    (8, "Network and protocol"),
    (9, "Bugs"),
];

/// Arguments of `brindle explain`.
#[derive(clap::Args)]
pub struct Args {
    /// A code such as E3001; without one, all are listed
    #[arg(add = crate::completion::live::codes())]
    code: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// A code.
#[derive(Serialize, JsonSchema)]
pub struct CodeView {
    /// The code, such as `E4003`.
    code: String,
    /// Name of the code.
    name: String,
    /// Meaning, in some words.
    title: &'static str,
    /// Meaning.
    explanation: &'static str,
    /// Next step.
    next: &'static str,
    /// The number of the error that programs see.
    errno: i32,
    /// The name of the error that programs see.
    errno_text: String,
}
document!(CodeView, "brindle.explain", 1);

impl From<Code> for CodeView {
    fn from(code: Code) -> CodeView {
        CodeView {
            code: code.to_string(),
            name: format!("{code:?}"),
            title: code.title(),
            explanation: code.explanation(),
            next: code.advice(),
            errno: code.errno(),
            errno_text: errno_text(code.errno()),
        }
    }
}

/// All codes.
#[derive(Serialize, JsonSchema)]
pub struct CodesView {
    /// In the order of their numbers.
    codes: Vec<CodeView>,
}
document!(CodesView, "brindle.explain.list", 1);

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let Some(text) = &args.code else {
        list(args.output)?;
        return Ok(Done::Ok);
    };
    let code: Code = text.parse().map_err(|why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot explain")
            .subject(text.clone())
            .why(why)
            .next("brindle explain lists every code")
    })?;
    if args.output.json() {
        print_json(&CodeView::from(code))?;
    } else {
        print!("{}", describe(code));
    }
    Ok(Done::Ok)
}

fn list(output: Output) -> Result<()> {
    if output.json() {
        let codes = Code::ALL.iter().map(|code| CodeView::from(*code)).collect();
        return print_json(&CodesView { codes });
    }
    for (range, heading) in RANGES {
        let codes: Vec<&Code> = Code::ALL.iter().filter(|c| c.number() / 1000 == *range).collect();
        if !codes.is_empty() {
            println!("{heading}");
        }
        for code in codes {
            println!("  {code}  {}", code.title());
        }
    }
    Ok(())
}

/// The page of one code.
fn describe(code: Code) -> String {
    let mut page = format!("{code} {}\n\n{}\n", code.title(), code.explanation());
    // Writing to a String cannot fail.
    let _ = writeln!(page, "\nprograms see: {} (errno {})", errno_text(code.errno()), code.errno());
    if !code.advice().is_empty() {
        let _ = writeln!(page, "next:         {}", code.advice());
    }
    page
}

/// The text that a program prints for an errno.
pub fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
