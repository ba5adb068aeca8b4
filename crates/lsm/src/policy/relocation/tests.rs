use super::*;
use crate::policy::{CompactionPolicy, Leveled, SetAside};
use base::{Uid, ValueKind};
use version::{Dependency, Edit, Record, State, VsstClass};

const TABLES: u64 = 6;

fn user_key(key: u64) -> [u8; 4] {
    (key as u32).to_be_bytes()
}

fn boundary(key: u64) -> Vec<u8> {
    key::encode(&user_key(key), 1, ValueKind::Reference)
}

fn vsst(number: u64, class: VsstClass) -> Record {
    let meta = VsstMeta {
        number,
        class,
        record_bytes: 1000,
        smallest: boundary(0),
        largest: boundary(999),
        ..VsstMeta::default()
    };
    Record::AddVsst { family: 0, meta }
}

/// Returns a table of keys `100 n .. 100 n + 99` that references these bytes of vSSTs.
fn table(number: u64, n: u64, values: &[(u64, u64)]) -> Record {
    table_at(6, number, n, values)
}

fn table_at(level: u32, number: u64, n: u64, values: &[(u64, u64)]) -> Record {
    let depend = |&(blob_id, bytes)| Dependency { blob_id, count: 1, raw_bytes: bytes, stored_bytes: bytes };
    let meta = FileMeta {
        number,
        uid: Uid::from_words(number, number),
        len: 1000,
        smallest: boundary(100 * n),
        largest: boundary(100 * n + 99),
        min_seq: 1,
        max_seq: 1,
        entries: 100,
        uses: values.iter().map(depend).collect(),
        ..FileMeta::default()
    };
    Record::AddFile { family: 0, level, meta }
}

fn state(records: Vec<Record>) -> State {
    let create = Record::CreateFamily { id: 0, name: "default".into(), options: vec![] };
    let records = std::iter::once(create).chain(records).collect();
    State::empty(Uid::default(), 1).apply(Edit(records)).unwrap()
}

/// Builds tables 1 to 6. vSSTs 50 to 53 have a little of each, 54 has much of each, 55 has only
/// values of the last table. Except for the last, the values of a table would fill two vSSTs and
/// lie in five.
fn scattered() -> State {
    let values = |n: u64| match n {
        5 => vec![(50, 10), (51, 10), (52, 10), (53, 10), (54, 150), (55, 900)],
        _ => vec![(50, 10), (51, 10), (52, 10), (53, 10), (54, 150)],
    };
    let vssts = (50..56).map(|n| vsst(n, VsstClass::Mixed));
    state(vssts.chain((0..TABLES).map(|n| table(n + 1, n, &values(n)))).collect())
}

fn step(walk: &mut Relocation, version: &Version, busy: &InProgress) -> RelocationStep {
    Leveled::default().relocation(&PickInputs { version, set_aside: &SetAside::default(), busy }, walk)
}

fn options(spread_max: u64, bytes_max: u64) -> RelocationOptions {
    RelocationOptions { spread_max, bytes_max, job_bytes: 80 }
}

fn chosen(state: &State, options: &RelocationOptions, busy: &InProgress) -> Vec<u64> {
    let version = &state.family(0).unwrap().version;
    Relocation::choose(version, options, busy).map_or(Vec::new(), |r| r.vssts().iter().copied().collect())
}

#[test]
fn the_most_scattered_vssts_are_chosen_within_the_budget() {
    let state = scattered();
    let mut busy = InProgress::default();
    assert_eq!(chosen(&state, &options(2, 240), &busy), [50, 51, 52, 53]);
    assert_eq!(chosen(&state, &options(2, 200), &busy), [50, 51, 52]);
    assert_eq!(chosen(&state, &options(2, 10), &busy), [0u64; 0], "two would not become half as many");
    assert_eq!(chosen(&state, &options(2, 1 << 40), &busy), [50, 51, 52, 53], "54 is in order");
    assert_eq!(chosen(&state, &options(3, 240), &busy), [0u64; 0], "no table is scattered");
    assert!(busy.claim_vsst(50));
    assert_eq!(chosen(&state, &options(2, 180), &busy), [51, 52, 53], "somebody else rewrites it");
}

#[test]
fn classes_are_not_mixed_and_segments_not_taken() {
    let hot = |n| if n < 52 { VsstClass::Hot } else { VsstClass::Cold };
    let values: Vec<(u64, u64)> = (50..55).map(|n| (n, 10)).collect();
    let state = state((50..55).map(|n| vsst(n, hot(n))).chain([table(1, 0, &values)]).collect());
    assert_eq!(chosen(&state, &options(4, 1 << 40), &InProgress::default()), [50, 51]);
    let mut busy = InProgress::default();
    assert!(busy.claim_vsst(50));
    assert_eq!(chosen(&state, &options(4, 1 << 40), &busy), [52, 53, 54], "51 alone would only be moved");
}

