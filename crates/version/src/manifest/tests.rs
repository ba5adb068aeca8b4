use super::*;
use crate::arbitrary::{Editor, user_key};
use crate::edit::Record;
use crate::meta::FileMeta;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Uid, ValueKind, key};
use io::Env;
use io::sim::SimEnv;
use std::sync::Arc;
use store::format::StoreFormat;
use store::manifest::format::{Current, HEADER_LEN, Header, encode_record, pieces, read_record};
use store::manifest::{History, InitialState, Record as StoreRecord};
use store::names;

mod copies;
mod crash;
mod damage;
mod formats;
mod golden;
mod pieces;
mod schedules;

const DIR: &str = "/";

fn replay(bytes: &[u8]) -> Result<History> {
    history::replay(bytes, &Engines::of::<Kv>())
}

/// Creates a new store in a simulation.
fn new_store(seed: u64) -> (SimEnv, Manifest) {
    new_store_in(seed, StoreFormat::OLDEST)
}

fn new_store_in(seed: u64, format: StoreFormat) -> (SimEnv, Manifest) {
    let sim = SimEnv::new(seed);
    let first = InitialState { format, ..InitialState::default() };
    let manifest = Manifest::create(&sim.env(), DIR.as_ref(), first).unwrap();
    (sim, manifest)
}

fn recover(sim: &SimEnv) -> Result<Manifest> {
    Manifest::recover(&sim.env(), DIR.as_ref(), false)
}

/// Commits `n` random edits.
fn commit_some(manifest: &Manifest, editor: &mut Editor, n: usize) {
    for _ in 0..n {
        manifest.commit(editor.edit(&manifest.state())).unwrap();
    }
}

fn file_in_use(sim: &SimEnv) -> String {
    let current = Current::decode(&sim.read_file("/CURRENT").unwrap()).unwrap();
    format!("/{}", names::manifest(current.manifest))
}

#[test]
fn manifest_history_survives_reopen_and_rolls() {
    let (sim, mut manifest) = new_store(1);
    let mut editor = Editor::new(1);
    for round in 0..12 {
        commit_some(&manifest, &mut editor, 15);
        if round % 3 == 0 {
            manifest.commits().roll().unwrap();
        }
        let state = manifest.state();
        assert_eq!(manifest.durable_edit(), state.store.edit_number);
        let number = manifest.allocate_file_number();
        assert!(state.files().all(|(n, _)| n < number) && number >= state.store.next_file_number);
        let manifests = sim.files().iter().filter(|(p, _)| p.to_string_lossy().contains("MANIFEST")).count();
        assert_eq!(manifests, 1, "a roll removes the old file");
        drop(manifest);
        manifest = recover(&sim).unwrap();
        assert_eq!(manifest.state(), state);
        assert_eq!(manifest.report().torn_bytes, 0);
        assert!(manifest.should_roll(), "a recovered file is not appended to");
        manifest.require_edit(state.store.edit_number).unwrap();
        let e = manifest.require_edit(state.store.edit_number + 1).unwrap_err();
        assert!(e.is_corruption() && e.file().is_some());
    }
}

