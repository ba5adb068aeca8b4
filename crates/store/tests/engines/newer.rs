//! Records that another release, or another program, wrote.

use crate::ledger::{Change, Ledger};
use crate::machine::{A, B, BOTH, DIR, Here, Model, check, step};
use base::{ErrorKind, Result, SeqNo, Uid};
use io::Rng;
use io::sim::SimEnv;
use lavastore_store::manifest::{
    Commit, Engine, EngineFile, EngineId, Engines, Handle, LogGroupMeta, Manifest, ManifestState, Record,
    StateBuilder,
};
use lavastore_store::volumes::Volume;
use std::path::Path;
use std::sync::Arc;

/// The engine of a later release. The store is opened with that of this one.
type LaterB = Ledger<7, 2>;

#[test]
fn an_engine_of_a_newer_format_is_treated_as_absent() {
    let (sim, mut rng, mut model) = (SimEnv::new(1), Rng::new(1), Model::default());
    let manifest = BOTH.create(&sim).unwrap();
    while model.parts.len() < 2 {
        step(&manifest, BOTH, &mut rng, &mut model).unwrap();
    }
    // The later release records its format in its first commit.
    let engines = Engines::of::<A>().with::<LaterB>();
    drop(manifest);
    let later = Arc::new(Manifest::recover(&sim.env(), Path::new(DIR), false, &engines).unwrap());
    let newer = Record::AddEngine { engine: B::ID, name: "ledger".into(), format: 2 };
    let handle = Handle::<LaterB>::of(&later).unwrap();
    handle.commit(Commit { store: vec![newer], own: vec![Change::Add(100, 1)] }).unwrap();
    model.parts.get_mut(&B::ID).unwrap().values.insert(100, 1);
    later.commits().roll().unwrap();
    drop((later, handle));
    let manifest = BOTH.recover(&sim).unwrap();
    assert_eq!(Handle::<B>::of(&manifest).unwrap_err().kind(), ErrorKind::Unsupported);
    let only_a = Here { a: true, b: false };
    check(&manifest.state(), only_a, &model);
    step(&manifest, only_a, &mut rng, &mut model).unwrap();
    manifest.commits().roll().unwrap();
    drop(manifest);
    let later = Arc::new(Manifest::recover(&sim.env(), Path::new(DIR), false, &engines).unwrap());
    let entries = Handle::<LaterB>::of(&later).unwrap().state();
    assert_eq!(entries.values.get(&100), Some(&1));
}

/// A foreign engine under the id of `A`.
enum Impostor {}

impl Engine for Impostor {
    const ID: EngineId = A::ID;
    const NAME: &'static str = "impostor";
    const FORMAT: u32 = A::FORMAT;
    type State = u64;
    type Edit = ();

