//! What a damaged snapshot does, and a request that sets what is not the application's.

#![allow(missing_docs, reason = "openraft's macro makes a public type")]

use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{ErrorKind, Family, Result};
use openraft::storage::RaftStateMachine;
use openraft::testing::log_id;
use openraft::{Entry, EntryPayload, RaftSnapshotBuilder};
use openraft_lavalog::{Application, Changes, Options, SnapshotFile, StateMachine, Store};

openraft::declare_raft_types!(pub Types: D = String, R = (), SnapshotData = SnapshotFile);

struct Sets;

impl Application<Types> for Sets {
    fn apply(&mut self, key: &String, _: &Family, changes: &mut Changes) -> Result<()> {
        let value = if key == "long" { vec![7; 65 << 20] } else { b"set".to_vec() };
        changes.put(key, value).delete("other");
        Ok(())
    }
}

fn open(machine: &SimEnv) -> Result<StateMachine<Types, Sets>> {
    let mut options = Options::default();
    options.logs.group_bytes = 1 << 20;
    let store = Store::open_in(&machine.env(), "/node", &options)?;
    Ok(store.group("group", Sets)?.1)
}

fn entry(index: u64, key: &str) -> Entry<Types> {
    Entry { log_id: log_id(1, 0, index), payload: EntryPayload::Normal(key.to_owned()) }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// The state was volatile, so the group needs its snapshot: it is told that it is damaged, whichever byte it is.
#[test]
fn a_damaged_snapshot_refuses_the_group_and_is_named() {
    let machine = SimEnv::new(1);
    let mut state = open(&machine).unwrap();
    block_on(async {
        state.apply([entry(0, "a"), entry(1, "b")]).await.unwrap();
        state.get_snapshot_builder().await.build_snapshot().await.unwrap();
    });
    let left = machine.crash(CrashKind::ProcessKill, 1);
    let mut files = left.files().into_iter().filter(|(path, _)| path.starts_with("/node/snapshots"));
    let (path, len) = files.next().unwrap();
    assert!(files.next().is_none(), "one snapshot");
    assert!(open(&left.fork(0)).is_ok());
    for at in 0..len {
        let damaged = left.fork(at);
        damaged.flip_bit(&path, at, (at % 8) as u32).unwrap();
        let told = open(&damaged).err().unwrap_or_else(|| panic!("byte {at} was not missed"));
        assert!(told.kind() == ErrorKind::Corruption && told.file() == Some(&path), "byte {at}: {told}");
    }
    for cut in 0..len {
        let damaged = left.fork(cut);
        damaged.set_file_len(&path, cut).unwrap();
        let told = open(&damaged).err().unwrap_or_else(|| panic!("cut at {cut} was not missed"));
        assert!(told.kind() == ErrorKind::Corruption && told.file() == Some(&path), "cut {cut}: {told}");
    }
}

#[test]
fn a_key_that_is_not_the_applications_ends_the_node_and_changes_nothing() {
    let mut state = open(&SimEnv::new(2)).unwrap();
    let told = block_on(state.apply([entry(0, "a"), entry(1, "\0applied")])).unwrap_err();
    assert!(told.to_string().contains("begin with the byte 0"), "{told}");
    let (applied, _) = block_on(state.applied_state()).unwrap();
    assert_eq!(applied.map(|id| id.index), Some(0));
}

/// A snapshot that could not be read again is not made, and the one before stays.
#[test]
fn an_entry_too_long_for_a_snapshot_is_refused_before_the_log_is_purged() {
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
