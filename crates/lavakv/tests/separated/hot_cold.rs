//! Hot and cold values in separate files: for skewed keys only, and never mixed again. Survivors of
//! hot files go to files of their own.

use crate::common::*;
use crate::*;
use lavastore_lavakv::Ablation;
use lavastore_lavakv::sim::CrashKind;
use std::collections::BTreeMap;

const KEYS: u64 = 1500;
/// Three quarters of the writes of a skewed store go to these keys.
const HOT_KEYS: u64 = KEYS / 20;
const VALUE_LEN: usize = 300;

/// The metadata of a value file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    class: u64,
    /// The files that it replaces; empty: a flush wrote it.
    inputs: Vec<u64>,
    keys: Vec<u64>,
}

const MIXED: u64 = 0;
const HOT: u64 = 1;
const COLD: u64 = 2;

/// Overwrite rate of a file's keys: as classified by a flush, or as survivors of a hot file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Heat {
    Hot,
    Warm,
    Cold,
}

impl File {
    fn read(sim: &SimEnv, name: &str) -> File {
        let mut text = String::new();
        lavastore_lavakv::dump::dump(&env(sim), &path(name), true, &mut text).unwrap();
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let after = |word| text.split(word).nth(1).unwrap_or_else(|| panic!("no \"{word}\" in {text}"));
        let inputs = after("inputs [").split(']').next().unwrap_or_default();
        File {
            class: number(after("class ")).unwrap(),
            inputs: inputs.split(", ").filter_map(number).collect(),
            keys: text.split("\"key").skip(1).filter_map(number).collect(),
        }
    }

    fn heat(&self) -> Heat {
        match (self.class, self.inputs.is_empty()) {
            (HOT, true) => Heat::Hot,
            (HOT, false) => Heat::Warm,
            _ => Heat::Cold,
        }
    }

    /// The share of hot keys, percent.
    fn hot_keys_percent(&self) -> usize {
        self.keys.iter().filter(|&&i| i < HOT_KEYS).count() * 100 / self.keys.len()
    }
}

/// All value files that a store ever had.
#[derive(Default)]
struct Seen(BTreeMap<u64, File>);

impl Seen {
    fn look(&mut self, db: &Db, sim: &SimEnv) {
        for name in db.live_files().files.iter().filter(|name| name.ends_with(".vsst")) {
            let number = name.trim_end_matches(".vsst").parse().unwrap();
            self.0.entry(number).or_insert_with(|| File::read(sim, name));
        }
    }

    /// Returns the flushed files of a class.
    fn flushed(&self, class: u64) -> Vec<&File> {
        self.0.values().filter(|f| f.class == class && f.inputs.is_empty()).collect()
    }

    fn collected(&self) -> impl Iterator<Item = &File> {
        self.0.values().filter(|f| !f.inputs.is_empty())
    }
}

/// A store with some keys overwritten more often than others, or all alike.
fn overwritten(sim: &SimEnv, skewed: bool, without: &[&str]) -> (Db, Model, Seen) {
    let ablation = Ablation::without(without.iter().copied()).unwrap();
    let db = Db::open_in(env(sim), DIR, apart(100).expert(|expert| expert.ablation = ablation)).unwrap();
    let (mut model, mut seen, mut rng) = (Model::new(), Seen::default(), Rng::new(7));
    fill_long(&db, &mut model, 0..KEYS, 0, VALUE_LEN);
    let mut installed = 0;
    for round in 1..KEYS * 8 {
        let among = if skewed && !rng.one_in(4) { HOT_KEYS } else { KEYS };
        fill_long(&db, &mut model, std::iter::once(rng.below(among)), round, VALUE_LEN);
        while db.run_background_step() {
            let stats = db.stats();
            if stats.flushes + stats.gc_runs > installed {
                installed = stats.flushes + stats.gc_runs;
                seen.look(&db, sim);
            }
        }
    }
    settle(&db);
    seen.look(&db, sim);
    reads_back(&db, &model);
    (db, model, seen)
}

