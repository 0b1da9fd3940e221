//! `brindle bench storage`.

use std::path::PathBuf;

use brindle_bench::storage::{Options, run as survey};
use brindle_types::Result;
use serde_json::json;

use super::common::{Basics, directory, setting_parameters, size};
use crate::exit::Done;

/// Arguments of `brindle bench storage`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench storage --objects 1,4 --threads 1,4,16 /srv/ost0\n\
                        DIR is a directory on the disk of an OST, not a mount. Each thread writes its own piece of an object. \
                        The limit is plain files in the same directory.")]
pub struct Args {
    /// Directory on the disk to measure
    dir: PathBuf,
    #[command(flatten)]
    basics: Basics,
    /// Numbers of objects
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16],
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    objects: Vec<u32>,
    /// Numbers of threads, with each number of objects as far as it is not smaller
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4, 16],
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Bytes of all objects together
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = size)]
    size: u64,
    /// Bytes of a call
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = record_size)]
    record_size: u64,
}

/// A write to an object has at most this many bytes.
fn record_size(text: &str) -> std::result::Result<u64, String> {
    let most = brindle_objects::TRANSFER_MAX as u64;
    match size(text)? {
        bytes if bytes <= most => Ok(bytes),
        _ => Err(format!("must be at most {}", brindle_types::units::format_bytes(most))),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let setting = args.basics.setting(vec![directory(&args.dir)?])?;
    let options = Options {
        objects: args.objects.clone(),
        threads: args.threads.clone(),
        bytes: args.size,
        record_bytes: args.record_size,
    };
    let own = json!({ "size_bytes": args.size, "record_bytes": args.record_size });
    let workers = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let parameters = setting_parameters(&setting, own);
    args.basics.show(survey(&options, &setting, workers, parameters, &mut args.basics.progress())?)
}
