//! A suite that is a row of commands, of which each needs the earlier ones.

use std::ffi::OsStr;

use super::{Ground, verdict};
use crate::report::Report;
use crate::run::Cmd;

/// A row of commands under way.
pub struct Script<'a> {
    ground: &'a Ground,
    report: Report,
    broken: Option<String>,
}

impl<'a> Script<'a> {
    /// Script of which nothing has run yet.
    pub fn new(ground: &'a Ground) -> Script<'a> {
        Script { ground, report: Report::default(), broken: None }
    }

    /// Runs a case: `command` succeeds. After a failure, the rest is reported as not run.
    pub fn case(&mut self, name: &str, command: Cmd) {
        self.case_if(name, command, |_| Ok(()));
    }

    /// Runs a case: `command` succeeds and `judge` accepts its output.
    pub fn case_if(&mut self, name: &str, command: Cmd, judge: impl Fn(&str) -> Result<(), String>) {
        if let Some(earlier) = &self.broken {
            self.report.add_failure(name, format!("not run, because '{earlier}' failed"));
            return;
        }
        let done = command.run(&self.ground.log(name));
        let result = verdict(&done)
            .and_then(|()| judge(&done.output()).map_err(|why| format!("{why}\n{}", done.explain())));
        if result.is_err() {
            self.broken = Some(name.to_owned());
        }
        self.report.add(Report::check(name, result));
    }

    /// A command of the suite, by program and arguments.
    pub fn command<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) -> Cmd {
        self.ground.command(program).args(args)
    }

    /// Findings of the script.
    pub fn end(self) -> Report {
        self.report
    }
}
