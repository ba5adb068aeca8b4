//! Checked-in stores, one of each format version: every release must open them and find all their
//! data.
//!
//! `tests/golden/store-v2` holds every kind of file: `CURRENT`, a manifest, tables of each
//! compression in several levels with range tombstones, log groups with pages of every durability,
//! `STAGING` and `LOCK`. [`build`] made it in simulation and cut it off as by the death of its
//! process, so that an open runs recovery. A release whose log groups had no identity made
//! `store-v1`. `store-v3` is `store-v2` after [`Db::upgrade`] to format 2, with copies of `CURRENT`
//! and the manifest.
//!
//! `LAVASTORE_BLESS=1 cargo test -p lavastore --test stores golden_store` rebuilds it: only when a
//! **new** format version gets its own directory. Earlier stores must stay readable and are never
//! rebuilt.
#![allow(clippy::disallowed_methods, reason = "copies a directory into a temporary one")]

use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{
    Compression, Db, ExpertFamilyOptions, FamilyOptions, Options, PolicyChoice, Result, StoreFormat,
    WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents of all families, by name.
type Families = BTreeMap<String, Model>;

const DIR: &str = "/store";

/// Stores in the format of new stores, that of this release first.
const VERSIONS: [&str; 2] = ["store-v2", "store-v1"];

/// The store in the newest format.
const UPGRADED: &str = "store-v3";

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

fn options() -> Options {
    Options {
        memtable_bytes: 16 << 10,
        memory_bytes: 64 << 10,
        family: family(Compression::None),
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 64 << 10;
        expert.wal_bytes_max = 128 << 10;
    })
}

fn family(compression: Compression) -> FamilyOptions {
    // Sets all options explicitly, independent of future defaults.
    FamilyOptions {
        merge_operator: None,
        prefix: None,
        compression,
        min_blob_size: 0,
        filter_bits_per_key: 10,
        policy: PolicyChoice::default(),
        expert: ExpertFamilyOptions {
            block_bytes: 4096,
            file_bytes: 8 << 10,
            level_base_bytes: 16 << 10,
            level_multiplier: 10,
            levels: 7,
            l0_compaction_files: 4,
            l0_slowdown_files: 12,
            l0_stop_files: 24,
            vsst_bytes: 32 << 20,
            gc_ratio_percent: 20,
        },
    }
}

fn key(i: u32) -> Vec<u8> {
    format!("golden/{i:05}").into_bytes()
}

fn value(i: u32, round: u32) -> Vec<u8> {
    format!("value {i} of round {round}; ").into_bytes().repeat(1 + (i % 2) as usize)
}

/// A store and its model, which get the same changes.
struct Twin {
    db: Db,
    families: Families,
}

impl Twin {
    fn put(&mut self, name: &str, i: u32, round: u32, options: &WriteOptions) -> Result<()> {
        let family = self.db.open_family(name).expect("made before");
        family.writing(options).put(key(i), value(i, round))?;
        self.families.get_mut(name).expect("made before").insert(key(i), value(i, round));
        Ok(())
    }

    fn delete_range(&mut self, name: &str, low: u32, high: u32) -> Result<()> {
        let family = self.db.open_family(name).expect("made before");
        family.delete_range(key(low)..key(high))?;
        let model = self.families.get_mut(name).expect("made before");
        model.retain(|k, _| !(key(low)..key(high)).contains(k));
        Ok(())
    }

    fn settle(&self) {
        assert!(self.db.wait_idle(Duration::from_secs(60)), "{}", self.db.describe());
    }
}

/// Builds the store in simulation in the given format; returns its contents.
fn build(sim: &SimEnv, format: StoreFormat) -> Result<Families> {
    let db = Db::open_in(&sim.env(), DIR, &options())?;
    let mut families = Families::from([("default".to_owned(), Model::new())]);
    for (name, compression) in
        [("lz4", Compression::Lz4), ("zstd", Compression::Zstd), ("empty", Compression::None)]
    {
        db.create_family(name, &family(compression))?;
        families.insert(name.to_owned(), Model::new());
    }
    let dropped = db.create_family("dropped", &family(Compression::None))?;
    dropped.put(b"gone", b"gone")?;
    let mut twin = Twin { db, families };
    let plain = WriteOptions::buffered();
    for name in ["default", "lz4", "zstd"] {
        (0..60).try_for_each(|i| twin.put(name, i, 1, &plain))?;
        twin.db.open_family(name).expect("made before").compact_range(..)?;
        // Tombstones above the entries that they hide.
        twin.delete_range(name, 12, 24)?;
        (0..40).step_by(3).try_for_each(|i| twin.put(name, i, 2, &plain))?;
        twin.db.open_family(name).expect("made before").delete(key(53))?;
        twin.families.get_mut(name).expect("made before").remove(&key(53));
        twin.db.flush()?;
    }
    twin.db.drop_family(&dropped)?;
    drop(dropped);
    twin.settle();
    // A first log group, sealed by the next open.
    (100..110).try_for_each(|i| twin.put("zstd", i, 2, &plain))?;
    let Twin { db, families } = twin;
    db.close()?;
    let mut twin = Twin { db: Db::open_in(&sim.env(), DIR, &options())?, families };
    // Data that only the log holds: single writes, a batch over families, a batch over several
    // pages, a range.
    (200..203).try_for_each(|i| twin.put("default", i, 3, &WriteOptions::durable()))?;
    (200..220).try_for_each(|i| twin.put("lz4", i, 3, &plain))?;
    let mut batch = WriteBatch::new();
    for (name, model) in twin.families.iter_mut().filter(|(name, _)| *name != "empty") {
        batch.family(&twin.db.open_family(name).expect("made before")).put(b"batch", name.as_bytes());
        model.insert(b"batch".to_vec(), name.as_bytes().to_vec());
    }
    twin.db.write(&batch)?;
    let long: Vec<u8> = (0..9000u32).map(|i| ((i * i) >> 3) as u8).collect();
    twin.db.put(b"over pages", &long)?;
    twin.families.get_mut("default").expect("made before").insert(b"over pages".to_vec(), long);
    twin.delete_range("zstd", 40, 42)?;
    (300..303).try_for_each(|i| twin.put("zstd", i, 4, &plain))?;
    twin.db.upgrade(format)?;
    Ok(twin.families)
}

