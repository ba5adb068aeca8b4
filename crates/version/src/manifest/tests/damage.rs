//! Torn tails, flipped bits, swapped files, hostile bytes.

use super::*;
use crate::arbitrary::any_record;

/// Returns a manifest with some edits, the last of which is unconfirmed, and the offsets of its
/// records.
fn sample_bytes(seed: u64) -> (Vec<u8>, Vec<usize>, Vec<State>) {
    let (sim, manifest) = new_store(seed);
    let mut editor = Editor::new(seed);
    commit_some(&manifest, &mut editor, 6);
    manifest.commits().roll().unwrap();
    let mut states = vec![manifest.state()];
    for _ in 0..8 {
        states.push(manifest.commit(editor.edit(&manifest.state())).unwrap());
    }
    let bytes = sim.read_file(file_in_use(&sim)).unwrap();
    let uid = Header::decode(&bytes).unwrap().manifest;
    let mut starts = vec![HEADER_LEN];
    while starts[starts.len() - 1] < bytes.len() {
        let last = starts[starts.len() - 1];
        starts.push(last + read_record(uid, &bytes, last).unwrap().len());
    }
    (bytes, starts, states)
}

#[test]
fn a_tail_torn_at_any_byte_leaves_the_edits_before_it() {
    let (bytes, starts, states) = sample_bytes(20);
    for cut in 0..=bytes.len() {
        for filler in [None, Some(0u8), Some(0xff)] {
            let mut torn = bytes[..cut].to_vec();
            torn.resize(if filler.is_some() { cut + 700 } else { cut }, filler.unwrap_or(0));
            let whole = starts.iter().filter(|s| **s <= cut).count();
            match replay(&torn) {
                Ok(history) => {
                    // Bytes of the filler may happen to equal the bytes that were cut off.
                    let (edits, least) = (history.edits as usize, whole - 2);
                    assert!(edits == least || filler.is_some() && edits == least + 1, "cut {cut}");
                    assert_eq!(history.state, *states[edits].store);
                    assert_eq!(history.torn_bytes, (torn.len() - starts[edits + 1]) as u64);
                }
                Err(e) => assert!(e.is_corruption() && cut < starts[1], "cut {cut}: {e}"),
            }
        }
    }
}

#[test]
fn a_flip_of_any_bit_that_is_confirmed_is_corruption() {
    let (bytes, starts, states) = sample_bytes(21);
    let last = starts[starts.len() - 2];
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            match replay(&flipped) {
                Ok(history) => {
                    assert!(at >= last, "offset {at} bit {bit}: a shorter history went unnoticed");
                    assert_eq!(history.state, *states[states.len() - 2].store);
                }
                Err(e) => assert!(e.is_corruption() && e.offset().is_some() && at < last, "offset {at}: {e}"),
            }
        }
    }
}

/// Once an external witness has seen the last edit durable, damage to it is rejected, and so is a
/// missing tail.
#[test]
fn witnesses_confirm_the_last_edit() {
    let (sim, manifest) = new_store(22);
    commit_some(&manifest, &mut Editor::new(22), 6);
    let witness = manifest.durable_edit();
    drop(manifest);
    let path = file_in_use(&sim);
    let len = sim.read_file(&path).unwrap().len() as u64;
    for cut in [1, 20] {
        let damaged = sim.fork(cut);
        damaged.set_file_len(&path, len - cut).unwrap();
        let manifest = recover(&damaged).unwrap();
        assert_eq!(manifest.durable_edit(), witness - 1);
        assert!(manifest.require_edit(witness).unwrap_err().is_corruption());
    }
    // A confirming close leaves only an empty edit unprotected.
    let manifest = recover(&sim).unwrap();
    manifest.commits().roll().unwrap();
    commit_some(&manifest, &mut Editor::new(23), 3);
    let last = manifest.state();
    manifest.commits().confirm().unwrap();
    drop(manifest);
    let path = file_in_use(&sim);
    for at in 0..sim.read_file(&path).unwrap().len() as u64 {
        let damaged = sim.fork(at);
        damaged.flip_bit(&path, at, at as u32 % 8).unwrap();
        match recover(&damaged) {
            Ok(manifest) => {
                assert!(manifest.state().store.edit_number >= last.store.edit_number, "offset {at}")
            }
            Err(e) => assert!(e.is_corruption() && e.file().is_some(), "offset {at}: {e}"),
        }
    }
}

