mod broken;
mod prepared;

use super::*;
use crate::arbitrary::{Editor, user_key};
use crate::manifest::State;
use crate::meta::{Dependency, VsstMeta};
use crate::uses::{ReferenceTotals, TableReferences};
use crate::version::AliasTarget;
use base::codec::Reader;
use base::{ErrorKind, Uid, ValueKind, key};
use std::collections::{BTreeMap, BTreeSet};
use store::manifest::{LogGroupMeta, Record as StoreRecord};

/// File numbers by (family, level), by the plain meaning of the records. Level 100: vSSTs.
type Model = BTreeMap<(FamilyId, u32), BTreeSet<u64>>;

fn apply_to_model(model: &mut Model, edit: &Edit) {
    for record in &edit.0 {
        if let Record::RemoveFile { family, level, number } = record {
            assert!(model.get_mut(&(*family, *level)).unwrap().remove(number));
        }
    }
    for record in &edit.0 {
        match record {
            Record::AddFile { family, level, meta } => {
                model.entry((*family, *level)).or_default().insert(meta.number);
            }
            Record::AddVsst { family, meta } => {
                model.entry((*family, 100)).or_default().insert(meta.number);
            }
            Record::RemoveVsst { family, number } => {
                model.get_mut(&(*family, 100)).unwrap().remove(number);
            }
            Record::ReplaceVsst { family, inputs, outputs } => {
                let vssts = model.get_mut(&(*family, 100)).unwrap();
                vssts.retain(|n| !inputs.contains(n));
                vssts.extend(outputs.iter().map(|o| o.number));
            }
            Record::DropFamily { id } => model.retain(|(family, _), _| family != id),
            _ => {}
        }
    }
}

fn model_of(state: &State) -> Model {
    let mut model = Model::new();
    for family in state.families.values() {
        for (level, files) in family.version.levels.iter().enumerate() {
            model.insert((family.id, level as u32), files.iter().map(|f| f.number).collect());
        }
        model.insert((family.id, 100), family.version.vssts.keys().collect());
    }
    model.retain(|_, numbers| !numbers.is_empty());
    model
}

#[test]
fn random_histories_agree_with_a_model() {
    let mut longest = 0;
    for seed in 0..12 {
        // A third of them use the older encoding.
        let mut editor = if seed % 3 == 0 { Editor::of_before(seed) } else { Editor::new(seed) };
        let mut state = State::empty(Uid::from_words(seed, 1), 1);
        let mut model = Model::new();
        let mut old = Vec::new();
        for step in 0..250 {
            let edit = editor.edit(&state);
            let next =
                state.apply(&edit).unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}: {edit:?}"));
            apply_to_model(&mut model, &edit);
            model.retain(|_, numbers| !numbers.is_empty());
            assert_eq!(model_of(&next), model, "seed {seed} step {step}");
            assert_eq!(next.store.edit_number, state.store.edit_number + 1);
            next.verify().unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}: {edit:?}"));
            if step % 10 == 0 {
                let snapshot = Edit::decode(&next.snapshot()).unwrap().encode();
                let again = State::from_snapshot(next.store.uid, next.store.edit_number, &snapshot).unwrap();
                assert_eq!(again, next, "seed {seed} step {step}");
                old.push((state.clone(), state.describe()));
            }
            longest = longest.max(next.files().count());
            state = next;
        }
        for (state, description) in old {
            assert_eq!(state.describe(), description, "an old state does not change");
        }
    }
    assert!(longest > 60, "the histories are too thin: {longest}");
}

/// The same edit is not valid twice, and an edit is not valid without its predecessors.
#[test]
fn repeated_or_out_of_order_edits_are_refused() {
    let mut editor = Editor::new(7);
    let mut state = State::empty(Uid::default(), 1);
    let mut refused = 0;
    for _ in 0..400 {
        let edit = editor.edit(&state);
        let next = state.apply(&edit).unwrap();
        let removes_or_adds = |r: &Record| matches!(r, Record::AddFile { .. } | Record::ReplaceVsst { .. });
        if edit.0.iter().any(removes_or_adds)
            && !edit.0.iter().any(|r| matches!(r, Record::RemoveFile { .. }))
        {
            assert_eq!(next.apply(&edit).unwrap_err().kind(), ErrorKind::InvalidArgument, "{edit:?}");
            refused += 1;
        }
        state = next;
    }
    assert!(refused > 50);
}

