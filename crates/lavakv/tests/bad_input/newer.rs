//! A store of a newer release: every kind of file shows it, and the error names the file.

use crate::common::*;
use base::{Uid, checksum, footer};
use lavastore_lavakv::{Db, ErrorKind, sim::SimEnv};

/// A closed store with a table and changes in the log.
fn store(seed: u64) -> SimEnv {
    let sim = SimEnv::new(seed);
    let (db, mut model) = (open(&sim), Model::new());
    fill(&db, &mut model, 0..500, 0);
    db.flush().unwrap();
    settle(&db);
    fill(&db, &mut model, 500..520, 0);
    db.close().unwrap();
    sim
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn uid(bytes: &[u8], at: usize) -> Uid {
    Uid(bytes[at..at + 16].try_into().unwrap())
}

#[test]
fn a_manifest_of_a_newer_version_is_unsupported() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = store(1);
    let name = files_like(&sim, "MANIFEST-").remove(0);
    let mut bytes = sim.read_file(path(&name)).unwrap();
    bytes[8] = 4;
    let sum = checksum::stored(&bytes[..60], uid(&bytes, 32), 0);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(path(&name), &bytes).unwrap();
    refused(try_open(&sim), ErrorKind::Unsupported, &name);
    refused(Db::open_read_only_in(env(&sim), DIR, small()), ErrorKind::Unsupported, &name);
}

/// A release that knows the format field, but not this format, returns the format of the store.
#[test]
fn a_newer_store_format_is_unsupported() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = store(7);
    let name = files_like(&sim, "MANIFEST-").remove(0);
    let mut bytes = sim.read_file(path(&name)).unwrap();
    (bytes[8], bytes[12], bytes[56]) = (3, 77, 1);
    let sum = checksum::stored(&bytes[..60], uid(&bytes, 32), 0);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(path(&name), &bytes).unwrap();
    for refused in [try_open(&sim).map(drop), Db::open_read_only_in(env(&sim), DIR, small()).map(drop)] {
        let e = refused.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
        assert!(e.message().contains("format 77"), "{e}");
        assert!(e.file().is_some_and(|file| file.ends_with(&name)), "{e}");
    }
}

/// `CURRENT` has no version: its form is fixed, and the manifest has the version.
#[test]
fn an_unknown_form_of_current_is_damage() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = store(2);
    let mut text = sim.read_file(path("CURRENT")).unwrap();
    text.extend_from_slice(b"more 1\n");
    sim.write_file(path("CURRENT"), &text).unwrap();
    refused(try_open(&sim), ErrorKind::Corruption, "CURRENT");
}

#[test]
fn a_table_of_a_newer_version_is_unsupported() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = store(3);
    for name in files_like(&sim, ".ksst") {
        let mut bytes = sim.read_file(path(&name)).unwrap();
        let at = bytes.len() - 12;
        bytes[at..at + 4].copy_from_slice(&2u32.to_le_bytes());
        let start = bytes.len() - footer::LEN;
        let mask = checksum::mask(uid(&bytes, start), start as u64);
        footer::seal((&mut bytes[start..]).try_into().unwrap(), mask);
        sim.write_file(path(&name), &bytes).unwrap();
    }
    let db = open(&sim);
    refused(db.get(&key(0)), ErrorKind::Unsupported, ".ksst");
    refused(try_contents(&db, db.default_column_family()), ErrorKind::Unsupported, ".ksst");
    let report = db.verify().unwrap();
    assert_eq!(report.errors.len(), files_like(&sim, ".ksst").len());
    assert!(report.errors.iter().all(|e| e.kind() == ErrorKind::Unsupported), "{:?}", report.errors);
    drop(db);
    let db = Db::open_read_only_in(env(&sim), DIR, small()).unwrap();
    assert_eq!(db.damaged_files().len(), files_like(&sim, ".ksst").len());
    refused(db.get(&key(0)), ErrorKind::Unsupported, ".ksst");
}

#[test]
fn a_log_page_of_a_newer_version_is_unsupported() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = store(4);
    let mut patched = Vec::new();
    for name in files_like(&sim, ".log") {
        let mut bytes = sim.read_file(path(&name)).unwrap();
        let page = &mut bytes[..4096];
        if !page.starts_with(b"LWAL") {
            continue;
        }
        page[8] = 4;
        let (store, group) = (word(page, 16) ^ word(page, 88), word(page, 24) ^ word(page, 96));
        let mask = checksum::mask(Uid::from_words(store, group), word(page, 40));
        let sum = checksum::checksum(&page[8..]) ^ mask;
        page[4..8].copy_from_slice(&sum.to_le_bytes());
        sim.write_file(path(&name), &bytes).unwrap();
        patched.push(name);
    }
    refused(try_open(&sim), ErrorKind::Unsupported, &patched[0]);
    refused(Db::open_read_only_in(env(&sim), DIR, small()), ErrorKind::Unsupported, &patched[0]);
}

/// A refused open changes nothing: the newer release can still open the store.
#[test]
fn a_refused_open_changes_nothing() {
    if skipped_on_lavafs(because::DAMAGE) {
        return;
    }
    let sim = store(5);
    let name = files_like(&sim, "MANIFEST-").remove(0);
    let whole = sim.read_file(path(&name)).unwrap();
    let mut bytes = whole.clone();
    bytes[8] = 9;
    let sum = checksum::stored(&bytes[..60], uid(&bytes, 32), 0);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(path(&name), &bytes).unwrap();
    let before = sim.state_hash();
    assert!(try_open(&sim).is_err());
    // The line in the lock file may be rewritten with the same contents.
    assert_eq!(sim.state_hash(), before);
    sim.write_file(path(&name), &whole).unwrap();
    assert_eq!(contents(&open(&sim)).len(), 520);
}
