//! The bytes of version 1, kept forever. `LAVASTORE_BLESS=1 cargo test` rewrites them, which is
//! right only if the version number in the header changes with them.

use super::*;
use crate::arbitrary::{KINDS, KINDS_BEFORE, any_record};
use crate::meta::{VsstClass, VsstMeta};
use crate::state::tests::{depends_on, table, vsst};
use io::Rng;
use store::names::FileKind;
use store::volumes::{FastTier, Volume};

#[path = "../../../../io/tests/golden_files/mod.rs"]
mod golden_files;

const MANIFEST: &[u8] = include_bytes!("../../../tests/golden/manifest-v1-group-uids.bin");
const LISTING: &str = include_str!("../../../tests/golden/manifest-v1-group-uids.txt");
const RECORDS: &[u8] = include_bytes!("../../../tests/golden/records-v1-group-uids.bin");
/// The files from before log groups had identities.
const OLD_MANIFEST: &[u8] = include_bytes!("../../../tests/golden/manifest-v1.bin");
const OLD_LISTING: &str = include_str!("../../../tests/golden/manifest-v1.txt");
const OLD_RECORDS: &[u8] = include_bytes!("../../../tests/golden/records-v1.bin");
const CURRENT: &[u8] = include_bytes!("../../../tests/golden/current-v1.txt");

const SPEED: &[u8] = include_bytes!("../../../tests/golden/manifest-v1-speed-tables.bin");
const SPEED_LISTING: &str = include_str!("../../../tests/golden/manifest-v1-speed-tables.txt");

/// A manifest in a store of format 2.
const NUMBERED: &[u8] = include_bytes!("../../../tests/golden/manifest-v3.bin");
const NUMBERED_LISTING: &str = include_str!("../../../tests/golden/manifest-v3.txt");

const VALUES: &[u8] = include_bytes!("../../../tests/golden/manifest-v1-speed-values.bin");
const VALUES_LISTING: &str = include_str!("../../../tests/golden/manifest-v1-speed-values.txt");

/// References as sums under blob ids; the dependency lists are in the tables.
const SUMS: &[u8] = include_bytes!("../../../tests/golden/manifest-v1-name-sums.bin");
const SUMS_LISTING: &str = include_str!("../../../tests/golden/manifest-v1-name-sums.txt");
const SUMS_RECORDS: &[u8] = include_bytes!("../../../tests/golden/records-v1-name-sums.bin");

/// Version 2: the snapshot in pieces.
const PIECES: &[u8] = include_bytes!("../../../tests/golden/manifest-v2-pieces.bin");
const PIECES_LISTING: &str = include_str!("../../../tests/golden/manifest-v2-pieces.txt");
/// Length of the longest piece, in bytes.
const PIECE_LEN_MAX: usize = 200;

fn fixed_current() -> Current {
    Current { manifest: 77, uid: Uid::from_words(3, 4), edit: 1 << 40 }
}

/// Returns a snapshot in pieces of at most this many bytes, and some edits, made from a fixed seed.
fn fixed_manifest(piece_len_max: usize) -> Vec<u8> {
    made_by(Editor::of_before(2024), piece_len_max)
}

fn made_by(mut editor: Editor, piece_len_max: usize) -> Vec<u8> {
    let (store, manifest) = (Uid::from_words(1, 2), Uid::from_words(3, 4));
    let mut state = State::empty(store, (1 << 40) - 60);
    for _ in 0..60 {
        state = state.apply(editor.edit(&state)).unwrap();
    }
    let edit = state.store.edit_number;
    let snapshot = state.snapshot();
    let payloads = pieces(&snapshot, piece_len_max);
    let header =
        Header { store, manifest, number: 77, pieces: payloads.len() as u32, format: StoreFormat::V1 };
    let mut bytes = header.encode();
    for payload in payloads {
        bytes.extend(encode_record(manifest, bytes.len() as u64, edit, edit, payload));
    }
    for _ in 0..25 {
        let (edit, number) = (editor.edit(&state), state.store.edit_number);
        bytes.extend(encode_record(header.manifest, bytes.len() as u64, number + 1, number, &edit.encode()));
        state = state.apply(&edit).unwrap();
    }
    bytes
}