/// A relocation takes neighbors until a job has its bytes, skips tables without such values, waits
/// for running jobs, and ends.
#[test]
fn relocation_walks_the_deepest_level_and_terminates() {
    let mut records: Vec<Record> = (50..55).map(|n| vsst(n, VsstClass::Mixed)).collect();
    let few: Vec<(u64, u64)> = (50..54).map(|n| (n, 15)).collect();
    records.extend((0..TABLES).map(|n| match n {
        3 => table(4, n, &[(54, 500)]),
        n => table(n + 1, n, &few),
    }));
    let state = state(records);
    let version = &state.family(0).unwrap().version;
    let mut busy = InProgress::default();
    let mut walk = Relocation::choose(version, &options(2, 1 << 40), &busy).unwrap();
    assert_eq!(walk.vssts().iter().copied().collect::<Vec<_>>(), [50, 51, 52, 53]);
    let mut steps = Vec::new();
    loop {
        match step(&mut walk, version, &busy) {
            RelocationStep::Start(c) => {
                assert_eq!(
                    (c.level, c.output_level, c.reason, c.trivial_move),
                    (6, 6, Reason::Relocation, false)
                );
                assert_eq!(c.relocate_vssts, [50, 51, 52, 53]);
                assert!(c.is_current(version));
                steps.push(c.input_files().map(|(_, f)| f.number).collect::<Vec<_>>());
                busy.add(&c);
                assert!(matches!(
                    step(&mut walk.clone(), version, &busy),
                    RelocationStep::Wait | RelocationStep::Done
                ));
                busy.remove(&c);
            }
            RelocationStep::Wait => panic!("nothing is in the way"),
            RelocationStep::Done => break,
        }
    }
    assert_eq!(steps, [vec![1, 2], vec![3], vec![5, 6]]);
}

/// vSSTs that only tables above the deepest level reference are not chosen, however little of them
/// each table has.
#[test]
fn vssts_unreferenced_by_the_deepest_level_are_not_chosen() {
    let mut records: Vec<Record> = (50..64).map(|n| vsst(n, VsstClass::Mixed)).collect();
    let few = |vssts: std::ops::Range<u64>, bytes| vssts.map(|n| (n, bytes)).collect::<Vec<_>>();
    records.extend((0..TABLES).map(|n| table(n + 1, n, &few(50..54, 10))));
    records.extend(
        [(5, 0), (5, 1), (4, 0)]
            .map(|(level, n)| table_at(level, 100 + 10 * u64::from(level) + n, n, &few(53..64, 1))),
    );
    let state = state(records);
    let options = RelocationOptions { spread_max: 2, bytes_max: 1 << 40, job_bytes: 80 };
    assert_eq!(chosen(&state, &options, &InProgress::default()), [50, 51, 52, 53]);
}

/// If collections merged values of many files into one, a table uses the names of all of them, and
/// counts as ordered.
#[test]
fn names_resolving_to_one_file_count_once() {
    let scattered = scattered();
    let merged =
        VsstMeta { number: 70, record_bytes: 6000, blob_ids: (50..54).collect(), ..VsstMeta::default() };
    let merged = VsstMeta { smallest: boundary(0), largest: boundary(999), ..merged };
    let replace = Record::ReplaceVsst { family: 0, inputs: (50..54).collect(), outputs: vec![merged] };
    let state = scattered.apply(Edit(vec![replace])).unwrap();
    assert_eq!(chosen(&scattered, &options(2, 240), &InProgress::default()), [50, 51, 52, 53]);
    assert_eq!(chosen(&state, &options(2, 240), &InProgress::default()), [0u64; 0]);
}

/// vSSTs in key order are left alone, however many of them a table references.
#[test]
fn vssts_in_key_order_are_left_alone() {
    let mut records: Vec<Record> = (50..80).map(|n| vsst(n, VsstClass::Mixed)).collect();
    let ten = |n: u64| (50 + 10 * n..60 + 10 * n).map(|v| (v, 10)).collect::<Vec<_>>();
    records.extend((0..3).map(|n| table(n + 1, n, &ten(n))));
    let state = state(records);
    let version = &state.family(0).unwrap().version;
    let small = RelocationOptions { spread_max: 2, bytes_max: 1 << 40, job_bytes: 1000 };
    assert!(Relocation::choose(version, &small, &InProgress::default()).is_some(), "ten could be one");
    let full = RelocationOptions { job_bytes: 20, ..small };
    assert!(
        Relocation::choose(version, &full, &InProgress::default()).is_none(),
        "they are full, more or less"
    );
    let half = RelocationOptions { job_bytes: 15, ..small };
    assert!(Relocation::choose(version, &half, &InProgress::default()).is_none(), "no walk for nothing");
}

#[test]
fn relocation_skips_inputs_of_other_jobs() {
    let state = scattered();
    let version = &state.family(0).unwrap().version;
    let mut busy = InProgress::default();
    let walk = Relocation::choose(version, &options(2, 240), &busy).unwrap();
    assert!(busy.claim_vsst(51));
    let RelocationStep::Start(c) = step(&mut walk.clone(), version, &busy) else { panic!("it goes on") };
    assert_eq!(c.relocate_vssts, [50, 52, 53], "without the one that is being collected");
    busy.release_vsst(51);
    busy.add(&c);
    assert!(matches!(step(&mut walk.clone(), version, &busy), RelocationStep::Wait));
    busy.remove(&c);
    assert!(busy.is_empty());
}
