//! The lines `#DW ...` and `#BB ...` of a job script.
//!
//! A word that cannot be used is refused with its line and column and the nearest form that can. Whatever Slurm would pass over without
//! a word is refused too: directives below the first command, options that are not known, and what this release does not offer.

use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

/// Most stage_in and stage_out lines of a job.
pub const TRANSFERS_MAX: usize = 256;
/// Variables that stand for the buffer of the job.
const STRIPED: [&str; 2] = ["DW_JOB_STRIPED", "BRINDLE_JOB_STRIPED"];
/// Commands that exist elsewhere and not yet here.
const NOT_OFFERED: [&str; 4] = ["persistentdw", "swap", "create_persistent", "destroy_persistent"];
/// All commands.
const COMMANDS: [&str; 7] =
    ["jobdw", "stage_in", "stage_out", "persistentdw", "swap", "create_persistent", "destroy_persistent"];

/// The directives of a job, as they were understood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Size of its buffer, as it was written.
    pub bytes: Option<u64>,
    /// Pool of its buffer.
    pub pool: Option<String>,
    /// Copied into the buffer before the job starts.
    pub stage_in: Vec<Transfer>,
    /// Copied out of the buffer after the job has ended.
    pub stage_out: Vec<Transfer>,
}

/// Kind of the source of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// One file.
    File,
    /// The contents of a directory, with everything below it.
    Directory,
}

/// One copy between the buffer and another file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// A file or a directory.
    pub entry: Entry,
    /// Path outside of the buffer: absolute, or below the user's home directory (`~/...`).
    pub outside: String,
    /// Path within the buffer, relative to it; empty for all of it. Ends with `/` where it did in the script.
    pub inside: String,
}

/// A word with its place in the script.
#[derive(Clone, Debug)]
struct Word {
    text: String,
    line: usize,
    column: usize,
}

/// Reads the directives of a script. What comes behind a NUL byte is not part of it: Slurm ends scripts with one.
pub fn parse(script: &str) -> Result<JobRequest> {
    let script = script.split('\0').next().unwrap_or_default();
    let mut request = JobRequest::default();
    let mut jobdw: Option<Word> = None;
    for words in directives(script)? {
        let Some((command, options)) = words.split_first() else { continue };
        match command.text.as_str() {
            "jobdw" => {
                if let Some(first) = &jobdw {
                    let why = format!("a job has one jobdw, and line {} has it", first.line);
                    return Err(wrong(command, why, "put all options into one line"));
                }
                read_jobdw(command, options, &mut request)?;
                jobdw = Some(command.clone());
            }
            "stage_in" => request.stage_in.push(read_transfer(command, options, true)?),
            "stage_out" => request.stage_out.push(read_transfer(command, options, false)?),
            other if NOT_OFFERED.contains(&other) => {
                return Err(not_offered(
                    command,
                    other,
                    "use a buffer of the job: #DW jobdw capacity=SIZE access_mode=striped type=scratch",
                ));
            }
            other => {
                let next = near(other, &COMMANDS).map_or_else(
                    || format!("commands: {}", COMMANDS[..3].join(", ")),
                    |c| format!("did you mean {c}?"),
                );
                return Err(wrong(command, format!("'{other}' is no command"), &next));
            }
        }
        if request.stage_in.len() + request.stage_out.len() > TRANSFERS_MAX {
            return Err(wrong(
                command,
                format!("a job may have {TRANSFERS_MAX} stage_in and stage_out lines"),
                "stage directories instead of single files",
            ));
        }
        if jobdw.is_none() && command.text != "jobdw" && !later_has_jobdw(script) {
            return Err(wrong(
                command,
                "the job has no buffer to stage into or out of".to_owned(),
                "add #DW jobdw capacity=SIZE access_mode=striped type=scratch, or --bb",
            ));
        }
    }
    Ok(request)
}

/// Whether a line gives the job a buffer, wherever it stands.
fn later_has_jobdw(script: &str) -> bool {
    script.lines().filter_map(directive_text).any(|text| text.split_whitespace().next() == Some("jobdw"))
}

/// The text behind `#DW` or `#BB`.
fn directive_text(line: &str) -> Option<&str> {
    let text = line.strip_prefix("#DW").or_else(|| line.strip_prefix("#BB"))?;
    text.starts_with([' ', '\t']).then_some(text)
}

