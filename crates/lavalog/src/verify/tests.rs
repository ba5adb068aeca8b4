//! Files with valid checksums and wrong contents. A bug could write them, but no damage of a
//! device.

use super::verify;
use crate::checkpoint::{CheckpointHead, CheckpointWriter};
use crate::cold::ColdHead;
use crate::core::Core;
use crate::disk::footer::FileKind;
use crate::disk::indexed::Indexing;
use crate::disk::output::Output;
use crate::entry::{Entry, Source};
use crate::index_file::{IndexFileWriter, IndexHead};
use crate::log_store::LogStore;
use crate::manifest::{FileMeta, FileRole};
use crate::options::Options;
use base::codec::put_varint;
use datadriven::TestCase;
use io::sim::SimEnv;
use io::{Access, AppendFile, CreateOptions};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::commit::Durability;

/// Makes a store with two logs in sealed groups, and a cold file.
fn made() -> (SimEnv, LogStore) {
    let sim = SimEnv::new(3);
    let options = Options { group_bytes: Some(256 << 10), recent_bytes: 0, ..Options::default() };
    let store = LogStore::open(&sim.env(), Path::new("/logs"), &options).unwrap();
    let (kept, trimmed) = (store.log("kept").unwrap(), store.log("trimmed").unwrap());
    for lsn in 1..=900 {
        kept.append(lsn, &[7; 200], Durability::Buffered).unwrap();
        trimmed.append(lsn, &[1; 900], Durability::Buffered).unwrap();
        if lsn == 450 {
            trimmed.trim(450).unwrap();
        }
        if lsn % 50 == 0 {
            store.wait_idle().unwrap();
        }
    }
    assert!(verify(store.core(), None).unwrap().is_sound());
    (sim, store)
}

fn file(core: &Core, is_it: impl Fn(FileRole) -> bool) -> FileMeta {
    core.store.manifest.state().files.values().find(|meta| is_it(meta.role)).copied().unwrap()
}

/// Replaces a file by a new one.
fn instead(core: &Core, meta: &FileMeta) -> (Box<dyn AppendFile>, PathBuf) {
    let path = core.context().path(&meta.name());
    core.context().env.fs.remove(&path).unwrap();
    (core.context().env.fs.create(&path, &CreateOptions::default()).unwrap(), path)
}

/// Rewrites the index file of a group with other rows and another head.
fn forge_index(core: &Core, change: impl Fn(&mut Entry), of: impl Fn(&mut IndexHead)) {
    let meta = file(core, |role| matches!(role, FileRole::Index { .. }));
    let (old, directory) = crate::files::RowFile::open(core.context(), &meta).unwrap();
    let crate::files::RowFile::Index(index) = &old else { unreachable!() };
    let mut head = *index.head();
    of(&mut head);
    let mut rows = Vec::new();
    let mut keep = |row: &Entry| {
        rows.push(*row);
        Ok(())
    };
    directory.logs.iter().for_each(|log| old.each_of(log, &mut keep).unwrap());
    let (file, path) = instead(core, &meta);
    let mut writer = IndexFileWriter::new(file, &path, meta.uid, head);
    for mut row in rows {
        change(&mut row);
        writer.add(&row).unwrap();
    }
    writer.finish().unwrap();
}

