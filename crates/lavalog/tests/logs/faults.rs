//! Failing operations of the file system, and full volumes.

use crate::model::{contents, options, seen};
use crate::strikes::Lived;
use base::ErrorKind;
use io::sim::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavalog::{Durability, LogBatch, LogStore};
use std::path::Path;

const DIR: &str = "/logs";

fn open(sim: &SimEnv) -> base::Result<LogStore> {
    LogStore::open(&sim.env(), Path::new(DIR), &options())
}

/// Makes a store with a past.
fn lived(seed: u64) -> Lived {
    Lived::on(SimEnv::new(seed), seed, &open)
}

/// Fails one operation, once or permanently.
fn fails_at(lived: &Lived, nth: u64, effect: FaultEffect, sticky: bool) -> bool {
    let told = format!("operation {nth}, {effect:?}, sticky: {sticky}");
    let plan = FaultPlan::nth(nth, effect);
    strikes(lived, if sticky { plan.sticky() } else { plan }, &told)
}

/// Continues with any fault plan.
fn strikes(lived: &Lived, plan: FaultPlan, told: &str) -> bool {
    lived.strikes(1, (plan, false), &open, &|_| false, told)
}

/// Fails each operation that can have this effect. There must be at least `least` of them.
fn fails_everywhere(effect: FaultEffect, sticky: bool, least: u64) {
    let lived = lived(1);
    let mut nth = u64::from(sticky);
    while fails_at(&lived, nth, effect, sticky) {
        nth += 1;
    }
    assert!(nth > least, "only {nth} operations");
}

#[test]
fn nothing_acknowledged_is_lost_when_an_operation_fails() {
    fails_everywhere(FaultEffect::Eio, false, 300);
}

#[test]
fn nothing_acknowledged_is_lost_after_permanent_failures() {
    fails_everywhere(FaultEffect::Eio, true, 300);
}

#[test]
fn nothing_acknowledged_is_lost_when_a_write_is_short() {
    fails_everywhere(FaultEffect::Short, false, 300);
}

#[test]
fn nothing_acknowledged_is_lost_when_an_operation_finds_no_room() {
    fails_everywhere(FaultEffect::NoSpace, false, 300);
}

/// An edit may be in the manifest although its append failed: the files that it names stay.
#[test]
fn nothing_acknowledged_is_lost_when_an_append_fails() {
    let lived = lived(1);
    let fails = |nth: u64| {
        let plan = FaultPlan::nth(nth, FaultEffect::Eio).kinds(&[OpKind::Append]);
        strikes(&lived, plan, &format!("append {nth}"))
    };
    let appends = (0..).take_while(|&nth| fails(nth)).count();
    assert!(appends > 30, "only {appends} appends");
}

#[test]
fn nothing_acknowledged_is_lost_when_descriptors_run_out_once() {
    fails_everywhere(FaultEffect::NoDescriptor, false, 50);
}

/// No file can be opened for a while, however long; then everything continues in the same process.
#[test]
fn the_store_survives_a_lack_of_descriptors() {
    let lived = lived(1);
    let opens =
        [OpKind::Open, OpKind::Create, OpKind::CreateInPlace, OpKind::OpenInPlace, OpKind::CreateScratch];
    let lacks = |nth: u64| {
        let plan = FaultPlan::nth(nth, FaultEffect::NoDescriptor).kinds(&opens).sticky();
        lived.strikes(1, (plan, true), &open, &|_| false, &format!("no descriptor from {nth} on"))
    };
    let opened = (0..).take_while(|&nth| lacks(nth)).count();
    assert!(opened > 30, "only {opened} calls that open something");
}

