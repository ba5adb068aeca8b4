//! Memory of the index, measured by the allocator: 1,000 logs of 4,000 records of 1,000 bytes each,
//! in groups of 256 MB.

use lavastore_lavalog::disk::directory::{Block, LogRows};
use lavastore_lavalog::index::RecordsInFile;
use lavastore_lavalog::logs::{GroupPosition, Logs};
use lavastore_lavalog::lsn_set::Builder;
use lavastore_lavalog::ops::Op;
use lavastore_lavalog::{LogId, Source};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is forwarded unchanged to the system allocator, which fulfils the contract;
// the counter neither allocates nor touches the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees about `layout` are those that `System` requires.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `ptr` came from `System` with this layout, as all memory of this allocator does.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LOGS: u64 = 1000;
const RECORDS: u64 = 4000;
const LEN: usize = 1000;
const GROUP_LEN: u64 = 256 << 20;
/// Approximate overhead of a record in a group, bytes.
const OVERHEAD: u64 = 60;

/// Growth of `at` per byte of a group: a block has 512 bytes, and 4,096 positions.
const AT_PER_BYTE: u64 = 8;

/// Returns the maximum memory as a fraction of the final bytes of all logs: measured, and as the
/// logs count it.
fn measure(late_in: u64) -> (f64, f64) {
    let (mut rng, bytes) = (io::Rng::new(1), [7; LEN]);
    let before = LIVE.load(Relaxed);
    let mut logs = Logs::new();
    let (mut seq, mut ltn, mut at) = (0, 1, 0);
    for log in 0..LOGS {
        seq += 1;
        logs.apply(seq, &Op::Create { log, name: &format!("log {log}") }, GroupPosition { ltn, at }).unwrap();
    }
    let mut late: Vec<(LogId, u64)> = Vec::new();
    let (mut peak, mut counted) = (0, 0);
    for lsn in 0..RECORDS {
        for log in 0..LOGS {
            let mut now = Some((log, lsn));
            if late_in > 0 && rng.one_in(late_in) {
                late.extend(now.take());
            }
            // Late records arrive some thousand records later.
            let due = (late.len() > 200).then(|| late.swap_remove(rng.below(late.len() as u64) as usize));
            for (log, lsn) in now.into_iter().chain(due) {
                seq += 1;
                logs.apply(seq, &Op::Append { log, lsn, bytes: &bytes }, GroupPosition { ltn, at }).unwrap();
                at += (LEN as u64 + OVERHEAD) * AT_PER_BYTE;
            }
            if at >= GROUP_LEN * AT_PER_BYTE {
                // The index is largest when a group is full.
                let held = late.capacity() * size_of::<(LogId, u64)>();
                peak = peak.max(LIVE.load(Relaxed) - before - held);
                counted = counted.max(logs.memory_bytes());
                install(&mut logs, ltn, seq);
                (ltn, at) = (ltn + 1, 0);
            }
        }
    }
    let stored = (LOGS * RECORDS) as f64 * LEN as f64;
    (peak as f64 / stored, counted as f64 / stored)
}

fn install(logs: &mut Logs, ltn: u64, seq: u64) {
    let mut parts = Vec::new();
    let mut ids = logs.groups().logs_in(ltn, 0, usize::MAX).to_vec();
    ids.sort_unstable();
    for id in ids {
        let (mut lsns, mut blocks) = (Builder::default(), Vec::new());
        for (i, entry) in logs.get(id).unwrap().live().index().recent_in(id, ltn).enumerate() {
            lsns.push(entry.lsn, entry.len).unwrap();
            if i % 256 == 0 {
                blocks.push(Block { first: entry.lsn, offset: 2000 * blocks.len() as u64, len: 1500 });
            }
        }
        let rows = LogRows { log: id, seqs: (1, seq), lsns: lsns.build(), blocks };
        parts.push((id, Some(RecordsInFile::of(Source::Group(ltn), &rows).unwrap())));
    }
    logs.install(ltn, parts);
    logs.installed(ltn);
}

#[test]
fn the_index_takes_a_thousandth_of_the_bytes() {
    let (consecutive, counted) = measure(0);
    let (late, late_counted) = measure(100);
    println!(
        "consecutive {consecutive:.6} ({counted:.6} counted), 1 in 100 late {late:.6} ({late_counted:.6})"
    );
    assert!(consecutive <= 0.001, "{consecutive}");
    assert!(late <= 0.01, "{late}");
    assert!((counted / consecutive - 1.0).abs() < 0.1, "{counted} counted, {consecutive} allocated");
}
