//! Background work: reports of files being written, about once a second, and log lines that name
//! what waits.

use brindle_types::{Code, Ino};
use brindle_wire::mds::report::{REPORT_ITEMS_MAX, ReportReq, WriteReport};

use crate::Client;
use crate::inodes::{Carry, Due};

/// Interval at which a mount reports files that are being written.
const REPORT_EVERY_MS: u64 = 1_000;

impl Client {
    pub(crate) async fn background(&self) {
        loop {
            self.seams.sleep_ms(REPORT_EVERY_MS).await;
            self.log_waits();
            self.drop_old_spares();
            self.inodes.all().iter().for_each(|inode| inode.chunks.lock().drop_idle(self.seams.now()));
            if self.report_all().await == Err(Code::Shutdown) {
                return;
            }
        }
    }

    /// Reports every file that has something to report.
    pub(crate) async fn report_all(&self) -> Result<(), Code> {
        let mut dues: Vec<(Ino, Due)> = Vec::new();
        for inode in self.inodes.all() {
            let due = inode.due(Carry::Changes);
            if due.report.is_some() {
                dues.push((inode.ino, due));
            }
        }
        if dues.is_empty() && self.session.is_ended() {
            return Err(Code::Shutdown);
        }
        while !dues.is_empty() {
            let rest = dues.split_off(dues.len().min(REPORT_ITEMS_MAX));
            let item = |(ino, due): &(Ino, Due)| Some((*ino, due.report.clone()?));
            let items: Vec<(Ino, WriteReport)> = dues.iter().filter_map(item).collect();
            self.mds.ask(&ReportReq { items, synced: Vec::new() }).await.map_err(|fault| fault.code)?;
            dues.into_iter().for_each(|(_, due)| due.delivered());
            dues = rest;
        }
        Ok(())
    }

    fn log_waits(&self) {
        for wait in self.targets.waits().newly_long(self.seams.now()) {
            let name = self.config.fs.target(wait.target);
            tracing::warn!(
                target_name = name,
                op = wait.op.name(),
                ms = wait.ms,
                "still waiting; going on to wait"
            );
        }
    }
}
