//! A pass over one copy, and what is told of damage.

use std::sync::Arc;

use brindle_stdx::Disk;
use brindle_targets::{Introduction, Plain};
use brindle_types::{Code, Ino};

use super::*;
use crate::tests::rig::{self, Rig, identity};

fn damage(offset: u64) -> MdtDamage {
    MdtDamage { file: "checkpoint.redb".to_owned(), offset, ..MdtDamage::of("", "the block has changed") }
}

/// A pass under way.
fn begun() -> MdtScrub {
    let scrub = MdtScrub::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let dir = tempfile::tempdir().expect("a directory");
    scrub.pace.open(&seams, &dir.path().display().to_string(), &[7; 16]);
    scrub.pace.begin(100, 5, brindle_stdx::Mono::default());
    scrub
}

fn pass(scrub: &MdtScrub) -> ScrubPass {
    scrub.pace.record().and_then(|record| record.pass).expect("a pass")
}

#[test]
fn damage_is_counted_and_named_once_and_never_without_a_bound() {
    let scrub = begun();
    scrub.unmended(1, damage(4096));
    scrub.unmended(1, damage(4096));
    assert_eq!((pass(&scrub).found, pass(&scrub).unmended, scrub.places().named.len()), (2, 1, 1));
    (0..2 * NAMED_MAX as u64).for_each(|n| scrub.unmended(1, damage(n * 4096)));
    assert_eq!(scrub.places().named.len(), NAMED_MAX);
    let long = MdtDamage::of("h2", "x".repeat(5_000));
    let scrub = begun();
    scrub.unmended(1, long);
    assert_eq!(scrub.places().named[0].why.len(), WHY_CHARS_MAX);
}

#[test]
fn what_is_told_says_which_kind_of_damage_it_is() {
    let scrub = begun();
    assert_eq!(scrub.problem("scratch-MDT0000"), None);
    scrub.unmended(1, damage(8192));
    let fault = scrub.problem("scratch-MDT0000").expect("damage");
    assert_eq!(fault.code, Code::KvDamaged);
    assert_eq!(
        fault.to_string(),
        "the scrub has found damage that is not mended in scratch-MDT0000\
         \n  why:  1 place is damaged; the first: checkpoint.redb at offset 8192: the block has changed\
         \n  data: rows that are still in memory are served; a row that cannot be read is an error, never wrong data\
         \n  next: make a backup now: brindle mdt backup; then replace the disk and restore: brindle mdt restore\
         \n  code: E3023 (brindle explain E3023)"
    );
    let scrub = begun();
    scrub.unmended(1, MdtDamage { differs: true, ..MdtDamage::of("h2", "the rows differ") });
    let fault = scrub.problem("scratch-MDT0000").expect("a difference");
    assert_eq!(
        (fault.code, fault.why[0].as_ref()),
        (Code::CopiesDiffer, "1 place is damaged; the first: the rows differ (on h2)")
    );
}

#[test]
fn bytes_on_disk_never_change() {
    use brindle_wire::form::{self, FormatLevel};
    use brindle_wire::mds::replica::StorePlace;
    use brindle_wire::mds::scrub::{AwaitedCopy, FilesPlace};
    let next = StorePlace { file: "log-1".to_owned(), offset: 4096, index: 3 };
    let places = MdtScrubPlaces {
        rows_after: bytes::Bytes::from_static(b"Ix"),
        rows_done: true,
        files: vec![FilesPlace { host: "h1".to_owned(), next: Some(next), is_done: false }],
        awaited: vec![AwaitedCopy { host: "h2".to_owned(), places: 2 }],
        named: vec![damage(1)],
    };
    let body = form::encode(FormatLevel::FIRST, &places).expect("encoded");
    assert_eq!(form::decode::<MdtScrubPlaces>(&body).ok(), Some(places));
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "01024978010102683101056c6f672d3180200300010268320201000f636865636b706f696e742e72656462011574686520626c6f636b20686173206368616e67656400"
    );
}

