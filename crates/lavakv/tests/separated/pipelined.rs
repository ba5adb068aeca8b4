//! Collections with asynchronous reads, with threads and files of the machine: through io_uring,
//! and on a LavaFS volume by threads with batched reads.

use crate::common::*;
use crate::*;
use lavafs::{FormatOptions, MountOptions, format, mount};
use lavastore_lavakv::io::kernel::device::{DeviceOptions, ImageRoom, create_image, open};
use lavastore_lavakv::{Access, Durability, Env, GcRequest};
use std::path::Path;

const KEYS: u64 = 3000;
const ROUNDS: u64 = 4;
const LEN: usize = 1000;

/// The environment of a volume in an image file.
fn on_image(path: &Path) -> Env {
    let env = Env::kernel();
    create_image(path, 256 << 20, ImageRoom::Sparse).unwrap();
    let device = open(path, &DeviceOptions::default()).unwrap();
    format(&env, &*device, &FormatOptions::default()).unwrap();
    mount(&env, device, MountOptions::default()).unwrap().into_env()
}

fn options(access: Access) -> Options {
    Options {
        access,
        durability: Durability::Buffered,
        memtable_bytes: 1 << 20,
        memory_bytes: 4 << 20,
        cache_bytes: 1 << 20,
        family: FamilyOptions { min_blob_size: 200, ..FamilyOptions::default() }
            .expert(|expert| expert.vsst_bytes = 512 << 10),
        ..Options::default()
    }
}

/// A store with many overwrites, and its contents.
fn overwritten(env: &Env, dir: &Path, access: Access) -> (Db, Model) {
    let db = Db::open_in(env.clone(), dir, options(access)).unwrap();
    let (mut model, mut rng) = (Model::new(), Rng::new(1));
    for round in 0..ROUNDS {
        // All keys, then a random half.
        let keys: Vec<u64> = (0..KEYS).filter(|_| round == 0 || rng.one_in(2)).collect();
        fill_long(&db, &mut model, keys.into_iter(), round, LEN);
    }
    (db, model)
}

#[test]
fn pipelined_collection_keeps_reading_and_keeps_values() {
    let tmp = TempDir::new("pipelined");
    let kernel = [Access::Direct, Access::Buffered].map(|access| (Env::kernel(), access));
    let volume = (on_image(&tmp.join("volume")), Access::Direct);
    for (nth, (env, access)) in kernel.into_iter().chain([volume]).enumerate() {
        let dir = if nth < 2 { tmp.join(&format!("store-{nth}")) } else { "/store".into() };
        let (db, model) = overwritten(&env, &dir, access);
        db.flush().unwrap();
        compact(&db);
        db.collect_garbage(GcRequest { until_percent: Some(0), ..Default::default() }).unwrap();
        let stats = db.stats();
        assert!(stats.gc_runs > 0 && stats.gc_reads_ahead > 0, "{stats:?}");
        assert!((1..=6 << 20).contains(&stats.gc_held_bytes_max), "{stats:?}");
        assert!(contents(&db) == model && db.verify().unwrap().errors.is_empty());
        db.close().unwrap();
        assert!(contents(&Db::open_in(env.clone(), &dir, options(access)).unwrap()) == model);
    }
}

/// A close during a collection loses nothing and leaves no file.
#[test]
fn a_store_may_be_closed_while_it_collects() {
    let tmp = TempDir::new("pipelined-closed");
    let volume = on_image(&tmp.join("volume"));
    for (nth, env) in [Env::kernel(), volume].into_iter().enumerate() {
        let dir = if nth == 0 { tmp.join("store") } else { "/store".into() };
        let (db, model) = overwritten(&env, &dir, Access::Direct);
        db.close().unwrap();
        for _ in 0..4 {
            let db = Db::open_in(env.clone(), &dir, options(Access::Direct)).unwrap();
            std::thread::scope(|scope| {
                // It returns `Closed` if the store closes meanwhile.
                let asks = scope.spawn(|| {
                    db.collect_garbage(GcRequest { until_percent: Some(0), ..Default::default() }).map(drop)
                });
                fill_long(&db, &mut Model::new(), 0..20, ROUNDS, LEN);
                let _ = asks.join().unwrap();
            });
            fill_long(&db, &mut Model::new(), 0..KEYS, ROUNDS, LEN);
            fill_long(&db, &mut Model::new(), 0..KEYS, ROUNDS + 1, LEN);
            model.iter().for_each(|(key, value)| db.put(key, value).unwrap());
            db.flush().unwrap();
            // Running work is interrupted.
            db.close().unwrap();
        }
        let db = Db::open_in(env.clone(), &dir, options(Access::Direct)).unwrap();
        assert!(contents(&db) == model);
        settle(&db);
        assert!(db.verify().unwrap().errors.is_empty() && db.live_files().unreferenced.is_empty());
    }
}
