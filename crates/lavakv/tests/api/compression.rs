//! Compression options of each family, changed at reopen.

use crate::common::*;
use lavastore_lavakv::{Compression, Db, FamilyOptions, Options, sim::SimEnv};

fn with(compression: Compression) -> FamilyOptions {
    FamilyOptions { compression, ..small_family() }
}

#[test]
fn each_family_has_its_own_compression() {
    let sim = SimEnv::new(1);
    let db = open(&sim);
    let mut bytes = Vec::new();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let before = db.space().unwrap().table_bytes;
        let name = format!("{compression:?}");
        let family = db.create_column_family(&name, with(compression)).unwrap();
        for i in 0..2000 {
            db.put_cf(&family, &key(i), &value(i, 0)).unwrap();
        }
        db.compact_range(&family, None, None).unwrap();
        settle(&db);
        bytes.push(db.space().unwrap().table_bytes - before);
    }
    assert!(bytes[1] < bytes[0] * 2 / 3 && bytes[2] < bytes[0] * 2 / 3, "{bytes:?}");
    drop(db);
    let db = open(&sim);
    for name in ["None", "Lz4", "Zstd"] {
        let family = db.column_family(name).unwrap();
        assert_eq!(format!("{:?}", family.options().compression), name);
        let found = contents_cf(&db, &family);
        assert!(found.len() == 2000 && (0..2000).all(|i| found[&key(i)] == value(i, 0)));
    }
    assert!(db.verify().unwrap().errors.is_empty());
}

/// Tables of all kinds side by side; after a full compaction all of the last kind.
#[test]
fn compression_can_change_at_reopen() {
    let sim = SimEnv::new(2);
    let mut model = Model::new();
    let kinds =
        [Compression::None, Compression::Zstd, Compression::Lz4, Compression::None, Compression::Zstd];
    for (round, &compression) in kinds.iter().enumerate() {
        let options = Options { family: with(compression), ..small() };
        let db = Db::open_in(env(&sim), DIR, options).unwrap();
        let round = round as u64;
        fill(&db, &mut model, round * 300..round * 300 + 900, round);
        db.flush().unwrap();
        assert!(contents(&db) == model, "{compression:?}");
        if round == 3 {
            db.compact_range(db.default_column_family(), None, None).unwrap();
        }
        settle(&db);
        assert!(contents(&db) == model, "{compression:?}");
        assert!(db.verify().unwrap().errors.is_empty());
    }
    // A read-only store with other options reads the existing tables.
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    assert!(contents(&db) == model);
}

/// Incompressible bytes are stored uncompressed.
#[test]
fn incompressible_values_are_stored_uncompressed() {
    let sim = SimEnv::new(3);
    let options = Options { family: with(Compression::Zstd), ..small() };
    let db = Db::open_in(env(&sim), DIR, options).unwrap();
    let mut rng = lavastore_lavakv::io::Rng::new(1);
    let mut model = Model::new();
    for i in 0..1000 {
        let noise: Vec<u8> = (0..100).map(|_| rng.below(256) as u8).collect();
        db.put(&key(i), &noise).unwrap();
        model.insert(key(i), noise);
    }
    db.compact_range(db.default_column_family(), None, None).unwrap();
    assert!(contents(&db) == model);
}
