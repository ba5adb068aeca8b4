//! Speed of one writer that makes every 4 KiB write durable before the next. This is the floor of
//! the latency of a durable commit: compare the log against it.
//!
//! ```text
//! cargo run --release -p lavastore-io --example durable_writes -- [DIRECTORY] [SECONDS]
//! ```

use lavastore_io::kernel::usage;
use lavastore_io::{Access, AlignedBuf, Env, PAGE, fs};
use std::path::PathBuf;

const FILE_LEN: u64 = 64 << 20;
const NS_PER_SECOND: u64 = 1_000_000_000;

fn main() -> base::Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(3).max(1);
    let env = Env::kernel();
    let path = fs::join(&dir, &format!("durable-writes-{:016x}", env.entropy.next_u64()));
    println!("{env:?}");
    for access in [Access::Direct, Access::Buffered] {
        let result = measure(&env, &path, access, seconds * NS_PER_SECOND);
        env.fs.remove(&path)?;
        result?;
    }
    Ok(())
}

fn measure(env: &Env, path: &std::path::Path, access: Access, duration_ns: u64) -> base::Result<()> {
    let file = env.fs.create_in_place(path, FILE_LEN, access)?;
    let mut page = AlignedBuf::zeroed(PAGE);
    let mut latencies_ns = Vec::new();
    let device_before = usage::device(path);
    let start_ns = env.clock.now_ns();
    let mut now_ns = start_ns;
    while now_ns - start_ns < duration_ns {
        let n = latencies_ns.len() as u64;
        page.as_mut_slice()[..8].copy_from_slice(&n.to_le_bytes());
        file.write_durable(&page, n * PAGE as u64 % FILE_LEN)?;
        let end_ns = env.clock.now_ns();
        latencies_ns.push(end_ns - now_ns);
        now_ns = end_ns;
    }
    let count = latencies_ns.len();
    latencies_ns.sort_unstable();
    let percentile_us = |p: f64| latencies_ns[((count - 1) as f64 * p) as usize] as f64 / 1e3;
    let rate = count as f64 * NS_PER_SECOND as f64 / (now_ns - start_ns) as f64;
    println!(
        "{access:?}: {rate:.0} durable 4 KiB writes/s, P50 {:.0} us, P99 {:.0} us, P99.9 {:.0} us",
        percentile_us(0.5),
        percentile_us(0.99),
        percentile_us(0.999),
    );
    if let (Ok(from), Ok(to)) = (device_before, usage::device(path)) {
        let (writes, flushes) = (to.writes - from.writes, to.flushes - from.flushes);
        println!("  device (everybody's): {writes} writes, {flushes} flushes");
    }
    Ok(())
}
