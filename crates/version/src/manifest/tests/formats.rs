//! The format of a store: an upgrade is permanent, writes a new manifest, and makes older releases
//! reject the store.

use super::*;
use io::sim::{CrashKind, FaultEffect, FaultPlan};

/// Returns the same store in another format.
fn in_format(state: &State, format: StoreFormat) -> State {
    State::of(Arc::new(state.store.in_format(format))).unwrap()
}

fn old_store(seed: u64) -> (SimEnv, Manifest, Editor) {
    let sim = SimEnv::new(seed);
    let first = InitialState { format: StoreFormat::OLDEST, ..InitialState::default() };
    let manifest = Manifest::create(&sim.env(), DIR.as_ref(), first).unwrap();
    let mut editor = Editor::new(seed);
    commit_some(&manifest, &mut editor, 8);
    (sim, manifest, editor)
}

#[test]
fn a_store_keeps_its_format_until_it_is_raised() {
    let (sim, manifest, mut editor) = old_store(1);
    drop(manifest);
    let manifest = recover(&sim).unwrap();
    commit_some(&manifest, &mut editor, 3);
    manifest.commits().confirm().unwrap();
    assert_eq!(manifest.format(), StoreFormat::V1);
    let header = Header::decode(&sim.read_file(file_in_use(&sim)).unwrap()).unwrap();
    assert_eq!((header.format, sim.read_file(file_in_use(&sim)).unwrap()[8]), (StoreFormat::V1, 1));
    let before = manifest.state();
    manifest.commits().upgrade(StoreFormat::V2).unwrap();
    assert_eq!(manifest.state(), in_format(&before, StoreFormat::V2));
    commit_some(&manifest, &mut editor, 3);
    let last = manifest.state();
    assert_eq!(last.store.format, StoreFormat::V2);
    drop(manifest);
    let manifest = recover(&sim).unwrap();
    assert_eq!((manifest.format(), manifest.state()), (StoreFormat::V2, last));
}

#[test]
fn raising_the_format_again_writes_nothing_and_lowering_fails() {
    let (sim, manifest, _) = old_store(2);
    manifest.commits().upgrade(StoreFormat::V1).unwrap();
    manifest.commits().upgrade(StoreFormat::V2).unwrap();
    let before = sim.op_count();
    manifest.commits().upgrade(StoreFormat::V2).unwrap();
    assert_eq!(manifest.commits().upgrade(StoreFormat::V1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(sim.op_count(), before);
    let read_only = Manifest::recover(&sim.env(), DIR.as_ref(), true).unwrap();
    assert_eq!(read_only.commits().upgrade(StoreFormat::V2).unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// After a crash at any point of an upgrade, the store opens with all its data, in the old format
/// or the new one. An upgrade that had returned has taken effect.
#[test]
fn every_crash_during_an_upgrade_leaves_one_valid_format() {
    let (sim, manifest, mut editor) = old_store(3);
    let (start, before) = (sim.op_count(), manifest.state());
    manifest.commits().upgrade(StoreFormat::V2).unwrap();
    let end = sim.op_count();
    let mut formats = [0, 0];
    let record = sim.record();
    for op in record.mutations().into_iter().filter(|op| *op >= start).chain([end]) {
        for (kind, seeds) in [(CrashKind::ProcessKill, 1), (CrashKind::PowerLoss, 20)] {
            for seed in 0..seeds {
                let after = record.crash_at(op, kind, seed);
                let manifest = recover(&after).unwrap_or_else(|e| panic!("op {op} {kind:?} {seed}: {e}"));
                assert!(
                    manifest.report().damaged.is_empty(),
                    "a crash is no damage: {:?}",
                    manifest.report()
                );
                let format = manifest.format();
                assert_eq!(manifest.state(), in_format(&before, format), "op {op} {kind:?} {seed}");
                assert!(op < end || format == StoreFormat::V2, "an upgrade that had returned is lost");
                formats[usize::from(format == StoreFormat::V2)] += 1;
                // Repeat the upgrade, and continue.
                manifest.commits().upgrade(StoreFormat::V2).unwrap();
                let state = manifest.commit(editor.edit(&manifest.state())).unwrap();
                assert_eq!(recover(&after.crash(CrashKind::PowerLoss, seed)).unwrap().state(), state);
            }
        }
    }
    assert!(formats.iter().all(|n| *n > 20), "{formats:?}");
}

/// A failed upgrade leaves the store in the old format, or poisoned; a full disk never poisons it
/// before the new file is named.
#[test]
fn every_fault_in_an_upgrade_is_reported() {
    let mut failed = 0;
    for effect in [FaultEffect::Eio, FaultEffect::NoSpace] {
        for nth in 0.. {
            let (sim, manifest, mut editor) = old_store(4);
            let before = manifest.state();
            sim.inject(FaultPlan::nth(nth, effect));
            let outcome = manifest.commits().upgrade(StoreFormat::V2);
            if sim.faults_fired() == 0 {
                outcome.unwrap();
                break;
            }
            sim.clear_faults();
            let what = format!("{effect:?} {nth}");
            let Err(e) = outcome else { continue };
            failed += 1;
            assert_eq!(manifest.format(), StoreFormat::V1, "{what}: {e}");
            match manifest.commit(editor.edit(&manifest.state())) {
                Ok(state) => {
                    assert_eq!(state.store.format, StoreFormat::V1, "{what}");
                    manifest.commits().upgrade(StoreFormat::V2).unwrap_or_else(|e| panic!("{what}: {e}"));
                    let last = manifest.state();
                    assert_eq!(
                        recover(&sim.crash(CrashKind::PowerLoss, nth)).unwrap().state(),
                        last,
                        "{what}"
                    );
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Poisoned, "{what}: {e}");
                    let state = recover(&sim.crash(CrashKind::PowerLoss, nth)).unwrap().state();
                    assert_eq!(state, in_format(&before, state.store.format), "{what}");
                }
            }
        }
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn a_copied_store_keeps_its_format() {
    let (_, manifest, _) = old_store(5);
    manifest.commits().upgrade(StoreFormat::V2).unwrap();
    let state = manifest.state().store.without_log(Uid::from_words(9, 9));
    let there = SimEnv::new(6);
    drop(store::manifest::Manifest::create_with(&there.env(), DIR.as_ref(), state).unwrap());
    assert_eq!(recover(&there).unwrap().format(), StoreFormat::V2);
}

/// An unknown format is reported with its number, before any record is read.
#[test]
fn an_unknown_format_is_refused_with_its_number() {
    let (sim, manifest, _) = old_store(7);
    manifest.commits().upgrade(StoreFormat::NEWEST).unwrap();
    drop(manifest);
    let name = file_in_use(&sim);
    let whole = sim.read_file(&name).unwrap();
    for number in [0, 1, 3, 4, u32::MAX] {
        let mut bytes = whole.clone();
        bytes[12..16].copy_from_slice(&number.to_le_bytes());
        let uid = Uid(bytes[32..48].try_into().unwrap());
        let sum = base::checksum::stored(&bytes[..60], uid, 0);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        // Bytes after the header may be in an unknown form.
        bytes[80..].fill(0xa5);
        let e = replay(&bytes).unwrap_err();
        match number {
            0 | 1 => assert_eq!(e.kind(), ErrorKind::Corruption, "{e}"),
            _ => {
                assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
                assert!(e.message().contains(&format!("format {number},")), "{e}");
            }
        }
    }
}