/// The words of each directive. A `\` at the end of a line continues it on the next one, with or without another `#DW`.
fn directives(script: &str) -> Result<Vec<Vec<Word>>> {
    let mut found = Vec::new();
    let mut command_line = None;
    let mut lines = script.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(text) = directive_text(line) else {
            if !line.starts_with('#') && !line.trim().is_empty() {
                command_line = command_line.or(Some(index + 1));
            }
            continue;
        };
        let here = Word { text: line.trim().to_owned(), line: index + 1, column: 1 };
        if let Some(first) = command_line {
            let why = format!("it stands below the first command (line {first}), where Slurm does not look");
            return Err(wrong(&here, why, "move it above the first command"));
        }
        let mut words = Vec::new();
        let mut rest = add_words(&mut words, text, line, index + 1);
        while rest {
            let Some((index, line)) = lines.next() else {
                return Err(wrong(
                    &here,
                    "it ends with '\\', and no line follows".to_owned(),
                    "remove the '\\'",
                ));
            };
            let text = directive_text(line).or_else(|| line.strip_prefix('#')).ok_or_else(|| {
                let next = Word { text: line.trim().to_owned(), line: index + 1, column: 1 };
                wrong(
                    &next,
                    format!("line {} ends with '\\', and this line does not go on with it", here.line),
                    "begin it with #DW",
                )
            })?;
            rest = add_words(&mut words, text, line, index + 1);
        }
        found.push(words);
    }
    Ok(found)
}

/// Adds the words of `text`, the end of `line`; whether the line goes on.
fn add_words(words: &mut Vec<Word>, text: &str, line: &str, number: usize) -> bool {
    let trimmed = text.trim_end();
    let (body, goes_on) = trimmed.strip_suffix('\\').map_or((trimmed, false), |body| (body, true));
    let start = line.len() - text.len();
    let mut at = 0;
    for part in body.split([' ', '\t']) {
        if !part.is_empty() {
            let column = line[..start + at].chars().count() + 1;
            words.push(Word { text: part.to_owned(), line: number, column });
        }
        at += part.len() + 1;
    }
    goes_on
}

fn read_jobdw(command: &Word, options: &[Word], request: &mut JobRequest) -> Result<()> {
    const KEYS: [&str; 4] = ["capacity", "access_mode", "type", "pool"];
    for (word, key, value) in pairs(options, &KEYS)? {
        match key.as_str() {
            "capacity" => request.bytes = Some(size(word, &value)?),
            "access_mode" => access(word, &value)?,
            "type" => kind_of_buffer(word, &value)?,
            _ => request.pool = Some(value),
        }
    }
    if request.bytes.is_none() {
        return Err(wrong(
            command,
            "jobdw has no capacity".to_owned(),
            "add capacity=SIZE, such as capacity=100GiB",
        ));
    }
    Ok(())
}

fn size(word: &Word, value: &str) -> Result<u64> {
    let units = "write a whole number with KiB, MiB, GiB or TiB, such as capacity=100GiB";
    let bytes = parse_bytes(value).map_err(|_| wrong(word, format!("'{value}' is no size"), units))?;
    if bytes == 0 {
        return Err(wrong(word, "a buffer of no bytes holds nothing".to_owned(), units));
    }
    Ok(bytes)
}

fn access(word: &Word, value: &str) -> Result<()> {
    match value {
        "striped" => Ok(()),
        "private" | "striped,private" | "private,striped" => Err(not_offered(
            word,
            "access_mode=private",
            "write access_mode=striped, and let each node use a directory of its own",
        )),
        _ => Err(wrong(word, format!("'{value}' is no access mode"), "write access_mode=striped")),
    }
}

fn kind_of_buffer(word: &Word, value: &str) -> Result<()> {
    match value {
        "scratch" => Ok(()),
        "cache" => Err(not_offered(
            word,
            "type=cache",
            "write type=scratch, and stage files with stage_in and stage_out",
        )),
        _ => Err(wrong(word, format!("'{value}' is no type of a buffer"), "write type=scratch")),
    }
}

fn read_transfer(command: &Word, options: &[Word], stages_in: bool) -> Result<Transfer> {
    const KEYS: [&str; 3] = ["type", "source", "destination"];
    let (mut entry, mut source, mut destination) = (None, None, None);
    for (word, key, value) in pairs(options, &KEYS)? {
        match key.as_str() {
            "type" => entry = Some(entry_of(word, &value)?),
            "source" => source = Some((word, value)),
            _ => destination = Some((word, value)),
        }
    }
    let missing = |key: &str, example: &str| {
        wrong(command, format!("{} has no {key}", command.text), &format!("add {key}={example}"))
    };
    let (inner, outer) = ("$DW_JOB_STRIPED/PATH", "/absolute/path");
    let (from, to) = if stages_in { (outer, inner) } else { (inner, outer) };
    let entry = entry.ok_or_else(|| missing("type", "file (or directory)"))?;
    let source = source.ok_or_else(|| missing("source", from))?;
    let destination = destination.ok_or_else(|| missing("destination", to))?;
    let ((outer_word, outer), (inner_word, inner)) =
        if stages_in { (source, destination) } else { (destination, source) };
    let transfer =
        Transfer { entry, outside: outside(outer_word, &outer)?, inside: inside(inner_word, &inner)? };
    if entry == Entry::File && !stages_in && (transfer.inside.is_empty() || transfer.inside.ends_with('/')) {
        return Err(wrong(
            inner_word,
            "it names a directory".to_owned(),
            "name a file, or write type=directory",
        ));
    }
    Ok(transfer)
}

