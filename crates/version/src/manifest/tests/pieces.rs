//! Snapshots in pieces read as one record, and damage to any piece is detected.

use super::*;

/// Returns a store whose manifest begins with a snapshot in pieces, and the number of pieces.
fn store_in_pieces(seed: u64, piece_bytes: u64) -> (SimEnv, Manifest, u32) {
    let (sim, manifest) = new_store(seed);
    commit_some(&manifest, &mut Editor::new(seed), 40);
    manifest.files().sizes().set_piece_len(piece_bytes);
    manifest.commits().roll().unwrap();
    let bytes = sim.read_file(file_in_use(&sim)).unwrap();
    let pieces = Header::decode(&bytes).unwrap().pieces;
    (sim, manifest, pieces)
}

#[test]
fn a_history_continues_from_a_snapshot_in_pieces() {
    let whole = store_in_pieces(80, u64::MAX);
    assert_eq!(whole.2, 1);
    let state = whole.1.state();
    let len = state.snapshot().len() as u64;
    for piece_bytes in [1, 7, 100, 500, len / 2, len - 1, len] {
        let (sim, manifest, pieces) = store_in_pieces(80, piece_bytes);
        assert_eq!(pieces == 1, piece_bytes == len, "whole where it fits");
        assert!(u64::from(pieces) >= len / piece_bytes);
        let mut editor = Editor::new(81);
        commit_some(&manifest, &mut editor, 5);
        let state = manifest.state();
        drop(manifest);
        let manifest = recover(&sim).unwrap();
        assert_eq!(manifest.state(), state);
        assert_eq!((manifest.report().edits, manifest.report().torn_bytes), (5, 0));
        // The next one is whole again, since pieces were not requested.
        commit_some(&manifest, &mut editor, 1);
        let header = Header::decode(&sim.read_file(file_in_use(&sim)).unwrap()).unwrap();
        assert_eq!(header.pieces, 1);
    }
}

#[test]
fn damage_to_any_piece_is_corruption() {
    let (sim, manifest, pieces) = store_in_pieces(82, 300);
    assert!(pieces > 3);
    drop(manifest);
    let bytes = sim.read_file(file_in_use(&sim)).unwrap();
    replay(&bytes).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(replay(&flipped).unwrap_err().is_corruption(), "offset {at}");
        assert!(replay(&bytes[..at]).unwrap_err().is_corruption(), "cut at {at}");
    }
}

/// Older releases know version 1, in which the snapshot is whole, and reject version 2.
#[test]
fn only_snapshots_in_pieces_need_version_2() {
    for (piece_bytes, version) in [(u64::MAX, 1), (300, 2)] {
        let (sim, ..) = store_in_pieces(83, piece_bytes);
        let bytes = sim.read_file(file_in_use(&sim)).unwrap();
        assert_eq!(bytes[8..12], [version, 0, 0, 0]);
        let listing = history::dump_manifest(&bytes, &Engines::of::<Kv>());
        assert!(!listing.iter().any(|line| line.contains("damaged") || line.contains("does not replay")));
    }
}

#[test]
fn intact_snapshot_pieces_are_witnesses_beside_a_damaged_one() {
    let (sim, manifest, _) = store_in_pieces(84, 300);
    let families = manifest.state().families.len();
    drop(manifest);
    let path = file_in_use(&sim);
    let len = sim.read_file(&path).unwrap().len() as u64;
    sim.flip_bit(&path, len - 5, 1).unwrap();
    let e = recover(&sim).unwrap_err();
    assert!(e.is_corruption(), "{e}");
    let witness = crate::look_through(&sim.env(), DIR.as_ref()).unwrap();
    assert!(witness.state.is_none() && !witness.damage.is_empty());
    assert!(witness.families.len() + 1 >= families, "what the other pieces say is found");
}
