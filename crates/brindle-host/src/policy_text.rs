//! The text of an engine, as it is edited: read, checked before it is in force, and replaced as a whole.
//!
//! Called by the manager. A text is replaced only by one that can be understood, and only if nobody has changed it since it was read.
//! Policies that delete need no rule here: the engine asks for the marks of [`State`](brindle_hsm::policy::State), which are about words.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use brindle_policy::lex::Text;
use brindle_policy::{Program, Source};
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

use crate::policy;

/// Longest text that is edited; longer ones are for an editor on the host.
pub const EDITED_MAX_BYTES: usize = 48 << 10;

/// A text and the file that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The file itself, behind symbolic links.
    pub path: PathBuf,
    /// Text.
    pub text: String,
}

/// Place and cause of a mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MistakeView {
    /// The file: the text itself, or one that it includes.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The character in the line, from 1.
    pub column: u32,
    /// Why the text cannot be used.
    pub why: String,
}

fn cannot(what: &'static str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::NotWritable, what, path.display().to_string(), e).data("the text is as it was")
}

/// Reads the text of a file.
pub fn read(file: &Path) -> Result<Edited> {
    let path = file.canonicalize().map_err(|e| cannot("cannot find", file, &e))?;
    let meta = fs::metadata(&path).map_err(|e| cannot("cannot read", &path, &e))?;
    if !meta.is_file() || meta.len() > EDITED_MAX_BYTES as u64 {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot edit")
            .subject(path.display().to_string())
            .why(format!("only a regular file of at most {EDITED_MAX_BYTES} bytes is edited here"))
            .data("the text is as it was")
            .next("edit it on its host"));
    }
    let text = fs::read_to_string(&path).map_err(|e| cannot("cannot read", &path, &e))?;
    Ok(Edited { path, text })
}

/// Understands a text as if it stood in a file: its includes are those of the file's directory.
pub fn load(file: &str, text: &str, defines: &BTreeMap<String, String>) -> Result<Program> {
    let read = |name: &str, from: Option<&str>| match from {
        None => {
            let path = Path::new(name).canonicalize().map_err(|e| format!("cannot find '{name}': {e}"))?;
            let dir = path.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
            Ok(Text { name: name.to_owned(), dir, text: text.to_owned() })
        }
        Some(_) => policy::read(name, from),
    };
    let environment = |name: &str| std::env::var(name).ok();
    Program::load(&Source { read: &read, defines, environment: &environment }, file)
}

/// The mistake of which a refusal tells; `None` for a refusal of another kind.
pub fn mistake(fault: &Fault) -> Option<MistakeView> {
    if fault.code != Code::BadPolicy {
        return None;
    }
    let mut parts = fault.subject.rsplitn(3, ':');
    let (column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    let (line, column) = (line.parse().ok()?, column.parse().ok()?);
    Some(MistakeView { file: file.to_owned(), line, column, why: fault.why.join("; ") })
}

/// The file that keeps the text of before.
pub fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".before");
    PathBuf::from(name)
}

/// Replaces a text that was read as `was`, and keeps that one beside it. Mode and owner stay. A crash leaves the old or the new one.
pub fn replace(was: &Edited, text: &str) -> Result<()> {
    let path = &was.path;
    if read(path)?.text != was.text {
        return Err(Fault::new(Code::PolicyTextChanged)
            .what("cannot save")
            .subject(path.display().to_string())
            .why("somebody has changed the text since it was read")
            .data("nothing was changed"));
    }
    put(path, &before(path), &was.text)?;
    put(path, path, text)
}

/// Writes a file with mode and owner of another one, as a whole.
fn put(like: &Path, path: &Path, text: &str) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new{}", std::process::id()));
    let new = PathBuf::from(new);
    let write = || {
        let meta = fs::metadata(like)?;
        let mut file = File::create_new(&new)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        file.set_permissions(Permissions::from_mode(meta.mode() & 0o7777))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    };
    write().map_err(|e: std::io::Error| {
        // The temporary file is there only if the write or the rename has failed, and has no other use.
        let _ = fs::remove_file(&new);
        cannot("cannot write", path, &e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "rmdir_rules { rule default { condition { last_mod > 7d } } }\n";

    fn file(dir: &tempfile::TempDir, text: &str) -> PathBuf {
        let path = dir.path().join("p.conf");
        fs::write(&path, text).expect("written");
        path
    }

    #[test]
    fn a_mistake_has_its_line_and_column_and_includes_are_those_of_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = file(&dir, GOOD).display().to_string();
        let none = BTreeMap::new();
        let refused =
            load(&path, "rmdir_rules {\n  rule default { conditio { } }\n}\n", &none).expect_err("misspelt");
        let mistake = mistake(&refused).expect("it has a place");
        assert_eq!(
            (mistake.file.as_str(), mistake.line, mistake.column),
            (path.as_str(), 2, 18),
            "{refused}"
        );
        fs::write(dir.path().join("rest.conf"), GOOD).expect("written");
        let whole = load(&path, "%include \"rest.conf\"\n# more\n", &none).expect("understood");
        assert_eq!(whole.sum, policy::load(&path, &none).expect("understood").sum, "the words are the same");
        assert_eq!(super::mistake(&Fault::new(Code::NoMgs)), None);
    }

    #[test]
    fn a_text_is_replaced_as_it_was_read_and_the_one_of_before_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = file(&dir, GOOD);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        let was = read(&link).expect("read");
        replace(&was, "# new\n").expect("replaced");
        assert_eq!(fs::read_to_string(&path).expect("read"), "# new\n");
        assert_eq!(fs::read_to_string(before(&was.path)).expect("read"), GOOD);
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        for file in [&was.path, &before(&was.path)] {
            assert_eq!(fs::metadata(file).expect("there").mode() & 0o7777, 0o640, "{}", file.display());
        }
        let refused = replace(&was, "# lost\n").expect_err("it is another one by now");
        assert_eq!(refused.code, Code::PolicyTextChanged);
        assert_eq!(fs::read_to_string(&path).expect("read"), "# new\n");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 3, "nothing temporary is left");
    }

    #[test]
    fn what_is_too_long_is_not_edited() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = file(&dir, &"#".repeat(EDITED_MAX_BYTES + 1));
        assert_eq!(read(&path).expect_err("too long").code, Code::BadArgument);
        assert_eq!(read(dir.path()).expect_err("a directory").code, Code::BadArgument);
    }
}
