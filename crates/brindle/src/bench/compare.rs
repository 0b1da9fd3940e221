//! `brindle bench compare`.

use std::path::{Path, PathBuf};

use brindle_admin::document;
use brindle_bench::compare::{Comparison, Row, Verdict, compare};
use brindle_bench::run::{Run, SCHEMA, VERSION};
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::figure;
use crate::exit::Done;
use crate::output::{Output, print_json, table};

/// Largest document that is read, in bytes.
const DOCUMENT_MAX_BYTES: u64 = 256 << 20;

/// Two runs beside each other.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ComparisonView<'a>(&'a Comparison);
document!(ComparisonView<'_>, "brindle.bench.compare", 1);

/// Arguments of `brindle bench compare`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench compare before.json after.json --fail-below 0.9\n\
                        The files are those of --json. A figure is called faster or slower when the quartiles of the two runs \
                        do not overlap.")]
pub struct Args {
    /// Run to compare with
    first: PathBuf,
    /// Run that is compared
    second: PathBuf,
    /// End with exit code 8 when a figure of SECOND is slower than this part of that of FIRST
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    fail_below: Option<f64>,
    #[command(flatten)]
    output: Output,
}

fn fraction(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 10.0 => Ok(value),
        _ => Err("must be a number such as 0.9".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let (first, second) = (read(&args.first)?, read(&args.second)?);
    let found = compare(&first, &second);
    if found.rows.is_empty() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot compare")
            .subject(format!("{} with {}", args.first.display(), args.second.display()))
            .why(format!("'{}' and '{}' have no figure in common", first.workload, second.workload)));
    }
    crate::cli::end_with_the_reader();
    if args.output.json() {
        print_json(&ComparisonView(&found))?;
    } else {
        println!("{}", text(&found));
    }
    let slower =
        |row: &Row| row.verdict == Verdict::Slower && args.fail_below.is_some_and(|part| row.ratio < part);
    Ok(if found.rows.iter().any(slower) { Done::Unhealthy } else { Done::Ok })
}

#[derive(Deserialize)]
struct Document {
    schema: String,
    version: u32,
    #[serde(flatten)]
    run: Run,
}

fn read(path: &Path) -> Result<Run> {
    let shown = || path.display().to_string();
    let refuse = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot compare")
            .subject(shown())
            .why(why)
            .next("give files that 'brindle bench ... --json FILE' has written")
    };
    let size = std::fs::metadata(path).map_err(|e| refuse(e.to_string()))?.len();
    if size > DOCUMENT_MAX_BYTES {
        return Err(refuse(format!("{size} bytes are more than a run has")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    let document: Document =
        serde_json::from_str(&text).map_err(|e| refuse(format!("it is not a run of this benchmark: {e}")))?;
    if document.schema != SCHEMA || document.version != VERSION {
        let (schema, version) = (document.schema, document.version);
        return Err(refuse(format!(
            "it is '{schema}' version {version}, and this reads '{SCHEMA}' version {VERSION}"
        )));
    }
    Ok(document.run)
}

fn text(found: &Comparison) -> String {
    let with_x = found.rows.iter().find_map(|row| row.x.as_ref()).map(|x| x.name.to_uppercase());
    let mut headings = vec!["CASE"];
    headings.extend(with_x.as_deref());
    headings.extend(["PHASE", "FIRST", "SECOND", "UNIT", "RATIO", "VERDICT", "CPU"]);
    let rows = found.rows.iter().map(|row| {
        let mut cells = vec![row.case.clone()];
        if with_x.is_some() {
            cells.push(row.x.as_ref().map(|x| x.value.to_string()).unwrap_or_default());
        }
        let verdict = match row.verdict {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::WithinNoise => "within noise",
        };
        cells.extend([
            row.phase.clone(),
            figure(row.first.median),
            figure(row.second.median),
            row.unit.text().to_owned(),
            format!("{:.2}x", row.ratio),
            verdict.to_owned(),
            row.cpu_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x")),
        ]);
        cells
    });
    let mut out = table(&headings, rows.collect());
    out += "\n\nRATIO: 1.10x is ten percent faster, whatever the unit. CPU: processor time per operation, less is better.";
    for (what, names) in [
        ("Only in the first", &found.only_first),
        ("Only in the second", &found.only_second),
        ("Not the same in both", &found.differences),
    ] {
        if !names.is_empty() {
            out += &format!("\n{what}: {}", names.join("; "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("run.json");
        std::fs::write(&path, "{\"schema\": \"other\"}").expect("writes");
        let fault = read(&path).expect_err("refused");
        assert!(fault.why[0].starts_with("it is not a run of this benchmark: "), "{:?}", fault.why);
        assert_eq!(read(Path::new("/nonexistent/run.json")).expect_err("refused").code, Code::BadArgument);
        assert!(fraction("0.9").is_ok() && fraction("-1").is_err() && fraction("much").is_err());
    }
}
