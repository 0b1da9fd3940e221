//! `brindle hsm status` and `list`: the tiering state of the MDTs.

use std::collections::BTreeSet;

use brindle_admin::hsm::{self, AgentView, BacklogView, DividedView, HsmActionView, ShareView};
pub use brindle_admin::hsm::{HsmListView, HsmStatusView};
use brindle_types::Result;
use brindle_types::units::format_bytes;

use super::params::archives_text;
use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::changelog::own_cred;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// Arguments of `brindle hsm status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle hsm list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

fn show_backlog(lines: &[BacklogView]) {
    if !lines.is_empty() {
        let row = |line: &BacklogView| {
            let oldest = line
                .oldest
                .as_ref()
                .map_or("-".to_owned(), |fid| format!("{} s {fid}", line.oldest_waits_secs));
            vec![
                line.archive.to_string(),
                line.action.clone(),
                line.waiting.to_string(),
                line.running.to_string(),
                oldest,
            ]
        };
        println!(
            "{}",
            table(&["ARCHIVE", "ACTION", "WAITING", "RUNNING", "OLDEST"], lines.iter().map(row).collect())
        );
    }
    let unserved = lines.iter().filter(|line| line.waiting > 0 && !line.is_served);
    let archives: BTreeSet<u32> = unserved.map(|line| line.archive).collect();
    for archive in archives {
        println!(
            "nobody serves archive {archive}; start an agent: brindle agent --archive {archive} --backend posix:DIR MNT"
        );
    }
}

/// Long files under way, with the share of each agent.
fn show_divided(files: &[DividedView]) {
    let rows: Vec<Vec<String>> = files
        .iter()
        .filter(|file| file.is_running)
        .flat_map(|file| {
            let row = |share: &ShareView| {
                let percent = (share.moved_bytes * 100).checked_div(file.size_bytes).unwrap_or(0);
                let moved = format!("{} ({percent}%)", format_bytes(share.moved_bytes));
                let size = format_bytes(file.size_bytes);
                vec![file.fid.clone(), file.action.clone(), size, share.host.clone(), moved]
            };
            file.shares.iter().map(row)
        })
        .collect();
    if !rows.is_empty() {
        println!("{}", table(&["DIVIDED FILE", "ACTION", "SIZE", "AGENT", "COPIED"], rows));
    }
}

/// Runs `brindle hsm status`.
pub fn status(args: &StatusArgs) -> Result<Done> {
    let place = one(&args.place)?;
    let view = runtime()?.block_on(async { hsm::status(&servers(), &place, &own_cred()).await })?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let HsmStatusView { tier, mdts } = &view;
    let percent = (tier.used_bytes * 100).checked_div(tier.total_bytes).unwrap_or(0);
    println!(
        "OSTs: {} of {} used ({percent}%)",
        format_bytes(tier.used_bytes),
        format_bytes(tier.total_bytes)
    );
    for mdt in mdts {
        println!("{}: {}, {} actions wait or are under way", mdt.mdt, mdt.control, mdt.queued);
        show_backlog(&mdt.backlog);
        if mdt.agents.is_empty() {
            println!(
                "no agent serves an archive; start one: brindle agent --archive 1 --backend posix:DIR MNT"
            );
        } else {
            let row = |a: &AgentView| {
                let archives = archives_text(&a.archives);
                vec![a.host.clone(), archives, a.current.to_string(), a.ok.to_string(), a.errors.to_string()]
            };
            let rows = mdt.agents.iter().map(row).collect();
            println!("{}", table(&["AGENT", "ARCHIVE", "CURRENT", "OK", "ERRORS"], rows));
        }
        show_divided(&mdt.divided);
        for failed in &mdt.failed {
            let why = failed.error.as_deref().unwrap_or_default();
            println!("failed: {} {}: {why}", failed.action, failed.fid);
        }
    }
    Ok(Done::Ok)
}

/// Runs `brindle hsm list`.
pub fn list(args: &ListArgs) -> Result<Done> {
    let place = one(&args.place)?;
    let view = runtime()?.block_on(async { hsm::list(&servers(), &place, &own_cred(), true).await })?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let row = |a: &HsmActionView| {
        vec![
            a.fid.clone(),
            a.action.clone(),
            a.archive.to_string(),
            a.status.to_owned(),
            a.moved_bytes.to_string(),
            a.uid.to_string(),
        ]
    };
    let rows = view.actions.iter().map(row).collect();
    println!("{}", table(&["FILE", "ACTION", "ARCHIVE", "STATUS", "BYTES", "USER"], rows));
    Ok(Done::Ok)
}
