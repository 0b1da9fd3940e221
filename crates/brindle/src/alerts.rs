//! `brindle alerts`: the alerts of this host's manager; acknowledging and silencing them.

use brindle_manager::alerts::store::{AlertView, AlertsView, SilenceReq, SilenceView};
use brindle_types::Result;
use brindle_types::units::parse_duration_s;
use serde_json::json;

use crate::exit::Done;
use crate::manager::asking::{ManagerArgs, time};
use crate::output::{Output, print_json, table};

/// The verbs of `brindle alerts`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List alerts; exit code 8 if some go on
    List(ListArgs),
    /// Say that somebody knows of an alert: it is told no more
    Ack(NumberArgs),
    /// Tell nobody of some alerts for a while
    Silence(SilenceArgs),
    /// End a silence
    Unsilence(NumberArgs),
}

/// Arguments of `brindle alerts list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    manager: ManagerArgs,
    /// Also those that have ended
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
}

/// Arguments of verbs that take a number.
#[derive(clap::Args)]
pub struct NumberArgs {
    /// Number
    #[arg(value_name = "NUMBER")]
    number: u64,
    #[command(flatten)]
    manager: ManagerArgs,
}

/// Arguments of `brindle alerts silence`.
#[derive(clap::Args)]
pub struct SilenceArgs {
    /// Code of the alerts, such as E5005
    #[arg(long, value_name = "CODE", required_unless_present = "subject")]
    code: Option<String>,
    /// Target, host or daemon of the alerts
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// How long: 90s, 30m, 2h, 7d
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    seconds: u64,
    /// Why, for others who read it
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    #[command(flatten)]
    manager: ManagerArgs,
}

fn seconds(text: &str) -> std::result::Result<u64, String> {
    match parse_duration_s(text)? {
        0 => Err("it must be at least 1 s".to_owned()),
        seconds => Ok(seconds),
    }
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::List(args) => list(args),
        Command::Ack(args) => {
            let path = format!("/alerts/{}/acknowledge", args.number);
            let alert: AlertView = args.manager.ask("POST", &path, &json!({}))?;
            println!("acknowledged: {} {}", alert.code, alert.text);
            Ok(Done::Ok)
        }
        Command::Silence(args) => {
            let request = SilenceReq {
                code: args.code.clone().unwrap_or_default(),
                subject: args.subject.clone().unwrap_or_default(),
                seconds: args.seconds,
                why: args.why.clone(),
            };
            let silence: SilenceView = args.manager.ask("POST", "/silences", &request)?;
            println!("silence {} until {}", silence.id, time(silence.until_s));
            Ok(Done::Ok)
        }
        Command::Unsilence(args) => {
            let _: AlertsView =
                args.manager.ask("DELETE", &format!("/silences/{}", args.number), &json!({}))?;
            println!("silence {} has ended", args.number);
            Ok(Done::Ok)
        }
    }
}

fn list(args: &ListArgs) -> Result<Done> {
    let mut view: AlertsView = args.manager.ask("GET", "/alerts", &json!({}))?;
    let go_on = view.alerts.iter().filter(|alert| alert.ended_s.is_none()).count();
    if !args.all {
        view.alerts.retain(|alert| alert.ended_s.is_none());
    }
    let done = if go_on == 0 { Done::Ok } else { Done::Unhealthy };
    if args.output.json() {
        print_json(&view)?;
        return Ok(done);
    }
    if view.alerts.is_empty() {
        println!("no alerts");
    } else {
        let rows = view.alerts.iter().map(row).collect();
        println!("{}", table(&["NUMBER", "CODE", "SEVERITY", "STATE", "RAISED", "WHAT", "WHAT TO DO"], rows));
    }
    for silence in &view.silences {
        let (code, subject) = (or_any(&silence.code), or_any(&silence.subject));
        println!(
            "silence {}: {code} {subject} until {}, by {} {}",
            silence.id,
            time(silence.until_s),
            silence.by,
            silence.why
        );
    }
    Ok(done)
}

fn or_any(text: &str) -> &str {
    if text.is_empty() { "any" } else { text }
}

fn row(alert: &AlertView) -> Vec<String> {
    let state = match (&alert.ended_s, &alert.acknowledged_by) {
        (Some(ended_s), _) => format!("ended {}", time(*ended_s)),
        (None, Some(user)) => format!("known to {user}"),
        (None, None) if alert.is_silenced => "silenced".to_owned(),
        (None, None) => "raised".to_owned(),
    };
    vec![
        alert.id.to_string(),
        alert.code.clone(),
        alert.severity.word().to_owned(),
        state,
        time(alert.raised_s),
        alert.text.clone(),
        alert.next.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let good = [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("7d", 604_800)];
        for (text, expected) in good {
            assert_eq!(seconds(text), Ok(expected));
        }
        for bad in ["", "5", "s", "0s", "-1s", "1.5h", "1 h", "99999999999999999999d", "300000000000000000d"]
        {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
