//! Cost of the facade: the same puts and gets through `lavakv::Db` and through `lavastore::Db`, in
//! alternating rounds.
//!
//! ```text
//! cargo run --release -p lavastore --example facade_cost -- [OPERATIONS] [PAIRS]
//! ```
//!
//! Each round makes `OPERATIONS` (200000) puts of 100 B and as many gets of the same keys, in its
//! own store. Most data is in memory, where calls are cheapest and their overhead is most visible.
//! The output is the time of the facade divided by that of the engine: minimum, median and maximum
//! of `PAIRS` (9) pairs. The facade runs first in every other pair, because the order matters as
//! much as the measured overhead. A control pair runs the engine twice: its ratio is the noise.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program beside the engine: it reads the clock and removes the directory it has made"
)]

use lavakv::Db as Engine;
use lavastore::Db as Facade;
use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Nanoseconds per put and per get.
type Times = [f64; 2];

/// Defines a round for one of the two types. They share method names but no trait: a trait would
/// add cost.
macro_rules! round {
    ($name:ident, $db:ty) => {
        fn $name(dir: &Path, operations: u64) -> Result<Times, Box<dyn Error>> {
            let db = <$db>::open(dir)?;
            let value = [7; 100];
            let key = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
            let start = Instant::now();
            for n in 0..operations {
                db.put(&key(n), &value)?;
            }
            let put = start.elapsed();
            let start = Instant::now();
            for n in 0..operations {
                let found = black_box(db.get(&key(n))?);
                if found.is_none_or(|found| found.len() != value.len()) {
                    return Err("a value that was put is not there".into());
                }
            }
            let get = start.elapsed();
            db.close()?;
            std::fs::remove_dir_all(dir)?;
            Ok([put, get].map(|time| time.as_nanos() as f64 / operations as f64))
        }
    };
}
round!(through_the_engine, Engine);
round!(through_the_facade, Facade);

type Round = fn(&Path, u64) -> Result<Times, Box<dyn Error>>;

/// Formats minimum, median and maximum.
fn spread(mut of: Vec<f64>) -> String {
    of.sort_by(f64::total_cmp);
    format!("{:.3} / {:.3} / {:.3}", of[0], of[of.len() / 2], of[of.len() - 1])
}

/// Runs both rounds `pairs` times and prints the time of `second` divided by that of `first`.
fn compare(
    name: &str,
    (first, second): (Round, Round),
    operations: u64,
    pairs: usize,
) -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::temp_dir().join(format!("lavastore-facade-{}", std::process::id()));
    let (mut ratios, mut times) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for pair in 0..pairs {
        let (a, b) = match pair % 2 {
            0 => {
                let a = first(&dir, operations)?;
                (a, second(&dir, operations)?)
            }
            _ => {
                let b = second(&dir, operations)?;
                (first(&dir, operations)?, b)
            }
        };
        for what in 0..2 {
            ratios[what].push(b[what] / a[what]);
            times[what].push(b[what]);
        }
    }
    for ((what, ratios), times) in ["put", "get"].into_iter().zip(ratios).zip(times) {
        println!("{name:22} {what}  ratio {}   ns {}", spread(ratios), spread(times));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let operations: u64 = args.next().map_or(Ok(200_000), |text| text.parse())?;
    let pairs: usize = args.next().map_or(Ok(9), |text| text.parse())?;
    println!("{operations} operations a round, {pairs} pairs; least / median / most");
    compare("facade over engine", (through_the_engine, through_the_facade), operations, pairs.max(1))?;
    compare("engine over itself", (through_the_engine, through_the_engine), operations, pairs.max(1))
}
