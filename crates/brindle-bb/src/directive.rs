//! The lines `#DW ...` and `#BB ...` of a job script.
//!
//! A word that cannot be used is refused with its line and column and the nearest form that can be used. Words that Slurm would
//! silently ignore are refused, too: directives below the first command, unknown options, and options that this release does not offer.

use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

/// Most stage_in and stage_out lines of a job.
pub const TRANSFERS_MAX: usize = 256;
/// Smallest swap of a node.
pub const SWAP_MIN_BYTES: u64 = 1 << 20;
/// Most persistent buffers that a job uses, and most that it makes or destroys.
pub const PERSISTENT_MAX: usize = 16;
/// Variables that stand for the buffer of the job.
const STRIPED: [&str; 2] = ["DW_JOB_STRIPED", "BRINDLE_JOB_STRIPED"];
/// Variables that stand for the directory of a node.
const PRIVATE: [&str; 2] = ["DW_JOB_PRIVATE", "BRINDLE_JOB_PRIVATE"];
/// Beginnings of variables that stand for persistent buffers.
pub const PERSISTENT: [&str; 2] = ["DW_PERSISTENT_STRIPED_", "BRINDLE_PERSISTENT_STRIPED_"];
/// Longest name of a persistent buffer.
const NAME_MAX: usize = 32;
/// All commands.
const COMMANDS: [&str; 7] =
    ["jobdw", "stage_in", "stage_out", "persistentdw", "swap", "create_persistent", "destroy_persistent"];

/// The directives of a job, as they were understood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Size of its buffer, as it was written.
    pub bytes: Option<u64>,
    /// Largest size that it grows to by itself.
    #[serde(default)]
    pub grow_max_bytes: Option<u64>,
    /// Pool of its buffer.
    pub pool: Option<String>,
    /// View that the nodes of the job have of the buffer.
    #[serde(default)]
    pub access: Access,
    /// Names of the persistent buffers that it uses.
    #[serde(default)]
    pub persistent: Vec<String>,
    /// Persistent buffers that it makes.
    #[serde(default)]
    pub create: Vec<CreateRequest>,
    /// Names of the persistent buffers that it destroys.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// Copied into the buffer before the job starts.
    pub stage_in: Vec<Transfer>,
    /// Copied out of the buffer after the job has ended.
    pub stage_out: Vec<Transfer>,
    /// Swap of each of its nodes.
    #[serde(default)]
    pub swap: Option<SwapRequest>,
}

/// Swap that a job asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapRequest {
    /// Size on each node, in whole MiB.
    pub bytes: u64,
    /// Line of the script.
    pub line: usize,
    /// Column in it.
    pub column: usize,
    /// The size, as it was written.
    pub text: String,
}

impl SwapRequest {
    /// A refusal that names its place in the script.
    pub fn refused(&self, code: Code, why: String, next: &str) -> Fault {
        let word = Word { text: self.text.clone(), line: self.line, column: self.column };
        Fault { code, ..wrong(&word, why, next) }
    }
}

/// View that the nodes of a job have of its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// A single directory that all nodes share.
    #[default]
    Striped,
    /// A directory for each node that the others do not see.
    Private,
    /// A striped and a private view.
    StripedPrivate,
}

impl Access {
    /// Whether there is a directory that all nodes share.
    pub fn is_striped(self) -> bool {
        self != Access::Private
    }

    /// Whether each node has a directory of its own.
    pub fn is_private(self) -> bool {
        self != Access::Striped
    }
}

/// A persistent buffer that a job makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CreateRequest {
    /// Name of the buffer; see [`check_name`].
    pub name: String,
    /// Size of the buffer in bytes, as the directive has it.
    pub bytes: u64,
    /// Pool that it lies in.
    pub pool: Option<String>,
    /// Group whose members may use it, too: a name or a number.
    pub group: Option<String>,
}

/// The buffer at one end of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyEnd {
    /// The directory of the job that all its nodes share.
    #[default]
    Striped,
    /// The persistent buffer of this name.
    Persistent(String),
}

/// Kind of the source of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    /// A single file.
    File,
    /// The contents of a directory, with everything below it.
    Directory,
    /// A file with one path a line.
    List,
}