/// Rewrites a cold file with bytes that are no record, after the third record or at the end. They
/// replace the last record and have its length, since the manifest records the length of the file.
fn forge_cold(core: &Core, at_end: bool) {
    let meta = file(core, |role| matches!(role, FileRole::Cold { .. }));
    let (old, directory) = crate::files::RowFile::open(core.context(), &meta).unwrap();
    let crate::files::RowFile::Cold(cold) = &old else { unreachable!() };
    let ColdHead { number, generation } = *cold.head();
    let (mut records, mut copies) = (cold.records(), Vec::new());
    while let Some((entry, bytes)) = records.next().unwrap() {
        copies.push((entry, bytes.to_vec()));
    }
    assert!(!directory.logs.is_empty());
    copies.pop();
    let mut stranger = b"what is this?".to_vec();
    let forge = |stranger: &[u8]| {
        let (file, path) = instead(core, &meta);
        let (mut output, mut indexing) = (Output::new(file, &path, meta.uid), Indexing::default());
        for (i, (mut entry, bytes)) in copies.iter().cloned().enumerate() {
            if !at_end && i == 3 {
                output.frame(&[stranger]).unwrap();
            }
            entry.at = output.offset();
            let mut head = Vec::new();
            [entry.log, entry.lsn, entry.seq, entry.len.into()]
                .iter()
                .for_each(|n| put_varint(&mut head, *n));
            output.frame(&[&head, &bytes]).unwrap();
            indexing.add(&entry).unwrap();
        }
        if at_end {
            output.frame(&[stranger]).unwrap();
        }
        let mut head = Vec::new();
        put_varint(&mut head, number);
        put_varint(&mut head, generation.into());
        let end = output.offset();
        indexing.finish(output, FileKind::Cold, &head, end).unwrap();
        core.context().env.fs.open(&path, Access::Buffered).unwrap().len().unwrap()
    };
    let missing = meta.len - forge(&stranger);
    stranger.resize(stranger.len() + missing as usize, b'?');
    assert_eq!(forge(&stranger), meta.len);
}

/// Writes a checkpoint that claims future operations.
fn forge_checkpoint(core: &Core) {
    let meta = file(core, |role| role == FileRole::Checkpoint);
    let (file, path) = instead(core, &meta);
    let floor = core.store.manifest.state().floor + 1;
    let head = CheckpointHead { number: meta.number, replay_from: floor, next_seq: floor, next_log: 9 };
    CheckpointWriter::new(file, &path, meta.uid, head).finish().unwrap();
}

/// Prints the report of a check: one line per damage, with the number of lost records.
fn verified(core: &Arc<Core>) -> String {
    let report = verify(core, None).unwrap();
    let lost =
        |damage: &super::Damage| damage.lost.iter().map(|lost| lost.last - lost.first + 1).sum::<u64>();
    let line = |damage: &super::Damage| format!("{}; records lost: {}\n", damage.error, lost(damage));
    let all: u64 = report.damages.iter().map(lost).sum();
    let shown: String = report.damages.iter().map(line).collect();
    format!("damages: {}, records lost: {all}\n{shown}", report.damages.len())
}

fn run(core: &Arc<Core>, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    match &*case.directive {
        "store" => {}
        "shift-rows" => {
            let bytes: u64 = case.take_arg("bytes")?;
            forge_index(core, |row| row.at += bytes, |_| {});
        }
        "raise-sequences" => {
            let every: u64 = case.take_arg("of-every")?;
            forge_index(core, |row| row.seq += u64::from(row.lsn % every == 0), |_| {});
        }
        "index-of-another-group" => {
            forge_index(core, |_| {}, |head| head.group = base::Uid::from_words(1, 2));
        }
        "strange-bytes-in-cold-file" => forge_cold(core, case.take_flag("at-end")?),
        "checkpoint-to-come" => forge_checkpoint(core),
        "forget-cold-file-in-ledger" => {
            let source = file(core, |role| matches!(role, FileRole::Cold { .. })).source().unwrap();
            core.catalog.edit().forget(&[source]);
        }
        "live-in-indexed-group" => {
            let FileRole::Index { ltn } = file(core, |role| matches!(role, FileRole::Index { .. })).role
            else {
                unreachable!()
            };
            let live = core.catalog.view().ledger().usage(Source::Group(ltn)).live;
            out = format!("{} records\n", live.records);
        }
        "verify" => out = verified(core),
        other => return Err(format!("no command is called {other}").into()),
    }
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/verify/scripts", |file| {
        let (mut _sim, mut store) = made();
        file.run(|case| {
            if case.directive == "store" {
                (_sim, store) = made();
            }
            run(store.core(), case)
        });
    });
}