pub(crate) fn table(number: u64, low: u64, high: u64, seqs: (SeqNo, SeqNo)) -> FileMeta {
    FileMeta {
        number,
        uid: Uid::from_words(number, 0),
        len: 1000,
        smallest: key::encode(&user_key(low), seqs.1, ValueKind::Value),
        largest: key::encode(&user_key(high), seqs.0, ValueKind::Value),
        min_seq: seqs.0,
        max_seq: seqs.1,
        raw_bytes: 1000,
        ..FileMeta::default()
    }
}

pub(crate) fn vsst(number: u64, low: u64, high: u64, blob_ids: Vec<u64>) -> VsstMeta {
    VsstMeta {
        number,
        smallest: key::encode(&user_key(low), 9, ValueKind::Value),
        largest: key::encode(&user_key(high), 9, ValueKind::Value),
        record_bytes: 100,
        blob_ids,
        ..VsstMeta::default()
    }
}

fn add(level: u32, meta: FileMeta) -> Record {
    Record::AddFile { family: 0, level, meta }
}

fn remove(level: u32, number: u64) -> Record {
    Record::RemoveFile { family: 0, level, number }
}

pub(crate) fn depends_on(meta: FileMeta, ids: &[u64]) -> FileMeta {
    let dependency = |&blob_id| Dependency { blob_id, count: 1, raw_bytes: 90, stored_bytes: 100 };
    FileMeta { uses: ids.iter().map(dependency).collect(), ..meta }
}

/// Returns family 0 with tables 10 and 11 at level 1, 12 at level 0 and the vSST 20 on which 12
/// depends.
fn sample() -> State {
    let records = vec![
        Record::CreateFamily { id: 0, name: "default".into(), options: vec![1] },
        add(1, table(10, 100, 199, (1, 5))),
        add(1, table(11, 200, 299, (1, 5))),
        add(0, depends_on(table(12, 150, 250, (6, 9)), &[20])),
        Record::AddVsst { family: 0, meta: vsst(20, 150, 250, vec![]) },
        Record::Store(StoreRecord::AddLogGroup {
            group: LogGroupMeta { ltn: 3, file: 30, len: 4096, ..Default::default() },
        }),
        Record::LogFloor { family: 0, seq: 10 },
    ];
    State::empty(Uid::default(), 1).apply(Edit(records)).unwrap()
}

fn log_group(ltn: u64, file: u64) -> Record {
    Record::Store(StoreRecord::AddLogGroup { group: LogGroupMeta { ltn, file, ..Default::default() } })
}

