//! The public API in one simulated store: writes are read back, across reopen.

use lavastore_lavakv::{Db, FamilyOptions, Options, ReadOptions, WriteBatch, WriteOptions, sim::SimEnv};
use std::collections::BTreeMap;
use std::time::Duration;

fn small() -> Options {
    Options {
        memtable_bytes: 32 << 10,
        memory_bytes: 96 << 10,
        cache_bytes: 64 << 10,
        family: FamilyOptions::default().expert(|expert| {
            expert.file_bytes = 16 << 10;
            expert.level_base_bytes = 64 << 10;
        }),
        ..Default::default()
    }
    .expert(|expert| {
        expert.log_group_bytes = 128 << 10;
        expert.wal_bytes_max = 512 << 10;
    })
}

#[test]
fn writes_are_read_back_across_flush_compaction_and_reopen() {
    let sim = SimEnv::new(7);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut rng = lavastore_lavakv::io::Rng::new(3);
    for round in 0..4 {
        let db = Db::open_in(sim.env(), "/store", small()).unwrap();
        for i in 0..3000u64 {
            let key = format!("key{:05}", rng.below(2000)).into_bytes();
            match rng.below(10) {
                0 => {
                    db.delete(&key).unwrap();
                    model.remove(&key);
                }
                1 if i % 50 == 0 => {
                    let end = [&key[..], b"~"].concat();
                    db.delete_range(&key[..6], &end[..6]).unwrap();
                    model.retain(|k, _| !(k[..] >= key[..6] && k[..] < end[..6]));
                }
                2 => {
                    let mut batch = WriteBatch::new();
                    batch.put(&key, b"first");
                    batch.put(&key, b"second");
                    db.write_opt(&batch, &WriteOptions::durable()).unwrap();
                    model.insert(key, b"second".to_vec());
                }
                _ => {
                    let value = vec![b'a' + (i % 26) as u8; rng.below(200) as usize];
                    db.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
        }
        let check = |db: &Db| {
            let got: Vec<_> =
                db.iter(ReadOptions::default()).unwrap().entries().map(|e| e.unwrap()).collect();
            let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(got.len(), expected.len(), "round {round}");
            assert!(got == expected, "round {round}");
            for i in 0..2000 {
                let key = format!("key{i:05}").into_bytes();
                assert_eq!(
                    db.get(&key).unwrap().as_deref(),
                    model.get(&key).map(|v| &v[..]),
                    "round {round} {i}"
                );
            }
        };
        check(&db);
        assert!(db.wait_idle(Duration::from_secs(60)), "{}", db.describe());
        check(&db);
        assert!(db.verify().unwrap().errors.is_empty());
        if round == 2 {
            db.compact_range(db.default_column_family(), None, None).unwrap();
            check(&db);
        }
        let space = db.space().unwrap();
        assert_eq!(space.other_bytes, db.space().unwrap().other_bytes);
        db.close().unwrap();
    }
    let db = Db::open_read_only_in(sim.env(), "/store", small()).unwrap();
    assert_eq!(db.iter(ReadOptions::default()).unwrap().entries().count(), model.len());
}
