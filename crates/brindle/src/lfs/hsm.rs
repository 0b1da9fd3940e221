//! `lfs hsm_*`: tiering in Lustre's commands and texts.

use std::ffi::OsString;
use std::io::BufRead as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use brindle_admin::paths;
use brindle_client::control::{Answer, Request};
use brindle_types::hsm::{HSM_ARCHIVED, HSM_DIRTY, HSM_EXISTS, HSM_LOST, HSM_NOARCHIVE, HSM_NORELEASE};
use brindle_types::{Code, Fault, Fid, Result};
use brindle_wire::mds::hsm::{HsmAsk, HsmUnderWay};

use crate::control::{Control, unexpected};
use crate::exit::Done;
use crate::hsm::{ask, each, state_of, text_of_state};

/// Most files that a list names.
const LIST_MAX: usize = 1 << 20;

/// Arguments of `lfs hsm_state` and `hsm_action`.
#[derive(clap::Args)]
pub struct Args {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// The files of a command that does something.
#[derive(clap::Args)]
pub struct FileArgs {
    /// File with a list of files, one a line
    #[arg(long = "filelist", short = 'l', value_name = "FILE")]
    list: Option<PathBuf>,
    /// Mount of the file system, where files are named by FIDs; paths of a list that are not absolute are below it
    #[arg(long = "mntpath", short = 'm', value_name = "MNT")]
    mount: Option<PathBuf>,
    /// Data for the agent; ours needs none
    #[arg(long, short = 'D', value_name = "DATA", hide = true)]
    data: Option<String>,
    /// Files
    #[arg(required_unless_present = "list", value_name = "FILE")]
    paths: Vec<PathBuf>,
}

/// Arguments of `lfs hsm_archive`.
#[derive(clap::Args)]
pub struct ArchiveArgs {
    /// Number of the archive; that which the file has, or 1
    #[arg(long, short = 'a', value_name = "N", default_value_t = 0, hide_default_value = true)]
    archive: u32,
    #[command(flatten)]
    files: FileArgs,
}

/// Arguments of `lfs hsm_remove`.
#[derive(clap::Args)]
pub struct RemoveArgs {
    /// Number of the archive; needed for FIDs of files that were removed
    #[arg(long, short = 'a', value_name = "N")]
    archive: Option<u32>,
    #[command(flatten)]
    files: FileArgs,
}

/// Arguments of `lfs hsm_set` and `hsm_clear`.
#[derive(clap::Args)]
pub struct FlagArgs {
    /// The file is never to be released
    #[arg(long, short = 'r')]
    norelease: bool,
    /// Never archive the file
    #[arg(long, short = 'A')]
    noarchive: bool,
    /// The file has changed since it was archived
    #[arg(long, short = 'd')]
    dirty: bool,
    /// An archive has a copy (root)
    #[arg(long, short = 'e')]
    exists: bool,
    /// The copy is complete (root)
    #[arg(long, short = 'a')]
    archived: bool,
    /// The copy was lost (root)
    #[arg(long, short = 'l')]
    lost: bool,
    /// Number of the archive (root)
    #[arg(long = "archive-id", short = 'i', value_name = "N")]
    archive: Option<u32>,
    /// Files
    #[arg(required = true, value_name = "FILE")]
    paths: Vec<PathBuf>,
}

impl FlagArgs {
    fn flags(&self) -> u32 {
        let all = [
            (self.norelease, HSM_NORELEASE),
            (self.noarchive, HSM_NOARCHIVE),
            (self.dirty, HSM_DIRTY),
            (self.exists, HSM_EXISTS),
            (self.archived, HSM_ARCHIVED),
            (self.lost, HSM_LOST),
        ];
        all.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum()
    }
}

impl FileArgs {
    fn all(&self) -> Result<Vec<PathBuf>> {
        let mut all = self.paths.clone();
        let Some(list) = &self.list else { return Ok(all) };
        let cannot = |e: &std::io::Error| {
            Fault::io(Code::BadArgument, "cannot read the list", list.display().to_string(), e)
        };
        let file = std::fs::File::open(list).map_err(|e| cannot(&e))?;
        for line in std::io::BufReader::new(file).split(b'\n') {
            let line = line.map_err(|e| cannot(&e))?;
            if line.is_empty() {
                continue;
            }
            if all.len() >= LIST_MAX {
                return Err(Fault::new(Code::BadArgument)
                    .what("cannot use the list")
                    .subject(list.display().to_string())
                    .why(format!("it names more than {LIST_MAX} files"))
                    .next("divide it"));
            }
            let path = PathBuf::from(OsString::from_vec(line));
            let below = self.mount.as_ref().filter(|_| fid_of(&path).is_none());
            all.push(below.map_or(path.clone(), |mount| mount.join(&path)));
        }
        Ok(all)
    }
}

/// Prints the flags of files.
pub fn state(args: &Args) -> Result<Done> {
    each(&args.paths, |path| {
        println!("{}: {}", paths::text(path), text_of_state(&state_of(path)?));
        Ok(())
    })
}

/// Prints what is being done with files.
pub fn action(args: &Args) -> Result<Done> {
    each(&args.paths, |path| {
        println!("{}", action_line(path, state_of(path)?.under_way.as_ref()));
        Ok(())
    })
}

fn action_line(path: &Path, action: Option<&HsmUnderWay>) -> String {
    let path = paths::text(path);
    match action {
        None => format!("{path}: NOOP"),
        Some(action) if action.running => {
            format!("{path}: {} running ({} bytes moved)", action.kind, action.moved_bytes)
        }
        Some(action) => format!("{path}: {} waiting (from 0 to EOF)", action.kind),
    }
}

fn act(files: &FileArgs, what: HsmAsk) -> Result<Done> {
    request(files, |ino| Request::HsmAct { ino, ask: what })
}

/// Asks for each file: by its path, or by its FID.
fn request(files: &FileArgs, of: impl Fn(u64) -> Request) -> Result<Done> {
    let mount = files.mount.as_deref();
    each(&files.all()?, |path| match mount.and_then(|mount| Some((mount, fid_of(path)?))) {
        Some((mount, fid)) => ask_by_number(mount, fid, &of),
        None => ask(path, &of),
    })
}

/// The FID that a word is, if it is one.
fn fid_of(word: &Path) -> Option<Fid> {
    word.to_str()?.parse().ok()
}

/// Asks for a file by its number, also for one that has no name any more.
fn ask_by_number(mount: &Path, fid: Fid, of: impl Fn(u64) -> Request) -> Result<()> {
    let ino = fid.ino().ok_or_else(|| {
        Fault::new(Code::BadArgument).subject(fid.to_string()).why("no file here has such a FID")
    })?;
    match Control::of(mount)?.ask(&of(ino.0)) {
        Ok(Answer::Done) => Ok(()),
        Ok(other) => Err(unexpected(&other)),
        Err(fault) => Err(fault.subject(fid.to_string())),
    }
}

/// Copies files into an archive.
pub fn archive(args: &ArchiveArgs) -> Result<Done> {
    act(&args.files, HsmAsk::Archive(args.archive))
}

/// Lets the bytes of files go.
pub fn release(args: &FileArgs) -> Result<Done> {
    act(args, HsmAsk::Release)
}

/// Brings them back.
pub fn restore(args: &FileArgs) -> Result<Done> {
    act(args, HsmAsk::Restore)
}

/// Removes their copies, also those of files that were removed.
pub fn remove(args: &RemoveArgs) -> Result<Done> {
    match args.archive {
        Some(archive) => request(&args.files, |ino| Request::HsmRemove { ino, archive }),
        None => act(&args.files, HsmAsk::Remove),
    }
}

/// Gives up what is under way.
pub fn cancel(args: &FileArgs) -> Result<Done> {
    act(args, HsmAsk::Cancel)
}

/// Sets flags.
pub fn set(args: &FlagArgs) -> Result<Done> {
    let (set, archive) = (args.flags(), args.archive);
    each(&args.paths, |path| ask(path, |ino| Request::HsmSet { ino, set, clear: 0, archive }))
}

/// Clears flags.
pub fn clear(args: &FlagArgs) -> Result<Done> {
    if args.archive.is_some() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot clear the number of an archive")
            .data("nothing was changed")
            .next("hsm_set --archive-id sets another one"));
    }
    let clear = args.flags();
    each(&args.paths, |path| ask(path, |ino| Request::HsmSet { ino, set: 0, clear, archive: None }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::HsmKind;
    use brindle_wire::mds::hsm::HsmStateResp;

    #[test]
    fn states_and_actions_look_as_in_lustre() {
        let state = |flags, archive| text_of_state(&HsmStateResp { flags, archive, under_way: None });
        assert_eq!(state(0, 0), "(0x00000000)");
        assert_eq!(state(0xd, 1), "(0x0000000d) released exists archived, archive_id:1");
        let f = Path::new("/mnt/f");
        assert_eq!(action_line(f, None), "/mnt/f: NOOP");
        let action = |running| HsmUnderWay { kind: HsmKind::Archive, running, moved_bytes: 123 };
        assert_eq!(action_line(f, Some(&action(true))), "/mnt/f: ARCHIVE running (123 bytes moved)");
        assert_eq!(action_line(f, Some(&action(false))), "/mnt/f: ARCHIVE waiting (from 0 to EOF)");
    }
}