fn fixed_records() -> Vec<u8> {
    let mut rng = Rng::new(2025);
    Edit((0..KINDS_BEFORE * 4).map(|i| any_record(&mut rng, i % KINDS_BEFORE)).collect()).encode()
}

fn listing(bytes: &[u8]) -> String {
    let described = replay(bytes).map(|h| h.state.describe()).unwrap_or_default();
    format!("{}\n\n{described}", dump_manifest(bytes).join("\n"))
}

#[test]
fn the_writer_produces_version_1() {
    let manifest = fixed_manifest(usize::MAX);
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
        assert_eq!((decoded.0.len() as u64, decoded.encode()), (KINDS_BEFORE * 4, records.to_vec()));
    }
    assert_eq!(Current::decode(CURRENT).unwrap(), fixed_current());
}

fn sums_records() -> Vec<u8> {
    let mut rng = Rng::new(2026);
    Edit((KINDS_BEFORE..KINDS).flat_map(|kind| [kind; 8]).map(|kind| any_record(&mut rng, kind)).collect())
        .encode()
}

/// Histories with sums lead to the same state as those with lists, and have no lists.
#[test]
fn golden_name_sums_are_unchanged() {
    let bytes = made_by(Editor::new(2024), usize::MAX);
    let now = [
        ("manifest-v1-name-sums.bin", bytes.clone(), SUMS),
        ("manifest-v1-name-sums.txt", listing(&bytes).into_bytes(), SUMS_LISTING.as_bytes()),
        ("records-v1-name-sums.bin", sums_records(), SUMS_RECORDS),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    assert_eq!(listing(SUMS), SUMS_LISTING);
    let decoded = Edit::decode(SUMS_RECORDS).unwrap();
    assert_eq!((decoded.0.len(), decoded.encode()), (16, SUMS_RECORDS.to_vec()));
    let kv = |bytes: &[u8]| State::of(Arc::new(replay(bytes).unwrap().state)).unwrap();
    let (with_lists, with_sums) = (kv(MANIFEST), kv(SUMS));
    with_sums.verify().unwrap();
    let lists = |state: &State| {
        let tables = state.families.values().flat_map(|f| f.version.levels.iter().flatten());
        tables.filter(|f| f.uses.sums().names > 0).map(|f| f.uses.list().is_some()).collect::<Vec<_>>()
    };
    assert!(lists(&with_lists).len() > 5 && lists(&with_lists).iter().all(|has| *has));
    assert!(lists(&with_sums).iter().all(|has| !has));
    let converted = with_lists.without_lists();
    assert_eq!(*with_sums, converted);
    assert_eq!(converted.snapshot().encode(), crate::KvState::snapshot(&with_sums).encode());
}

/// A store whose manifest has lists continues with one that has none.
#[test]
fn a_manifest_with_lists_is_converted_by_a_roll() {
    let (sim, manifest) = new_store(1);
    let mut editor = Editor::of_before(9);
    commit_some(&manifest, &mut editor, 80);
    let before = manifest.state();
    drop(manifest);
    let written = |sim: &SimEnv| sim.read_file(file_in_use(sim)).unwrap();
    let has_sums =
        |sim: &SimEnv| dump_manifest(&written(sim)).iter().any(|line| line.contains("references family"));
    assert!(!has_sums(&sim));
    let manifest = recover(&sim).unwrap();
    manifest.commit(Edit::default()).unwrap();
    assert!(has_sums(&sim));
    let references =
        |state: &State| state.families.values().map(|f| f.version.references.clone()).collect::<Vec<_>>();
    assert_eq!(references(&manifest.state()), references(&before));
    assert!(!references(&before).iter().all(store::IdMap::is_empty));
    drop(manifest);
    let again = recover(&sim).unwrap().state();
    assert_eq!(references(&again), references(&before));
    again.verify().unwrap();
}

#[test]
fn golden_version_2_is_unchanged_and_equals_version_1() {
    let bytes = fixed_manifest(PIECE_LEN_MAX);
    let now = [
        ("manifest-v2-pieces.bin", bytes.clone(), PIECES),
        ("manifest-v2-pieces.txt", listing(&bytes).into_bytes(), PIECES_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    assert_eq!(listing(PIECES), PIECES_LISTING);
    assert_eq!(PIECES[8..12], [2, 0, 0, 0]);
    let header = Header::decode(PIECES).unwrap();
    assert!(header.pieces > 10, "{header:?}");
    let (history, whole) = (replay(PIECES).unwrap(), replay(MANIFEST).unwrap());
    assert_eq!((history.edits, history.torn_bytes), (25, 0));
    assert_eq!(history.state, whole.state);
}

fn on_speed(number: u64, low: u64, seq: u64) -> FileMeta {
    FileMeta { volume: Volume::FAST, ..table(number, low, low + 9, (seq, seq)) }
}

/// A change of a state.
type Change<'a> = &'a dyn Fn(&State) -> Vec<Record>;

/// Returns the history of a store that gets a fast tier, has tables on both tiers, moves one down a
/// level without moving its file, and removes the fast tier.
fn fixed_speed() -> (Vec<u8>, Vec<State>) {
    let header = Header {
        store: Uid::from_words(1, 2),
        manifest: Uid::from_words(3, 4),
        number: 78,
        pieces: 1,
        format: StoreFormat::V1,
    };
    let add = |level, meta| Record::AddFile { family: 0, level, meta };
    let (disk, session) = (Uid::from_words(7, 7), Uid::from_words(8, 1));
    let disk = FastTier { disk, epoch: 1, session, place: "/fast".into() };
    let create = Record::CreateFamily { id: 0, name: "default".into(), options: Vec::new() };
    let edits: [Change<'_>; 5] = [
        &|_| vec![create.clone(), add(1, table(5, 0, 9, (1, 1)))],
        &|_| vec![Record::Store(StoreRecord::FastTier { disk: Some(disk.clone()) })],
        &|_| vec![add(0, on_speed(7, 20, 3)), add(0, table(8, 40, 49, (4, 4))), add(1, on_speed(9, 60, 2))],
        &|_| vec![Record::RemoveFile { family: 0, level: 0, number: 7 }, add(1, on_speed(7, 20, 3))],
        &|state| {
            let gone = Record::Store(StoreRecord::FastTier { disk: None });
            state.to_directory().0.into_iter().chain([gone]).collect()
        },
    ];
    history_of(&header, &edits)
}

/// Returns the manifest of a new store with these edits, and the resulting states.
fn history_of(header: &Header, edits: &[Change<'_>]) -> (Vec<u8>, Vec<State>) {
    let mut states = vec![State::empty(header.store, 6)];
    let mut bytes = header.encode();
    let payload = states[0].snapshot();
    bytes.extend(encode_record(header.manifest, bytes.len() as u64, 6, 6, &payload));
    for edit in edits {
        let state = states.last().unwrap();
        let (edit, number) = (Edit(edit(state)), state.store.edit_number);
        bytes.extend(encode_record(header.manifest, bytes.len() as u64, number + 1, number, &edit.encode()));
        states.push(state.apply(&edit).unwrap());
    }
    (bytes, states)
}

/// Returns the history of a store with hot values on its fast tier, some of which are collected,
/// that removes the fast tier.
fn fixed_values() -> (Vec<u8>, Vec<State>) {
    let header = Header {
        store: Uid::from_words(1, 2),
        manifest: Uid::from_words(3, 4),
        number: 79,
        pieces: 1,
        format: StoreFormat::V1,
    };
    let (disk, session) = (Uid::from_words(7, 7), Uid::from_words(8, 1));
    let disk = FastTier { disk, epoch: 1, session, place: "/fast".into() };
    let create = Record::CreateFamily { id: 0, name: "default".into(), options: Vec::new() };
    let add = |meta| Record::AddVsst { family: 0, meta };
    let needs = |number, seq, blob_id| Record::AddFile {
        family: 0,
        level: 0,
        meta: depends_on(table(number, 10, 90, (seq, seq)), &[blob_id]),
    };
    let hot = |number, took_over| VsstMeta {
        volume: Volume::FAST,
        class: VsstClass::Hot,
        ..vsst(number, 10, 90, took_over)
    };
    let cold = |number, took_over| VsstMeta { class: VsstClass::Cold, ..vsst(number, 10, 90, took_over) };
    let replace =
        |input, output| Record::ReplaceVsst { family: 0, inputs: vec![input], outputs: vec![output] };
    let edits: [Change<'_>; 5] = [
        &|_| vec![create.clone(), Record::Store(StoreRecord::FastTier { disk: Some(disk.clone()) })],
        &|_| vec![add(hot(5, vec![])), add(cold(6, vec![])), needs(7, 11, 5), needs(8, 12, 6)],
        &|_| vec![replace(5, cold(9, vec![5])), replace(6, hot(10, vec![6]))],
        &|_| vec![add(hot(11, vec![])), needs(12, 13, 11)],
        &|state| {
            let gone = Record::Store(StoreRecord::FastTier { disk: None });
            state.to_directory().0.into_iter().chain([gone]).collect()
        },
    ];
    history_of(&header, &edits)
}

#[test]
fn golden_manifest_with_values_on_two_disks_is_unchanged() {
    let (bytes, states) = fixed_values();
    let now = [
        ("manifest-v1-speed-values.bin", bytes.clone(), VALUES),
        ("manifest-v1-speed-values.txt", listing(&bytes).into_bytes(), VALUES_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let history = replay(VALUES).unwrap();
    assert_eq!(history.state.snapshot(), states.last().unwrap().snapshot());
    for state in &states {
        state.verify().unwrap();
        state.store.check_volumes(DIR.as_ref()).unwrap();
        let snapshot = Edit::decode(&state.snapshot()).unwrap().encode();
        let again = State::from_snapshot(state.store.uid, state.store.edit_number, &snapshot).unwrap();
        assert_eq!(again, *state);
    }
    let version = |at: usize| &states[at].families.get(&0).unwrap().version;
    let names = |at: usize| version(at).vssts.values().map(|v| v.kind().to_string()).collect::<Vec<_>>();
    assert_eq!(names(2), ["000000000005.vsst-1", "000000000006.vsst"]);
    assert_eq!(names(4), ["000000000009.vsst", "000000000010.vsst-1", "000000000011.vsst-1"]);
    assert_eq!(
        states[4].store.engines.files_on(Volume::FAST),
        [FileKind::FastVsst(10), FileKind::FastVsst(11)]
    );
    assert_eq!(names(5), ["000000000009.vsst", "000000000010.vsst", "000000000011.vsst"]);
    assert_eq!(version(5).aliases, version(4).aliases, "names lead to numbers");
    assert!(states[5].to_directory().0.is_empty());
}

#[test]
fn golden_manifest_with_a_format_is_unchanged() {
    let (store, manifest) = (Uid::from_words(1, 2), Uid::from_words(3, 4));
    let header = Header { store, manifest, number: 80, pieces: 1, format: StoreFormat::V2 };
    let create = Record::CreateFamily { id: 0, name: "default".into(), options: Vec::new() };
    let add = |number| Record::AddFile { family: 0, level: 0, meta: table(number, 10, 90, (number, number)) };
    let edits: [Change<'_>; 2] = [&|_| vec![create.clone(), add(5)], &|_| vec![add(6)]];
    let (bytes, states) = history_of(&header, &edits);
    let now = [
        ("manifest-v3.bin", bytes.clone(), NUMBERED),
        ("manifest-v3.txt", listing(&bytes).into_bytes(), NUMBERED_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let history = replay(NUMBERED).unwrap();
    assert_eq!((history.header, history.state.format), (header, StoreFormat::V2));
    assert_eq!(history.state, states.last().unwrap().store.in_format(StoreFormat::V2));
}

#[test]
fn golden_manifest_with_tables_on_two_disks_is_unchanged() {
    let (bytes, states) = fixed_speed();
    let now = [
        ("manifest-v1-speed-tables.bin", bytes.clone(), SPEED),
        ("manifest-v1-speed-tables.txt", listing(&bytes).into_bytes(), SPEED_LISTING.as_bytes()),
    ];
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &now);
    let history = replay(SPEED).unwrap();
    assert_eq!(history.state.snapshot(), states.last().unwrap().snapshot());
    for state in &states {
        state.verify().unwrap();
        state.store.check_volumes(DIR.as_ref()).unwrap();
    }
    let kinds = |state: &State| [5, 7, 8, 9].map(|n| state.table(n).map(|table| table.kind().to_string()));
    let name = |name: &str| Some(name.to_owned());
    let two = ["000000000005.ksst", "000000000007.ksst-1", "000000000008.ksst", "000000000009.ksst-1"];
    assert_eq!(kinds(&states[4]), two.map(name));
    assert_eq!(
        states[4].store.engines.files_on(Volume::FAST),
        [FileKind::FastKsst(7), FileKind::FastKsst(9)]
    );
    assert_eq!(kinds(&states[5]), two.map(|it| name(it.trim_end_matches("-1"))), "all are in the directory");
    assert!(states[5].to_directory().0.is_empty());
}

/// The recorded place of a table must exist, or the history is not opened.
#[test]
fn a_table_on_an_unknown_disk_is_refused_by_name() {
    let create = || Record::CreateFamily { id: 0, name: "default".into(), options: Vec::new() };
    for (volume, kind, file) in [
        (Volume::FAST, ErrorKind::Corruption, "/000000000007.ksst-1"),
        (Volume(2), ErrorKind::Unsupported, "/000000000007.ksst"),
    ] {
        let (sim, manifest) = new_store(1);
        let meta = FileMeta { volume, ..on_speed(7, 1, 3) };
        manifest.commit(Edit(vec![create(), Record::AddFile { family: 0, level: 0, meta }])).unwrap();
        drop(manifest);
        let refusal = recover(&sim).unwrap_err();
        assert_eq!((refusal.kind(), refusal.file()), (kind, Some(file.as_ref())), "{refusal}");
    }
}

/// The same for values; segments are always in the directory.
#[test]
fn values_on_an_unknown_disk_are_refused_by_name() {
    let create = || Record::CreateFamily { id: 0, name: "default".into(), options: Vec::new() };
    for (volume, segment, kind, file) in [
        (Volume::FAST, false, ErrorKind::Corruption, "/000000000007.vsst-1"),
        (Volume::FAST, true, ErrorKind::Unsupported, "/000000000007.vsst"),
        (Volume(2), false, ErrorKind::Unsupported, "/000000000007.vsst"),
    ] {
        let (sim, manifest) = new_store(1);
        let meta = VsstMeta { volume, segment, ..vsst(7, 1, 9, vec![]) };
        manifest.commit(Edit(vec![create(), Record::AddVsst { family: 0, meta }])).unwrap();
        drop(manifest);
        let refusal = recover(&sim).unwrap_err();
        assert_eq!((refusal.kind(), refusal.file()), (kind, Some(file.as_ref())), "{refusal}");
    }
}
