//! Tasks, time and incarnations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

use super::for_seeds;
use crate::sim::{Crash, Stuck, World};

/// Counts itself out when dropped.
struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn killing_a_node_drops_all_its_futures_and_no_others() {
    for_seeds(20, |world| {
        let count = Arc::new(AtomicUsize::new(0));
        let node = world.node("a");
        for seams in [&node.seams, &world.node("b").seams] {
            for _ in 0..10 {
                count.fetch_add(1, Ordering::Relaxed);
                let (alive, own) = (Alive(count.clone()), seams.clone());
                seams.spawn("loop", async move {
                    let _alive = alive;
                    loop {
                        own.sleep_ms(1).await;
                    }
                });
            }
        }
        world.run_for(20);
        assert_eq!(count.load(Ordering::Relaxed), 20);
        world.kill("a");
        assert_eq!(count.load(Ordering::Relaxed), 10);
        count.fetch_add(1, Ordering::Relaxed);
        let late = Alive(count.clone());
        node.seams.spawn("late", async move { drop(late) });
        assert_eq!(count.load(Ordering::Relaxed), 10, "a dead incarnation starts nothing");
        assert!(!world.is_running("a") && world.is_running("b"));
        world.restart("a");
        assert!(world.is_running("a"));
    });
}

#[test]
fn a_node_can_be_killed_by_its_own_task() {
    let world = World::new(1);
    let count = Arc::new(AtomicUsize::new(1));
    let (alive, own) = (Alive(count.clone()), world.clone());
    world.node("a").seams.spawn("suicide", async move {
        own.kill("a");
        // The task runs on until it waits; then it is gone.
        std::future::pending::<()>().await;
        drop(alive);
    });
    world.run_for(10);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn nothing_outlives_its_world() {
    let count = Arc::new(AtomicUsize::new(2));
    let world = World::new(1);
    let (a, nid) = (world.node("a"), "a:1@tcp".parse().expect("nid"));
    for alive in [Alive(count.clone()), Alive(count.clone())] {
        let (node, nid) = (a.clone(), brindle_types::Nid::clone(&nid));
        a.seams.spawn("forever", async move {
            let listener = node.transport.listen(&nid).await;
            let connection = node.transport.connect(&nid).await;
            node.seams.sleep_ms(u64::MAX / 2_000_000).await;
            drop((listener, connection, alive));
        });
    }
    world.run_for(1_000);
    drop((world, a));
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn timers_fire_in_order_and_never_early() {
    for_seeds(20, |world| {
        let node = world.node("a");
        let (tx, mut rx) = mpsc::unbounded_channel();
        for i in 0..50u64 {
            let ms = (i * 37) % 50 * 10;
            let (seams, tx) = (node.seams.clone(), tx.clone());
            node.seams.spawn("timer", async move {
                let start = seams.now();
                seams.sleep_ms(ms).await;
                assert!(seams.now().ms_since(start) >= ms);
                tx.send(ms).expect("the receiver waits");
            });
        }
        drop(tx);
        let fired = world.run_until(10_000, async {
            let mut all = Vec::new();
            while let Some(ms) = rx.recv().await {
                all.push(ms);
            }
            all
        });
        let fired = fired.expect("all fire");
        assert_eq!(fired.len(), 50);
        assert!(fired.is_sorted());
    });
}

#[test]
fn limits_deadlocks_and_timeouts_end_a_run() {
    let world = World::new(1);
    let before = world.now();
    assert_eq!(world.run_until(500, std::future::pending::<()>()), Err(Stuck::OutOfTime));
    assert_eq!(world.now().ms_since(before), 500);
    assert_eq!(world.run_until(u64::MAX, Notify::new().notified()), Err(Stuck::Deadlock));
    let seams = world.node("a").seams;
    let waited = world.run_until(1_000, seams.timeout_ms(50, std::future::pending::<()>()));
    assert_eq!(waited, Ok(None));
}

#[test]
fn clocks_differ_between_nodes_and_only_a_power_cut_resets_monotonic_time() {
    let world = World::new(7);
    let (a, b) = (world.node("a").seams, world.node("b").seams);
    assert_ne!(a.now(), b.now());
    assert_ne!(a.wall(), b.wall());
    let wall = a.wall();
    world.jump_wall("a", -3_600_000);
    assert_eq!(a.wall().secs, wall.secs - 3600);
    let before = a.now();
    let again = world.restart("a").seams;
    assert_eq!(again.now(), before);
    world.power_cut("a");
    assert_ne!(world.restart("a").seams.now(), before);
    let counts = world.counts();
    assert_eq!((counts["clock jump"], counts["kill"], counts["power cut"]), (1, 1, 1));
}

#[test]
fn randomness_differs_between_nodes_and_incarnations_and_repeats_with_the_seed() {
    let draw = |seed| {
        let world = World::new(seed);
        let first = world.node("a").seams.rng.next_u64();
        let other = world.node("b").seams.rng.next_u64();
        let again = world.restart("a").seams.rng.next_u64();
        [first, other, again, world.choose(u64::MAX)]
    };
    let mut all = [draw(1), draw(2)].concat();
    assert_eq!(draw(1), draw(1));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8);
}

#[test]
fn a_crash_point_lies_exactly_between_two_disk_operations() {
    use brindle_stdx::disk::OpenHow;
    for ops in 0..6 {
        let world = World::new(3);
        let node = world.node("a");
        world.crash_after("a", ops, Crash::Kill);
        let disk = node.seams.disk.clone();
        node.seams.spawn(
            "writer",
            async move {
                let file = disk.open("/f", OpenHow::CreateNew)?;
                for i in 0..5u64 {
                    file.write_at(&[i as u8 + 1], i)?;
                }
                Ok::<(), std::io::Error>(())
            }
            .map_away(),
        );
        world.run_for(100);
        assert!(!world.is_running("a"));
        let done: Vec<u8> = (1..ops as u8).collect();
        assert_eq!(world.disk("a").read("/f"), (ops > 0).then_some(done), "after {ops} operations");
        world.restart("a");
        assert!(!world.disk("a").is_dead());
    }
}

/// Forgets the outcome of a future.
trait MapAway: Future + Sized + Send {
    fn map_away(self) -> impl Future<Output = ()> + Send {
        async move { drop(self.await) }
    }
}

impl<F: Future + Send> MapAway for F {}
