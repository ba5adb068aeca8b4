//! Damaged snapshots, and snapshots without space; groups that are opened twice; requests that set
//! internal keys.

#![allow(missing_docs, reason = "openraft's macro makes a public type")]

use lavastore::testing::{CrashKind, FaultEffect, FaultPlan, OpKind, SimEnv};
use lavastore::{ErrorKind, Family, Result};
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use openraft::testing::log_id;
use openraft::{Entry, EntryPayload, RaftSnapshotBuilder};
use openraft_lavalog::{Application, Changes, LogStorage, Options, SnapshotFile, StateMachine, Store};
use std::path::{Path, PathBuf};

openraft::declare_raft_types!(pub Types: D = String, R = (), SnapshotData = SnapshotFile);

struct Sets;

impl Application<Types> for Sets {
    fn apply(&mut self, key: &String, _: &Family, changes: &mut Changes) -> Result<()> {
        let value = if key == "long" { vec![7; 65 << 20] } else { b"set".to_vec() };
        changes.put(key, value).delete("other");
        Ok(())
    }
}

type Machine = StateMachine<Types, Sets>;

fn open_all(machine: &SimEnv) -> Result<(Store, LogStorage<Types>, Machine)> {
    let mut options = Options::default();
    options.logs.group_bytes = Some(1 << 20);
    let store = Store::open_in(&machine.env(), "/node", &options)?;
    let (log, state) = store.group("group", Sets)?;
    Ok((store, log, state))
}

fn open(machine: &SimEnv) -> Result<Machine> {
    Ok(open_all(machine)?.2)
}

/// Returns the snapshot files with their lengths.
fn snapshot_files(machine: &SimEnv) -> Vec<(PathBuf, u64)> {
    machine.files().into_iter().filter(|(path, _)| path.starts_with("/node/snapshots")).collect()
}

fn applied(state: &mut Machine) -> Option<u64> {
    block_on(state.applied_state()).unwrap().0.map(|id| id.index)
}

/// Reads the whole snapshot. Returns its last entry, if there is one.
fn snapshot(state: &mut Machine) -> Option<u64> {
    block_on(state.get_current_snapshot())
        .unwrap()
        .and_then(|found| found.meta.last_log_id)
        .map(|id| id.index)
}

