//! The files in a bucket, by their manifests.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;

use super::entry::{Bytes, Entry};
use super::tally::Tally;
use crate::archive::s3::{Bucket, Copies, Listing};

/// Manifests that are read at once.
const READS_AT_ONCE: usize = 16;

/// The file system of a bucket that is meant: the one that was named, or the only one that is not ours.
pub async fn file_system(bucket: &Bucket, named: Option<&str>, own: &str) -> Result<String> {
    let all = bucket.file_systems().await?;
    let nothing = |why: String, next: String| {
        Fault::new(Code::NothingToImport).subject(bucket.to_string()).why(why).next(next)
    };
    let listed = all.join(", ");
    match named {
        Some(name) if all.iter().any(|fs| fs == name) => return Ok(name.to_owned()),
        Some(name) if all.is_empty() => {
            return Err(nothing(
                format!("no file system has copies here, so '{name}' has none"),
                NO_COPIES.to_owned(),
            ));
        }
        Some(name) => {
            return Err(nothing(
                format!("'{name}' has no copies here"),
                format!("file systems with copies here: {listed}"),
            ));
        }
        None => {}
    }
    let others: Vec<&String> = all.iter().filter(|fs| *fs != own).collect();
    match &others[..] {
        [one] => Ok((*one).clone()),
        [] if all.is_empty() => {
            Err(nothing("no file system has copies here".to_owned(), NO_COPIES.to_owned()))
        }
        [] => Err(nothing(
            "all copies here are of this very file system".to_owned(),
            format!("to import them all the same: --from {own}"),
        )),
        _ => Err(nothing(
            "several file systems have copies here".to_owned(),
            format!("say which one: --from one of {listed}"),
        )),
    }
}

const NO_COPIES: &str = "look at the bucket and the prefix in --backend";

/// Finds the files of a file system, and hands them on.
pub async fn find(
    bucket: Bucket,
    file_system: String,
    tally: Arc<Tally>,
    found: mpsc::Sender<Box<Entry>>,
) -> Result<()> {
    let listing = bucket.copies(&file_system);
    let listed = stream::try_unfold(listing, |mut listing: Listing| async move {
        Ok::<_, Fault>(listing.next().await?.map(|copies| (copies, listing)))
    });
    let read = listed.map(|copies| {
        let bucket = &bucket;
        async move { Ok::<_, Fault>(newest(bucket, copies?).await) }
    });
    let mut read = std::pin::pin!(read.buffer_unordered(READS_AT_ONCE));
    let mut is_empty = true;
    while let Some(entry) = read.next().await {
        is_empty = false;
        match entry? {
            Ok(entry) => {
                if found.send(Box::new(entry)).await.is_err() {
                    // The maker has ended.
                    return Ok(());
                }
            }
            Err((subject, fault)) => tally.problem(subject, fault),
        }
    }
    match is_empty {
        false => Ok(()),
        true => Err(Fault::new(Code::NothingToImport)
            .subject(bucket.shown(&file_system))
            .why("it holds no copies")),
    }
}

/// The latest copy of a file that is whole: its manifest is there, and its bytes.
async fn newest(bucket: &Bucket, copies: Copies) -> std::result::Result<Entry, (String, Fault)> {
    let shown = bucket.shown(&copies.dir);
    let mut first = None;
    for listed in copies.by_attempt.values().rev() {
        let Some(key) = &listed.manifest else { continue };
        match whole(bucket, key, &copies.dir).await {
            Ok(entry) => return Ok(entry),
            Err(fault) => _ = first.get_or_insert((bucket.shown(key), fault)),
        }
    }
    Err(first.unwrap_or_else(|| {
        let fault = Fault::new(Code::ManifestDamaged)
            .subject(shown.clone())
            .why("the bytes of a copy lie there without a manifest");
        (shown, fault)
    }))
}

async fn whole(bucket: &Bucket, key: &str, dir: &str) -> Result<Entry> {
    let wrong = |why: String| Fault::new(Code::ManifestDamaged).subject(bucket.shown(key)).why(why);
    let manifest = bucket.manifest(key).await?;
    let object = manifest.object.clone();
    let fid = manifest.fid.trim_matches(['[', ']']).replace("0x", "").replace(':', "-");
    if !dir.ends_with(&format!("/{fid}")) {
        return Err(wrong(format!("it is of file {}", manifest.fid)));
    }
    if !bucket.has(&object, manifest.size_bytes).await? {
        return Err(wrong(format!(
            "{} is not there, or has another length than {}",
            bucket.shown(&object),
            manifest.size_bytes
        )));
    }
    Entry::of(manifest, bucket.shown(key), Bytes::S3(object)).map_err(wrong)
}
