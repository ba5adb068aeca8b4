//! The bytes of version 1, kept for ever. `LAVASTORE_BLESS=1 cargo test` writes them anew, which is right only while
//! the version number in the header changes with them.

use super::*;
use crate::arbitrary::{KINDS, any_record};
use io::Rng;

#[path = "../../../../io/tests/golden_files/mod.rs"]
mod golden_files;

const MANIFEST: &[u8] = include_bytes!("../../../tests/golden/manifest-v1-group-uids.bin");
const LISTING: &str = include_str!("../../../tests/golden/manifest-v1-group-uids.txt");
const RECORDS: &[u8] = include_bytes!("../../../tests/golden/records-v1-group-uids.bin");
/// As they were written before log groups had identities.
const OLD_MANIFEST: &[u8] = include_bytes!("../../../tests/golden/manifest-v1.bin");
const OLD_LISTING: &str = include_str!("../../../tests/golden/manifest-v1.txt");
const OLD_RECORDS: &[u8] = include_bytes!("../../../tests/golden/records-v1.bin");
const CURRENT: &[u8] = include_bytes!("../../../tests/golden/current-v1.txt");

fn fixed_current() -> Current {
    Current { manifest: 77, uid: Uid::from_words(3, 4), edit: 1 << 40 }
}

/// A snapshot and some edits, made from a fixed seed.
fn fixed_manifest() -> Vec<u8> {
    let header = Header { store: Uid::from_words(1, 2), manifest: Uid::from_words(3, 4), number: 77 };
    let mut editor = Editor::new(2024);
    let mut state = State::empty(header.store, (1 << 40) - 60);
    for _ in 0..60 {
        state = state.apply(editor.edit(&state)).unwrap();
    }
    let mut bytes = header.encode();
    let edit = state.store.edit_number;
    let payload = state.snapshot();
    bytes.extend(encode_record(header.manifest, bytes.len() as u64, edit, edit, &payload));
    for _ in 0..25 {
        let (edit, number) = (editor.edit(&state), state.store.edit_number);
        bytes.extend(encode_record(header.manifest, bytes.len() as u64, number + 1, number, &edit.encode()));
        state = state.apply(&edit).unwrap();
    }
    bytes
}

fn fixed_records() -> Vec<u8> {
    let mut rng = Rng::new(2025);
    Edit((0..KINDS * 4).map(|i| any_record(&mut rng, i % KINDS)).collect()).encode()
}

fn listing(bytes: &[u8]) -> String {
    let described = replay(bytes).map(|h| h.state.describe()).unwrap_or_default();
    format!("{}\n\n{described}", dump_manifest(bytes).join("\n"))
}

#[test]
fn the_writer_produces_version_1() {
    let manifest = fixed_manifest();
    let now = [
        ("manifest-v1-group-uids.bin", manifest.clone(), MANIFEST),
        ("manifest-v1-group-uids.txt", listing(&manifest).into_bytes(), LISTING.as_bytes()),
        ("records-v1-group-uids.bin", fixed_records(), RECORDS),
        ("current-v1.txt", fixed_current().encode().into_bytes(), CURRENT),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
}

#[test]
fn version_1_is_read() {
    for (manifest, text, records) in [(MANIFEST, LISTING, RECORDS), (OLD_MANIFEST, OLD_LISTING, OLD_RECORDS)]
    {
        assert_eq!(listing(manifest), text);
        let history = replay(manifest).unwrap();
        assert_eq!((history.edits, history.torn_bytes), (25, 0));
        history.state.verify().unwrap();
        let decoded = Edit::decode(records).unwrap();
        assert_eq!((decoded.0.len() as u64, decoded.encode()), (KINDS * 4, records.to_vec()));
    }
    assert_eq!(Current::decode(CURRENT).unwrap(), fixed_current());
}
