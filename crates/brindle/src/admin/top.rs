//! `brindle top`: the present load of the servers by job, user, client or target: a table that is written
//! anew each second.

use std::io::{IsTerminal as _, Write as _};

use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_admin::top::{By, Look, TopRow, TopView};
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::units::{format_bytes, round_down};
use brindle_types::{Code, Result};
use clap::ValueEnum;

use super::ask::servers;
use super::place::{PlaceArgs, one};
use crate::exit::{self, Done};
use crate::format::runtime;
use crate::output::{Output, print_document_line, print_json, table};
use crate::print;
use brindle_host::users::user_name;

/// Rows that are shown unless told otherwise.
const ROWS_DEFAULT: usize = 20;
/// Longest pause between two looks.
const INTERVAL_MAX_S: u64 = 3600;
/// Moves the cursor of a terminal (ECMA-48) to the first line.
const TO_THE_TOP: &str = "\x1b[H";
/// Clears the rest of a line, before its end is written.
const END_OF_LINE: &str = "\x1b[K\n";
/// Clears the screen below the cursor.
const CLEAR_BELOW: &str = "\x1b[J";

/// Column that rows are sorted by, largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Server time each second
    #[default]
    Time,
    /// Requests each second
    Ops,
    /// Requests for names and attributes each second
    Metadata,
    /// Bytes read each second
    Read,
    /// Bytes written each second
    Write,
    /// Requests since the counters began
    Total,
    /// Name
    Name,
}

/// Arguments of `brindle top`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle top\n  brindle top --by users --sort write\n  brindle top --filter 4711 --once -o json\n\n\
                  A job is what SLURM_JOB_ID of the program says, else its name and user: dd.1000; see brindle mount -o job_from=.\n\
                  BUSY is the time of servers that requests take: 1.0 keeps one thread of one server busy. Servers forget who is idle for 10 \
                  minutes. Ends with SIGINT. With -o json and without --once each look is a line of its own."
)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Show jobs, users, clients or targets
    #[arg(long, value_name = "WHAT", default_value = "jobs", value_parser = crate::format::parse::<By>)]
    by: By,
    /// Sort rows by this, largest first
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    sort: Sort,
    /// Show only rows whose name has this in it
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Show so many rows
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    rows: usize,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=INTERVAL_MAX_S))]
    interval: u64,
    /// Look once, over one interval
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let place = one(&args.place)?;
    runtime()?.block_on(async {
        let servers = servers();
        let mut earlier = Look::take(&servers, &place, args.by).await?;
        let redraws = !args.once && !args.output.json() && std::io::stdout().is_terminal();
        if redraws {
            print!("{TO_THE_TOP}{CLEAR_BELOW}");
        }
        loop {
            tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => return Ok(Done::Ok),
                () = servers.seams().sleep_ms(args.interval * 1_000) => {}
            }
            let Some(look) = again(&servers, &place, args).await? else { continue };
            let view = chosen(look.since(Some(&earlier)), args);
            match (args.output.json(), args.once) {
                (true, true) => print_json(&view)?,
                (true, false) => print_document_line(&view)?,
                (false, _) => draw(&page(&view), redraws)?,
            }
            if args.once {
                return Ok(Done::Ok);
            }
            earlier = look;
        }
    })
}

