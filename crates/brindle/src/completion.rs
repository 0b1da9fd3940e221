//! Completions of the shell: `brindle completion SHELL` prints a script that asks this binary at each TAB, so that names
//! which exist now are offered ([`live`]).
//!
//! The script sets [`VARIABLE`] and gives the words typed so far behind `--`. No failure is reported then: a
//! message in the middle of a command line helps no user.

pub mod live;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use brindle_types::Result;
use clap::ValueEnum;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::cli;
use crate::exit::Done;

/// Variable by which the script tells which shell asks.
const VARIABLE: &str = "BRINDLE_COMPLETE";
/// Names under which the binary is called.
const NAMES: [&str; 3] = ["brindle", "lfs", "lctl"];

/// Arguments of `brindle completion`.
#[derive(clap::Args)]
#[command(
    after_help = "Bash: brindle completion bash > /usr/share/bash-completion/completions/brindle, and links to it as lfs and lctl.\n\
                        Zsh:  as _brindle in a directory of $fpath. Fish: as brindle.fish in ~/.config/fish/completions."
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Shells with completions.
#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Prints the script of a shell.
pub fn run(args: &Args) -> Result<Done> {
    print!("{}", script(args.shell));
    Ok(Done::Ok)
}

/// The script of a shell, for all names of the binary.
pub fn script(shell: Shell) -> String {
    let register = |shell: &dyn EnvCompleter, bin: &str| {
        let mut text = Vec::new();
        // Writing to a Vec cannot fail.
        let _ = shell.write_registration(VARIABLE, "brindle", bin, "brindle", &mut text);
        String::from_utf8_lossy(&text).trim_start().to_owned()
    };
    let all = NAMES.join(" ");
    match shell {
        // A shell that does not find the binary says so at every TAB otherwise.
        Shell::Bash => {
            register(&Bash, &all).replace("-- \"${words[@]}\" \\", "-- \"${words[@]}\" 2>/dev/null \\")
        }
        Shell::Zsh => {
            const FUNCTION: &str = "_clap_dynamic_completer_brindle";
            let text = register(&Zsh, "brindle")
                .replace("#compdef brindle", &format!("#compdef {all}"))
                .replace(&format!("compdef {FUNCTION} brindle"), &format!("compdef {FUNCTION} {all}"));
            // The first TAB runs this file as a function.
            format!("{text}\nif [ \"$funcstack[1]\" = \"_brindle\" ]; then\n    {FUNCTION} \"$@\"\nfi\n")
        }
        Shell::Fish => NAMES.iter().map(|name| register(&Fish, name)).collect(),
    }
}

/// The exit code of an answer to a script; `None` if this is an ordinary command.
pub fn answer(arguments: &[OsString]) -> Option<ExitCode> {
    let shell = std::env::var(VARIABLE).ok()?;
    let words = typed(arguments)?;
    let shell: &dyn EnvCompleter = match shell.as_str() {
        "bash" => &Bash,
        "zsh" => &Zsh,
        "fish" => &Fish,
        _ => return None,
    };
    silence();
    let mut out = Vec::new();
    let mut command = command_of(words.first());
    let here = std::env::current_dir().ok();
    let done = shell.write_complete(&mut command, words.to_vec(), here.as_deref(), &mut out);
    let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
    let begun =
        words.get(index.unwrap_or(words.len().saturating_sub(1))).is_some_and(|word| !word.is_empty());
    let mut text = String::from_utf8_lossy(&out).into_owned();
    if !begun {
        let separator = std::env::var("_CLAP_IFS").ok().filter(|s| !s.is_empty());
        text = without_options(&text, separator.as_deref().unwrap_or("\n"));
    }
    let written = done.and_then(|()| std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()));
    Some(if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The words typed so far, the name of the command first; `None` in an ordinary command.
fn typed(arguments: &[OsString]) -> Option<&[OsString]> {
    arguments.get(1).filter(|word| *word == "--")?;
    arguments.get(2..)
}

/// Command to complete: under the name of one of Lustre's commands, that command.
fn command_of(name: Option<&OsString>) -> clap::Command {
    let all = cli::declaration();
    let name = name.map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let named = NAMES.iter().skip(1).find(|known| name == **known);
    named.and_then(|named| all.find_subcommand(named).cloned()).unwrap_or(all)
}

/// Offers for an empty word: options only if there is nothing else, so that a single name is completed.
fn without_options(text: &str, separator: &str) -> String {
    let (options, names): (Vec<&str>, Vec<&str>) =
        text.split(separator).filter(|one| !one.is_empty()).partition(|one| one.starts_with('-'));
    if names.is_empty() { options.join(separator) } else { names.join(separator) }
}

/// Standard error leads nowhere from now on.
fn silence() {
    use std::os::fd::AsRawFd;
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        // SAFETY: both descriptors are open, and nothing here keeps the old one. If it fails, there is talk on the command line.
        unsafe { libc::dup2(null.as_raw_fd(), libc::STDERR_FILENO) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_for_all_names() {
        let bash = script(Shell::Bash);
        assert!(bash.contains("-F _clap_complete_brindle brindle lfs lctl\n"), "{bash}");
        assert!(
            bash.contains("BRINDLE_COMPLETE=\"bash\"")
                && bash.contains("\"brindle\" -- \"${words[@]}\" 2>/dev/null"),
            "{bash}"
        );
        let zsh = script(Shell::Zsh);
        assert!(zsh.starts_with("#compdef brindle lfs lctl\n"), "{zsh}");
        assert!(zsh.contains("\ncompdef _clap_dynamic_completer_brindle brindle lfs lctl\n"), "{zsh}");
        let fish = script(Shell::Fish);
        assert_eq!(fish.lines().filter(|line| line.starts_with("complete ")).count(), 3, "{fish}");
    }

    #[test]
    fn options_do_not_stand_between_a_name_and_its_completion() {
        assert_eq!(without_options("flash\n--mgs\n--dir\n", "\n"), "flash");
        assert_eq!(without_options("--mgs\u{b}--dir", "\u{b}"), "--mgs\u{b}--dir");
        assert_eq!(without_options("", "\n"), "");
    }

    #[test]
    fn only_what_a_script_asks_is_answered() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<OsString>>();
        assert_eq!(typed(&words("brindle status")), None);
        assert_eq!(typed(&words("brindle -- lfs df")), Some(&words("lfs df")[..]));
        assert_eq!(command_of(Some(&"/usr/bin/lctl".into())).get_name(), "lctl");
        assert_eq!(command_of(Some(&"./brindle".into())).get_name(), "brindle");
    }
}
