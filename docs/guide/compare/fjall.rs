//! The program of this directory on fjall. It has no deletion of ranges and no checkpoint: keys are deleted one by one, and
//! the copy is made of a store that is closed.

use fjall::{Database, KeyspaceCreateOptions, PersistMode, Readable};
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("where?")?);

    // part: open a store with a family beside the default one
    let db = Database::builder(dir.join("store")).open()?;
    let data = db.keyspace("data", KeyspaceCreateOptions::default)?;
    let names = db.keyspace("names", KeyspaceCreateOptions::default)?;

    // part: write to both, together and durably
    let mut batch = db.batch().durability(Some(PersistMode::SyncAll));
    batch.insert(&data, "user/7", "ada");
    batch.insert(&data, "user/8", "bob");
    batch.insert(&data, "video/1", "frames");
    batch.insert(&names, "ada", "7");
    batch.insert(&names, "bob", "8");
    batch.commit()?;

    // part: scan a prefix
    for entry in data.prefix("user/") {
        let (key, value) = entry.into_inner()?;
        println!("{} {}", key.escape_ascii(), value.escape_ascii());
    }

    // part: read what was there before
    let before = db.snapshot();
    names.remove("ada")?;
    assert!(before.get(&names, "ada")?.is_some());

    // part: delete a range
    for entry in data.range("user/".."user0") {
        data.remove(entry.key()?)?;
    }

    // part: take a copy that can be opened
    db.persist(PersistMode::SyncAll)?;
    drop((before, data, names, db));
    copy(&dir.join("store"), &dir.join("copy"))?;

    // part: the end
    let db = Database::builder(dir.join("copy")).open()?;
    let data = db.keyspace("data", KeyspaceCreateOptions::default)?;
    assert!(data.get("user/7")?.is_none());
    Ok(())
}

// part: take a copy that can be opened
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