/// A copy between the buffer and another file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// A file or a directory.
    pub entry: Entry,
    /// Path outside of the buffer: absolute, or below the user's home directory (`~/...`).
    pub outside: String,
    /// The buffer that `inside` lies in.
    #[serde(default)]
    pub place: CopyEnd,
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

/// Reads the directives of a script. Bytes behind a NUL byte are not part of it: Slurm ends scripts with one.
pub fn parse(script: &str) -> Result<JobRequest> {
    let script = script.split('\0').next().unwrap_or_default();
    let mut reader = Reader::default();
    for words in directives(script)? {
        let Some((command, options)) = words.split_first() else { continue };
        reader.directive(command, options)?;
    }
    reader.finish()
}

/// The directives that were read so far.
#[derive(Default)]
struct Reader {
    request: JobRequest,
    /// The word `jobdw`.
    jobdw: Option<Word>,
    /// The word that names the buffer of each copy: those in, then those out.
    places: [Vec<Word>; 2],
}

impl Reader {
    fn directive(&mut self, command: &Word, options: &[Word]) -> Result<()> {
        let request = &mut self.request;
        match command.text.as_str() {
            "jobdw" => {
                if let Some(first) = &self.jobdw {
                    let why = format!("a job has one jobdw, and line {} has it", first.line);
                    return Err(wrong(command, why, "put all options into one line"));
                }
                read_jobdw(command, options, request)?;
                self.jobdw = Some(command.clone());
            }
            "stage_in" | "stage_out" => {
                let stages_in = command.text == "stage_in";
                let (transfer, place) = read_transfer(command, options, stages_in)?;
                if stages_in { &mut request.stage_in } else { &mut request.stage_out }.push(transfer);
                self.places[usize::from(!stages_in)].push(place);
            }
            "persistentdw" => read_name(command, options, &mut request.persistent)?,
            "destroy_persistent" => read_name(command, options, &mut request.destroy)?,
            "create_persistent" => read_create(command, options, &mut request.create)?,
            "swap" => read_swap(command, options, &mut request.swap)?,
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
        Ok(())
    }

    /// Checks that need the whole script: variables are distinct, and a copy names a buffer that the job has.
    fn finish(self) -> Result<JobRequest> {
        let Reader { mut request, jobdw, places } = self;
        for (index, name) in request.persistent.iter().enumerate() {
            let variable = variable_of(name);
            if let Some(other) = request.persistent[..index].iter().find(|n| variable_of(n) == variable) {
                let both = Word { text: format!("name={name}"), line: 0, column: 0 };
                let why = format!("'{other}' and '{name}' would have the same variable {variable}");
                return Err(Fault { what: "in".into(), ..wrong(&both, why, "use one of them in a job") });
            }
        }
        let (access, known) = (request.access, request.persistent.clone());
        let transfers = request.stage_in.iter_mut().chain(&mut request.stage_out);
        for (transfer, word) in transfers.zip(places.iter().flatten()) {
            match &mut transfer.place {
                CopyEnd::Striped if jobdw.is_none() => {
                    return Err(wrong(
                        word,
                        "the job has no buffer to stage into or out of".to_owned(),
                        "add #DW jobdw capacity=SIZE access_mode=striped type=scratch, or --bb",
                    ));
                }
                CopyEnd::Striped if !access.is_striped() => {
                    return Err(wrong(
                        word,
                        "the job has access_mode=private, so its nodes share no directory".to_owned(),
                        "write access_mode=striped,private",
                    ));
                }
                CopyEnd::Striped => {}
                CopyEnd::Persistent(variable) => {
                    let name = known.iter().find(|name| variable_of(name).ends_with(variable.as_str()));
                    let name = name.filter(|name| name.len() == variable.len()).ok_or_else(|| {
                        wrong(
                            word,
                            "the job does not use this persistent buffer".to_owned(),
                            &format!("add #DW persistentdw name={variable}"),
                        )
                    })?;
                    *variable = name.clone();
                }
            }
        }
        Ok(request)
    }
}

/// The variable in which a job finds a persistent buffer: `-` stands as `_` in it.
pub fn variable_of(name: &str) -> String {
    format!("{}{}", PERSISTENT[0], name.replace('-', "_"))
}

/// Refuses what cannot be the name of a persistent buffer: it begins with a letter, because numbers are jobs.
pub fn check_name(name: &str) -> std::result::Result<(), String> {
    let fits = (1..=NAME_MAX).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if fits {
        return Ok(());
    }
    Err(format!("a name is a letter and up to {} letters, digits, '-' or '_'", NAME_MAX - 1))
}

/// `name=` of `persistentdw` and `destroy_persistent`. Slurm's word `hurry` may stand behind it.
fn read_name(command: &Word, options: &[Word], names: &mut Vec<String>) -> Result<()> {
    let mut found = None;
    let options: Vec<Word> = options.iter().filter(|word| word.text != "hurry").cloned().collect();
    for (word, _, value) in pairs(&options, &["name"])? {
        check_name(&value).map_err(|why| wrong(word, why, "such as name=shared"))?;
        found = Some((word.clone(), value));
    }
    let (word, name) =
        found.ok_or_else(|| wrong(command, format!("{} has no name", command.text), "add name=NAME"))?;
    if names.contains(&name) {
        return Err(wrong(&word, "an earlier line names it".to_owned(), "leave one of them out"));
    }
    names.push(name);
    refuse_many(command, names.len())
}

fn read_create(command: &Word, options: &[Word], all: &mut Vec<CreateRequest>) -> Result<()> {
    const KEYS: [&str; 6] = ["name", "capacity", "access_mode", "type", "pool", "group"];
    let mut found = CreateRequest { name: String::new(), bytes: 0, pool: None, group: None };
    for (word, key, value) in pairs(options, &KEYS)? {
        match key.as_str() {
            "name" => {
                check_name(&value).map_err(|why| wrong(word, why, "such as name=shared"))?;
                found.name = value;
            }
            "capacity" => found.bytes = size(word, &value)?,
            "access_mode" if value != "striped" => {
                let why = "a persistent buffer is shared by all nodes of its jobs".to_owned();
                return Err(wrong(word, why, "write access_mode=striped"));
            }
            "access_mode" => {}
            "type" => kind_of_buffer(word, &value)?,
            "pool" => found.pool = Some(value),
            _ => found.group = Some(value),
        }
    }
    if found.name.is_empty() {
        return Err(wrong(command, "create_persistent has no name".to_owned(), "add name=NAME"));
    }
    if found.bytes == 0 {
        let next = "add capacity=SIZE, such as capacity=100GiB";
        return Err(wrong(command, "create_persistent has no capacity".to_owned(), next));
    }
    if all.iter().any(|other| other.name == found.name) {
        return Err(wrong(
            command,
            format!("an earlier line makes '{}'", found.name),
            "leave one of them out",
        ));
    }
    all.push(found);
    refuse_many(command, all.len())
}

fn refuse_many(command: &Word, count: usize) -> Result<()> {
    if count <= PERSISTENT_MAX {
        return Ok(());
    }
    let why = format!("a job may have {PERSISTENT_MAX} lines {}", command.text);
    Err(wrong(command, why, "use several jobs"))
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
    const KEYS: [&str; 5] = ["capacity", "access_mode", "type", "pool", "grow"];
    let mut grow = None;
    for (word, key, value) in pairs(options, &KEYS)? {
        match key.as_str() {
            "capacity" => request.bytes = Some(size(word, &value)?),
            "grow" => grow = Some((word, grow_max(word, &value)?)),
            "access_mode" => request.access = access(word, &value)?,
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
    if let Some((word, max)) = grow {
        if request.bytes.is_some_and(|bytes| max < bytes) {
            return Err(wrong(word, "it is less than the capacity".to_owned(), "write a larger size"));
        }
        request.grow_max_bytes = Some(max);
    }
    Ok(())
}

/// `swap SIZE`: the size on each node.
fn read_swap(command: &Word, options: &[Word], found: &mut Option<SwapRequest>) -> Result<()> {
    let example = "write the size on each node, such as swap 4GiB";
    if let Some(first) = found {
        let why = format!("a job has one swap, and line {} has it", first.line);
        return Err(wrong(command, why, "write the size of each node into one line"));
    }
    let (word, more) =
        options.split_first().ok_or_else(|| wrong(command, "swap has no size".to_owned(), example))?;
    if let Some(second) = more.first() {
        return Err(wrong(second, "swap has a size and nothing else".to_owned(), example));
    }
    let text = word.text.as_str();
    let bytes = parse_bytes(text).map_err(|_| {
        let next =
            nearest_size(text).map_or_else(|| example.to_owned(), |s| format!("did you mean swap {s}?"));
        wrong(word, format!("'{text}' is no size"), &next)
    })?;
    let whole = bytes.checked_next_multiple_of(SWAP_MIN_BYTES);
    let Some(bytes) = whole.filter(|_| bytes >= SWAP_MIN_BYTES) else {
        let why = format!("'{text}' is no size that swap can have: 1 MiB is the least");
        return Err(wrong(word, why, example));
    };
    let (line, column, text) = (word.line, word.column, word.text.clone());
    *found = Some(SwapRequest { bytes, line, column, text });
    Ok(())
}

/// A size near to a misspelt one: without a key in front of it, or with the unit that is nearest.
fn nearest_size(text: &str) -> Option<String> {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let value = text.split_once('=').map_or(text, |(_, value)| value);
    if parse_bytes(value).is_ok() {
        return Some(value.to_owned());
    }
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
    let (number, unit) = value.split_at(end);
    let sized = format!("{number}{}", near(unit, &UNITS)?);
    parse_bytes(&sized).is_ok().then_some(sized)
}

/// The size of `auto:SIZE`.
fn grow_max(word: &Word, value: &str) -> Result<u64> {
    let example = "write grow=auto:SIZE, such as grow=auto:500GiB: the most that it may grow to";
    let max =
        value.strip_prefix("auto:").ok_or_else(|| wrong(word, format!("'{value}' is no limit"), example))?;
    size(word, max)
}

fn size(word: &Word, value: &str) -> Result<u64> {
    let units = "write a whole number with KiB, MiB, GiB or TiB, such as capacity=100GiB";
    let bytes = parse_bytes(value).map_err(|_| wrong(word, format!("'{value}' is no size"), units))?;
    if bytes == 0 {
        return Err(wrong(word, "a buffer of no bytes holds nothing".to_owned(), units));
    }
    Ok(bytes)
}

fn access(word: &Word, value: &str) -> Result<Access> {
    match value {
        "striped" => Ok(Access::Striped),
        "private" => Ok(Access::Private),
        "striped,private" | "private,striped" => Ok(Access::StripedPrivate),
        _ => Err(wrong(
            word,
            format!("'{value}' is no access mode"),
            "write access_mode=striped, private or striped,private",
        )),
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

/// A copy, and the word that names its buffer.
fn read_transfer(command: &Word, options: &[Word], stages_in: bool) -> Result<(Transfer, Word)> {
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
    let (place, inside) = inside(inner_word, &inner)?;
    let transfer = Transfer { entry, outside: outside(outer_word, &outer)?, place, inside };
    if entry != Entry::Directory
        && !stages_in
        && (transfer.inside.is_empty() || transfer.inside.ends_with('/'))
    {
        return Err(wrong(
            inner_word,
            "it names a directory".to_owned(),
            "name a file, or write type=directory",
        ));
    }
    Ok((transfer, inner_word.clone()))
}

fn entry_of(word: &Word, value: &str) -> Result<Entry> {
    match value {
        "file" => Ok(Entry::File),
        "directory" => Ok(Entry::Directory),
        "list" => Ok(Entry::List),
        _ => {
            let next = near(value, &["file", "directory", "list"])
                .map_or("write type=file, type=directory or type=list".to_owned(), |v| {
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

/// A path within a buffer, relative to it. Of a persistent buffer the end of its variable stands for its name until all lines are read.
fn inside(word: &Word, value: &str) -> Result<(CopyEnd, String)> {
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
    if PRIVATE.contains(&name) {
        let why = format!("each node has another ${name}, and it goes with the job");
        return Err(wrong(word, why, "stage $DW_JOB_STRIPED, and copy between the two in the job"));
    }
    let persistent = PERSISTENT.iter().find_map(|prefix| name.strip_prefix(prefix));
    let place = match persistent {
        Some(variable) => CopyEnd::Persistent(variable.to_owned()),
        None if STRIPED.contains(&name) => CopyEnd::Striped,
        None => {
            let next = near(name, &STRIPED).map_or(example.to_owned(), |n| format!("did you mean ${n}?"));
            return Err(wrong(word, format!("'${name}' is no variable of a buffer"), &next));
        }
    };
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
    Ok((place, parts.join("/") + slash))
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