/// A failed job stops the store: otherwise appends would be acknowledged although the index cannot
/// follow.
#[test]
fn a_background_failure_refuses_writes_but_not_reads() {
    let sim = SimEnv::new(7);
    let store = open(&sim).unwrap();
    let log = store.log("a").unwrap();
    log.append(1, b"one", Durability::Durable).unwrap();
    store.seal().unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Sync]).path(".e1-1"));
    let stopped = store.wait_idle().unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Poisoned, "{stopped}");
    sim.clear_faults();
    let calls = [
        log.append(2, b"two", Durability::Buffered),
        log.trim(2),
        log.truncate_after(0, Durability::Durable),
        log.set_metadata(b"m", Durability::Durable),
        store.delete_log("a"),
        store.log("b").map(drop),
        store.sync(),
    ];
    for refused in calls {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Poisoned);
    }
    assert_eq!(log.read(1).unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(log.scan(0).count(), 1);
    drop((log, store));
    let store = open(&sim.crash(CrashKind::PowerLoss, 1)).unwrap();
    store.open_log("a").unwrap().append(2, b"two", Durability::Durable).unwrap();
}

/// Writes until the volume refuses. Then trims free space, or space appears from outside.
fn fills_up(seed: u64, room: u64, by_trims: bool) {
    let told = format!("seed {seed}, {room} bytes, by trims: {by_trims}");
    let (sim, mut driver) = lived(seed).again(seed);
    let store = open(&sim).unwrap();
    sim.set_capacity(Some(sim.used() + room));
    let before = driver.done.refused;
    for _ in 0..4000 {
        let name = format!("log-{}", driver.rng.below(6));
        let filled = match store.log(&name) {
            Ok(log) => {
                driver.model.entry(name.clone()).or_default();
                driver.append(&name, &log, Durability::Durable)
            }
            Err(e) => Err(e),
        };
        store.step();
        match filled {
            Err(e) if e.kind() == ErrorKind::NoSpace => break,
            filled => filled.unwrap_or_else(|e| panic!("{told}: {e:#}")),
        }
    }
    assert!(driver.done.refused > before || by_trims, "{told}: nothing was refused");
    assert_eq!(contents(&store), seen(&driver.model), "{told}: reads");
    let names: Vec<String> = driver.model.keys().cloned().collect();
    for name in names {
        let Ok(log) = store.open_log(&name) else { continue };
        let trimmed = driver.trim(&name, &log, 3);
        trimmed.unwrap_or_else(|e| panic!("{told}: a trim of {name} is refused: {e:#}"));
    }
    if !by_trims {
        sim.set_capacity(None);
    }
    for _ in 0..300 {
        store.step();
    }
    sim.advance_ns(1_000_000_000);
    store.wait_idle().unwrap_or_else(|e| panic!("{told}: {e:#}"));
    let name = driver.model.keys().next().unwrap().clone();
    let log = store.open_log(&name).unwrap();
    for _ in 0..20 {
        driver.append(&name, &log, Durability::Durable).unwrap_or_else(|e| panic!("{told}, again: {e:#}"));
    }
    assert_eq!(contents(&store), seen(&driver.model), "{told}: at the end");
    drop((log, store));
    let left = sim.crash(CrashKind::PowerLoss, seed);
    left.set_capacity(None);
    let found = contents(&open(&left).unwrap());
    driver.may_leave(&found, u64::MAX, true).unwrap_or_else(|why| panic!("{told}: {why}"));
}

#[test]
fn a_full_volume_refuses_appends_until_trims_free_space() {
    for seed in 0..12 {
        fills_up(seed, [0, 300 << 10, 900 << 10, 2 << 20][seed as usize % 4], true);
    }
}

#[test]
fn a_full_volume_refuses_appends_until_space_returns() {
    for seed in 0..12 {
        fills_up(seed, [0, 300 << 10, 900 << 10, 2 << 20][seed as usize % 4], false);
    }
}