#[test]
fn contradictions_are_refused() {
    let state = sample();
    let replace = |inputs: Vec<u64>, outputs| Record::ReplaceVsst { family: 0, inputs, outputs };
    let target = |first_key: &[u8], file| AliasTarget { first_key: first_key.to_vec(), file };
    let alias = |targets| Record::SetAlias { family: 0, blob_id: 5, targets };
    let other_uid = FileMeta { uid: Uid::from_words(1, 1), ..table(10, 100, 199, (1, 5)) };
    let cases: Vec<(&str, Vec<Record>)> = vec![
        ("number in use", vec![add(2, table(10, 0, 1, (1, 2)))]),
        ("number of a vSST", vec![add(2, table(20, 0, 1, (1, 2)))]),
        ("number of a log", vec![add(2, table(30, 0, 1, (1, 2)))]),
        ("number 0", vec![add(2, table(0, 0, 1, (1, 2)))]),
        ("twice in one edit", vec![add(2, table(40, 0, 1, (1, 2))), add(3, table(40, 0, 1, (1, 2)))]),
        ("no such level", vec![add(7, table(40, 0, 1, (1, 2)))]),
        ("no such family", vec![Record::LogFloor { family: 1, seq: 11 }]),
        ("overlap below level 0", vec![add(1, table(40, 199, 199, (1, 2)))]),
        ("overlap: contains another", vec![add(1, table(40, 0, 900, (1, 2)))]),
        ("overlap of two new", vec![add(2, table(40, 0, 5, (1, 2))), add(2, table(41, 5, 6, (1, 2)))]),
        ("sequences meet at level 0", vec![add(0, table(40, 200, 260, (9, 20)))]),
        ("removal of the unknown", vec![remove(1, 99)]),
        ("removal at another level", vec![remove(2, 10)]),
        ("removed twice", vec![remove(1, 10), remove(1, 10)]),
        ("comes back as another", vec![remove(1, 10), add(2, other_uid)]),
        ("dependency on nothing", vec![add(0, depends_on(table(40, 0, 1, (20, 21)), &[7]))]),
        ("vSST still needed", vec![Record::RemoveVsst { family: 0, number: 20 }]),
        ("replaced by nothing", vec![replace(vec![20], vec![])]),
        ("not listed as taken over", vec![replace(vec![20], vec![vsst(40, 0, 1, vec![])])]),
        (
            "outputs out of order",
            vec![replace(vec![20], vec![vsst(40, 5, 9, vec![20]), vsst(41, 0, 1, vec![20])])],
        ),
        ("unknown input", vec![replace(vec![21], vec![vsst(40, 0, 1, vec![21])])]),
        ("alias to nothing", vec![alias(vec![])]),
        ("alias to the unknown", vec![alias(vec![target(b"", 99)])]),
        ("alias to one that does not know", vec![alias(vec![target(b"", 20)])]),
        ("no such alias", vec![Record::DropAlias { family: 0, blob_id: 20 }]),
        ("log floor back", vec![Record::LogFloor { family: 0, seq: 9 }]),
        ("family id again", vec![Record::CreateFamily { id: 0, name: "x".into(), options: vec![] }]),
        (
            "family id after drop",
            vec![
                Record::DropFamily { id: 0 },
                Record::CreateFamily { id: 0, name: "x".into(), options: vec![] },
            ],
        ),
        ("family name again", vec![Record::CreateFamily { id: 1, name: "default".into(), options: vec![] }]),
        ("log group again", vec![log_group(3, 41)]),
        ("log file in use", vec![log_group(4, 10)]),
        ("seal of the unknown", vec![Record::Store(StoreRecord::SealLogGroup { ltn: 4, end_lpn: 1 })]),
        (
            "sealed elsewhere",
            vec![
                Record::Store(StoreRecord::SealLogGroup { ltn: 3, end_lpn: 1 }),
                Record::Store(StoreRecord::SealLogGroup { ltn: 3, end_lpn: 2 }),
            ],
        ),
        ("removal of an unknown group", vec![Record::Store(StoreRecord::RemoveLogGroup { ltn: 4 })]),
        ("share of the unknown", vec![Record::ShareFile { number: 99 }]),
        ("sequence out of range", vec![Record::Store(StoreRecord::LastSeq(base::MAX_SEQ + 1))]),
    ];
    for (what, records) in cases {
        let e = state.apply(Edit(records)).map(|_| ()).expect_err(what);
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{what}: {e}");
    }
    assert_eq!(state, sample(), "a refused edit changes nothing");
}

#[test]
fn a_range_tombstone_may_end_where_the_next_file_starts() {
    let mut first = table(10, 100, 200, (1, 5));
    first.largest = first.largest[..7].to_vec();
    first.largest.extend_from_slice(&u64::MAX.to_le_bytes());
    assert!(first.largest_is_exclusive() && !first.covers(&user_key(200)) && first.covers(&user_key(199)));
    let state = State::empty(Uid::default(), 1);
    let family = Record::CreateFamily { id: 0, name: "default".into(), options: vec![] };
    let records = vec![family, add(1, first), add(1, table(11, 200, 299, (1, 5)))];
    let state = state.apply(Edit(records)).unwrap();
    state.verify().unwrap();
    let version = &state.family(0).unwrap().version;
    assert_eq!(version.file_at(1, &user_key(200)).unwrap().number, 11);
    assert_eq!(version.overlapping(1, Some(&user_key(200)), Some(&user_key(200))).len(), 1);
}

