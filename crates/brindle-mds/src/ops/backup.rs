//! backup_read: the rows of one moment, page by page, while the MDT goes on.

use std::sync::Arc;

use brindle_kv::Snapshot;
use brindle_stdx::Mono;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::backup::{BackupReadReq, BackupReadResp};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::mdt::{Call, Mdt};

/// Rows and bytes of a page, at most; a row that is longer makes a page of its own.
const PAGE_ROWS: usize = 4096;
const PAGE_BYTES: usize = 256 << 10;
/// A snapshot that was not read for this long is released: it keeps pages of the checkpoint from being reused.
const IDLE_MAX_MS: u64 = 60_000;

/// The snapshot that is being read, if one is.
#[derive(Default)]
pub struct Backups(Mutex<Option<Taken>>);

struct Taken {
    number: u64,
    snapshot: Arc<Snapshot>,
    read_last: Mono,
}

impl Backups {
    /// Releases a snapshot that is not read any more.
    pub fn drop_idle(&self, now: Mono) {
        self.0.lock().take_if(|taken| now.ms_since(taken.read_last) > IDLE_MAX_MS);
    }

    fn find(&self, number: u64, now: Mono) -> Result<Arc<Snapshot>> {
        let mut taken = self.0.lock();
        let Some(taken) = taken.as_mut().filter(|taken| taken.number == number) else {
            return Err(Fault::new(Code::TryAgain)
                .what("cannot go on with the backup of this MDT")
                .why("the MDT has restarted meanwhile, or nothing was read for a minute")
                .data("the file that was begun is of no use")
                .next("make the backup again"));
        };
        taken.read_last = now;
        Ok(taken.snapshot.clone())
    }

    fn begin(&self, number: u64, snapshot: Snapshot, now: Mono) -> Result<Arc<Snapshot>> {
        let mut taken = self.0.lock();
        if taken.is_some() {
            return Err(Fault::new(Code::BackupBusy));
        }
        let snapshot = Arc::new(snapshot);
        *taken = Some(Taken { number, snapshot: snapshot.clone(), read_last: now });
        Ok(snapshot)
    }

    fn is_busy(&self) -> bool {
        self.0.lock().is_some()
    }

    fn end(&self, number: u64) {
        self.0.lock().take_if(|taken| taken.number == number);
    }
}

/// Answers with the next page.
pub async fn handle(mdt: &Mdt, _call: &Call, req: BackupReadReq) -> Result<BackupReadResp> {
    let now = mdt.seams().now();
    mdt.backups().drop_idle(now);
    let (moment, snapshot) = if req.moment == 0 {
        if mdt.backups().is_busy() {
            return Err(Fault::new(Code::BackupBusy).subject(mdt.identity().name()));
        }
        let number = mdt.seams().rng.next_u64().max(1);
        (number, mdt.backups().begin(number, mdt.engine().snapshot().await?, now)?)
    } else {
        (req.moment, mdt.backups().find(req.moment, now)?)
    };
    let rows = {
        let _turn = mdt.scans().acquire().await;
        page(&snapshot, &req.after)?
    };
    let is_last = rows.is_empty();
    if is_last {
        mdt.backups().end(moment);
    }
    Ok(BackupReadResp { moment, term: mdt.numbers().term(), rows, is_last })
}

/// Rows behind a key; none at the end.
pub(crate) fn page(snapshot: &Snapshot, after: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
    let mut rows = snapshot.rows(Some(after).filter(|key| !key.is_empty()), PAGE_ROWS)?;
    let mut bytes = 0;
    let fits = rows.iter().take_while(|(key, value)| {
        bytes += key.len() + value.len();
        bytes <= PAGE_BYTES
    });
    let count = fits.count().max(1);
    rows.truncate(count);
    Ok(rows)
}
