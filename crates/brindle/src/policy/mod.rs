//! `brindle policy`: policies of tiering and cleaning, in Robinhood's words (design note 033).

mod history;
mod preview;
pub mod run;
mod switch;
pub mod text;

pub use history::PolicyStatusView;
pub use preview::PreviewView;

use brindle_types::Result;

use crate::exit::Done;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Say whether a text is understood, what it would do and when, and what of it is ignored
    Check(text::CheckArgs),
    /// Show what a text would do now, and change nothing
    Preview(preview::Args),
    /// Allow what a previewed text deletes
    Confirm(text::ConfirmArgs),
    /// Carry a text out until SIGTERM
    Run(Box<run::Args>),
    /// Say which policy does what with a file, and why
    Why(preview::WhyArgs),
    /// Show the engine of a directory: its text, what waits to be confirmed, its last runs
    Status(history::StatusArgs),
    /// Show who has how much, and what is largest (rbh-report)
    Report(Box<crate::rbh::report::Args>),
    /// Show entries by what they are like (rbh-find)
    Find(crate::rbh::find::Args),
    /// Show how much is below paths (rbh-du)
    Du(crate::rbh::du::Args),
    /// Show the runs that are remembered
    History(history::HistoryArgs),
    /// Switch a policy off: its next runs do not begin
    Disable(switch::Args),
    /// Switch a policy on again
    Enable(switch::Args),
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Check(args) => text::check(args),
        Command::Preview(args) => preview::run(args),
        Command::Confirm(args) => text::confirm(args),
        Command::Run(args) => run::run(args),
        Command::Why(args) => preview::why(args),
        Command::Status(args) => history::status(args),
        Command::Report(args) => crate::rbh::report::run(args),
        Command::Find(args) => crate::rbh::find::run(args),
        Command::Du(args) => crate::rbh::du::run(args),
        Command::History(args) => history::history(args),
        Command::Disable(args) => switch::run(args, false),
        Command::Enable(args) => switch::run(args, true),
    }
}