#[test]
fn garbage_collection_moves_names() {
    let state = sample();
    // 20 splits into 40 and 41; then 41 goes into 42; then everything into 43.
    let replace =
        |inputs: &[u64], outputs| Record::ReplaceVsst { family: 0, inputs: inputs.to_vec(), outputs };
    let first = vec![vsst(40, 150, 199, vec![20]), vsst(41, 200, 250, vec![20])];
    let state = state.apply(Edit(vec![replace(&[20], first)])).unwrap();
    let at = |state: &State, n: u64| {
        state.family(0).unwrap().version.resolve(20, &user_key(n), 9).map(|v| v.number)
    };
    assert_eq!([at(&state, 100), at(&state, 199), at(&state, 200)], [Some(40), Some(40), Some(41)]);
    let state = state.apply(Edit(vec![replace(&[41], vec![vsst(42, 210, 240, vec![20, 41])])])).unwrap();
    assert_eq!([at(&state, 199), at(&state, 200), at(&state, 300)], [Some(40), Some(42), Some(42)]);
    let version = state.family(0).unwrap().version.clone();
    assert_eq!(version.names_of(42), vec![42, 20, 41]);
    assert_eq!(version.referenced_in(42).stored_bytes, 50, "half of what leads to both");
    let all = vsst(43, 150, 250, vec![20, 40, 41, 42]);
    let state = state.apply(Edit(vec![replace(&[40, 42], vec![all])])).unwrap();
    assert_eq!([at(&state, 1), at(&state, 999)], [Some(43), Some(43)]);
    let version = state.family(0).unwrap().version.clone();
    assert_eq!(version.aliases.get(&20).unwrap().len(), 1);
    assert_eq!(version.referenced_in(43).stored_bytes, 100);
    assert_eq!(version.unreferenced(), (vec![40, 41, 42], vec![]));
    let drops = [40, 41, 42].map(|blob_id| Record::DropAlias { family: 0, blob_id });
    let state = state.apply(Edit(drops.to_vec())).unwrap();
    let drop_needed = Edit(vec![Record::DropAlias { family: 0, blob_id: 20 }]);
    assert!(state.apply(&drop_needed).is_err());
    // The last table that depends on the files is removed, and then all of them may be.
    let records = vec![
        Record::RemoveVsst { family: 0, number: 43 },
        Record::DropAlias { family: 0, blob_id: 20 },
        remove(0, 12),
    ];
    let state = state.apply(Edit(records)).unwrap();
    assert!(state.family(0).unwrap().version.vssts.is_empty());
    state.verify().unwrap();
}

