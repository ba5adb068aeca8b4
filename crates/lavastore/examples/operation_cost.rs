//! Time of the shortest operations in nanoseconds, to measure added overhead.
//!
//! ```text
//! cargo run --release -p lavastore --example operation_cost
//! ```
//!
//! Operations run in groups of a thousand, and each group is repeated. The result is the mean over
//! groups of their minimum time, which is robust against other load on the machine.

use lavastore::{Db, Durability, Env, Options, Result, WriteOptions};

/// Number of keys; all fit in a memtable.
const KEYS: u32 = 64_000;
const RUN: u32 = 1000;
const ROUNDS: usize = 30;

fn key(i: u32) -> [u8; 8] {
    // Scatters the keys.
    u64::from(i.wrapping_mul(2_654_435_761)).to_be_bytes()
}

/// Prints the mean of the minimum times; `one` performs the operation on a key.
fn least(env: &Env, name: &str, mut one: impl FnMut(u32) -> Result<()>) -> Result<()> {
    let mut least_ns = vec![u64::MAX; (KEYS / RUN) as usize];
    for _ in 0..ROUNDS {
        for (run, least_ns) in (0..).zip(&mut least_ns) {
            let begun_ns = env.clock.now_ns();
            (run * RUN..(run + 1) * RUN).try_for_each(&mut one)?;
            *least_ns = (*least_ns).min(env.clock.now_ns() - begun_ns);
        }
    }
    println!("{name:<24} {:7.1} ns", least_ns.iter().sum::<u64>() as f64 / f64::from(KEYS));
    Ok(())
}

fn main() -> Result<()> {
    let env = Env::kernel();
    let dir = std::env::temp_dir().join(format!("lavastore-operation-cost-{}", std::process::id()));
    // Prevents flushes.
    let options = Options { memory_bytes: 1 << 30, memtable_bytes: 512 << 20, ..Options::default() };
    let db = Db::open_with(&dir, &options)?;
    let family = db.default_family().clone();
    let buffered = WriteOptions { durability: Some(Durability::Buffered), ..WriteOptions::default() };
    for (name, options) in [("put, volatile", WriteOptions::volatile()), ("put, buffered", buffered)] {
        least(&env, name, |i| family.writing(&options).put(key(i), b"a value of some bytes"))?;
    }
    db.flush()?;
    (0..KEYS)
        .try_for_each(|i| family.writing(&WriteOptions::volatile()).put(key(i), b"a value of some bytes"))?;
    least(&env, "get, in memory", |i| family.get(key(i)).map(drop))?;
    least(&env, "get, not there", |i| family.get([&key(i)[..], b"x"].concat()).map(drop))?;
    let mut iterator = db.engine().iter(lavakv::ReadOptions::default())?;
    least(&env, "seek", |i| iterator.seek(&key(i)))?;
    least(&env, "next", |i| if i == 0 { iterator.seek_to_first() } else { iterator.next() })?;
    drop((iterator, db, family));
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}
