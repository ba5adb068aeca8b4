//! `CURRENT` and the manifest with their copies: any damage in one file is covered by the other.

use super::*;
use io::Rng;
use io::sim::{CrashKind, OpKind};

/// Returns a closed store with copies, and its state.
fn closed_store(seed: u64) -> (SimEnv, State) {
    let (sim, manifest) = new_store_in(seed, StoreFormat::V2);
    let mut editor = Editor::new(seed);
    commit_some(&manifest, &mut editor, 4);
    manifest.commits().roll().unwrap();
    commit_some(&manifest, &mut editor, 6);
    // The loss of an empty edit would lose nothing, so it confirms itself.
    manifest.commit(Edit(vec![Record::Store(StoreRecord::NextLtn(1))])).unwrap();
    manifest.commits().confirm().unwrap();
    (sim, manifest.state())
}

/// The four files.
fn all_files(sim: &SimEnv) -> [String; 4] {
    let manifest = file_in_use(sim);
    let copy = format!("{manifest}.copy");
    [manifest, copy, "/CURRENT".into(), "/CURRENT.copy".into()]
}

/// Checks that the store opens with all its data, names the damaged file, and rewrites it.
fn survives(damaged: &SimEnv, state: &State, file: &str, what: &str) {
    let manifest = recover(damaged).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(manifest.state(), *state, "{what}");
    let told: Vec<_> = manifest.report().damaged.iter().map(|e| e.file().unwrap().to_owned()).collect();
    assert_eq!(told, [std::path::Path::new(file)], "{what}");
    let read_only = Manifest::recover(&damaged.env(), DIR.as_ref(), true).unwrap();
    assert_eq!(read_only.state(), *state, "{what}");
    let next = manifest.commit(Edit::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let again = recover(damaged).unwrap();
    assert!(again.state() == next && again.report().damaged.is_empty(), "{what}: {:?}", again.report());
    let (original, copy) = (file_in_use(damaged), format!("{}.copy", file_in_use(damaged)));
    assert_eq!(damaged.read_file(original).unwrap(), damaged.read_file(copy).unwrap(), "{what}");
}

#[test]
fn a_flip_in_any_byte_of_one_file_loses_nothing() {
    let (sim, state) = closed_store(1);
    for file in all_files(&sim) {
        for at in 0..sim.read_file(&file).unwrap().len() as u64 {
            let damaged = sim.fork(at);
            damaged.flip_bit(&file, at, (at % 8) as u32).unwrap();
            survives(&damaged, &state, &file, &format!("{file} at {at}"));
        }
    }
}

#[test]
fn one_missing_or_truncated_file_loses_nothing() {
    let (sim, state) = closed_store(2);
    for file in all_files(&sim) {
        let damaged = sim.fork(1);
        damaged.erase(&file).unwrap();
        survives(&damaged, &state, &file, &format!("{file} is missing"));
        for len in 0..sim.read_file(&file).unwrap().len() as u64 {
            let damaged = sim.fork(len);
            damaged.set_file_len(&file, len).unwrap();
            survives(&damaged, &state, &file, &format!("{file} of {len} bytes"));
        }
    }
}

#[test]
fn a_damaged_block_anywhere_loses_nothing() {
    let (sim, manifest) = new_store_in(3, StoreFormat::V2);
    let mut editor = Editor::new(3);
    while sim.read_file(file_in_use(&sim)).unwrap().len() < 40_000 {
        commit_some(&manifest, &mut editor, 20);
    }
    manifest.commit(Edit(vec![Record::Store(StoreRecord::NextLtn(1))])).unwrap();
    manifest.commits().confirm().unwrap();
    let state = manifest.state();
    for file in all_files(&sim) {
        for block in [512, 4096] {
            for at in (0..sim.read_file(&file).unwrap().len() as u64).step_by(block) {
                for filler in [0, 0xff] {
                    let damaged = sim.fork(at);
                    let mut bytes = damaged.read_file(&file).unwrap();
                    let end = bytes.len().min(at as usize + block);
                    bytes[at as usize..end].fill(filler);
                    damaged.write_file(&file, &bytes).unwrap();
                    survives(&damaged, &state, &file, &format!("{file} block {at}"));
                }
            }
        }
    }
}

/// An older file in the place of one of them does not lead back to an older state.
#[test]
fn a_stale_or_exchanged_file_is_ignored() {
    let (sim, manifest) = new_store_in(4, StoreFormat::V2);
    let mut editor = Editor::new(4);
    commit_some(&manifest, &mut editor, 4);
    manifest.commits().confirm().unwrap();
    let earlier = all_files(&sim).map(|file| sim.read_file(file).unwrap());
    commit_some(&manifest, &mut editor, 4);
    manifest.commits().confirm().unwrap();
    let state = manifest.state();
    for (file, old) in all_files(&sim).iter().zip(&earlier) {
        let stale = sim.fork(1);
        stale.write_file(file, old).unwrap();
        let found = recover(&stale).unwrap();
        assert_eq!(found.state(), state, "{file}");
    }
    manifest.commits().roll().unwrap();
    commit_some(&manifest, &mut editor, 1);
    manifest.commits().confirm().unwrap();
    let state = manifest.state();
    for (file, old) in all_files(&sim).iter().zip(&earlier) {
        let stale = sim.fork(1);
        stale.write_file(file, old).unwrap();
        assert_eq!(recover(&stale).unwrap().state(), state, "{file} of the manifest before");
    }
    let files = all_files(&sim);
    let exchanged = sim.fork(1);
    exchanged.swap_files(&files[0], &files[2]).unwrap();
    assert_eq!(recover(&exchanged).unwrap().state(), state);
}

/// Damage at different places in both files loses nothing; damage to the same record in both is a
/// loss, and is reported.
#[test]
fn damage_in_both_copies_loses_only_common_records() {
    let (sim, state) = closed_store(5);
    let [original, copy, ..] = all_files(&sim);
    let bytes = sim.read_file(&original).unwrap();
    let uid = Header::decode(&bytes).unwrap().manifest;
    let mut starts = vec![HEADER_LEN];
    while starts[starts.len() - 1] < bytes.len() {
        let last = starts[starts.len() - 1];
        starts.push(last + read_record(uid, &bytes, last).unwrap().len());
    }
    starts.pop();
    let (mut whole, mut lost) = (0, 0);
    for (i, a) in starts.iter().enumerate() {
        for (j, b) in starts.iter().enumerate() {
            let damaged = sim.fork(1);
            damaged.flip_bit(&original, *a as u64 + 9, 1).unwrap();
            damaged.flip_bit(&copy, *b as u64 + 9, 2).unwrap();
            match recover(&damaged) {
                Ok(manifest) => {
                    assert!(i != j && manifest.state() == state, "records {i} and {j}");
                    assert_eq!(manifest.report().damaged.len(), 2);
                    whole += 1;
                }
                Err(e) => {
                    assert!(i == j && e.is_corruption(), "records {i} and {j}: {e}");
                    lost += 1;
                }
            }
        }
    }
    assert!(whole > 20 && lost == starts.len(), "{whole} {lost}");
    let damaged = sim.fork(1);
    damaged.erase("/CURRENT").unwrap();
    damaged.erase("/CURRENT.copy").unwrap();
    assert!(recover(&damaged).unwrap_err().is_corruption());
    let witness = crate::look_through(&damaged.env(), DIR.as_ref()).unwrap();
    assert_eq!(witness.state, Some(state), "a repair takes the newest manifest");
}

/// After any crash, and the loss of any one file, all acknowledged edits exist.
#[test]
fn a_crash_and_the_loss_of_one_file_lose_nothing() {
    let (sim, manifest) = new_store_in(6, StoreFormat::V2);
    let mut editor = Editor::new(6);
    let mut acknowledged = vec![(sim.op_count(), manifest.state().store.edit_number)];
    for step in 0..12 {
        let state = manifest.commit(editor.edit(&manifest.state())).unwrap();
        acknowledged.push((sim.op_count(), state.store.edit_number));
        if step % 5 == 4 {
            manifest.commits().roll().unwrap();
        }
    }
    manifest.commits().confirm().unwrap();
    let record = sim.record();
    let mut tried = 0;
    for op in record.mutations().into_iter().filter(|op| *op >= acknowledged[0].0) {
        for (kind, seeds) in [(CrashKind::ProcessKill, 1), (CrashKind::PowerLoss, 3)] {
            for seed in 0..seeds {
                let after = record.crash_at(op, kind, seed);
                let least =
                    acknowledged.iter().filter(|(at, _)| *at <= op).map(|(_, edit)| *edit).max().unwrap();
                for (nth, _) in after.files() {
                    let name = nth.to_string_lossy().into_owned();
                    let lost = after.fork(seed);
                    lost.erase(&nth).unwrap();
                    let what = format!("op {op} {kind:?} {seed}, without {name}");
                    let found = recover(&lost).unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert!(found.state().store.edit_number >= least, "{what}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

/// The cost of an edit and a roll.
#[test]
fn an_edit_and_a_roll_cost_a_fixed_number_of_syncs_and_bytes() {
    let costs = StoreFormat::ALL.map(|format| {
        let (sim, manifest) = new_store_in(7, format);
        commit_some(&manifest, &mut Editor::new(7), 3);
        let counts = |sim: &SimEnv| {
            [OpKind::Sync, OpKind::SyncDir, OpKind::Append].map(|kind| sim.count_ops(Some(kind), ""))
        };
        let (before, bytes) = (counts(&sim), manifest.files().sizes().written());
        manifest.commit(Edit::default()).unwrap();
        let (edit, edit_bytes) = (counts(&sim), manifest.files().sizes().written() - bytes);
        manifest.commits().roll().unwrap();
        let roll = counts(&sim);
        let spent = |from: [u64; 3], to: [u64; 3]| [to[0] - from[0], to[1] - from[1], to[2] - from[2]];
        (spent(before, edit), edit_bytes, spent(edit, roll)[..2].to_vec())
    });
    let header = store::manifest::format::RECORD_HEADER_LEN as u64;
    assert_eq!(costs[0], ([1, 0, 1], header, vec![2, 2]));
    assert_eq!(costs[1], ([2, 0, 2], 2 * header, vec![4, 2]));
}

/// A verification beside writers and rolls raises no false alarm, and reports damage in either
/// file.
#[test]
fn a_verification_reads_both_files() {
    let (sim, manifest) = new_store_in(8, StoreFormat::V2);
    let mut editor = Editor::new(8);
    let mut rng = Rng::new(8);
    commit_some(&manifest, &mut editor, 5);
    assert!(manifest.shared().read_again().unwrap().damaged.is_empty());
    for nth in 0..4 {
        let file = all_files(&sim)[nth].clone();
        let len = sim.read_file(&file).unwrap().len() as u64;
        sim.flip_bit(&file, rng.below(len), 3).unwrap();
        let found = manifest.shared().read_again().unwrap().damaged;
        assert!(found.len() == 1 && found[0].file().unwrap().to_str() == Some(&file), "{found:?}");
        manifest.commits().roll().unwrap();
        assert!(manifest.shared().read_again().unwrap().damaged.is_empty());
    }
}

/// A store of format 1 has no copies, and damage is rejected as before.
#[test]
fn a_store_of_format_1_has_no_copies() {
    let (sim, manifest) = new_store_in(9, StoreFormat::V1);
    commit_some(&manifest, &mut Editor::new(9), 5);
    manifest.commits().confirm().unwrap();
    assert_eq!(sim.files().len(), 2);
    for file in [file_in_use(&sim), "/CURRENT".into()] {
        let damaged = sim.fork(1);
        damaged.erase(&file).unwrap();
        assert!(recover(&damaged).unwrap_err().is_corruption());
    }
    // The store after the upgrade, as the old release sees it, which reads only CURRENT.
    manifest.commits().upgrade(StoreFormat::V2).unwrap();
    assert_eq!(sim.files().len(), 4);
    let current = Current::decode(&sim.read_file("/CURRENT").unwrap()).unwrap();
    assert_eq!(sim.read_file("/CURRENT").unwrap(), sim.read_file("/CURRENT.copy").unwrap());
    let header = sim.read_file(format!("/{}", names::manifest(current.manifest))).unwrap();
    assert_eq!(header[8..12], 3u32.to_le_bytes(), "a version that no earlier release takes");
}
