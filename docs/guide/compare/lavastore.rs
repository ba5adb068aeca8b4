//! The program of this directory on LavaStore.

use lavastore::{Db, WriteBatch, WriteOptions};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("where?")?);

    // part: open a store with a family beside the default one
    let db = Db::open(dir.join("store"))?;
    let names = db.family("names")?;

    // part: write to both, together and durably
    let mut batch = WriteBatch::new();
    batch.put("user/7", "ada");
    batch.put("user/8", "bob");
    batch.put("video/1", "frames");
    batch.family(&names).put("ada", "7").put("bob", "8");
    db.writing(&WriteOptions::durable()).write(&batch)?;

    // part: scan a prefix
    for entry in db.prefix("user/") {
        let (key, value) = entry?;
        println!("{} {}", key.escape_ascii(), value.escape_ascii());
    }

    // part: read what was there before
    let before = db.snapshot();
    names.delete("ada")?;
    assert!(before.family(&names).get("ada")?.is_some());

    // part: delete a range
    db.delete_range("user/".."user0")?;

    // part: take a copy that can be opened
    db.checkpoint(dir.join("copy"))?;

    // part: the end
    assert!(db.get("user/7")?.is_none() && names.get("ada")?.is_none());
    Ok(())
}
