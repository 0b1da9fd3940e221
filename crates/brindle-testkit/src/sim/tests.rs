//! Promises of the simulator.

mod network;
mod tasks;
mod workload;

use super::World;

/// Runs a check under several seeds and names the one that fails.
fn for_seeds(count: u64, check: impl Fn(&World)) {
    for seed in 1..=count {
        let world = World::new(seed);
        world.keep_lines(200);
        let run = std::panic::AssertUnwindSafe(|| check(&world));
        if let Err(panic) = std::panic::catch_unwind(run) {
            let lines = world.lines().join("\n");
            panic!("seed {seed}: {}\n{lines}", text_of(&panic));
        }
    }
}

fn text_of(panic: &Box<dyn std::any::Any + Send>) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    owned.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}
