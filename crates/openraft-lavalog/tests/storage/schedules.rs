//! The locks of a group under schedules. One thread applies entries and installs snapshots, as
//! openraft's worker does, while others take snapshots concurrently and read the state. Several
//! threads open and close groups.
//!
//! Every schedule ends. A reader sees the state after some entry, and the snapshot never goes back.
//! After a crash at any operation the group opens with the state after some entry. Its snapshot is
//! complete, and no older than one that was finished by then.

#![allow(missing_docs, reason = "openraft's macro makes a public type")]

use base::sync::{Mutex, lock, rank};
use io::sim::threads::Plan;
use io::{Env, Priority, Rng};
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{ErrorKind, Family, Result};
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log_id;
use openraft::{Entry, EntryPayload};
use openraft_lavalog::{
    Application, Changes, Options, RaftGroupState, SnapshotBuilder, SnapshotFile, StateMachine, Store,
};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

openraft::declare_raft_types!(pub Types: D = u64, R = (), SnapshotData = SnapshotFile);

const SEEDS: u64 = 60;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Writes its number under several keys: a state is consistent if all are equal.
struct Numbers;

impl Application<Types> for Numbers {
    fn apply(&mut self, number: &u64, _: &Family, changes: &mut Changes) -> Result<()> {
        for key in KEYS {
            changes.put(key, number.to_be_bytes());
        }
        Ok(())
    }
}

type Machine = StateMachine<Types, Numbers>;

/// Polls a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

fn entry(index: u64) -> Entry<Types> {
    Entry { log_id: log_id(1, 0, index), payload: EntryPayload::Normal(index) }
}

fn open(env: &Env) -> (Store, Machine) {
    let mut options = Options::default();
    options.logs.group_bytes = Some(256 << 10);
    let store = Store::open_in(env, "/node", &options).unwrap();
    let (_, state) = store.group("group", Numbers).unwrap();
    (store, state)
}

