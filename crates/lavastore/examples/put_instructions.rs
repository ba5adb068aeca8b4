//! Puts random keys into one memtable, to count instructions:
//!
//! ```text
//! CARGO_PROFILE_RELEASE_DEBUG=1 cargo build --release -p lavastore --example put_instructions
//! valgrind --tool=callgrind --toggle-collect='put_instructions::puts' target/release/examples/put_instructions 100000
//! ```
//!
//! Callgrind prints the instructions of the calling thread inside `puts`, without the kernel.
//! Divide them by the number of puts. Half of the keys are in the memtable before the count starts,
//! so that searches have a typical length.

use lavastore::{Db, Options, Result};
use std::hint::black_box;

const VALUE: [u8; 200] = [7; 200];

fn key(i: u64) -> [u8; 16] {
    let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut key = *b"________user0000";
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key
}

#[inline(never)]
fn puts(db: &Db, count: u64) -> Result<()> {
    (0..count).try_for_each(|i| db.put(black_box(key(2 * i + 1)), VALUE))
}

fn main() -> Result<()> {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let dir = std::env::temp_dir().join(format!("lavastore-put-instructions-{}", std::process::id()));
    // Prevents flushes.
    let options = Options { memory_bytes: 1 << 30, memtable_bytes: 512 << 20, ..Options::default() };
    let db = Db::open_with(&dir, &options)?;
    (0..count).try_for_each(|i| db.put(key(2 * i), VALUE))?;
    puts(&db, count)?;
    drop(db);
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}
