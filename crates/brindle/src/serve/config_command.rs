//! `brindle config default` and `brindle config check FILE`.

use std::path::PathBuf;

use brindle_types::Result;

use super::options;
use crate::exit::Done;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print a file with every key, its meaning and its default
    Default,
    /// Check a file without starting anything
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Default => print!("{}", options::default_file()),
        Command::Check { file } => {
            options::check_file(file)?;
            println!("{}: ok", file.display());
        }
    }
    Ok(Done::Ok)
}
