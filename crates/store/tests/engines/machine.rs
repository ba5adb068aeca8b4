//! Histories of two engines against a model, with engines present or absent, rolls and reopenings.

use crate::ledger::{Change, Entries, Ledger};
use base::Result;
use io::Rng;
use io::sim::SimEnv;
use lavastore_store::manifest::{
    Commit, Engine, EngineFile, EngineId, Engines, Handle, InitialState, LogGroupMeta, Manifest,
    ManifestState, Record, StateOf,
};
use lavastore_store::volumes::Volume;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub const DIR: &str = "/";

pub type A = Ledger<3>;
pub type B = Ledger<7>;

/// The expected part of one engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub values: BTreeMap<u64, u64>,
    pub floor: u64,
    pub files: BTreeMap<u64, u8>,
}

/// The expected state of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub parts: BTreeMap<EngineId, Part>,
    pub groups: BTreeMap<u64, u64>,
}

/// The engines that a store is opened with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Here {
    pub a: bool,
    pub b: bool,
}

pub const BOTH: Here = Here { a: true, b: true };

impl Here {
    pub fn any(rng: &mut Rng) -> Here {
        Here { a: rng.one_in(2), b: rng.one_in(2) }
    }

    fn engines(self) -> Engines {
        let engines = Engines::default();
        let engines = if self.a { engines.with::<A>() } else { engines };
        if self.b { engines.with::<B>() } else { engines }
    }

    pub fn recover(self, sim: &SimEnv) -> Result<Arc<Manifest>> {
        Ok(Arc::new(Manifest::recover(&sim.env(), Path::new(DIR), false, &self.engines())?))
    }

    pub fn create(self, sim: &SimEnv) -> Result<Arc<Manifest>> {
        let (env, seed) = (sim.env(), InitialState::default());
        Ok(Arc::new(Manifest::create(&env, Path::new(DIR), seed, &self.engines())?))
    }
}

fn own<E: Engine<State = Entries>>(state: &Arc<ManifestState>, part: &Part) {
    let entries = StateOf::<E>::of(state.clone()).unwrap();
    assert!(entries.values.iter().map(|(k, v)| (k, *v)).eq(part.values.iter().map(|(k, v)| (*k, *v))));
    assert_eq!(entries.floor, part.floor);
}

/// Checks a state against the model: the present engines by their own state, the absent ones by the
/// store's records.
pub fn check(state: &Arc<ManifestState>, here: Here, model: &Model) {
    let groups = state.log_groups.iter().map(|(ltn, group)| (ltn, group.file));
    assert!(groups.eq(model.groups.iter().map(|(ltn, file)| (*ltn, *file))), "{state:?} {model:?}");
    check_engines(state, here, model);
}

/// Checks the engines' parts of a state.
pub fn check_engines(state: &Arc<ManifestState>, here: Here, model: &Model) {
    state.verify().unwrap();
    let mut highest = 0;
    for (&id, part) in &model.parts {
        let view = state.engines.iter().find(|engine| engine.id == id).expect("the engine was added");
        let is_here = if id == A::ID { here.a } else { here.b };
        assert_eq!((view.is_here, view.name, view.floor), (is_here, "ledger", part.floor));
        assert!(view.files.iter().map(|(n, f)| (n, f.kind)).eq(part.files.iter().map(|(n, k)| (*n, *k))));
        match (is_here, id == A::ID) {
            (true, true) => own::<A>(state, part),
            (true, false) => own::<B>(state, part),
            _ => {
                assert!(StateOf::<A>::of(state.clone()).is_err() || StateOf::<B>::of(state.clone()).is_err())
            }
        }
        highest = highest.max(part.floor);
    }
    assert!(state.last_seq >= highest, "sequences that an engine's files hold are known without it");
}