/// Records of one batch do not confirm each other: their pages may have reached the disk in any
/// order.
#[test]
fn a_hole_in_the_last_batch_is_a_torn_tail() {
    let (bytes, ..) = sample_bytes(24);
    let (header, durable) = (Header::decode(&bytes).unwrap(), replay(&bytes).unwrap().state.edit_number);
    let mut batch = bytes.clone();
    let mut starts = Vec::new();
    for i in 1..4 {
        starts.push(batch.len());
        let payload = Edit(vec![Record::Store(StoreRecord::NextLtn(100 + i))]).encode();
        batch.extend(encode_record(header.manifest, batch.len() as u64, durable + i, durable, &payload));
    }
    assert_eq!(replay(&batch).unwrap().state.edit_number, durable + 3);
    for (i, start) in starts.iter().enumerate() {
        let mut holed = batch.clone();
        holed[start + 25] ^= 1;
        assert_eq!(replay(&holed).unwrap().state.edit_number, durable + i as u64, "hole in record {i}");
    }
    // A later batch confirms all of it.
    let next = encode_record(header.manifest, batch.len() as u64, durable + 4, durable + 3, &[]);
    batch.extend(next);
    for start in starts {
        let mut holed = batch.clone();
        holed[start + 25] ^= 1;
        assert!(replay(&holed).is_err_and(|e| e.is_corruption()));
    }
}

/// Intact records in the wrong place: the checksum is right, the history is not.
#[test]
fn records_that_do_not_continue_the_history_are_refused() {
    let (bytes, ..) = sample_bytes(25);
    let uid = Header::decode(&bytes).unwrap().manifest;
    let last = replay(&bytes).unwrap().state.edit_number;
    let offset = bytes.len() as u64;
    let contradiction = Edit(vec![Record::DropFamily { id: 77 }]).encode();
    for (edit, durable, payload) in [
        (last + 2, last, &[][..]),
        (last, last - 1, &[]),
        (last + 1, last + 1, &[]),
        (last + 1, 0, &[]),
        (last + 1, last, &contradiction),
        (last + 1, last, &[1]),
    ] {
        let record = encode_record(uid, offset, edit, durable, payload);
        let e = replay(&[bytes.clone(), record].concat()).expect_err("refused");
        assert!(e.is_corruption() && e.offset() == Some(offset), "{e}");
    }
    let newer = encode_record(uid, offset, last + 1, last, &[99, 0]);
    let e = replay(&[bytes.clone(), newer].concat()).expect_err("refused");
    assert_eq!(e.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_newer_format_is_unsupported_and_names_the_file() {
    let (sim, manifest) = new_store(26);
    drop(manifest);
    let path = file_in_use(&sim);
    let mut bytes = sim.read_file(&path).unwrap();
    bytes[8] = 4;
    sim.write_file(&path, &bytes).unwrap();
    assert!(recover(&sim).unwrap_err().is_corruption(), "a flip is not a new version");
    let uid = Uid(bytes[32..48].try_into().unwrap());
    let sum = base::checksum::stored(&bytes[..60], uid, 0);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(&path, &bytes).unwrap();
    let e = recover(&sim).unwrap_err();
    assert_eq!((e.kind(), e.file()), (ErrorKind::Unsupported, Some(path.as_ref())));
}

#[test]
fn damage_to_current_is_detected() {
    let (sim, manifest) = new_store(27);
    commit_some(&manifest, &mut Editor::new(27), 4);
    let text = sim.read_file("/CURRENT").unwrap();
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut flipped = text.clone();
            flipped[at] ^= 1 << bit;
            assert!(Current::decode(&flipped).is_err(), "offset {at} bit {bit}");
        }
        assert!(Current::decode(&text[..at]).is_err());
    }
    let damaged = sim.fork(1);
    damaged.flip_bit("/CURRENT", 20, 1).unwrap();
    let e = recover(&damaged).unwrap_err();
    assert!(e.is_corruption() && e.file() == Some("/CURRENT".as_ref()));
    // An old manifest under the current name, and a missing one.
    let old = sim.read_file(file_in_use(&sim)).unwrap();
    manifest.commits().roll().unwrap();
    let path = file_in_use(&sim);
    let swapped = sim.fork(2);
    swapped.write_file(&path, &old).unwrap();
    assert!(recover(&swapped).unwrap_err().is_corruption());
    let missing = sim.fork(3);
    missing.erase(&path).unwrap();
    let e = recover(&missing).unwrap_err();
    assert!(e.is_corruption() && e.file() == Some(path.as_ref()));
}