#[test]
fn opening_writes_nothing_and_read_only_refuses_to() {
    let (sim, manifest) = new_store(2);
    commit_some(&manifest, &mut Editor::new(2), 5);
    drop(manifest);
    let before = sim.state_hash();
    let manifest = Manifest::recover(&sim.env(), DIR.as_ref(), true).unwrap();
    assert_eq!(manifest.commit(Edit::default()).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(manifest.commits().roll().unwrap_err().kind(), ErrorKind::ReadOnly);
    manifest.commits().confirm().unwrap();
    assert!(!manifest.should_roll());
    drop(recover(&sim).unwrap());
    assert_eq!(sim.state_hash(), before);
}

#[test]
fn numbers_start_at_the_seed_and_above_existing_files() {
    let sim = SimEnv::new(3);
    let near = (1u64 << 32) - 10;
    let seed = InitialState {
        first_seq: near,
        first_file_number: near,
        first_ltn: near,
        first_edit: near,
        ..InitialState::default()
    };
    let manifest = Manifest::create(&sim.env(), DIR.as_ref(), seed).unwrap();
    let state = manifest.state();
    assert_eq!((state.store.last_seq, state.store.next_ltn, state.store.edit_number), (near - 1, near, near));
    assert!(manifest.allocate_file_number() >= near);
    let mut editor = Editor::new(3);
    commit_some(&manifest, &mut editor, 60);
    assert!(manifest.state().store.edit_number > 1 << 32);
    manifest.commits().roll().unwrap();
    let state = manifest.state();
    drop(manifest);
    sim.write_file("/009999999999.ksst", b"left over").unwrap();
    let manifest = recover(&sim).unwrap();
    assert_eq!(manifest.state(), state);
    assert_eq!(manifest.allocate_file_number(), 10_000_000_000);
    manifest.bump_file_number(10_000_000_500);
    assert_eq!(manifest.allocate_file_number(), 10_000_000_501);
    manifest.bump_file_number(3);
    assert_eq!(manifest.allocate_file_number(), 10_000_000_502);
}

#[test]
fn a_store_is_never_created_over_another() {
    let (sim, manifest) = new_store(4);
    let create = |sim: &SimEnv| Manifest::create(&sim.env(), DIR.as_ref(), InitialState::default());
    assert_eq!(create(&sim).unwrap_err().kind(), ErrorKind::AlreadyExists);
    commit_some(&manifest, &mut Editor::new(4), 20);
    sim.erase("/CURRENT").unwrap();
    assert!(create(&sim).unwrap_err().is_corruption(), "a manifest that says something");
    assert!(recover(&sim).unwrap_err().is_corruption());
    let empty = SimEnv::new(5);
    assert_eq!(recover(&empty).unwrap_err().kind(), ErrorKind::NotFound);
    empty.write_file("/000000000007.ksst", b"x").unwrap();
    assert!(recover(&empty).unwrap_err().is_corruption(), "tables without CURRENT");
    assert!(create(&empty).unwrap_err().is_corruption());
}

#[test]
fn a_state_can_be_exported_into_another_directory() {
    let (_, manifest) = new_store(6);
    commit_some(&manifest, &mut Editor::new(6), 50);
    let other = SimEnv::new(7);
    let state = State::clone(&manifest.state());
    let files: Vec<u64> = state.files().map(|(number, _)| number).collect();
    files.iter().for_each(|n| other.write_file(format!("/{n:012}.ksst"), b"x").unwrap());
    let copy = Manifest::create_with(&other.env(), DIR.as_ref(), state.clone()).unwrap();
    assert_eq!(copy.state(), state);
    drop(copy);
    let copy = recover(&other).unwrap();
    assert_eq!((copy.state(), copy.store()), (state, manifest.store()));
}

#[test]
fn commit_with_sees_accepted_edits_and_a_refusal_has_no_effect() {
    let (_, manifest) = new_store(8);
    let mut editor = Editor::new(8);
    commit_some(&manifest, &mut editor, 5);
    let before = manifest.state();
    let refused = manifest
        .commit_with(|_| Err::<Edit, _>(Error::new(ErrorKind::Busy, "changed my mind")), |_| panic!());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    let contradiction = Edit(vec![Record::DropFamily { id: 99 }]);
    assert_eq!(manifest.commit(contradiction).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(manifest.state(), before);
    let mut seen = 0;
    let state = manifest
        .commit_with(
            |tip| {
                seen = tip.store.edit_number;
                Ok(Edit::default())
            },
            |state| assert_eq!(manifest.state().store.edit_number, state.store.edit_number),
        )
        .unwrap();
    assert_eq!((seen, state.store.edit_number), (before.store.edit_number, before.store.edit_number + 1));
}

#[test]
fn confirm_writes_only_if_needed() {
    let (sim, manifest) = new_store(9);
    manifest.commit(Edit(vec![Record::Store(StoreRecord::LastSeq(7))])).unwrap();
    let edits = manifest.durable_edit();
    manifest.commits().confirm().unwrap();
    manifest.commits().confirm().unwrap();
    assert_eq!(manifest.durable_edit(), edits, "CURRENT confirms, no edit is needed");
    drop(manifest);
    let path = file_in_use(&sim);
    let len = sim.read_file(&path).unwrap().len() as u64;
    for cut in 1..=len {
        let damaged = sim.fork(cut);
        damaged.set_file_len(&path, len - cut).unwrap();
        assert!(recover(&damaged).unwrap_err().is_corruption(), "{cut} bytes cut");
    }
    let manifest = recover(&sim).unwrap();
    let (ops, writes) = (sim.op_count(), sim.count_ops(Some(io::sim::OpKind::Append), ""));
    manifest.commits().confirm().unwrap();
    assert_eq!(
        (sim.op_count(), sim.count_ops(Some(io::sim::OpKind::Append), "")),
        (ops, writes),
        "nothing to do"
    );
}

#[test]
fn should_roll_follows_the_length() {
    let (_, manifest) = new_store(10);
    let mut editor = Editor::new(10);
    assert!(!manifest.should_roll());
    manifest.files().sizes().set_roll_len(2000);
    let mut commits = 0;
    while !manifest.should_roll() {
        commit_some(&manifest, &mut editor, 1);
        commits += 1;
    }
    assert!(commits > 3);
    manifest.commits().roll().unwrap();
    assert!(!manifest.should_roll());
}

/// Real threads: every edit is durable and published once, in order, while others roll.
#[test]
fn concurrent_commits_are_durable_and_published_in_order() {
    const THREADS: u64 = 8;
    const COMMITS: u64 = 40;
    let env = Env::kernel();
    let dir = std::env::temp_dir().join(format!("lavastore-version-{:?}", env.new_uid()));
    let manifest = Manifest::create(&env, &dir, InitialState::default()).unwrap();
    let first = manifest.durable_edit();
    let create = Record::CreateFamily { id: 0, name: "default".into(), options: vec![] };
    manifest.commit(Edit(vec![create])).unwrap();
    let published = Mutex::<_, rank::Noted>::new(Vec::new());
    let add = |tip: &State, number: u64| {
        let seq = tip.store.last_seq + 1;
        let meta = FileMeta {
            number,
            smallest: key::encode(&user_key(number % 100), seq, ValueKind::Value),
            largest: key::encode(&user_key(number % 100 + 10), seq, ValueKind::Value),
            min_seq: seq,
            max_seq: seq,
            ..FileMeta::default()
        };
        Edit(vec![Record::AddFile { family: 0, level: 0, meta }])
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..COMMITS {
                    let number = manifest.allocate_file_number();
                    let publish = |state: &State| lock(&published).push(state.store.edit_number);
                    let state = manifest.commit_with(|tip| Ok(add(tip, number)), publish).unwrap();
                    assert!(state.place_of(number).is_some() && manifest.state().place_of(number).is_some());
                    assert!(manifest.durable_edit() >= state.store.edit_number);
                }
            });
        }
        scope.spawn(|| (0..5).for_each(|_| manifest.commits().roll().unwrap()));
    });
    let expected: Vec<u64> = (first + 2..first + 2 + THREADS * COMMITS).collect();
    assert_eq!(*lock(&published), expected);
    let state = manifest.state();
    drop(manifest);
    let again = Manifest::recover(&env, &dir, true).unwrap();
    assert_eq!(again.state(), state);
    for entry in env.fs.list(&dir).unwrap() {
        env.fs.remove(&dir.join(entry.name)).unwrap();
    }
    env.fs.remove_dir(&dir).unwrap();
}