/// Takes a further look; `None` while no target answers, which passes: a target that moves to another host is
/// silent for a moment.
async fn again(servers: &Servers, place: &FsLocation, args: &Args) -> Result<Option<Look>> {
    match Look::take(servers, place, args.by).await {
        Ok(look) => Ok(Some(look)),
        Err(fault)
            if !args.once && matches!(fault.code, Code::NoMgs | Code::TargetDown | Code::NotLeading) =>
        {
            exit::warn(&fault);
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

fn draw(page: &str, redraws: bool) -> Result<()> {
    let text = match redraws {
        true => format!("{TO_THE_TOP}{}{END_OF_LINE}{CLEAR_BELOW}", page.replace('\n', END_OF_LINE)),
        false => format!("{page}\n"),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| print::fault(&e))
}

/// The rows that are wanted, in order.
fn chosen(mut view: TopView, args: &Args) -> TopView {
    if let Some(part) = &args.filter {
        view.rows.retain(|row| row.name.contains(part.as_str()));
    }
    let key = |row: &TopRow| match args.sort {
        Sort::Time => row.busy,
        Sort::Ops => row.operations_per_second,
        Sort::Metadata => row.metadata_per_second,
        Sort::Read => row.read_bytes_per_second,
        Sort::Write => row.written_bytes_per_second,
        Sort::Total => row.operations as f64,
        Sort::Name => 0.0,
    };
    // Idle rows come last, in the order of their totals.
    view.rows.sort_by(|a, b| {
        let by_key = key(b).total_cmp(&key(a));
        let then = || {
            if args.sort == Sort::Name {
                a.name.cmp(&b.name)
            } else {
                b.busy_seconds.total_cmp(&a.busy_seconds)
            }
        };
        by_key.then_with(then).then_with(|| a.name.cmp(&b.name))
    });
    view.rows.truncate(args.rows);
    view
}

fn page(view: &TopView) -> String {
    let at = rfc3339(Timestamp { secs: view.at_s, nanos: 0 });
    let at = at.split('.').next().unwrap_or(&at).to_owned();
    let mut page = format!("{}  {} over {:.1} s  {at}Z\n", view.fs, view.by, view.seconds);
    let what = match view.by.as_str() {
        "users" => "USER",
        "clients" => "CLIENT",
        "targets" => "TARGET",
        _ => "JOB",
    };
    let per_second = |bytes: f64| format!("{}/s", format_bytes(round_down(bytes)));
    let rows: Vec<Vec<String>> = view
        .rows
        .iter()
        .map(|row| {
            vec![
                name(view, row),
                format!("{:.2}", row.busy),
                format!("{:.0}", row.operations_per_second),
                format!("{:.0}", row.metadata_per_second),
                per_second(row.read_bytes_per_second),
                per_second(row.written_bytes_per_second),
                row.operations.to_string(),
                format_bytes(row.read_bytes),
                format_bytes(row.written_bytes),
                format!("{} s ago", view.at_s.saturating_sub(row.last_s).max(0)),
            ]
        })
        .collect();
    let headings = [what, "BUSY", "OPS/S", "META/S", "READ/S", "WRITE/S", "OPS", "READ", "WRITTEN", "LAST"];
    if rows.is_empty() {
        page.push_str("nobody has asked for anything in the last 10 minutes");
    } else {
        page.push_str(&table(&headings, rows));
    }
    for silent in &view.silent {
        page.push_str(&format!("\nnot counted: {silent}"));
    }
    if view.left_out > 0 {
        page.push_str(&format!(
            "\nnot shown: {} rows that servers had no room for in their answers",
            view.left_out
        ));
    }
    page
}

/// The name as people know it: of a user that this machine knows, its name too.
fn name(view: &TopView, row: &TopRow) -> String {
    let known = match (view.by.as_str(), row.name.parse()) {
        ("users", Ok(uid)) => user_name(uid).ok().flatten(),
        _ => None,
    };
    known.map_or_else(|| row.name.clone(), |known| format!("{known} ({})", row.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> TopView {
        let row = |name: &str, busy: f64, written: f64| TopRow {
            name: name.to_owned(),
            last_s: 100,
            operations: 7,
            written_bytes: 2048,
            busy,
            written_bytes_per_second: written,
            ..TopRow::default()
        };
        TopView {
            fs: "scratch".to_owned(),
            by: "jobs".to_owned(),
            at_s: 103,
            seconds: 1.0,
            rows: vec![row("4711", 0.5, 1024.0), row("dd.0", 0.25, 4096.0), row("ls.0", 0.0, 0.0)],
            silent: vec!["scratch-OST0001: it does not answer".to_owned()],
            left_out: 0,
        }
    }

    fn args(words: &[&str]) -> Args {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        Line::try_parse_from(["top"].iter().chain(words)).expect("a command line").args
    }

    #[test]
    fn rows_are_sorted_filtered_and_cut() {
        let names = |words: &[&str]| -> Vec<String> {
            chosen(view(), &args(words)).rows.into_iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&[]), ["4711", "dd.0", "ls.0"]);
        assert_eq!(names(&["--sort", "write"]), ["dd.0", "4711", "ls.0"]);
        assert_eq!(names(&["--sort", "name", "--filter", ".0"]), ["dd.0", "ls.0"]);
        assert_eq!(names(&["--rows", "1"]), ["4711"]);
    }

    #[test]
    fn the_page_is_plain() {
        let mut shown = view();
        shown.rows.truncate(1);
        assert_eq!(
            page(&shown),
            "scratch  jobs over 1.0 s  1970-01-01T00:01:43Z\n\
             JOB   BUSY  OPS/S  META/S  READ/S  WRITE/S    OPS  READ  WRITTEN  LAST\n\
             4711  0.50  0      0       0 B/s   1.0 KiB/s  7    0 B   2.0 KiB  3 s ago\n\
             not counted: scratch-OST0001: it does not answer"
        );
        shown.rows.clear();
        shown.silent.clear();
        assert!(page(&shown).ends_with("nobody has asked for anything in the last 10 minutes"));
    }
}