/// Returns the contents of a store.
fn contents(db: &Db) -> Result<Families> {
    let mut out = Families::new();
    for name in db.family_names() {
        let family = db.open_family(&name).expect("just listed");
        let model = family.iter().collect::<Result<Model>>()?;
        out.insert(name, model);
    }
    Ok(out)
}

/// Returns the files of the simulated store after the death of its process.
fn image(format: StoreFormat) -> (BTreeMap<String, Vec<u8>>, Families) {
    let sim = SimEnv::new(2026);
    let families = build(&sim, format).unwrap();
    let after = sim.crash(CrashKind::ProcessKill, 1);
    let name = |p: PathBuf| p.file_name().unwrap().to_string_lossy().into_owned();
    let files = after.files().into_iter().map(|(p, _)| (name(p.clone()), after.read_file(p).unwrap()));
    (files.collect(), families)
}

#[test]
fn a_format_2_store_opens_without_any_one_copy() {
    let (files, expected) = image(StoreFormat::V2);
    if std::env::var_os("LAVASTORE_BLESS_FORMAT").is_some() {
        let dir = golden(UPGRADED);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
    }
    // Most bytes of its log groups are zeros.
    opens(UPGRADED, &expected, 320 << 10);
    let all: Vec<_> = fs::read_dir(golden(UPGRADED)).unwrap().map(|e| e.unwrap().file_name()).collect();
    let twice: Vec<_> = all
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with("CURRENT") || name.starts_with("MANIFEST"))
        .collect();
    assert_eq!(twice.len(), 4, "{twice:?}");
    for without in twice {
        let dir = std::env::temp_dir().join(format!("lavastore-golden-{without}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        for name in all.iter().filter(|name| name.to_string_lossy() != without) {
            fs::copy(golden(UPGRADED).join(name), dir.join(name)).unwrap();
        }
        let db = Db::open_with(&dir, &Options { create_if_missing: false, ..options() }).unwrap();
        assert!(contents(&db).unwrap() == expected && db.format() == StoreFormat::V2, "without {without}");
        drop(db);
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn the_golden_store_opens_with_all_data() {
    let (files, expected) = image(StoreFormat::V1);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        let dir = golden(VERSIONS[0]);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
    }
    VERSIONS.iter().for_each(|version| opens(version, &expected, 200 << 10));
}

/// Checks that a store opens with all its data and can be written to.
fn opens(version: &str, expected: &Families, bytes_max: u64) {
    let dir = std::env::temp_dir().join(format!("lavastore-golden-{version}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let mut bytes = 0;
    for entry in fs::read_dir(golden(version)).unwrap().map(|e| e.unwrap()) {
        bytes += fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    assert!(bytes < bytes_max, "{bytes} bytes are too many to check in");
    let read_only = Db::open_read_only(&dir, &options()).unwrap();
    assert!(contents(&read_only).unwrap() == *expected);
    drop(read_only);
    let db = Db::open_with(&dir, &Options { create_if_missing: false, ..options() }).unwrap();
    assert!(contents(&db).unwrap() == *expected);
    let report = db.verify().unwrap();
    assert!(report.errors.is_empty() && report.files >= 6, "{report:?}");
    assert_eq!(db.open_family("zstd").unwrap().options(), family(Compression::Zstd).derived());
    // The store accepts writes like any other.
    for name in db.family_names() {
        let family = db.open_family(&name).unwrap();
        family.put(b"new", b"1").unwrap();
        family.compact_range(..).unwrap();
    }
    db.close().unwrap();
    let again = contents(&Db::open_with(&dir, &options()).unwrap()).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    for (name, model) in expected {
        assert!(
            again[name].len() == model.len() + 1 && model.iter().all(|(k, v)| again[name][k] == *v),
            "{name}"
        );
    }
}

/// The golden stores contain every kind of file.
#[test]
fn the_golden_store_has_every_kind_of_file() {
    VERSIONS.iter().chain([&UPGRADED]).for_each(|version| shows_every_kind(version));
}

fn shows_every_kind(version: &str) {
    let names: Vec<String> = fs::read_dir(golden(version))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    for part in ["CURRENT", "MANIFEST-", "LOCK", "STAGING", ".ksst", ".log"] {
        assert!(names.iter().any(|n| n.starts_with(part) || n.ends_with(part)), "{part} in {names:?}");
    }
    let env = lavastore::Env::kernel();
    let mut text = String::new();
    for name in names.iter().filter(|n| *n != "LOCK" && *n != "STAGING") {
        lavastore::inspect::dump(&env, &golden(version).join(name), true, &mut text).unwrap();
    }
    for part in ["golden/00059", "range", "batch"] {
        assert!(text.contains(part), "{part}");
    }
}

/// The build is a function of the seed: it produces the same bytes each time.
#[test]
fn the_same_seed_makes_the_same_store() {
    let ((first, model), (second, same)) = (image(StoreFormat::V1), image(StoreFormat::V1));
    assert!(model == same);
    assert!(first == second);
}