/// Makes one random change of a present engine, in the model too.
fn change<E: Engine<Edit = Vec<Change>, State = Entries>>(
    manifest: &Arc<Manifest>,
    rng: &mut Rng,
    model: &mut Model,
) -> Result<()> {
    let handle = Handle::<E>::of(manifest)?;
    let part = model.parts.entry(E::ID).or_default();
    let mut commit = Commit::<E>::own(Vec::new());
    for _ in 0..rng.range(1, 4) {
        let key = rng.below(12);
        match part.values.get(&key).copied() {
            None => {
                let value = rng.below(1000);
                part.values.insert(key, value);
                commit.own.push(Change::Add(key, value));
            }
            // A change of a value is a removal and an addition in one edit, in either order.
            Some(old) if !commit.own.iter().any(|c| matches!(c, Change::Add(k, _) if *k == key)) => {
                commit.own.push(Change::Add(key, old + 1));
                commit.own.push(Change::Remove(key));
                part.values.insert(key, old + 1);
            }
            Some(_) => {}
        }
    }
    if rng.one_in(3) {
        part.floor += rng.range(1, 9);
        commit.own.push(Change::Floor(part.floor));
    }
    match rng.below(4) {
        0 => {
            let file = EngineFile {
                number: manifest.allocate_file_number(),
                kind: rng.below(3) as u8,
                volume: Volume::DIRECTORY,
            };
            part.files.insert(file.number, file.kind);
            commit.store.push(Record::AddEngineFile { engine: E::ID, file });
        }
        1 => {
            if let Some((number, _)) = part.files.pop_first() {
                commit.store.push(Record::RemoveEngineFile { engine: E::ID, number });
            }
        }
        _ => {}
    }
    // A file needs its engine: the first commit of an engine adds it before anything else.
    handle.commit(commit).map(|_| ())
}

/// Makes one random change that is possible with the present engines.
pub fn step(manifest: &Arc<Manifest>, here: Here, rng: &mut Rng, model: &mut Model) -> Result<()> {
    match rng.below(6) {
        0 | 1 if here.a => change::<A>(manifest, rng, model),
        2 | 3 if here.b => change::<B>(manifest, rng, model),
        4 => {
            let mut ltn = 0;
            let file = manifest.allocate_file_number();
            let add = |state: &ManifestState| {
                ltn = state.next_ltn;
                Ok(vec![Record::AddLogGroup { group: LogGroupMeta { ltn, file, ..Default::default() } }])
            };
            manifest.commit_store(add, |_| ())?;
            model.groups.insert(ltn, file);
            Ok(())
        }
        5 => match model.groups.pop_first() {
            Some((ltn, _)) => {
                manifest.commit_store(|_| Ok(vec![Record::RemoveLogGroup { ltn }]), |_| ()).map(|_| ())
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

#[test]
fn engines_keep_their_state_while_others_are_absent() {
    let (mut away, mut rolls) = (0, 0);
    for seed in 0..60 {
        let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
        let mut model = Model::default();
        let mut here = Here::any(&mut rng);
        let mut manifest = here.create(&sim).unwrap();
        for _ in 0..40 {
            for _ in 0..rng.range(1, 8) {
                step(&manifest, here, &mut rng, &mut model).unwrap();
                check(&manifest.state(), here, &model);
            }
            if rng.one_in(2) {
                manifest.commits().roll().unwrap();
                rolls += 1;
            }
            let before = manifest.state();
            drop(manifest);
            here = Here::any(&mut rng);
            manifest = here.recover(&sim).unwrap();
            assert_eq!(manifest.state().edit_number, before.edit_number, "seed {seed}");
            check(&manifest.state(), here, &model);
            away += manifest.state().engines.away().count();
        }
        drop(manifest);
        check(&BOTH.recover(&sim).unwrap().state(), BOTH, &model);
    }
    assert!(away > 1000 && rolls > 1000, "{away} {rolls}");
}

/// A copy of a store includes the parts of absent engines.
#[test]
fn a_copy_includes_absent_engines() {
    let (sim, mut rng) = (SimEnv::new(1), Rng::new(1));
    let (mut model, manifest) = (Model::default(), BOTH.create(&sim).unwrap());
    while model.parts.values().map(|part| part.files.len()).sum::<usize>() < 5 || model.parts.len() < 2 {
        step(&manifest, BOTH, &mut rng, &mut model).unwrap();
    }
    drop(manifest);
    let only_a = Here { a: true, b: false };
    let manifest = only_a.recover(&sim).unwrap();
    let env = sim.env();
    let copy = manifest.state().without_log(env.new_uid());
    drop(Manifest::create_with(&env, Path::new("/copy"), copy).unwrap());
    model.groups.clear();
    let engines = Engines::of::<A>().with::<B>();
    let both = Manifest::recover(&env, Path::new("/copy"), true, &engines).unwrap();
    check(&both.state(), BOTH, &model);
    assert_ne!(both.store(), manifest.store());
}