/// Random changes, with and without a corrected checksum: an error or a state that verifies, never
/// a panic.
#[test]
fn hostile_manifests_never_panic() {
    let mut rng = io::Rng::new(28);
    let (bytes, starts, _) = sample_bytes(28);
    let header = Header::decode(&bytes).unwrap();
    for _ in 0..3000 {
        let mut hostile = bytes.clone();
        if rng.one_in(2) {
            for _ in 0..rng.range(1, 30) {
                let at = rng.below(hostile.len() as u64) as usize;
                hostile[at] = rng.next_u64() as u8;
            }
        } else {
            hostile.truncate(starts[rng.range(1, starts.len() as u64) as usize]);
            let last = replay(&hostile).unwrap().state.edit_number;
            let records = (0..rng.range(1, 4)).map(|_| any_record(&mut rng.fork(), rng.below(20))).collect();
            let payload = Edit(records).encode();
            hostile.extend(encode_record(header.manifest, hostile.len() as u64, last + 1, last, &payload));
        }
        if let Ok(history) = replay(&hostile) {
            history.state.verify().unwrap();
        }
        assert!(!dump_manifest(&hostile).is_empty());
    }
    // Every offset looks like a record that confirms: the search gives up and rejects.
    let mut crafted = bytes[..starts[1]].to_vec();
    let edit = replay(&crafted).unwrap().state.edit_number;
    crafted.extend([0xff; 8]);
    for _ in 0..20_000 {
        crafted.extend([0, 0, 1, 0, 9, 9, 9, 9]);
        crafted.extend((edit + 9).to_le_bytes());
        crafted.extend((edit + 8).to_le_bytes());
    }
    assert!(replay(&crafted).is_err_and(|e| e.is_corruption()));
}

/// On LavaFS the end of an unclosed manifest is unknown, and its blocks continue with the old
/// contents of other files: pages of the log, whose numbers are small, or user values crafted to
/// look like records.
#[test]
fn stale_bytes_after_the_end_are_a_torn_tail() {
    let (bytes, starts, _) = sample_bytes(30);
    let history = replay(&bytes).unwrap();
    let edit = history.state.edit_number;
    // Length, checksum, number, durable number, as often as they fit: none of them is a record of
    // this manifest.
    let stale: [(u32, u64, u64); 3] =
        [(40_000, edit + 9, edit + 8), (65_000, edit + 2, edit + 1), (500, 7, 6)];
    for (len, number, durable) in stale {
        let mut longer = bytes.clone();
        longer.resize(bytes.len().next_multiple_of(4096), 0);
        while longer.len() < 64 << 10 {
            longer.extend(len.to_le_bytes());
            longer.extend([9; 4]);
            longer.extend(number.to_le_bytes());
            longer.extend(durable.to_le_bytes());
        }
        let found = replay(&longer).unwrap();
        assert_eq!(found.state.edit_number, edit, "{len} {number} {durable}");
        assert_eq!(found.torn_bytes, (longer.len() - starts[starts.len() - 1]) as u64);
    }
}

#[test]
fn the_listing_shows_every_record() {
    let (bytes, starts, _) = sample_bytes(29);
    let lines = dump_manifest(&bytes);
    assert!(lines[0].starts_with("manifest "), "{}", lines[0]);
    assert_eq!(lines.iter().filter(|l| l.starts_with("offset ")).count(), starts.len() - 1);
    let cut = dump_manifest(&bytes[..bytes.len() - 1]);
    assert!(cut.iter().any(|l| l.contains("torn or damaged")), "{cut:?}");
    assert_eq!(dump_manifest(b"nonsense").len(), 1);
}

#[test]
fn implausible_values_are_refused() {
    // Numbers that would overflow.
    let (sim, manifest) = new_store(31);
    let far = StoreRecord::NextFileNumber(store::numbers::NUMBER_REACHED_MAX + 1);
    manifest.commit(Edit(vec![Record::Store(far)])).unwrap();
    drop(manifest);
    let e = recover(&sim).unwrap_err();
    assert!(e.is_corruption() && e.message().contains("exceeds the limit of a store"), "{e}");
    // An intact header with a field of no release.
    let (sim, manifest) = new_store(32);
    drop(manifest);
    let path = file_in_use(&sim);
    let mut bytes = sim.read_file(&path).unwrap();
    bytes[12] = 1;
    let uid = Uid(bytes[32..48].try_into().unwrap());
    let sum = base::checksum::stored(&bytes[..60], uid, 0);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(&path, &bytes).unwrap();
    let e = recover(&sim).unwrap_err();
    let told = "the format, number or piece count in the manifest's header is out of range: header \
                version 1, number 1, 0 pieces";
    assert!(e.is_corruption() && e.message() == told, "{e}");
    assert_eq!(e.file(), Some(path.as_ref()));
}

/// A sparse file, which the simulated machine does not support.
#[test]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "makes and removes a file of holes")]
fn an_overlong_manifest_is_not_read() {
    let dir = std::env::temp_dir().join(format!("lavastore-long-manifest-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let env = Env::kernel();
    drop(Manifest::create(&env, &dir, InitialState::default()).unwrap());
    let current = Current::decode(&std::fs::read(dir.join("CURRENT")).unwrap()).unwrap();
    let path = dir.join(names::manifest(current.manifest));
    std::fs::File::options().write(true).open(&path).unwrap().set_len(5 << 30).unwrap();
    let e = Manifest::recover(&env, &dir, false).unwrap_err();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(e.is_corruption() && e.message().contains("exceeds the limit of"), "{e}");
    assert_eq!(e.file(), Some(&*path));
}
