//! Speed of the log: nanoseconds per buffered append, durable puts per second with 1 and 8 threads,
//! and the device alone. `cargo run --release -p lavastore-wal --example wal_speed -- DIR`; the
//! directory is created, and its files are not removed.

use base::sync::{Mutex, rank};
use io::{Access, AlignedBuf, Env, PAGE};
use lavastore_wal::{Durability, History, PreparedGroup, TenantId, Wal, WalOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const GROUP_LEN: u64 = 128 << 20;
const VALUE_LEN: usize = 200;

struct Bench {
    env: Env,
    dir: PathBuf,
    ltn: AtomicU64,
}

impl Bench {
    fn group(&self) -> base::Result<PreparedGroup> {
        let ltn = self.ltn.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{ltn:012}.log"));
        if self.env.fs.exists(&path)? {
            self.env.fs.remove(&path)?;
        }
        let file = self.env.fs.create_in_place(&path, GROUP_LEN, Access::Direct)?;
        Ok(PreparedGroup { ltn, uid: self.env.new_uid(), file })
    }

    fn log(&self, spares: usize) -> base::Result<Wal> {
        let options = WalOptions { group_len: GROUP_LEN, ..WalOptions::default() };
        let store = base::Uid::from_words(1, 2);
        let wal = Wal::start(&self.env, &self.dir, options, store, 1, self.group()?, History::default())?;
        (0..spares).try_for_each(|_| wal.content().add_group(self.group()?))?;
        Ok(wal)
    }

    fn now(&self) -> u64 {
        self.env.clock.now_ns()
    }
}

fn main() -> base::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "/tmp/wal-speed".into());
    let env = Env::kernel();
    env.fs.create_dir_all(Path::new(&dir))?;
    let bench = Bench { env, dir: dir.into(), ltn: AtomicU64::new(1) };
    device(&bench)?;
    buffered(&bench, 20_000)?;
    buffered(&bench, 500_000)?;
    for threads in [1, 8] {
        durable(&bench, threads)?;
    }
    Ok(())
}

fn device(bench: &Bench) -> base::Result<()> {
    let file = bench.group()?.file;
    let buf = AlignedBuf::zeroed(PAGE);
    let n = 20_000;
    let start = bench.now();
    for i in 0..n {
        file.write_durable(&buf, i * PAGE as u64)?;
    }
    let ns = bench.now() - start;
    println!("device: {} durable writes of 4 KB a second", n * 1_000_000_000 / ns);
    Ok(())
}

/// A short run stays within the tail buffer; a long one runs against the background thread that
/// writes it out.
fn buffered(bench: &Bench, n: u64) -> base::Result<()> {
    let wal = bench.log(1)?;
    let value = [7; VALUE_LEN];
    let done = AtomicBool::new(false);
    let mut appended = Ok(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if !wal.deferred().write_out().is_ok_and(|worked| worked) {
                    bench.env.clock.sleep_ns(100_000);
                }
            }
        });
        let start = bench.now();
        let all = (1..=n).try_for_each(|seq| {
            wal.append(TenantId::FIRST, &[&value], seq, seq, Durability::Buffered, 0).map(drop)
        });
        appended = all.map(|()| bench.now() - start);
        done.store(true, Ordering::Relaxed);
    });
    let ns = appended?;
    let inline = wal.stats().inline_write_outs;
    println!("buffered: {} ns for each of {n} appends of 200 B ({inline} write-outs by appends)", ns / n);
    wal.close()
}

fn durable(bench: &Bench, threads: u64) -> base::Result<()> {
    const RUN_NS: u64 = 4_000_000_000;
    let wal = bench.log(1)?;
    let value = [7; VALUE_LEN];
    let order = Mutex::<_, rank::Outside>::new(0u64);
    let start = bench.now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while bench.now() - start < RUN_NS {
                    let appended = {
                        let mut seq = base::sync::lock(&order);
                        *seq += 1;
                        wal.append(TenantId::FIRST, &[&value], *seq, *seq, Durability::Durable, 0)
                    };
                    if appended.and_then(|position| wal.syncer().sync(position)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let ns = bench.now() - start;
    let stats = wal.stats();
    println!(
        "durable, {threads} threads: {} a second, {:.2} to a write, {} B written for each",
        stats.batches * 1_000_000_000 / ns,
        stats.batches as f64 / stats.durable_writes as f64,
        stats.written_bytes / stats.batches
    );
    wal.close()
}
