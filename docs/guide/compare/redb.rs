//! The program of this directory on redb. Its transactions are also its batches and its snapshots. It has no checkpoint: the
//! copy is made of a store that is closed.

use redb::{Database, ReadableDatabase, TableDefinition};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("where?")?);
    std::fs::create_dir_all(&dir)?;

    // part: open a store with a family beside the default one
    const DATA: TableDefinition<&str, &str> = TableDefinition::new("data");
    const NAMES: TableDefinition<&str, &str> = TableDefinition::new("names");
    let db = Database::create(dir.join("store"))?;

    // part: write to both, together and durably
    let write = db.begin_write()?;
    {
        let mut data = write.open_table(DATA)?;
        data.insert("user/7", "ada")?;
        data.insert("user/8", "bob")?;
        data.insert("video/1", "frames")?;
        let mut names = write.open_table(NAMES)?;
        names.insert("ada", "7")?;
        names.insert("bob", "8")?;
    }
    write.commit()?;

    // part: scan a prefix
    let data = db.begin_read()?.open_table(DATA)?;
    for entry in data.range("user/".."user0")? {
        let (key, value) = entry?;
        println!("{} {}", key.value(), value.value());
    }

    // part: read what was there before
    let before = db.begin_read()?;
    let write = db.begin_write()?;
    write.open_table(NAMES)?.remove("ada")?;
    write.commit()?;
    assert!(before.open_table(NAMES)?.get("ada")?.is_some());

    // part: delete a range
    let write = db.begin_write()?;
    write.open_table(DATA)?.retain_in("user/".."user0", |_, _| false)?;
    write.commit()?;

    // part: take a copy that can be opened
    drop((before, data, db));
    std::fs::copy(dir.join("store"), dir.join("copy"))?;

    // part: the end
    let data = Database::open(dir.join("copy"))?.begin_read()?.open_table(DATA)?;
    assert!(data.get("user/7")?.is_none());
    Ok(())
}
