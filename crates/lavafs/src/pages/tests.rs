use super::*;
use crate::{FormatOptions, LavaFs, MountOptions, format, mount};
use base::ErrorKind;
use io::sim::threads::Plan;
use io::sim::{OpKind, SimEnv};
use io::{Access, AlignedBuf, CreateOptions, FileSystem, Priority, ReadRequest, SyncKind};
use std::path::Path;
use std::sync::Arc as Shared;

const LEN: u64 = 400 * BLOCK;

fn key(block: u64) -> PageKey {
    PageKey { ino: 7, block }
}

fn cache(bytes: u64) -> PageCache {
    PageCache::new(bytes).unwrap().unwrap()
}

fn made(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    format(&sim.env(), &*sim.device("/device", LEN).unwrap(), &FormatOptions::small()).unwrap();
    sim
}

fn options() -> MountOptions {
    MountOptions { page_cache_bytes: 1 << 20, ..MountOptions::default() }
}

fn mounted(sim: &SimEnv) -> LavaFs {
    mount(&sim.env(), sim.device("/device", 0).unwrap(), options()).unwrap()
}

fn write(fs: &LavaFs, path: &str, bytes: &[u8]) {
    let mut file = fs.create(Path::new(path), &CreateOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.sync(SyncKind::Full).unwrap();
}

#[test]
fn page_cache_stays_within_its_budget() {
    for bytes in [PAGE_CACHE_BYTES_MIN, 300_000, 1 << 20, 5 << 20] {
        let cache = cache(bytes);
        for block in 0..10_000 {
            let Err(ticket) = cache.look_up(key(block)) else { panic!("{block} was never put in") };
            cache.put(key(block), &[block as u8; BLOCK as usize], ticket);
            let used = cache.statistics().used_bytes;
            assert!(used <= bytes, "{used} of {bytes}");
        }
        let statistics = cache.statistics();
        assert!(statistics.used_bytes > bytes * 3 / 4, "{statistics:?}");
        assert_eq!((statistics.capacity_bytes, statistics.misses, statistics.hits), (bytes, 10_000, 0));
    }
    assert!(PageCache::new(0).unwrap().is_none());
    let sim = made(1);
    let few = MountOptions { page_cache_bytes: 9999, ..MountOptions::default() };
    let e = mount(&sim.env(), sim.device("/device", 0).unwrap(), few).unwrap_err();
    let told = "a page cache of 9999 bytes is too small: give it at least 65536 bytes, or 0 for none";
    assert_eq!((e.kind(), e.message()), (ErrorKind::InvalidArgument, told));
}

#[test]
fn a_page_read_before_a_write_is_not_cached_after_it() {
    let cache = cache(1 << 20);
    let Err(before) = cache.look_up(key(3)) else { panic!("nothing is in it") };
    cache.forget(7, 3, 1);
    cache.put(key(3), &[1; BLOCK as usize], before);
    let Err(after) = cache.look_up(key(3)) else { panic!("a page of before the write came back") };
    cache.put(key(3), &[2; BLOCK as usize], after);
    assert_eq!(cache.look_up(key(3)).unwrap()[0], 2);
    cache.forget(7, 2, 2);
    assert!(cache.look_up(key(3)).is_err());
}

#[test]
fn reads_are_served_from_memory_the_second_time() {
    let sim = made(1);
    let fs = mounted(&sim);
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
    write(&fs, "/f", &bytes);
    let file = fs.open(Path::new("/f"), Access::Direct).unwrap();
    let reads = || sim.count_ops(Some(OpKind::Read), "/device");
    let before = reads();
    for _ in 0..2 {
        for (offset, len) in [(0, 10), (4090, 10), (99_990, 10), (8192, 4096), (30_000, 20_000)] {
            let mut found = vec![0; len];
            file.read_at(&mut found, offset as u64).unwrap();
            assert_eq!(found, bytes[offset..offset + len]);
        }
    }
    assert_eq!(reads() - before, 5, "the second round was in memory");
    let (mut a, mut b) = (vec![0; 5000], vec![0; 5000]);
    file.read_batch(&mut [
        ReadRequest { offset: 60_000, buf: &mut a },
        ReadRequest { offset: 31_000, buf: &mut b },
    ])
    .unwrap();
    assert!(a == bytes[60_000..65_000] && b == bytes[31_000..36_000]);
    let statistics = fs.page_cache().unwrap();
    assert!(statistics.hits > statistics.misses / 2 && statistics.used_bytes > 0, "{statistics:?}");
    let mut all = vec![0; 100_000];
    file.read_at(&mut all, 0).unwrap();
    assert!(all == bytes);
    assert_eq!(fs.page_cache().unwrap(), statistics, "a long read goes past it");
    assert_eq!(file.read_at(&mut [0; 10], 99_999).unwrap_err().kind(), ErrorKind::Corruption);
}

/// Covers every way to change the bytes of a file.
#[test]
fn reads_see_the_latest_write_of_every_kind() {
    let fs = mounted(&made(1));
    let p = Path::new;
    let first = |path: &str, offset: u64| {
        let mut found = [0; 3];
        fs.open(p(path), Access::Buffered).unwrap().read_at(&mut found, offset).unwrap();
        found
    };
    // The unfinished block of an append file.
    let mut log = fs.create(p("/log"), &CreateOptions::default()).unwrap();
    for n in 1..20u8 {
        log.append(&[n; 3]).unwrap();
        log.flush().unwrap();
        let at = u64::from(n - 1) * 3;
        assert_eq!(first("/log", at), [n; 3], "bytes behind what was read before");
    }
    // In place, in all three ways, and a reused scratch file.
    let file = fs.create_in_place(p("/fixed"), 3 * BLOCK, Access::Direct).unwrap();
    for n in 1..5u8 {
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        block.as_mut_slice().fill(n);
        assert_eq!(first("/fixed", BLOCK), [n - 1; 3]);
        if n % 2 == 0 { file.write_at(&block, BLOCK) } else { file.write_durable(&block, BLOCK) }.unwrap();
        assert_eq!(first("/fixed", BLOCK), [n; 3]);
    }
    let scratch = fs.create_scratch(p("/scratch"), 9000).unwrap();
    assert_eq!(first("/scratch", 4096), [0; 3]);
    scratch.write(4097, b"s").unwrap();
    assert_eq!(first("/scratch", 4096), [0, b's', 0]);
    drop(scratch);
    fs.create_scratch(p("/scratch"), 9000).unwrap();
    assert_eq!(first("/scratch", 4096), [0; 3]);
    // A hole in place of a cached page.
    fs.punch_hole(p("/fixed"), BLOCK, BLOCK).unwrap();
    assert_eq!(first("/fixed", BLOCK), [0; 3]);
    // The holder line of a lock.
    for holder in ["one", "two"] {
        let held = fs.lock(p("/LOCK"), holder).unwrap();
        assert_eq!(first("/LOCK", 0), holder.as_bytes());
        drop(held);
    }
}

/// Blocks are reused by other files while pages of the old file are cached.
#[test]
fn a_reused_block_shows_the_new_file() {
    let fs = mounted(&made(1));
    for n in 0..200u8 {
        let path = format!("/f{n}");
        write(&fs, &path, &[n; 60_000]);
        assert!(fs.read_all(Path::new(&path), 1 << 20).unwrap() == [n; 60_000], "{path}");
        fs.remove(Path::new(&path)).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
    }
    assert!(fs.page_cache().unwrap().misses >= 200 * 14);
}

/// One thread rewrites blocks in place and appends while others read. No reader sees a version
/// older than the last write that returned before the read began.
#[test]
fn readers_see_completed_writes_under_every_schedule() {
    for seed in 0..120 {
        let sim = made(seed);
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan { steps_max: 400_000, ..Plan::new(seed) }, move |env| {
            let fs = Shared::new(mount(env, machine.device("/device", 0).unwrap(), options()).unwrap());
            let file = fs.create_in_place(Path::new("/fixed"), BLOCK, Access::Direct).unwrap();
            let written = Shared::new(AtomicU64::new(0));
            let spawner = env.spawner.clone().unwrap();
            let spawn = |body| spawner.spawn("thread", Priority::Foreground, body).unwrap();
            let (version, fs_of_writer) = (written.clone(), fs.clone());
            let writer = move || {
                let mut log = fs_of_writer.create(Path::new("/log"), &CreateOptions::default()).unwrap();
                for n in 1..8u64 {
                    let mut block = AlignedBuf::zeroed(BLOCK as usize);
                    block.as_mut_slice().fill(n as u8);
                    file.write_at(&block, 0).unwrap();
                    log.append(&[n as u8; 5]).unwrap();
                    log.flush().unwrap();
                    version.store(n, Relaxed);
                }
            };
            let mut threads = vec![spawn(Box::new(writer) as Box<dyn FnOnce() + Send>)];
            for _ in 0..2 {
                let (version, fs) = (written.clone(), fs.clone());
                let reader = move || {
                    for _ in 0..10 {
                        let least = version.load(Relaxed);
                        let mut found = [0; 9];
                        fs.open(Path::new("/fixed"), Access::Direct)
                            .unwrap()
                            .read_at(&mut found, 50)
                            .unwrap();
                        assert!(found.iter().all(|&n| u64::from(n) >= least), "{found:?} after {least}");
                        if least > 0 {
                            let mut last = [0; 5];
                            let log = fs.open(Path::new("/log"), Access::Direct).unwrap();
                            log.read_at(&mut last, (least - 1) * 5).unwrap();
                            assert_eq!(last, [least as u8; 5]);
                        }
                    }
                };
                threads.push(spawn(Box::new(reader)));
            }
            assert!(threads.into_iter().all(|thread| thread.join()));
        });
        assert!(ran.is_ok(), "seed {seed}: {ran:?}");
    }
}
