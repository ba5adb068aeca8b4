//! What a value placement costs: device bytes for each user byte when values of 16 KB are overwritten at random.
//!
//! ```text
//! cargo run --release --example placement [MEGABYTES [DIRECTORY]]
//! ```
//!
//! For each placement: fills a new store with so many megabytes, overwrites as many three times over, then waits until
//! garbage is collected. Bytes are counted by the engine, and by the kernel (`write_bytes` of the process) where it tells.
#![allow(
    clippy::disallowed_methods,
    reason = "a program beside the engine: it reads the clock and /proc itself"
)]

use io::Rng;
use lavastore::{Db, FamilyOptions, Options, Statistics, ValuePlacement};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VALUE_LEN: usize = 16_000;
const ROUNDS: u64 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let megabytes: u64 = args.next().map_or(Ok(256), |n| n.parse())?;
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    println!(
        "placement  phase       MB/s  log  flush  values  compaction  gc  sum  kernel  (per user byte)  space"
    );
    for placement in [ValuePlacement::Table, ValuePlacement::Log] {
        let dir = dir.join(format!("lavastore-placement-{}", std::process::id()));
        let done = run(&dir, placement, megabytes * 1_000_000 / VALUE_LEN as u64);
        std::fs::remove_dir_all(&dir)?;
        done?;
    }
    Ok(())
}

/// Bytes that the process had written to devices, where the kernel tells.
fn kernel_bytes() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

fn run(dir: &Path, placement: ValuePlacement, keys: u64) -> Result<(), Box<dyn std::error::Error>> {
    let family = FamilyOptions { value_placement: placement, ..Default::default() };
    let db = Db::open_with(dir, &Options { family, ..Default::default() })?;
    let (mut rng, mut value) = (Rng::new(1), vec![0; VALUE_LEN]);
    rng.fill(&mut value);
    let mut put = |n: u64, rng: &mut Rng| {
        value[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        db.put(format!("key{n:012}").as_bytes(), &value)
    };
    let mut mark = Mark::new(&db);
    for n in 0..keys {
        put(n, &mut rng)?;
    }
    mark.report(&db, placement, "fill", keys, dir)?;
    for _ in 0..keys * ROUNDS {
        put(rng.below(keys), &mut rng)?;
    }
    mark.report(&db, placement, "overwrite", keys * ROUNDS, dir)?;
    db.flush()?;
    db.wait_idle(Duration::from_secs(120));
    mark.report(&db, placement, "and settle", keys * ROUNDS, dir)?;
    Ok(db.close()?)
}

/// Where a phase began.
struct Mark {
    start: Instant,
    stats: Statistics,
    kernel: Option<u64>,
}

impl Mark {
    fn new(db: &Db) -> Mark {
        Mark { start: Instant::now(), stats: db.stats(), kernel: kernel_bytes() }
    }

    fn report(
        &mut self,
        db: &Db,
        placement: ValuePlacement,
        phase: &str,
        puts: u64,
        dir: &Path,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let user = (puts * (VALUE_LEN as u64 + 15)) as f64;
        let (now, then) = (db.stats(), &self.stats);
        let per = |of: fn(&Statistics) -> u64| (of(&now) - of(then)) as f64 / user;
        let parts = [
            per(|s| s.wal_bytes_written),
            per(|s| s.flush_bytes_written),
            per(|s| s.segment_bytes_written),
            per(|s| s.compaction_bytes_written),
            per(|s| s.gc_bytes_written),
        ];
        let kernel = kernel_bytes().zip(self.kernel).map(|(now, then)| (now - then) as f64 / user);
        print!("{:<10} {phase:<10}", format!("{placement:?}"));
        print!(" {:>5.0}", user / 1e6 / self.start.elapsed().as_secs_f64());
        parts.iter().for_each(|part| print!(" {part:.3}"));
        print!("  sum {:.3}", parts.iter().sum::<f64>());
        if let Some(kernel) = kernel {
            print!("  kernel {kernel:.3}");
        }
        let space = db.space()?;
        println!("  {} MB in {}", space.total_bytes / 1_000_000, dir.display());
        *self = Mark::new(db);
        Ok(())
    }
}
