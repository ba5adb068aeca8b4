//! openraft's own tests of a storage, and the storage after a crash.

#![allow(missing_docs, reason = "openraft's macro makes a public type")]
#![allow(clippy::disallowed_methods, reason = "removes directories of tests")]

use lavastore::testing::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore::{Family, Result};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::{StoreBuilder, Suite, blank_ent, log_id};
use openraft::{Entry, EntryPayload, RaftLogReader, RaftSnapshotBuilder, StorageError, Vote};
use openraft_lavalog::{Application, Changes, LogStorage, Options, SnapshotFile, StateMachine, Store};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

openraft::declare_raft_types!(pub Types: D = u64, R = Option<u64>, SnapshotData = SnapshotFile);

/// Counts the occurrences of each number.
struct Counts;

impl Application<Types> for Counts {
    fn apply(&mut self, request: &u64, state: &Family, changes: &mut Changes) -> Result<Option<u64>> {
        let key = format!("count/{request}");
        let before = state.get(&key)?.map_or(0, |count| count[0]);
        changes.put(&key, [before + 1]);
        Ok(Some(u64::from(before) + 1))
    }
}

type Logs = LogStorage<Types>;
type Machine = StateMachine<Types, Counts>;

fn options() -> Options {
    let mut options = Options::default();
    options.logs.group_bytes = Some(1 << 20);
    options
}

fn open(machine: &SimEnv) -> (Store, Logs, Machine) {
    let store = Store::open_in(&machine.env(), "/node", &options()).unwrap();
    let (log, state) = store.group("group", Counts).unwrap();
    (store, log, state)
}

/// A directory that is removed with its guard.
struct Dir(std::path::PathBuf);

impl Dir {
    fn new() -> Dir {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        Dir(std::env::temp_dir().join(format!("openraft-lavalog-{}-{nth}", std::process::id())))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

struct OnDisk;

impl StoreBuilder<Types, Logs, Machine, (Store, Dir)> for OnDisk {
    async fn build(&self) -> std::result::Result<((Store, Dir), Logs, Machine), StorageError<u64>> {
        let dir = Dir::new();
        let store = Store::open_in(&lavastore::Env::kernel(), &dir.0, &options()).unwrap();
        let (log, state) = store.group("group", Counts).unwrap();
        Ok(((store, dir), log, state))
    }
}

#[test]
fn openrafts_suite_passes() {
    Suite::test_all(OnDisk).unwrap();
}

/// Drives a future that waits only for durability: syncs the logs after each poll until it is
/// ready.
fn run<T>(store: &Store, future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
                return answer;
            }
            // The task with the callback is polled, and then waits for the device.
            tokio::task::yield_now().await;
            // The waiter gets the error of a failed device.
            let _ = store.logs().sync();
            tokio::task::yield_now().await;
        }
    })
}

fn entry(index: u64, number: u64) -> Entry<Types> {
    Entry { log_id: log_id(1, 0, index), payload: EntryPayload::Normal(number) }
}

fn indexes(log: &mut Logs) -> Vec<u64> {
    let found = futures_ready(log.try_get_log_entries(..)).unwrap();
    found.into_iter().map(|entry| entry.log_id.index).collect()
}

/// Polls a future that never waits.
fn futures_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

/// Without a sync there is no callback; after one, everything that was called back survives a power
/// failure.
#[test]
fn the_callback_comes_only_after_durability() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let machine = SimEnv::new(7);
    let (store, mut log, _state) = open(&machine);
    store.logs().sync().unwrap();
    runtime.block_on(async {
        let mut append = pin!(log.blocking_append([entry(0, 5), entry(1, 6)]));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            assert!(append.as_mut().poll(&mut context).is_pending(), "nobody made it durable");
            tokio::task::yield_now().await;
        }
        store.logs().sync().unwrap();
        tokio::task::yield_now().await;
        assert!(matches!(append.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    });
    for seed in 0..20 {
        let (_store, mut log, _state) = open(&machine.crash(CrashKind::PowerLoss, seed));
        assert_eq!(indexes(&mut log), [0, 1], "seed {seed}");
    }
}

/// At whatever operation the power fails: everything called back before is there, and the log has
/// no hole.
#[test]
fn entries_called_back_survive_a_crash_at_any_operation() {
    let machine = SimEnv::new(3);
    let (store, mut log, _state) = open(&machine);
    // Operations, and the last entry called back by then.
    let mut called_back = Vec::new();
    let begun = machine.op_count();
    for index in 0..12 {
        run(&store, log.blocking_append([entry(index, index)])).unwrap();
        called_back.push((machine.op_count(), index));
        if index == 5 {
            run(&store, log.save_vote(&Vote::new(3, 1))).unwrap();
        }
    }
    let record = machine.record();
    let mut states = 0;
    for op in begun..=machine.op_count() {
        for seed in 0..3 {
            let (_store, mut log, _state) = open(&record.crash_at(op, CrashKind::PowerLoss, seed));
            let found = indexes(&mut log);
            let promised = called_back.iter().rev().find(|(at, _)| *at <= op).map(|(_, index)| *index);
            assert!(found.last().copied() >= promised, "op {op}, seed {seed}: {found:?}, {promised:?}");
            assert!(found.iter().copied().eq(0..found.len() as u64), "op {op}, seed {seed}: {found:?}");
            if promised >= Some(6) {
                assert_eq!(futures_ready(log.read_vote()).unwrap(), Some(Vote::new(3, 1)));
            }
            states += 1;
        }
    }
    assert!(states > 30, "{states} crashes");
}

