//! The program of this directory on RocksDB.

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, IteratorMode, Options, PrefixRange, ReadOptions, WriteBatch, WriteOptions};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("where?")?);
    std::fs::create_dir_all(&dir)?;

    // part: open a store with a family beside the default one
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = DB::open_cf(&options, dir.join("store"), ["names"])?;
    let names = db.cf_handle("names").ok_or("no family")?;

    // part: write to both, together and durably
    let mut batch = WriteBatch::default();
    batch.put("user/7", "ada");
    batch.put("user/8", "bob");
    batch.put("video/1", "frames");
    batch.put_cf(names, "ada", "7");
    batch.put_cf(names, "bob", "8");
    let mut durable = WriteOptions::default();
    durable.set_sync(true);
    db.write_opt(batch, &durable)?;

    // part: scan a prefix
    let mut within = ReadOptions::default();
    within.set_iterate_range(PrefixRange("user/"));
    for entry in db.iterator_opt(IteratorMode::Start, within) {
        let (key, value) = entry?;
        println!("{} {}", key.escape_ascii(), value.escape_ascii());
    }

    // part: read what was there before
    let before = db.snapshot();
    db.delete_cf(names, "ada")?;
    assert!(before.get_cf(names, "ada")?.is_some());

    // part: delete a range
    let default = db.cf_handle("default").ok_or("no family")?;
    db.delete_range_cf(default, "user/", "user0")?;

    // part: take a copy that can be opened
    Checkpoint::new(&db)?.create_checkpoint(dir.join("copy"))?;

    // part: the end
    assert!(db.get("user/7")?.is_none() && db.get_cf(names, "ada")?.is_none());
    Ok(())
}
