//! With threads on the machine's file system, checked from outside.

use crate::common::*;
use crate::overwrites::{bytes, limited};
use lavastore_lavakv::{Db, ErrorKind, io::Rng};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns the allocated bytes of the files in a directory.
fn occupied(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap();
    // A file may disappear between the listing and the call for its size.
    entries.filter_map(|e| e.ok()?.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

#[test]
fn writers_at_the_limit_keep_files_below_it() {
    let tmp = TempDir::new("contract");
    let dir = tmp.join("store");
    let limit: u64 = 12 << 20;
    let (n, len) = (4000u64, 2000);
    let db = Db::open_with(&dir, limited(limit)).unwrap();
    for k in 0..n {
        db.put(&key(k), &bytes(k, 0, len)).unwrap_or_else(|e| panic!("{e}\n{}", db.describe()));
    }
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                peak.fetch_max(occupied(&dir), Ordering::AcqRel);
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..3u64)
            .map(|w| {
                let db = &db;
                scope.spawn(move || {
                    let mut rng = Rng::new(w);
                    for round in 1..n {
                        // Each thread has its own keys.
                        let k = rng.below(n / 3) * 3 + w;
                        match db.put(&key(k), &bytes(k, round, len)) {
                            Ok(()) => {}
                            Err(e) => panic!("{}: {e}\n{}", e.kind() == ErrorKind::NoSpace, db.describe()),
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Release);
        watcher.join().unwrap();
        results.into_iter().for_each(|r| r.unwrap());
    });
    let peak = peak.into_inner();
    assert!(peak <= limit, "{peak} bytes seen of {limit}");
    assert_eq!(contents(&db).len() as u64, n);
    db.close().unwrap();
    assert_eq!(contents(&Db::open_with(&dir, limited(limit)).unwrap()).len() as u64, n);
}