#[test]
fn a_failed_sync_is_reported_by_the_callback() {
    let machine = SimEnv::new(4);
    let (store, mut log, _state) = open(&machine);
    run(&store, log.blocking_append([blank_ent(1, 0, 0)])).unwrap();
    let writes = [OpKind::Sync, OpKind::SyncData, OpKind::WriteDurable];
    machine.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&writes).path("/node/store").sticky());
    assert!(run(&store, log.blocking_append([entry(1, 5)])).is_err());
    machine.clear_faults();
    let (_store, mut log, _state) = open(&machine.crash(CrashKind::PowerLoss, 1));
    assert_eq!(indexes(&mut log).first(), Some(&0), "what was called back about before is there");
}

fn count(machine: &Machine, number: u64) -> Option<u8> {
    machine.state().family().get(format!("count/{number}")).unwrap().map(|count| count[0])
}

/// The state comes back as it was flushed or as the snapshot has it, and never as something in
/// between.
#[test]
fn the_state_machine_survives_at_its_applied_position() {
    let machine = SimEnv::new(5);
    let (store, mut log, mut state) = open(&machine);
    let entries = || (0..10).map(|index| entry(index, index % 2));
    run(&store, log.blocking_append(entries())).unwrap();
    let replies = futures_ready(state.apply(entries())).unwrap();
    assert_eq!(replies[9], Some(5));
    let snapshot =
        futures_ready(async { state.get_snapshot_builder().await.build_snapshot().await }).unwrap();
    futures_ready(log.purge(log_id(1, 0, 5))).unwrap();
    futures_ready(state.apply([entry(10, 0)])).unwrap();
    assert_eq!(count(&state, 0), Some(6));
    for seed in 0..10 {
        // Volatile changes are gone; the snapshot has ten entries.
        let left = machine.crash(CrashKind::PowerLoss, seed);
        let (_store, _log, mut state) = open(&left);
        assert_eq!(futures_ready(state.applied_state()).unwrap().0, snapshot.meta.last_log_id);
        assert_eq!((count(&state, 0), count(&state, 1)), (Some(5), Some(5)));
    }
}

/// After a crash at any operation, an installed snapshot is there completely, or the previous state
/// is.
#[test]
fn snapshot_installation_is_atomic_and_never_goes_back() {
    let (_leaders, _log, mut leader) = open(&SimEnv::new(8));
    futures_ready(leader.apply((0..20).map(|index| entry(index, 7)))).unwrap();
    let machine = SimEnv::new(9);
    let (store, _log, mut follower) = open(&machine);
    futures_ready(follower.apply([entry(0, 7), entry(1, 3)])).unwrap();
    let mut late = futures_ready(follower.get_snapshot_builder());
    let begun = machine.op_count();
    let meta = run(&store, async {
        let mut sent = leader.get_snapshot_builder().await.build_snapshot().await.unwrap();
        let mut to = follower.begin_receiving_snapshot().await.unwrap();
        tokio::io::copy(&mut sent.snapshot, &mut to).await.unwrap();
        follower.install_snapshot(&sent.meta, to).await.unwrap();
        sent.meta
    });
    assert_eq!((count(&follower, 7), count(&follower, 3)), (Some(20), None));
    let ended = machine.op_count();
    let present = futures_ready(late.build_snapshot()).unwrap();
    assert_eq!(present.meta, meta, "an older snapshot does not take its place");
    let (record, mut seen) = (machine.record(), std::collections::BTreeSet::new());
    for op in begun..=ended {
        let (_store, _log, mut state) = open(&record.crash_at(op, CrashKind::PowerLoss, op));
        let applied = futures_ready(state.applied_state()).unwrap().0.map(|id| id.index);
        let counts = (count(&state, 7), count(&state, 3));
        let whole = [(Some(19), (Some(20), None)), (Some(1), (Some(1), Some(1))), (None, (None, None))];
        assert!(whole.contains(&(applied, counts)), "op {op}: {applied:?} {counts:?}");
        if op == ended {
            assert_eq!(applied, Some(19));
        }
        seen.insert(applied);
    }
    assert!(seen.len() > 1, "crashes before and after: {seen:?}");
}