#[test]
fn skewed_keys_are_separated_into_hot_and_cold() {
    let sim = SimEnv::new(1);
    let (db, model, seen) = overwritten(&sim, true, &[]);
    let (hot, cold) = (seen.flushed(HOT), seen.flushed(COLD));
    assert!(hot.len() > 50 && cold.len() > 50, "{} {}", hot.len(), cold.len());
    let among = |files: &[&File], fits: &dyn Fn(usize) -> bool| {
        files.iter().filter(|f| fits(f.hot_keys_percent())).count() * 100 / files.len()
    };
    assert!(among(&hot, &|percent| percent > 80) > 80, "{hot:?}");
    assert!(among(&cold, &|percent| percent < 50) > 60, "{cold:?}");
    // Collections merge hot files only with hot ones, whose survivors are warm. They merge warm
    // files only with warm ones, whose survivors are cold.
    assert!(seen.collected().count() > 20);
    let mut times = BTreeMap::new();
    for file in seen.collected() {
        let heats: Vec<_> = file.inputs.iter().map(|n| seen.0[n].heat()).collect();
        assert!(heats.iter().all(|heat| *heat == heats[0]), "{heats:?} -> {file:?}");
        let class = if heats[0] == Heat::Hot { HOT } else { COLD };
        assert_eq!(file.class, class, "{heats:?} -> {file:?}");
        *times.entry(heats[0]).or_insert(0) += 1;
    }
    assert_eq!(times.len(), 3, "{times:?}");
    nothing_left_over(&db, &sim);
    // The manifest has the classes; the cache of overwritten keys is lost.
    drop(db);
    let db = open_apart(&sim, 100);
    reads_back(&db, &model);
    assert!(db.verify().unwrap().errors.is_empty());
}

#[test]
fn hot_cold_separation_reduces_collected_bytes() {
    let written = |without: &[&str]| {
        let sim = SimEnv::new(1);
        let (db, ..) = overwritten(&sim, true, without);
        (db.stats().gc_bytes_written, db.space().unwrap().total_bytes)
    };
    let (with, without) = (written(&[]), written(&["hot_cold"]));
    assert!(with.0 < without.0, "{with:?} {without:?}");
}

#[test]
fn uniform_keys_are_not_separated() {
    let of = |without: &[&str]| {
        let sim = SimEnv::new(2);
        let (db, _, seen) = overwritten(&sim, false, without);
        (seen, db.stats().flushes, db.stats().gc_bytes_written)
    };
    let (with, without) = (of(&[]), of(&["hot_cold"]));
    assert!(with.0.flushed(HOT).is_empty());
    assert_eq!(with.0.0.len(), without.0.0.len(), "as many files as without");
    assert_eq!(with.1, without.1);
    // Apart from the few bytes of the class in a file's properties.
    assert!(with.2.abs_diff(without.2) < without.2 / 500, "{} {}", with.2, without.2);
    assert!(without.0.0.values().all(|f| f.class == MIXED));
}

/// A power loss at any moment of flushes, compactions and collections with skewed keys: flushed
/// data exists, and reopening finds its classes valid.
#[test]
fn power_loss_during_hot_cold_separation_loses_nothing() {
    if skipped_on_lavafs(because::RECORD) {
        return;
    }
    let sim = SimEnv::new(3);
    let (db, model, _) = overwritten(&sim, true, &[]);
    db.flush().unwrap();
    let from = sim.op_count();
    let mut rng = Rng::new(4);
    for round in 0..600 {
        // The same values again: any surviving version equals the model's.
        let among = if rng.one_in(4) { KEYS } else { HOT_KEYS };
        let i = rng.below(among);
        db.put(&key(i), &model[&key(i)]).unwrap();
        if round % 3 == 0 {
            db.run_background_step();
        }
    }
    drop(db);
    let record = sim.record();
    let moments: Vec<u64> = record.barriers().into_iter().filter(|&op| op >= from).collect();
    assert!(moments.len() > 10, "{}", moments.len());
    for (n, &op) in moments.iter().enumerate().step_by(moments.len().div_ceil(25)) {
        let after = record.crash_before(op, CrashKind::PowerLoss, n as u64);
        let db = open_apart(&after, 100);
        reads_back(&db, &model);
        nothing_left_over(&db, &after);
    }
}
