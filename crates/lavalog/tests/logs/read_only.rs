//! Read-only opens: next to the writer, after its death, and with damage.

use crate::damage::{files, made};
use crate::model::{Driver, contents, options};
use base::ErrorKind;
use base::sync::atomic::{AtomicU64, Ordering};
use io::sim::threads::Plan;
use io::sim::{CrashKind, SimEnv};
use io::{Env, Priority, Rng};
use lavalog::{Durability, LogStore, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIR: &str = "/logs";

fn read_only(env: &Env) -> base::Result<LogStore> {
    LogStore::open_read_only(env, Path::new(DIR), &options())
}

/// Returns every byte on disk.
fn disk(sim: &SimEnv) -> Vec<(PathBuf, Vec<u8>)> {
    sim.files().into_iter().map(|(path, _)| (path.clone(), sim.read_file(&path).unwrap())).collect()
}

#[test]
fn a_reader_shows_a_killed_store_without_changing_it() {
    for seed in 0..40 {
        let sim = SimEnv::new(seed);
        let mut driver = Driver::new(seed);
        let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
        for n in 0..100 + driver.rng.below(300) {
            driver.one(&store, Durability::Buffered).unwrap();
            if n % 60 == 59 {
                store.wait_idle().unwrap();
            }
        }
        let kind = if seed % 2 == 0 { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
        let left = sim.crash(kind, seed);
        drop(store);
        let before = disk(&left);
        let changes = left.record().mutations().len();
        let reader = read_only(&left.env()).unwrap();
        let shown = contents(&reader);
        let verified = reader.verify();
        assert!(verified.is_sound() && verified.ledger_checked, "seed {seed}: {:?}", verified.damages);
        assert!(reader.space().unwrap().total_bytes > 0 && reader.damage().is_empty());
        let at = reader.statistics();
        reader.close().unwrap();
        assert_eq!(left.record().mutations().len(), changes, "seed {seed}: something was changed");
        assert!(disk(&left) == before, "seed {seed}: a byte on disk changed");
        let owner = LogStore::open(&left.env(), Path::new(DIR), &options()).unwrap();
        assert_eq!(shown, contents(&owner), "seed {seed}, {kind:?}");
        assert_eq!(at.record_bytes, owner.statistics().record_bytes);
    }
}

#[test]
fn a_reader_sees_staged_records_and_refuses_changes() {
    let sim = SimEnv::new(1);
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options()).unwrap();
    let log = store.log("log").unwrap();
    for lsn in 1..=20 {
        log.append(lsn, &[lsn as u8; 300], Durability::Buffered).unwrap();
    }
    log.set_metadata(b"about it", Durability::Buffered).unwrap();
    log.trim(3).unwrap();
    let reader = read_only(&sim.env()).unwrap();
    let seen = reader.open_log("log").unwrap();
    assert_eq!(
        seen.scan(0).map(|record| record.unwrap().0).collect::<Vec<_>>(),
        (3..=20).collect::<Vec<_>>()
    );
    assert_eq!(seen.read(7).unwrap().unwrap(), [7; 300]);
    assert_eq!(seen.metadata().unwrap().unwrap()[..], b"about it"[..]);
    assert_eq!((seen.first_lsn().unwrap(), seen.last_lsn().unwrap()), (Some(3), Some(20)));
    assert_eq!(seen.gaps(0, 30, 10).unwrap(), [(21, 30)]);
    log.append(21, b"later", Durability::Durable).unwrap();
    assert_eq!(seen.read(21).unwrap(), None, "it is the store at one moment");
    assert_eq!(read_only(&sim.env()).unwrap().open_log("log").unwrap().read(21).unwrap().unwrap(), b"later");

    let mut batch = lavalog::LogBatch::new();
    batch.append(&seen, 30, b"x");
    let refused = [
        seen.append(30, b"x", Durability::Durable).unwrap_err(),
        seen.append_async(30, b"x").map(drop).unwrap_err(),
        seen.trim(5).unwrap_err(),
        seen.truncate_after(5, Durability::Buffered).unwrap_err(),
        seen.set_metadata(b"x", Durability::Buffered).unwrap_err(),
        reader.write(&batch, Durability::Buffered).unwrap_err(),
        reader.create_log("new").map(drop).unwrap_err(),
        reader.log("new").map(drop).unwrap_err(),
        reader.delete_log("log").unwrap_err(),
        reader.sync().unwrap_err(),
        reader.seal().unwrap_err(),
        reader.wait_idle().unwrap_err(),
        reader.checkpoint(Path::new("/copy")).unwrap_err(),
    ];
    for e in refused {
        assert_eq!(e.kind(), ErrorKind::ReadOnly, "{e}");
    }
}

#[test]
fn a_missing_store_of_logs_is_not_created() {
    let sim = SimEnv::new(1);
    assert_eq!(read_only(&sim.env()).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(sim.files().is_empty(), "nothing was made");
}

#[test]
fn a_collected_record_is_busy_and_not_damaged() {
    let sim = SimEnv::new(3);
    let options = Options { garbage_percent: 30, ..options() };
    let store = LogStore::open(&sim.env(), Path::new(DIR), &options).unwrap();
    let (kept, trimmed) = (store.log("kept").unwrap(), store.log("trimmed").unwrap());
    for lsn in 1..=600_u64 {
        kept.append(lsn, &[lsn as u8; 200], Durability::Buffered).unwrap();
        trimmed.append(lsn, &[1; 900], Durability::Buffered).unwrap();
    }
    store.seal().unwrap();
    store.wait_idle().unwrap();
    let reader = LogStore::open_read_only(&sim.env(), Path::new(DIR), &options).unwrap();
    trimmed.trim(600).unwrap();
    for lsn in 601..=1200_u64 {
        kept.append(lsn, &[lsn as u8; 200], Durability::Buffered).unwrap();
        store.wait_idle().unwrap();
    }
    assert!(store.statistics().copied_bytes > 0);
    let seen = reader.open_log("kept").unwrap();
    let found: Vec<_> = (1..=600).map(|lsn| seen.read(lsn)).collect();
    let busy = found.iter().filter_map(|found| found.as_ref().err());
    let busy: Vec<_> = busy.inspect(|e| assert_eq!(e.kind(), ErrorKind::Busy, "{e}")).collect();
    assert!(!busy.is_empty(), "nothing was moved");
    assert!(busy[0].to_string().contains("open the store again"), "{}", busy[0]);
    for record in seen.scan(1) {
        if let Err(e) = record {
            assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
            break;
        }
    }
    assert!(reader.verify().is_sound(), "{:?}", reader.verify().damages);
    let again = LogStore::open_read_only(&sim.env(), Path::new(DIR), &options).unwrap();
    let again = again.open_log("kept").unwrap();
    assert!((1..=1200).all(|lsn| again.read(lsn).unwrap().unwrap() == [lsn as u8; 200]));
}

#[test]
fn a_reader_shows_records_before_lane_damage() {
    let sim = made(5);
    // The store was closed: each replayed byte is known to have been durable.
    let newest = files(&sim, ".log").into_iter().max_by_key(|path| {
        let bytes = sim.read_file(path).unwrap();
        bytes.iter().filter(|byte| **byte != 0).count()
    });
    let whole = contents(&read_only(&sim.env()).unwrap());
    let (mut told, newest) = (0, newest.unwrap());
    for path in files(&sim, ".log") {
        let left = sim.fork(1);
        left.flip_bit(&path, 9000, 3).unwrap();
        let Ok(reader) = read_only(&left.env()) else { panic!("{} of {}", path.display(), newest.display()) };
        if let Some(damage) = reader.damage().first() {
            assert!(damage.is_corruption() && damage.file() == Some(&*path), "{damage}");
            told += 1;
            let kept = reader.open_log("kept").unwrap();
            let seen = (1..=1200).filter(|lsn| matches!(kept.read(*lsn), Ok(Some(_)))).count();
            assert!(seen > 0 && seen < 1200, "{seen}");
        }
    }
    assert!(told > 0, "no group that is replayed was damaged");
    assert_eq!(contents(&read_only(&sim.env()).unwrap()), whole);
}

const SEEDS: u64 = 60;
const WRITES: u64 = 80;

/// A read-only store has no job to rebuild damaged rows. Their records are reported as damaged at
/// once, and all others are readable.
#[test]
fn a_reader_reports_damaged_rows_without_waiting() {
    let sim = made(9);
    let index = files(&sim, ".e1-1").remove(0);
    sim.flip_bit(&index, 20, 3).unwrap();
    let start_ns = sim.now_ns();
    let reader = read_only(&sim.env()).unwrap();
    let log = reader.open_log("kept").unwrap();
    let (sound, damaged): (Vec<_>, Vec<_>) = (1..=1200).map(|lsn| log.read(lsn)).partition(Result::is_ok);
    assert!(sound.len() > 600 && !damaged.is_empty(), "{} sound, {} damaged", sound.len(), damaged.len());
    for error in damaged.into_iter().map(Result::unwrap_err) {
        assert!(error.is_corruption() && error.file() == Some(&*index), "{error}");
    }
    let took_ms = (sim.now_ns() - start_ns) / 1_000_000;
    assert!(took_ms < 1000, "{took_ms} ms");
    assert_eq!(reader.statistics().remade_files, 0);
}

fn record(lsn: u64) -> Vec<u8> {
    let mut out = vec![0; [10, 900, 9000][lsn as usize % 3]];
    Rng::new(lsn).fill(&mut out);
    out
}

fn write(env: &Env, (acknowledged, trimmed): &(AtomicU64, AtomicU64), mut rng: Rng) {
    let options = Options { garbage_percent: 30, ..options() };
    let store = LogStore::open(env, Path::new(DIR), &options).unwrap();
    let (log, other) = (store.log("log").unwrap(), store.log("other").unwrap());
    for lsn in 1..=WRITES {
        let durability = if rng.one_in(4) { Durability::Durable } else { Durability::Buffered };
        log.append(lsn, &record(lsn), durability).unwrap();
        acknowledged.store(lsn, Ordering::Release);
        other.append(lsn, &[7; 20_000], Durability::Buffered).unwrap();
        match rng.below(12) {
            0 => store.seal().unwrap(),
            1..=3 => other.trim(lsn).unwrap(),
            4 => {
                let below = lsn.saturating_sub(rng.below(20)).max(1);
                trimmed.fetch_max(below, Ordering::AcqRel);
                log.trim(below).unwrap();
            }
            _ => {}
        }
    }
    drop((log, other));
    store.close().unwrap();
}

/// Opens the store repeatedly until all is written. Returns how many opens saw a part, and how many
/// reads met a change.
fn read(env: &Env, (acknowledged, trimmed): &(AtomicU64, AtomicU64)) -> (u64, u64) {
    let (mut between, mut busy) = (0, 0);
    loop {
        let before = acknowledged.load(Ordering::Acquire);
        let reader = match read_only(env) {
            Ok(reader) => reader,
            // The store does not exist yet, or it changes faster than it can be read.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Busy) => {
                if before == WRITES {
                    return (between, busy);
                }
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        assert!(reader.damage().is_empty(), "{:?}", reader.damage());
        match reader.open_log("log") {
            Ok(log) => {
                let last = log.last_lsn().unwrap().unwrap_or(0);
                assert!(last >= before, "{last} of {before} acknowledged records");
                between += u64::from(0 < last && last < WRITES);
                let mut next = log.first_lsn().unwrap();
                for found in log.scan(0) {
                    match found {
                        Ok((lsn, bytes)) => {
                            assert!(Some(lsn) == next && bytes == record(lsn), "{lsn}, after {next:?}");
                            next = Some(lsn + 1);
                        }
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
                            (next, busy) = (None, busy + 1);
                            break;
                        }
                    }
                }
                assert!(next.is_none_or(|next| next == last + 1), "it ends before {next:?} of {last}");
                // A trim is noted before it is executed.
                let first = log.first_lsn().unwrap().unwrap_or(1);
                assert!(first <= trimmed.load(Ordering::Acquire).max(1), "begins with {first}");
            }
            Err(e) => assert!(before == 0 && e.kind() == ErrorKind::NotFound, "{e}"),
        }
        let verified = reader.verify();
        assert!(verified.is_sound(), "{:?}", verified.damages);
        if before == WRITES {
            return (between, busy);
        }
    }
}

#[test]
fn no_reader_reports_moving_records_as_damaged() {
    let (mut between, mut busy) = (0, 0);
    for seed in 1..=SEEDS {
        let sim = SimEnv::new(seed);
        let plan = Plan { patience_ns: 200_000_000, ..Plan::new(seed) };
        let ran = sim.run_threads(&plan, move |env| {
            let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
            let (own, noted) = (env.clone(), shared.clone());
            let body = Box::new(move || write(&own, &noted, Rng::new(seed)));
            let spawner = env.spawner.clone().unwrap();
            let writer = spawner.spawn("writer", Priority::Foreground, body).unwrap();
            let seen = read(env, &shared);
            assert!(writer.join());
            seen
        });
        let (seen, moved) = ran.unwrap_or_else(|e| panic!("seed {seed}: {e}")).value;
        (between, busy) = (between + seen, busy + moved);
    }
    assert!(
        between > SEEDS,
        "{between} looks at a store that was being written, {busy} found that it had moved"
    );
}