/// The changes of sums in an edit replace dependency lists, and are checked against the sums of the
/// tables.
#[test]
fn reference_sums_of_an_edit_must_match_its_tables() {
    let bare = |meta: FileMeta| FileMeta { uses: meta.uses.without_list(), ..meta };
    let change = |blob_id, by: i64| ReferenceChange {
        blob_id,
        tables: by,
        count: by,
        raw_bytes: 90 * by,
        stored_bytes: 100 * by,
    };
    let told = |changes: Vec<ReferenceChange>| Record::References { family: 0, changes: changes.into() };
    let vsst = |number| Record::AddVsst { family: 0, meta: vsst(number, 150, 250, vec![]) };
    let user = |number, seq, names: &[u64]| bare(depends_on(table(number, 150, 250, (seq, seq)), names));
    let state = sample();
    let state = KvState::clone(&state).without_lists();
    let first = State::empty(Uid::default(), 1).apply(state.snapshot()).unwrap();
    assert_eq!(*first, state, "a snapshot has the sums, and no list");
    let come = vec![vsst(21), add(0, user(40, 20, &[20, 21])), told(vec![change(20, 1), change(21, 1)])];
    let second = first.apply(Edit(come)).unwrap();
    second.verify().unwrap();
    let tables_of = |state: &State, name| {
        state.family(0).unwrap().version.references.get(&name).map(|totals| totals.tables)
    };
    assert_eq!([tables_of(&second, 20), tables_of(&second, 21)], [Some(2), Some(1)]);
    // 40 becomes 41, without the references to 21.
    let swap = vec![remove(0, 40), add(1, FileMeta { min_seq: 1, ..user(41, 20, &[20]) })];
    let swap = [remove(1, 10), remove(1, 11)].into_iter().chain(swap).chain([told(vec![change(21, -1)])]);
    let third = second.apply(Edit(swap.collect())).unwrap();
    third.verify().unwrap();
    assert_eq!([tables_of(&third, 20), tables_of(&third, 21)], [Some(2), None]);
    assert_eq!(third.family(0).unwrap().version.unreferenced(), (vec![], vec![21]));
    let wrong = "the sums of references to value files change by other amounts than those of the tables";
    let cases: Vec<(&str, Vec<Record>)> = vec![
        (wrong, vec![add(0, user(50, 30, &[20]))]),
        (wrong, vec![add(0, user(50, 30, &[20])), told(vec![change(20, 2)])]),
        (wrong, vec![remove(0, 12)]),
        (wrong, vec![told(vec![change(20, 1)])]),
        ("overflow or undercut", vec![remove(0, 12), told(vec![change(21, -1)])]),
        ("depends on value file (vSST) 77", vec![add(0, user(50, 30, &[77])), told(vec![change(77, 1)])]),
        (
            "its sums of references to value files contradict each other",
            vec![add(
                0,
                FileMeta {
                    uses: TableReferences::decode_sums(&mut Reader::new(&[2, 1, 1, 1, 5, 0])).unwrap(),
                    ..user(50, 30, &[20])
                },
            )],
        ),
    ];
    for (message, records) in cases {
        let e = third.apply(Edit(records)).map(|_| ()).expect_err(message);
        assert!(e.kind() == ErrorKind::InvalidArgument && e.message().contains(message), "{message}: {e}");
    }
    // A move contains no changes of sums.
    let moved = FileMeta::clone(third.table(41).unwrap());
    third.apply(Edit(vec![remove(1, 41), add(2, moved)])).unwrap().verify().unwrap();
    // Sums to which no edit could have led.
    let mut meddled = KvState::clone(&third);
    let mut family = FamilyState::clone(meddled.families.get(&0).unwrap());
    let mut version = Version::clone(&family.version);
    version.references.insert(21, ReferenceTotals { tables: 1, ..ReferenceTotals::default() });
    family.version = Arc::new(version);
    meddled.families.insert(0, Arc::new(family));
    let e = meddled.verify().unwrap_err();
    assert!(e.message().contains("sums of references to value files are not those of the tables"), "{e}");
}

#[test]
fn edits_of_a_large_level_keep_it_in_order() {
    let mut records = vec![Record::CreateFamily { id: 0, name: "default".into(), options: vec![] }];
    records.extend((0..10_000).map(|i| {
        let mut meta = table(i + 1, 0, 0, (1, 5));
        meta.smallest = key::encode(format!("k{:08}", i * 10).as_bytes(), 5, ValueKind::Value);
        meta.largest = key::encode(format!("k{:08}", i * 10 + 9).as_bytes(), 1, ValueKind::Value);
        add(3, meta)
    }));
    let mut state = State::empty(Uid::default(), 1).apply(Edit(records)).unwrap();
    for i in 0..200 {
        let old = state.family(0).unwrap().version.files(3)[i as usize * 7].clone();
        let meta = FileMeta { number: 20_000 + i, ..old.as_ref().clone() };
        state = state.apply(Edit(vec![remove(3, old.number), add(3, meta)])).unwrap();
    }
    state.verify().unwrap();
}
