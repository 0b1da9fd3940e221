//! cargo on the file system under test: sources and target directory on it, build, run, test, and rebuild only what
//! changed (which needs exact modification times).

use super::Ground;
use super::script::Script;
use crate::report::Report;
use crate::run::Cmd;

/// Modules of the crate that is built.
const MODULES: usize = 24;
/// Longest time of one command.
const COMMAND_SECS_MAX: u64 = 180;

pub fn run(ground: &Ground) -> Report {
    let mut script = Script::new(ground);
    let cargo = |script: &Script, args: &[&str]| {
        let command = script.command("cargo", args).env("CARGO_TARGET_DIR", ground.dir.join("built"));
        quiet(command.env("CARGO_INCREMENTAL", "1"))
    };
    let sources = ground.logs.join("sources");
    if let Err(e) = write_sources(&sources) {
        return Report::fail("sources", format!("cannot write {}: {e}", sources.display()));
    }
    let at = ["--manifest-path", "sources/Cargo.toml", "--offline"];
    let with = |verb: &[&str]| -> Vec<String> { verb.iter().chain(&at).map(|s| (*s).to_owned()).collect() };
    let cargo_at = |script: &Script, verb: &[&str]| {
        let args = with(verb);
        cargo(script, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    script.case("copy", script.command("cp", ["-r", &sources.to_string_lossy(), "sources"]).limit_secs(60));
    script.case("build", cargo_at(&script, &["build"]));
    script.case_if("run", script.command("built/debug/suite", [""; 0]).limit_secs(60), |out| {
        let wanted = (0..MODULES).sum::<usize>();
        if out.trim() == wanted.to_string() { Ok(()) } else { Err(format!("it should print {wanted}")) }
    });
    script.case_if("build-again", cargo_at(&script, &["build"]), |out| compiles(out, false));
    script.case("touch", script.command("touch", ["sources/src/m3.rs"]).limit_secs(60));
    script.case_if("rebuild", cargo_at(&script, &["build"]), |out| compiles(out, true));
    script.case("release", cargo_at(&script, &["build", "--release"]));
    script.case("test", cargo_at(&script, &["test"]));
    script.end()
}

fn quiet(command: Cmd) -> Cmd {
    command.env("CARGO_TERM_COLOR", "never").limit_secs(COMMAND_SECS_MAX)
}

fn compiles(output: &str, wanted: bool) -> Result<(), String> {
    match (output.contains("Compiling"), wanted) {
        (true, false) => Err("nothing changed, and cargo builds again".to_owned()),
        (false, true) => Err("a source changed, and cargo does not build".to_owned()),
        _ => Ok(()),
    }
}

/// A crate with a build script and some modules, each with generic code and a test.
fn write_sources(dir: &std::path::Path) -> std::io::Result<()> {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir.join("src"))?;
    let manifest = "[package]\nname = \"suite\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    std::fs::write(dir.join("Cargo.toml"), manifest)?;
    let script = "fn main() {\n    let out = std::env::var(\"OUT_DIR\").unwrap();\n    \
                  std::fs::write(out + \"/made.rs\", \"pub const MADE: usize = 0;\").unwrap();\n}\n";
    std::fs::write(dir.join("build.rs"), script)?;
    let mut main = String::from("include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\n");
    for n in 0..MODULES {
        main.push_str(&format!("mod m{n};\n"));
        let module = format!(
            "use std::collections::BTreeMap;\npub fn value() -> usize {{\n    let mut map = BTreeMap::new();\n    \
             for i in 0..{n}usize {{\n        map.insert(format!(\"{{i}}\"), i);\n    }}\n    map.len()\n}}\n\
             #[cfg(test)]\nmod tests {{\n    #[test]\n    fn counts() {{\n        \
             assert_eq!(super::value(), {n});\n    }}\n}}\n"
        );
        std::fs::write(dir.join(format!("src/m{n}.rs")), module)?;
    }
    let sum: Vec<String> = (0..MODULES).map(|n| format!("m{n}::value()")).collect();
    main.push_str(&format!("fn main() {{\n    println!(\"{{}}\", MADE + {});\n}}\n", sum.join(" + ")));
    std::fs::write(dir.join("src/main.rs"), main)
}