fn entry(index: u64, key: &str) -> Entry<Types> {
    Entry { log_id: log_id(1, 0, index), payload: EntryPayload::Normal(key.to_owned()) }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// The state was volatile and the log is purged, so the group needs its snapshot. Damage of any
/// byte is reported.
#[test]
fn a_damaged_required_snapshot_refuses_the_group() {
    let machine = SimEnv::new(1);
    let (_store, mut log, mut state) = open_all(&machine).unwrap();
    block_on(async {
        state.apply([entry(0, "a"), entry(1, "b")]).await.unwrap();
        state.get_snapshot_builder().await.build_snapshot().await.unwrap();
        log.purge(log_id(1, 0, 1)).await.unwrap();
    });
    let left = machine.crash(CrashKind::ProcessKill, 1);
    let files = snapshot_files(&left);
    let [(path, len)] = &files[..] else { panic!("one snapshot: {files:?}") };
    assert_eq!(applied(&mut open(&left.fork(0)).unwrap()), Some(1));
    let damages = (0..*len).flat_map(|at| [(at, true), (at, false)]);
    for (at, is_flip) in damages {
        let damaged = left.fork(at);
        match is_flip {
            true => damaged.flip_bit(path, at, (at % 8) as u32).unwrap(),
            false => damaged.set_file_len(path, at).unwrap(),
        }
        let told = open(&damaged).err().unwrap_or_else(|| panic!("byte {at}, {is_flip}: it was not missed"));
        assert!(told.kind() == ErrorKind::Corruption && told.file() == Some(path), "byte {at}: {told}");
        assert_eq!(snapshot_files(&damaged).len(), 1, "it is left for who wants to look at it");
    }
}

/// Log and state are complete without the snapshot: whichever byte is damaged, the group opens
/// unchanged and gets an intact snapshot.
#[test]
fn a_damaged_unneeded_snapshot_is_replaced() {
    let machine = SimEnv::new(6);
    let (store, mut log, mut state) = open_all(&machine).unwrap();
    block_on(async {
        state.apply([entry(0, "a"), entry(1, "b")]).await.unwrap();
        state.get_snapshot_builder().await.build_snapshot().await.unwrap();
        state.apply([entry(2, "c")]).await.unwrap();
        log.purge(log_id(1, 0, 1)).await.unwrap();
    });
    store.db().flush().unwrap();
    let left = machine.crash(CrashKind::ProcessKill, 1);
    let (path, len) = snapshot_files(&left).remove(0);
    for at in 0..len {
        let damaged = left.fork(at);
        damaged.flip_bit(&path, at, (at % 8) as u32).unwrap();
        let mut state = open(&damaged).unwrap_or_else(|e| panic!("byte {at}: {e}"));
        assert_eq!((applied(&mut state), snapshot(&mut state)), (Some(2), Some(2)), "byte {at}");
        assert_eq!(state.state().family().get("b").unwrap().as_deref(), Some(&b"set"[..]));
        drop(state);
        // The new snapshot is on disk, and nothing else is.
        assert_eq!(snapshot_files(&damaged).len(), 1);
        let again = damaged.crash(CrashKind::PowerLoss, at);
        assert_eq!(snapshot(&mut open(&again).unwrap()), Some(2), "byte {at}");
    }
    // Without a state there is nothing to take a snapshot of, and the log has everything.
    let machine = SimEnv::new(7);
    let mut state = open(&machine).unwrap();
    block_on(async {
        state.apply([entry(0, "a")]).await.unwrap();
        state.get_snapshot_builder().await.build_snapshot().await.unwrap();
    });
    let left = machine.crash(CrashKind::ProcessKill, 1);
    left.flip_bit(&snapshot_files(&left)[0].0, 20, 1).unwrap();
    let mut state = open(&left).unwrap();
    assert_eq!((applied(&mut state), snapshot(&mut state)), (None, None));
}

/// The snapshot was intact when the group was opened, but not when it is to be sent.
#[test]
fn a_snapshot_damaged_after_open_is_not_sent() {
    let machine = SimEnv::new(8);
    let mut state = open(&machine).unwrap();
    block_on(async {
        state.apply([entry(0, "a")]).await.unwrap();
        state.get_snapshot_builder().await.build_snapshot().await.unwrap();
        state.apply([entry(1, "b")]).await.unwrap();
    });
    let (path, len) = snapshot_files(&machine).remove(0);
    machine.flip_bit(&path, len - 1, 1).unwrap();
    assert_eq!(snapshot(&mut state), Some(1), "a new one");
    machine.flip_bit(&path, 20, 1).unwrap();
    assert_eq!(snapshot(&mut state), Some(1));
}

/// The node continues: it applies and reads, keeps its snapshot, reports why there is no newer one,
/// and takes one when there is space.
#[test]
fn a_snapshot_without_space_fails_and_the_group_continues() {
    let machine = SimEnv::new(9);
    let mut state = open(&machine).unwrap();
    block_on(state.apply([entry(0, "a")])).unwrap();
    let full = || {
        let writes = [OpKind::Create, OpKind::Append, OpKind::Sync];
        let no_room = FaultPlan::nth(0, FaultEffect::NoSpace).path("/node/snapshots").kinds(&writes);
        machine.inject(no_room.sticky());
    };
    let take = |state: &mut Machine| {
        block_on(async { state.get_snapshot_builder().await.build_snapshot().await }).unwrap()
    };
    full();
    // Without a previous snapshot, openraft gets one that is older than any.
    let nothing = take(&mut state);
    assert_eq!(nothing.meta.last_log_id, None);
    machine.clear_faults();
    let told = block_on(state.install_snapshot(&nothing.meta, nothing.snapshot)).unwrap_err();
    assert!(told.to_string().contains("has no snapshot: take one first"), "{told}");
    assert_eq!(snapshot(&mut state), None);
    assert_eq!(state.state().snapshot_not_taken().map(|e| e.kind()), Some(ErrorKind::NoSpace));
    assert_eq!(take(&mut state).meta.last_log_id, Some(log_id(1, 0, 0)));
    assert!(state.state().snapshot_not_taken().is_none());
    full();
    block_on(state.apply([entry(1, "b")])).unwrap();
    assert_eq!(take(&mut state).meta.last_log_id, Some(log_id(1, 0, 0)), "the one before");
    assert_eq!((applied(&mut state), snapshot(&mut state)), (Some(1), Some(0)));
    machine.clear_faults();
    assert_eq!(take(&mut state).meta.last_log_id, Some(log_id(1, 0, 1)));
    assert_eq!(snapshot_files(&machine).len(), 1, "nothing is left of what was not finished");
}

/// The volume itself is full, and the space of the partial snapshot is freed.
#[test]
fn an_unfinished_snapshot_on_a_full_volume_is_removed() {
    let machine = SimEnv::new(10);
    let mut state = open(&machine).unwrap();
    let many: Vec<_> = (0..4000).map(|n| entry(n, &format!("a rather long key, number {n}"))).collect();
    block_on(state.apply(many)).unwrap();
    let used = machine.used();
    machine.set_capacity(Some(used + (32 << 10)));
    block_on(async { state.get_snapshot_builder().await.build_snapshot().await }).unwrap();
    assert_eq!(state.state().snapshot_not_taken().map(|e| e.kind()), Some(ErrorKind::NoSpace));
    assert_eq!((machine.used(), snapshot_files(&machine)), (used, Vec::new()));
    block_on(state.apply([entry(4000, "b")])).unwrap();
    assert_eq!(state.state().family().get("b").unwrap().as_deref(), Some(&b"set"[..]));
    machine.set_capacity(None);
    block_on(async { state.get_snapshot_builder().await.build_snapshot().await }).unwrap();
    assert_eq!(snapshot(&mut state), Some(4000));
}

/// The installed snapshot is removed while an older state is being written.
#[test]
fn a_snapshot_removed_during_another_is_reported() {
    let mut leader = open(&SimEnv::new(11)).unwrap();
    let machine = SimEnv::new(12);
    let mut state = open(&machine).unwrap();
    block_on(async {
        leader.apply([entry(0, "a"), entry(1, "b")]).await.unwrap();
        state.apply([entry(0, "a")]).await.unwrap();
        let sent = leader.get_snapshot_builder().await.build_snapshot().await.unwrap();
        let mut late = state.get_snapshot_builder().await;
        state.install_snapshot(&sent.meta, sent.snapshot).await.unwrap();
        machine.env().fs.remove(Path::new(&snapshot_files(&machine)[0].0)).unwrap();
        let told = late.build_snapshot().await.unwrap_err();
        assert!(told.to_string().contains("was removed during its creation"), "{told}");
    });
}

/// Two instances would overwrite each other's entries.
#[test]
fn a_group_is_in_use_until_all_of_it_is_gone() {
    let (store, log, mut state) = open_all(&SimEnv::new(13)).unwrap();
    let refused = |store: &Store| {
        let told = store.group::<Types, _>("group", Sets).map(|_| ()).unwrap_err();
        assert!(
            told.kind() == ErrorKind::Locked && told.to_string().contains("\"group\" is in use"),
            "{told}"
        );
    };
    refused(&store);
    let other = store.group::<Types, _>("other", Sets).unwrap();
    drop(log);
    refused(&store);
    let builder = block_on(state.get_snapshot_builder());
    drop(state);
    refused(&store.clone());
    drop(builder);
    drop(store.group::<Types, _>("group", Sets).unwrap());
    store.group::<Types, _>("group", Sets).unwrap();
    drop(other);
    store.group::<Types, _>("other", Sets).unwrap();
}

#[test]
fn a_reserved_key_is_refused_without_effect() {
    let mut state = open(&SimEnv::new(2)).unwrap();
    let told = block_on(state.apply([entry(0, "a"), entry(1, "\0applied")])).unwrap_err();
    assert!(told.to_string().contains("keys with the first byte 0"), "{told}");
    let (applied, _) = block_on(state.applied_state()).unwrap();
    assert_eq!(applied.map(|id| id.index), Some(0));
}

/// A snapshot that could not be read back is not created, and the previous one stays.
#[test]
fn an_entry_too_long_for_a_snapshot_is_refused() {
    let machine = SimEnv::new(4);
    let mut state = open(&machine).unwrap();
    block_on(async {
        state.apply([entry(0, "a")]).await.unwrap();
        state.get_snapshot_builder().await.build_snapshot().await.unwrap();
        state.apply([entry(1, "long")]).await.unwrap();
        let told = state.get_snapshot_builder().await.build_snapshot().await.unwrap_err();
        assert!(told.to_string().contains("cannot hold an entry of"), "{told}");
        let present = state.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(present.meta.last_log_id.map(|id| id.index), Some(0));
    });
}
