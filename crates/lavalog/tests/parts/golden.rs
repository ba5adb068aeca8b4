//! Golden files of format version 1: they must stay readable, and the writers must produce them
//! byte for byte.
//!
//! After a deliberate change of a format: raise its version, then run with `LAVASTORE_BLESS=1`.

use base::Uid;
use io::sim::SimEnv;
use io::{Access, AppendFile, CreateOptions, ReadFile};
use lavalog::checkpoint::{Checkpoint, CheckpointHead, CheckpointWriter, SavedLog};
use lavalog::cold::{ColdFile, ColdFileWriter, ColdHead};
use lavalog::entry::at;
use lavalog::index_file::{IndexFile, IndexFileWriter, IndexHead};
use lavalog::{Entry, LogId, Lsn};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NUMBER: u64 = 300;

fn uid() -> Uid {
    Uid::from_words(0x0102_0304_0506_0708, 0x1112_1314_1516_1718)
}

/// Returns the bytes that `write` writes to a file.
fn written(write: impl FnOnce(Box<dyn AppendFile>, &Path)) -> Vec<u8> {
    let (fs, path) = (SimEnv::new(1).env().fs, Path::new("f"));
    write(fs.create(path, &CreateOptions::default()).unwrap(), path);
    fs.read_all(path, 1 << 20).unwrap()
}

fn stored_file(bytes: &[u8]) -> Arc<dyn ReadFile> {
    let (fs, path) = (SimEnv::new(1).env().fs, Path::new("f"));
    let mut file = fs.create(path, &CreateOptions::default()).unwrap();
    file.append(bytes).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
    fs.open(path, Access::Buffered).unwrap()
}

#[allow(clippy::disallowed_methods)]
fn golden(name: &str, now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, now).unwrap();
    }
    let stored = std::fs::read(&path).unwrap();
    assert!(stored == now, "{name}: the format has changed");
    stored
}

/// Log, LSN, sequence number and length of each record: two blocks of even columns, gaps, single
/// records, the largest numbers.
fn records() -> Vec<(LogId, Lsn, u64, u32)> {
    let mut all: Vec<_> = (0..300).map(|i| (1, 1000 + i, 50 + 7 * i, 20)).collect();
    all.extend((0..40).map(|i| (2, 10 * i + i % 3, 9000 + i * i, (i % 5) as u32)));
    all.push((700, 0, 1, 0));
    all.push((1 << 40, lavalog::limits::LSN_MAX, base::MAX_SEQ, 300));
    all
}

fn bytes_of(record: &(LogId, Lsn, u64, u32)) -> Vec<u8> {
    (0..record.3).map(|i| (i as u8).wrapping_mul(7) ^ record.1 as u8).collect()
}

#[test]
fn golden_index_files_of_version_1_are_unchanged() {
    let head = IndexHead {
        number: NUMBER,
        ltn: 12,
        group: Uid::from_words(5, 6),
        filled: 70_000,
        seqs: (1, 1 << 50),
    };
    let place = |i: usize| at(5000 + i as u32 / 4, (112 + 1000 * (i % 4)) as u16);
    let entry = |(i, &(log, lsn, seq, len)): (usize, &(LogId, Lsn, u64, u32))| Entry {
        log,
        lsn,
        seq,
        at: place(i),
        len,
    };
    let entries: Vec<Entry> = records().iter().enumerate().map(entry).collect();
    let bytes = written(|file, path| {
        let mut writer = IndexFileWriter::new(file, path, uid(), head);
        entries.iter().for_each(|entry| writer.add(entry).unwrap());
        writer.finish().unwrap();
    });
    let stored = golden("index-v1.bin", &bytes);
    let (file, directory) = IndexFile::open(stored_file(&stored), NUMBER, uid()).unwrap();
    assert_eq!(*file.head(), head);
    let mut found = Vec::new();
    for log in &directory.logs {
        file.each_of(log, &mut |entry| {
            found.push(*entry);
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(found, entries);
    assert_eq!(file.verify(&directory).unwrap(), stored.len() as u64);
}

#[test]
fn golden_cold_files_of_version_1_are_unchanged() {
    let head = ColdHead { number: NUMBER, generation: 2 };
    let bytes = written(|file, path| {
        let mut writer = ColdFileWriter::new(file, path, uid(), head);
        for record in &records() {
            writer.add(record.0, record.1, record.2, &bytes_of(record)).unwrap();
        }
        writer.finish().unwrap();
    });
    let stored = golden("cold-v1.bin", &bytes);
    let (file, directory) = ColdFile::open(stored_file(&stored), NUMBER, uid()).unwrap();
    assert_eq!(*file.head(), head);
    for record in &records() {
        let entry = file.find(directory.log(record.0).unwrap(), record.1).unwrap().unwrap();
        assert_eq!((entry.seq, entry.len), (record.2, record.3));
        let mut out = Vec::new();
        file.read(&entry, &mut out).unwrap();
        assert!(out == bytes_of(record));
    }
    assert_eq!(file.verify(&directory).unwrap(), stored.len() as u64);
}

#[test]
fn golden_checkpoints_of_version_1_are_unchanged() {
    let head = CheckpointHead { number: NUMBER, replay_from: 9000, next_seq: 10_000, next_log: 900 };
    let log =
        |id: u64, name: &str| SavedLog { id, created: 3 * id, name: name.into(), ..SavedLog::default() };
    let mut logs: Vec<SavedLog> = (1..=3).map(|id| log(id, &"long name ".repeat(100))).collect();
    logs.extend((10..50).map(|id| SavedLog {
        metadata: (id % 2 == 0).then(|| (4000 + id, vec![id as u8; 1800])),
        ..log(id, "raft/göteborg")
    }));
    logs.push(SavedLog {
        trimmed_below: 1 << 50,
        last: Some((1 << 50) + 7),
        truncations: vec![(7000, 1 << 51), (7001, 300), (7500, 200)],
        ..log(800, "q")
    });
    let bytes = written(|file, path| {
        let mut writer = CheckpointWriter::new(file, path, uid(), head);
        logs.iter().for_each(|log| writer.add(log).unwrap());
        writer.finish().unwrap();
    });
    let stored = golden("checkpoint-v1.bin", &bytes);
    let checkpoint = Checkpoint::open(stored_file(&stored), NUMBER, uid()).unwrap();
    assert_eq!((*checkpoint.head(), checkpoint.logs()), (head, logs.len() as u64));
    let mut found = Vec::new();
    checkpoint
        .each(&mut |log| {
            found.push(log);
            Ok(())
        })
        .unwrap();
    assert_eq!(found, logs);
    assert_eq!(checkpoint.verify().unwrap(), stored.len() as u64);
}