/// Trims used the reserved space: appends are refused until it is complete again.
#[test]
fn appends_are_refused_until_the_trim_reserve_is_restored() {
    let sim = SimEnv::new(8);
    let store = open(&sim).unwrap();
    let log = store.log("a").unwrap();
    sim.set_capacity(Some(sim.used()));
    let mut lsn = 0;
    let mut append = || {
        lsn += 1;
        log.append(lsn, &[1; 3000], Durability::Durable).map(|()| lsn)
    };
    let refused = (0..1000).find_map(|_| append().err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let why = (0..1000).find_map(|n| {
        log.trim(n / 10).unwrap();
        append().err().filter(|e| e.message().starts_with("the volume of the logs is full"))
    });
    assert_eq!(why.map(|e| e.kind()), Some(ErrorKind::NoSpace));
    store.write(&LogBatch::new(), Durability::Durable).expect("an empty batch takes no room");
    sim.set_capacity(None);
    store.wait_idle().unwrap();
    append().unwrap();
}

/// Trims used the reserved space, and the volume has space again: a seal first completes the
/// reserved space, as an append does.
#[test]
fn a_seal_succeeds_once_the_volume_has_space() {
    let sim = SimEnv::new(8);
    let store = open(&sim).unwrap();
    let log = store.log("a").unwrap();
    sim.set_capacity(Some(sim.used()));
    let refused = (1..1000).find_map(|lsn| log.append(lsn, &[1; 3000], Durability::Durable).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let why = (0..1000).find_map(|n| {
        log.trim(n / 10).unwrap();
        let full = log.append(1000 + n, &[1; 3000], Durability::Durable).err();
        full.filter(|e| e.message().starts_with("the volume of the logs is full"))
    });
    assert_eq!(why.map(|e| e.kind()), Some(ErrorKind::NoSpace));
    assert_eq!(store.seal().unwrap_err().kind(), ErrorKind::NoSpace);
    sim.set_capacity(None);
    store.seal().unwrap();
}

/// A batch of a trim and its position as metadata is not refused; metadata alone is, and so is a
/// batch with too much of it.
#[test]
fn a_trim_with_metadata_passes_on_a_full_volume() {
    let sim = SimEnv::new(10);
    let store = open(&sim).unwrap();
    let log = store.log("a").unwrap();
    sim.set_capacity(Some(sim.used()));
    let refused = (1..1000).find_map(|lsn| log.append(lsn, &[1; 3000], Durability::Durable).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let metadata = |len: usize| vec![7; len];
    let with = |trims: bool, pieces: &[Vec<u8>]| {
        let mut batch = LogBatch::new();
        if trims {
            batch.trim(&log, 2);
        }
        pieces.iter().for_each(|bytes| _ = batch.set_metadata(&log, bytes));
        store.write(&batch, Durability::Durable).map_err(|e| e.kind())
    };
    let alone = (0..1000).find_map(|_| with(false, &[metadata(3)]).err());
    assert_eq!(alone, Some(ErrorKind::NoSpace));
    assert_eq!(with(true, &[metadata(3000), metadata(3000)]), Err(ErrorKind::NoSpace));
    assert_eq!(with(true, &[metadata(3)]), Ok(()));
    assert_eq!(log.first_lsn().unwrap(), Some(2));
    assert_eq!(log.metadata().unwrap().as_deref(), Some(&[7; 3][..]));
}

#[test]
fn settle_reports_background_work_without_space() {
    let sim = SimEnv::new(9);
    let store = open(&sim).unwrap();
    let log = store.log("a").unwrap();
    log.append(1, b"one", Durability::Durable).unwrap();
    store.seal().unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).path(".e1-1").sticky());
    let e = store.wait_idle().unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::NoSpace, Some(Path::new(DIR))));
    assert!(e.message().starts_with("no space for background work of the log engine"), "{e}");
    assert_eq!(log.read(1).unwrap().as_deref(), Some(&b"one"[..]));
    sim.clear_faults();
    store.wait_idle().unwrap();
    assert_eq!(store.statistics().sealed_groups, 1);
}

/// The end of a group could not be written for lack of space: the log accepts nothing more, and
/// neither does the store.
#[test]
fn a_failed_seal_poisons_the_store() {
    let sim = SimEnv::new(11);
    let store = open(&sim).unwrap();
    let log = store.log("a").unwrap();
    log.append(1, b"one", Durability::Buffered).unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&OpKind::WRITES).path(".log"));
    let stopped = store.seal().unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Poisoned, "{stopped}");
    assert_eq!(store.log("b").map(drop).unwrap_err().kind(), ErrorKind::Poisoned);
}