fn entry_of(word: &Word, value: &str) -> Result<Entry> {
    match value {
        "file" => Ok(Entry::File),
        "directory" => Ok(Entry::Directory),
        "list" => Err(not_offered(word, "type=list", "write one line for each file, or stage a directory")),
        _ => {
            let next = near(value, &["file", "directory"])
                .map_or("write type=file or type=directory".to_owned(), |v| {
                    format!("did you mean type={v}?")
                });
            Err(wrong(word, format!("'{value}' is no type of a transfer"), &next))
        }
    }
}

/// A path outside of the buffer.
fn outside(word: &Word, value: &str) -> Result<String> {
    if value.contains('$') {
        return Err(wrong(
            word,
            "variables stand for the buffer only, on the other side of the copy".to_owned(),
            "write an absolute path or ~/PATH",
        ));
    }
    if value.starts_with('/') || value == "~" || value.starts_with("~/") {
        return Ok(value.to_owned());
    }
    Err(wrong(word, format!("'{value}' is no absolute path"), "write an absolute path or ~/PATH"))
}

/// A path within the buffer, relative to it.
fn inside(word: &Word, value: &str) -> Result<String> {
    let example = "begin it with $DW_JOB_STRIPED";
    let Some(text) = value.strip_prefix('$') else {
        return Err(wrong(word, format!("'{value}' is not in the buffer of the job"), example));
    };
    let (name, rest) = match text.strip_prefix('{') {
        Some(braced) => {
            braced.split_once('}').ok_or_else(|| wrong(word, "a '{' has no '}'".to_owned(), example))?
        }
        None => {
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
            text.split_at(end)
        }
    };
    if name == "DW_JOB_PRIVATE" || name.starts_with("DW_PERSISTENT") {
        return Err(not_offered(word, &format!("${name}"), example));
    }
    if !STRIPED.contains(&name) {
        let next = near(name, &STRIPED).map_or(example.to_owned(), |n| format!("did you mean ${n}?"));
        return Err(wrong(word, format!("'${name}' is no variable of a buffer"), &next));
    }
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err(wrong(word, format!("'/' is missing behind ${name}"), &format!("write ${name}/{rest}")));
    }
    if rest.contains('$') {
        return Err(wrong(word, "a path has one variable, at its beginning".to_owned(), example));
    }
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(wrong(word, "'..' could leave the buffer".to_owned(), "write the path without '..'"));
    }
    let slash = if rest.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    Ok(parts.join("/") + slash)
}

/// `key=value` of each word; `access` is another name of `access_mode`.
fn pairs<'a>(options: &'a [Word], known: &[&str]) -> Result<Vec<(&'a Word, String, String)>> {
    let mut found: Vec<(&Word, String, String)> = Vec::new();
    for word in options {
        let Some((key, value)) = word.text.split_once('=') else {
            let next = near(&word.text, known)
                .map_or(format!("options: {}", known.join(", ")), |k| format!("write {k}=VALUE"));
            return Err(wrong(word, "it has no '='".to_owned(), &next));
        };
        let key = if key == "access" && known.contains(&"access_mode") { "access_mode" } else { key };
        if !known.contains(&key) {
            let next = near(key, known)
                .map_or(format!("options: {}", known.join(", ")), |k| format!("did you mean {k}={value}?"));
            return Err(wrong(word, format!("'{key}' is no option here"), &next));
        }
        if value.is_empty() {
            return Err(wrong(
                word,
                format!("{key} has no value"),
                &format!("write {key}=VALUE without blanks"),
            ));
        }
        if found.iter().any(|(_, other, _)| other == key) {
            return Err(wrong(word, format!("{key} is given twice"), "leave one of them out"));
        }
        found.push((word, key.to_owned(), value.to_owned()));
    }
    Ok(found)
}

/// The known word nearest to a misspelt one.
fn near<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(2);
    let scored = known.iter().map(|k| (strsim::levenshtein(&word.to_lowercase(), &k.to_lowercase()), *k));
    scored.min().filter(|(distance, _)| *distance <= limit).map(|(_, k)| k)
}

fn wrong(word: &Word, why: String, next: &str) -> Fault {
    Fault::new(Code::BadDirective)
        .what(format!("line {}, column {}:", word.line, word.column))
        .subject(word.text.clone())
        .why(why)
        .data("the job was not submitted")
        .next(next.to_owned())
}

fn not_offered(word: &Word, what: &str, next: &str) -> Fault {
    Fault { code: Code::NotOffered, ..wrong(word, format!("this release does not offer {what} yet"), next) }
}

#[cfg(test)]
mod tests;