    fn empty() -> u64 {
        0
    }
    fn encode((): &()) -> Vec<u8> {
        Vec::new()
    }
    fn decode(_: &[u8]) -> Result<()> {
        Ok(())
    }
    fn apply(state: &u64, (): &(), _: &mut StateBuilder<'_>) -> Result<u64> {
        Ok(*state)
    }
    fn snapshot(_: &u64) {}
    fn verify(_: &u64, _: &ManifestState) -> Result<()> {
        Ok(())
    }
    fn floor(_: &u64) -> SeqNo {
        0
    }
    fn describe(_: &u64) -> String {
        String::new()
    }
    fn list(_: &[u8]) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

#[test]
fn handles_exist_only_for_present_engines() {
    let sim = SimEnv::new(2);
    let manifest = Here { a: true, b: false }.create(&sim).unwrap();
    let e = Handle::<Impostor>::of(&manifest).map(drop).unwrap_err();
    assert_eq!(
        (e.kind(), e.message()),
        (ErrorKind::InvalidArgument, "engine 3 was opened as another engine")
    );
    assert_eq!(Handle::<B>::of(&manifest).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(Handle::<A>::of(&manifest).is_ok());
}

#[test]
fn a_file_on_an_unknown_volume_is_refused_at_open() {
    let away = Volume(2);
    let group = LogGroupMeta { ltn: 1, file: 5, len: 4096, volume: away, ..Default::default() };
    let file = EngineFile { number: 6, kind: 1, volume: away };
    let cases = [
        (Record::AddLogGroup { group }, "000000000005.log"),
        (Record::AddEngineFile { engine: A::ID, file }, "000000000006.e3-1"),
    ];
    for (record, name) in cases {
        let sim = SimEnv::new(3);
        let manifest = BOTH.create(&sim).unwrap();
        let handle = Handle::<A>::of(&manifest).unwrap();
        handle.commit(Commit::own(vec![Change::Add(1, 1)])).unwrap();
        handle.commit(Commit { store: vec![record], own: Vec::new() }).unwrap();
        drop((manifest, handle));
        let e = BOTH.recover(&sim).unwrap_err();
        assert_eq!((e.kind(), e.file()), (ErrorKind::Unsupported, Some(Path::new(DIR).join(name).as_path())));
    }
}

#[test]
fn records_that_contradict_the_engines_are_refused() {
    let state = ManifestState::empty(Uid::default(), 1, &Engines::of::<A>());
    let add = |engine, name: &str| Record::AddEngine { engine, name: name.into(), format: 1 };
    let file = |engine, number| Record::AddEngineFile {
        engine,
        file: EngineFile { number, kind: 0, volume: Volume::DIRECTORY },
    };
    let strange = EngineId(9);
    for (what, records) in [
        ("the floor of one that was not added", vec![Record::EngineFloor { engine: strange, seq: 1 }]),
        ("a file of one that was not added", vec![file(A::ID, 1)]),
        ("a number twice", vec![add(strange, ""), file(strange, 1), file(strange, 1)]),
        (
            "a number of the log",
            vec![
                Record::AddLogGroup { group: LogGroupMeta { ltn: 1, file: 4, ..Default::default() } },
                add(strange, ""),
                file(strange, 4),
            ],
        ),
        ("a number out of range", vec![add(strange, ""), file(strange, 0)]),
        (
            "a file that is not there",
            vec![add(strange, ""), Record::RemoveEngineFile { engine: strange, number: 1 }],
        ),
        (
            "one that was removed",
            vec![add(strange, ""), Record::RemoveEngine { engine: strange, below_ltn: 1 }, file(strange, 1)],
        ),
        (
            "the removal of one that is not there",
            vec![Record::RemoveEngine { engine: strange, below_ltn: 1 }],
        ),
        ("the key-value engine", vec![add(EngineId::NATIVE, "")]),
        ("a long name", vec![add(strange, &"x".repeat(65))]),
    ] {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode_into(&mut bytes));
        assert!(state.after(&bytes).is_err_and(|e| e.is_corruption()), "{what}");
    }
    // A step of an engine that was not added; of a known one; an invalid step; a tag of a later
    // release; an id above the range of the log.
    for (bytes, kind) in [
        (&[21, 1, 9][..], ErrorKind::Corruption),
        (&[21, 1, 3], ErrorKind::Corruption),
        (&[21, 0], ErrorKind::Corruption),
        (&[22, 4, 3, 0, 1, 0], ErrorKind::Unsupported),
        (&[36, 0], ErrorKind::Unsupported),
        // A fast tier with a flag of a later release, and one without content.
        (&[32, 1, 2], ErrorKind::Unsupported),
        (&[32, 1, 1], ErrorKind::Corruption),
        // A log group of a lane of a later release, and one of the first lane under this tag.
        (&[28, 7, 2, 9, 9, 1, 0, 0, 0], ErrorKind::Unsupported),
        (&[28, 7, 0, 9, 9, 1, 0, 0, 0], ErrorKind::Corruption),
        (&[22, 4, 0x80, 2, 0, 1], ErrorKind::Unsupported),
    ] {
        assert_eq!(state.after(bytes).unwrap_err().kind(), kind, "{bytes:?}");
    }
}

/// Random bytes and random changes of a valid snapshot give an error, or a valid state that is
/// written unchanged.
#[test]
fn hostile_snapshots_are_refused_or_round_trip() {
    let mut rng = Rng::new(4);
    let (sim, mut model) = (SimEnv::new(4), Model::default());
    let manifest = BOTH.create(&sim).unwrap();
    for _ in 0..30 {
        step(&manifest, BOTH, &mut rng, &mut model).unwrap();
    }
    let good = manifest.state().snapshot();
    let mut survived = 0;
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..rng.range(1, 4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => bytes[at] ^= 1 << rng.below(8),
                _ => bytes.truncate(at + 1),
            }
        }
        for engines in [Engines::default(), Engines::of::<A>().with::<B>()] {
            let Ok(state) = ManifestState::from_snapshot(Uid::default(), 9, &bytes, &engines) else {
                continue;
            };
            state.verify().unwrap();
            let again = ManifestState::from_snapshot(Uid::default(), 9, &state.snapshot(), &engines).unwrap();
            assert_eq!(again, state);
            survived += 1;
        }
    }
    assert!(survived > 100, "{survived}");
}
