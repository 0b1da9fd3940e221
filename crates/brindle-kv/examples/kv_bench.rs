//! Measures the store on a real directory: `cargo run --release -p brindle-kv --example kv_bench -- DIR [CREATES [CACHE_MIB]]`.
//!
//! A create is a batch of four small rows, as the MDT writes it; clients append under one lock and wait for the reply.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use brindle_kv::{Batch, Durability, DurabilityMode, Kv, KvOptions};
use brindle_stdx::Seams;
use parking_lot::Mutex;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn create(ino: u64, slot: u64) -> Batch {
    let mut batch = Batch::new();
    let dir = ino / 500;
    batch.put([&b"I"[..], &ino.to_be_bytes()].concat(), vec![7; 200]);
    batch.put([&b"D"[..], &dir.to_be_bytes(), format!("file.{ino:08}").as_bytes()].concat(), vec![1; 12]);
    batch.put([&b"R"[..], &slot.to_be_bytes()].concat(), vec![3; 120]);
    batch.put([&b"I"[..], &(dir + (1 << 40)).to_be_bytes()].concat(), vec![8; 200]);
    batch
}

async fn creates(kv: &Kv, clients: u64, total: u64, mode: &str, first: u64) -> Outcome<()> {
    let (before, start) = (kv.stats(), Instant::now());
    let next = Arc::new(AtomicU64::new(first));
    let writer = Arc::new(Mutex::new(()));
    let tasks: Vec<_> = (0..clients)
        .map(|slot| {
            let (kv, next, writer) = (kv.clone(), next.clone(), writer.clone());
            tokio::spawn(async move {
                loop {
                    let ino = next.fetch_add(1, Ordering::Relaxed);
                    if ino >= first + total {
                        return Outcome::Ok(());
                    }
                    kv.admit().await?;
                    let pos = {
                        let _lock = writer.lock();
                        kv.append(create(ino, slot))?
                    };
                    kv.wait_reply(pos).await?;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), kv.stats());
    let batches = (after.batches - before.batches) as f64;
    println!(
        "{mode:8} {clients:4} clients  {:8.0} creates/s  {:6.1} batches a write  {:7.4} fdatasyncs a batch  {:4} checkpoints",
        batches / seconds,
        batches / (after.writes - before.writes).max(1) as f64,
        (after.syncs - before.syncs) as f64 / batches,
        after.checkpoints - before.checkpoints,
    );
    Ok(())
}

fn gets(kv: &Kv, total: u64, what: &str) -> Outcome<()> {
    let start = Instant::now();
    let (mut ino, count, mut found) = (1, 300_000, 0);
    for _ in 0..count {
        ino = (ino * 48_271) % 2_147_483_647;
        found += u64::from(kv.get(&[&b"I"[..], &(ino % total).to_be_bytes()].concat())?.is_some());
    }
    let per_s = f64::from(count) / start.elapsed().as_secs_f64();
    let start = Instant::now();
    let (mut rows, mut dirs) = (0, 0u64);
    while dirs < 200 {
        rows += kv.scan_prefix(&[&b"D"[..], &dirs.to_be_bytes()].concat(), None, 1000)?.len();
        dirs += 1;
    }
    println!(
        "{what:8} {per_s:8.0} gets/s ({found} of {count} found)  {:9.0} scanned rows/s",
        rows as f64 / start.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn measure(seams: Seams, dir: &str, total: u64, cache_mib: usize) -> Outcome<()> {
    let opts =
        KvOptions { cache_bytes_max: cache_mib << 20, ..KvOptions::new([1; 16], [2; 16], "bench-MDT0000") };
    Kv::create(&*seams.disk, dir, &opts)?;
    let (kv, _) = Kv::open(seams.clone(), dir, opts.clone())?;
    let mut first = 0;
    for (mode, name, count) in
        [(DurabilityMode::Relaxed, "relaxed", total), (DurabilityMode::Sync, "sync", total / 10)]
    {
        kv.set_mode(mode);
        for clients in [1, 8, 64] {
            let count = if clients == 1 { count / 4 } else { count };
            creates(&kv, clients, count, name, first).await?;
            first += count;
        }
    }
    gets(&kv, first, "mixed")?;
    let (start, bytes) = (Instant::now(), kv.stats().memtable_bytes);
    kv.checkpoint().await?;
    println!("checkpoint of {} MiB in memory: {:.0} ms", bytes >> 20, start.elapsed().as_secs_f64() * 1e3);
    gets(&kv, first, "redb")?;
    for n in 0..20_000 {
        kv.append(create(first + n, 0))?;
    }
    kv.wait(kv.last_pos(), Durability::Synced).await?;
    kv.close().await?;
    let start = Instant::now();
    let (kv, report) = Kv::open(seams, dir, opts)?;
    println!(
        "open, {} records replayed, store of {} MiB verified: {:.0} ms",
        report.replayed_records,
        std::fs::metadata(format!("{dir}/checkpoint.redb"))?.len() >> 20,
        start.elapsed().as_secs_f64() * 1e3
    );
    kv.close().await?;
    Ok(())
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: kv_bench DIR [CREATES [CACHE_MIB]]")?;
    let total = args.next().map_or(Ok(200_000), |n| n.parse())?;
    let cache_mib = args.next().map_or(Ok(64), |n| n.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(brindle_stdx::real::seams(runtime.handle().clone()), &dir, total, cache_mib))
}