/// Returns the number of a state, which all keys must have.
fn number(store: &Store, state: &RaftGroupState) -> Option<u64> {
    let now = store.db().snapshot();
    let family = state.family();
    let mut found = Vec::new();
    for key in KEYS {
        match now.family(&family).get(key) {
            Ok(value) => found.push(value.map(|bytes| u64::from_be_bytes(*bytes.first_chunk().unwrap()))),
            // An installation came between the two lines above.
            Err(e) if e.kind() == ErrorKind::NotFound => return None,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(found.iter().all(|other| *other == found[0]), "a state of two entries: {found:?}");
    found[0]
}

/// State shared by the threads.
struct Shared {
    store: Store,
    state: RaftGroupState,
    /// Snapshot builders that no thread has taken yet, and whether no more will come.
    builders: Mutex<(Vec<SnapshotBuilder<Types>>, bool), rank::Outside>,
    /// The last entry of each finished snapshot, and the operation by which it was finished.
    finished: Mutex<Vec<(u64, u64)>, rank::Outside>,
    machine: SimEnv,
}

impl Shared {
    fn finished(&self, last: Option<u64>) {
        let op = self.machine.op_count();
        last.into_iter().for_each(|last| lock(&self.finished).push((op, last)));
    }
}

/// Acts as openraft's worker, the only source of changes of the state.
fn worker(shared: &Shared, mut state: Machine, leader: &SnapshotOf, mut rng: Rng) {
    let mut next = 0;
    for _ in 0..rng.range(5, 25) {
        match rng.below(6) {
            0 => {
                let builder = ready(state.get_snapshot_builder());
                lock(&shared.builders).0.push(builder);
            }
            1 if leader.last > next => {
                let mut to = ready(state.begin_receiving_snapshot()).unwrap();
                leader.copy_to(&mut to);
                ready(state.install_snapshot(&leader.meta, to)).unwrap();
                shared.finished(Some(leader.last));
                next = leader.last + 1;
            }
            2 => drop(ready(state.begin_receiving_snapshot()).unwrap()),
            3 => shared.store.db().flush().unwrap(),
            _ => {
                ready(state.apply([entry(next)])).unwrap();
                next += 1;
            }
        }
        let current = ready(state.get_current_snapshot()).unwrap().and_then(|found| found.meta.last_log_id);
        shared.finished(current.map(|id| id.index));
    }
    lock(&shared.builders).1 = true;
}

fn builder(shared: &Shared, mut rng: Rng) {
    for _ in 0..40 {
        let one = match &mut *lock(&shared.builders) {
            (waiting, true) if waiting.is_empty() => return,
            (waiting, _) if waiting.is_empty() => None,
            (waiting, _) => {
                let nth = rng.below(waiting.len() as u64) as usize;
                Some(waiting.swap_remove(nth))
            }
        };
        match one {
            Some(mut builder) => {
                let built = ready(builder.build_snapshot()).unwrap();
                shared.finished(built.meta.last_log_id.map(|id| id.index));
            }
            None => drop(number(&shared.store, &shared.state)),
        }
    }
}

/// A snapshot from another node.
struct SnapshotOf {
    meta: openraft::SnapshotMeta<u64, openraft::BasicNode>,
    last: u64,
    bytes: Vec<u8>,
}

impl SnapshotOf {
    fn new(last: u64) -> SnapshotOf {
        let (_store, mut state) = open(&SimEnv::new(99).env());
        ready(state.apply((0..=last).map(entry))).unwrap();
        let mut built = ready(async { state.get_snapshot_builder().await.build_snapshot().await }).unwrap();
        let mut bytes = Vec::new();
        ready(tokio::io::AsyncReadExt::read_to_end(&mut built.snapshot, &mut bytes)).unwrap();
        SnapshotOf { meta: built.meta, last, bytes }
    }

    fn copy_to(&self, to: &mut SnapshotFile) {
        ready(tokio::io::AsyncWriteExt::write_all(to, &self.bytes)).unwrap();
    }
}

fn spawn(env: &Env, name: &str, body: impl FnOnce() + Send + 'static) -> Box<dyn io::ThreadHandle> {
    env.spawner.clone().unwrap().spawn(name, Priority::Foreground, Box::new(body)).unwrap()
}

/// Runs a schedule. Returns the operations after which snapshots were finished, and the machine.
fn run(seed: u64) -> (SimEnv, u64, Vec<(u64, u64)>) {
    let machine = SimEnv::new(seed);
    let (of, leader) = (machine.clone(), SnapshotOf::new(8));
    let ran = machine.run_threads(&Plan::new(seed), move |env| {
        let mut rng = Rng::new(seed);
        let (store, state) = open(env);
        let opened = of.op_count();
        let builders = Mutex::default();
        let state_of = state.state();
        let shared = Arc::new(Shared {
            store,
            state: state_of,
            builders,
            finished: Mutex::default(),
            machine: of.clone(),
        });
        let mut threads = Vec::new();
        for n in 0..2 {
            let (shared, rng) = (shared.clone(), rng.fork());
            threads.push(spawn(env, &format!("builder-{n}"), move || builder(&shared, rng)));
        }
        let (works, rng) = (shared.clone(), rng.fork());
        threads.push(spawn(env, "worker", move || worker(&works, state, &leader, rng)));
        assert!(threads.into_iter().all(|thread| thread.join()));
        let Shared { store, finished, builders, .. } = Arc::into_inner(shared).unwrap();
        drop((store, builders));
        (opened, lock(&finished).clone())
    });
    let ran = ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    (machine, ran.value.0, ran.value.1)
}

/// Checks a group after a crash.
fn check(left: &SimEnv, finished: Option<u64>) -> std::result::Result<(), String> {
    let (store, mut state) = open(&left.env());
    let applied = ready(state.applied_state()).map_err(|e| e.to_string())?.0.map(|id| id.index);
    let found = number(&store, &state.state());
    if applied != found {
        return Err(format!("the state is of {found:?}, not {applied:?}"));
    }
    let snapshot = ready(state.get_current_snapshot()).map_err(|e| e.to_string())?;
    let last = snapshot.and_then(|snapshot| snapshot.meta.last_log_id).map(|id| id.index);
    match last >= finished && applied >= last {
        true => Ok(()),
        false => Err(format!("snapshot of {last:?} and state of {applied:?}, {finished:?} was finished")),
    }
}

#[test]
fn snapshots_are_built_installed_and_read_at_once() {
    let mut built = 0;
    for seed in 0..SEEDS {
        let (machine, opened, finished) = run(seed);
        built += finished.len();
        let record = machine.record();
        let mut rng = Rng::new(seed);
        for _ in 0..6 {
            let op = rng.range(opened, machine.op_count() + 1);
            let kind = if rng.one_in(2) { CrashKind::PowerLoss } else { CrashKind::ProcessKill };
            let promised = finished.iter().filter(|(at, _)| *at <= op).map(|(_, last)| *last).max();
            let left = record.crash_at(op, kind, rng.next_u64());
            check(&left, promised).unwrap_or_else(|why| panic!("seed {seed}, op {op}, {kind:?}: {why}"));
        }
    }
    assert!(built > SEEDS as usize, "{built} snapshots");
}

/// Of several threads that open a group, one gets it; the others are refused, and may open it
/// afterwards.
#[test]
fn only_one_of_several_openers_gets_the_group() {
    for seed in 0..SEEDS {
        let machine = SimEnv::new(seed);
        let ran = machine.run_threads(&Plan::new(seed), move |env| {
            let (store, first) = open(env);
            drop(first);
            let had = Arc::new(Mutex::<(u64, u64), rank::Outside>::default());
            let threads: Vec<_> = (0..3)
                .map(|n| {
                    let (store, had) = (store.clone(), had.clone());
                    spawn(env, &format!("opener-{n}"), move || {
                        for _ in 0..3 {
                            match store.group::<Types, _>("group", Numbers) {
                                Ok((_log, mut state)) => {
                                    let mut held = lock(&had);
                                    *held = (held.0 + 1, held.1 + 1);
                                    assert_eq!(held.1, 1, "two have it");
                                    drop(held);
                                    let next =
                                        ready(state.applied_state()).unwrap().0.map_or(0, |id| id.index + 1);
                                    ready(state.apply([entry(next)])).unwrap();
                                    lock(&had).1 -= 1;
                                }
                                Err(e) => assert_eq!(e.kind(), ErrorKind::Locked, "{e}"),
                            }
                        }
                    })
                })
                .collect();
            assert!(threads.into_iter().all(|thread| thread.join()));
            let (_log, mut state) = store.group::<Types, _>("group", Numbers).unwrap();
            let applied = ready(state.applied_state()).unwrap().0.map_or(0, |id| id.index + 1);
            let (times, _) = *lock(&had);
            (times, applied)
        });
        let (times, applied) = ran.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}")).value;
        assert!(times > 0 && times == applied, "seed {seed}: opened {times} times, {applied} entries");
    }
}