/// What a pass needs; nobody listens where the MGS should be.
fn around(rig: &Rig) -> Around {
    let transport = Arc::new(brindle_net::TcpTransport::new(rig.seams.clone()));
    let introduction = Introduction::server("h1", identity().target());
    let mgs = vec!["127.0.0.1:1".parse().expect("an address")];
    let targets = Directory::new(&rig.seams, transport, introduction, Arc::new(Plain), mgs, identity().fs, 1);
    Around { targets, requests: Box::new(|| 0) }
}

/// Makes a pass over an MDT without copies.
async fn pass_over(rig: &Rig) -> ScrubPass {
    let (scrub, around) = (rig.mdt.scrub(), around(rig));
    scrub.open(&rig.mdt);
    Pass { mdt: &rig.mdt, around: &around }.go_on().await.expect("it ends");
    scrub.pace.record().and_then(|record| record.last).expect("a pass")
}

#[test]
fn a_pass_over_one_copy_reads_all_rows_and_files_mends_its_log_and_names_what_it_cannot_mend() {
    rig::run(async {
        let rig = Rig::new().await;
        for n in 0..20 {
            rig.mkdir(Ino::ROOT, &format!("d{n}")).await.expect("made");
        }
        rig.mdt.engine().snapshot().await.expect("a checkpoint");
        rig.mkdir(Ino::ROOT, "later").await.expect("made");
        let whole = pass_over(&rig).await;
        assert!(whole.objects > 20 && whole.bytes > 8192, "{whole:?}");
        assert_eq!((whole.found, whole.ended_s > 0, rig.mdt.scrub().places().rows_done), (0, true, true));
        // The log: its rows are in memory.
        let dir = rig.mdt.config().store_dir();
        let mut logs =
            rig.disk.list(&dir).expect("listed").into_iter().filter(|name| name.starts_with("log-0"));
        let newest = logs.next_back().expect("a segment");
        rig.disk.edit(&format!("{dir}/{newest}"), |bytes| bytes[4096 + 50] ^= 1);
        let mended = pass_over(&rig).await;
        assert_eq!((mended.found, mended.mended, mended.unmended), (1, 1, 0));
        assert_eq!(rig.mdt.scrub().problem("x"), None);
        // The checkpoint: a block that is nowhere else.
        rig.disk.edit(&format!("{dir}/checkpoint.redb"), |bytes| {
            let at = bytes.windows(3).position(|w| w == b"d17").expect("a name");
            bytes[at] ^= 1;
        });
        let lost = pass_over(&rig).await;
        assert_eq!((lost.found, lost.mended, lost.unmended), (1, 0, 1));
        let named = rig.mdt.scrub().places().named;
        assert_eq!((named.len(), &*named[0].file, &*named[0].host), (1, "checkpoint.redb", ""));
        assert!(rig.mdt.scrub().problem("x").is_some_and(|fault| fault.code == Code::KvDamaged));
        rig.lookup(Ino::ROOT, "later").await.expect("what is whole is served");
    });
}

#[test]
fn a_pass_goes_on_where_it_was_stopped() {
    rig::run(async {
        let rig = Rig::new().await;
        let (scrub, around) = (rig.mdt.scrub(), around(&rig));
        scrub.open(&rig.mdt);
        order(&rig.mdt, ScrubOrder::Start { rate_bytes: None, every_days: None }).await.expect("ordered");
        let pass = Pass { mdt: &rig.mdt, around: &around };
        order(&rig.mdt, ScrubOrder::Stop).await.expect("ordered");
        pass.go_on().await.expect("it pauses behind its first piece");
        let seen = scrub.places();
        assert!(seen.rows_done && seen.files.is_empty(), "{seen:?}");
        assert!(scrub.pace.record().is_some_and(|record| record.pass.is_some()));
        // Another process reads the records.
        let later = MdtScrub::default();
        later.open(&rig.mdt);
        assert_eq!(later.places(), seen);
        order(&rig.mdt, ScrubOrder::Start { rate_bytes: None, every_days: None }).await.expect("ordered");
        pass.go_on().await.expect("it ends");
        let last = scrub.pace.record().and_then(|record| record.last).expect("a pass");
        let rows = seen.rows_after;
        assert!(last.objects > 0 && rows == scrub.places().rows_after, "no row was read twice");
    });
}
