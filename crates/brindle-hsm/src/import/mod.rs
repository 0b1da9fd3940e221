//! Import: files are made again from an archive alone, without the file system that they came from. The files appear released; opening one
//! brings the bytes back from the archive, where they have always been.
//!
//! A finder ([`s3`], [`posix`]) hands on the entries of the archive, the [`Maker`](make::Maker) makes the files. An import never changes or
//! removes data that the other file system has written to the archive. Existing files of the importing file system stay, too. An
//! interrupted import can therefore be repeated.

pub mod entry;
mod make;
mod posix;
mod s3;
pub mod tally;

use std::path::PathBuf;
use std::sync::Arc;

use brindle_client::Client;
use brindle_types::{Code, Fault, Result};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;

use self::entry::Entry;
use self::make::Maker;
use self::tally::Tally;
use crate::archive::{Archive, off_thread};

/// Files that were found and wait to be made.
const FOUND_MAX: usize = 64;
/// Files that are made at once.
const FILES_AT_ONCE: usize = 16;

/// Source of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A directory, in the layout of `lhsmtool_posix`.
    Posix {
        /// The archive.
        root: PathBuf,
        /// The tree of links in it, by which paths begin.
        links: PathBuf,
        /// Files have the paths of their links, whatever their manifests say.
        by_links: bool,
    },
    /// A file system, `NAME.FSID`, that has copies in the bucket; `None`: the only one beside this.
    S3(Option<String>),
}

/// Settings of an import.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Source of the files.
    pub origin: Origin,
    /// Number of the archive that the files are to lie in.
    pub archive: u32,
    /// Directory that they go below; empty for the root.
    pub into: Vec<u8>,
    /// Only files at or below this path; empty for all.
    pub only: Vec<u8>,
    /// The rest of a path below `only` is dropped: the single file gets the path `into` itself.
    pub is_one_file: bool,
    /// Dry run: nothing is made.
    pub dry_run: bool,
    /// Copies of other tools are read, so that their checksums are known.
    pub checksums: bool,
}

/// Imports, until all is done or `stop`. Where from, as `NAME.FSID` or a directory.
pub async fn import(
    client: Arc<Client>,
    archive: Archive,
    wanted: Wanted,
    tally: Arc<Tally>,
    stop: impl Future<Output = ()>,
) -> Result<String> {
    let own_id = format!("{:016x}", client.map().fs_id);
    let own = format!("{}.{own_id}", client.config().fs);
    let (tell, told) = mpsc::channel(FOUND_MAX);
    let (from, finding) = start(&archive, &wanted, (&own, &own_id), &tally, tell).await?;
    let maker = Maker::new(client, archive.of_file_system(&own), wanted, tally);
    let found =
        futures_util::stream::unfold(
            told,
            |mut told| async move { told.recv().await.map(|found| (found, told)) },
        );
    // If the maker ends first, it drops the channel, and the finder ends, too.
    let making = found.take_until(stop).for_each_concurrent(FILES_AT_ONCE, |entry| maker.file(entry));
    let (found, ()) = futures_util::future::join(finding, making).await;
    maker.finish().await?;
    found.map(|()| from)
}

/// Starts to look for files.
async fn start(
    archive: &Archive,
    wanted: &Wanted,
    (own, own_id): (&str, &str),
    tally: &Arc<Tally>,
    tell: mpsc::Sender<Box<Entry>>,
) -> Result<(String, BoxFuture<'static, Result<()>>)> {
    let tally = tally.clone();
    match (archive, &wanted.origin) {
        (Archive::S3(bucket), Origin::S3(named)) => {
            let name = s3::file_system(bucket, named.as_deref(), own).await?;
            let finding = s3::find(bucket.clone(), name.clone(), tally, tell);
            Ok((bucket.shown(&name), finding.boxed()))
        }
        (Archive::Posix(dir), Origin::Posix { root, links, by_links }) => {
            let (dir, links, root) = (dir.clone(), links.clone(), root.clone());
            let (by_links, own_id) = (*by_links, own_id.to_owned());
            let (only, checksums) = (wanted.only.clone(), wanted.checksums);
            let walk = off_thread(move || {
                let root = dir.beside(&root)?;
                Ok(posix::Walk { links: root.join(links), root, only, checksums, by_links, own: dir, own_id })
            })
            .await?;
            let from = walk.root.display().to_string();
            Ok((from, off_thread(move || walk.run(&tally, &tell)).boxed()))
        }
        _ => Err(Fault::new(Code::BadArgument)
            .what("cannot import from an archive of another kind")
            .why("the bytes stay where they are, so both archives must be directories, or lie in one bucket")
            .data("nothing was changed")),
    }
}
