//! Files of the log engine: blocks of rows, index files, cold files, checkpoints.

use crate::files::{MemAppend, MemRead, NUMBER, UID};
use crate::script::{self, patches};
use crate::seal::{Region, footer_of, frame_at, seal};
use ::lavalog::checkpoint::{Checkpoint, CheckpointHead, CheckpointWriter, SavedLog};
use ::lavalog::cold::{ColdFile, ColdFileWriter, ColdHead, stored_len};
use ::lavalog::disk::directory::{Directory, LogRows};
use ::lavalog::disk::footer::{FOOTER_LEN, FileKind, Footer};
use ::lavalog::disk::input::identity_of;
use ::lavalog::disk::rows;
use ::lavalog::index_file::{IndexFile, IndexFileWriter, IndexHead};
use ::lavalog::{Entry, LogId, Lsn};
use base::{Result, Uid};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A block of rows: what is decoded is encoded to the same rows.
pub fn log_rows(data: &[u8]) {
    let Ok(found) = rows::decode(data) else { return };
    assert!((1..=rows::BLOCK_ROWS).contains(&found.len()));
    let mut again = Vec::new();
    rows::encode(&mut again, &found);
    assert_eq!(rows::decode(&again).ok(), Some(found.clone()));
    for row in &found {
        assert_eq!(rows::find(&found, row.lsn), Some(*row));
    }
}

/// Blocks of even and of uneven columns.
pub fn log_rows_seeds() -> Vec<Vec<u8>> {
    let block = |rows: &[Entry]| {
        let mut out = Vec::new();
        rows::encode(&mut out, rows);
        out
    };
    let row = |i: u64| Entry { log: 5, lsn: 100 + i, seq: 3 * i, at: 1000 * i, len: 20 };
    let even: Vec<Entry> = (0..256).map(row).collect();
    let uneven: Vec<Entry> = (0..20).map(|i| Entry { at: i * i, len: i as u32, ..row(i * i) }).collect();
    vec![block(&even), block(&uneven), block(&uneven[..1])]
}

/// Hands the rows of a log to a function.
type EachOf<'a> = dyn Fn(&LogRows, &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> + 'a;

/// Asks of each log what the directory says there is, and a little more.
fn use_rows(
    directory: &Directory,
    len: usize,
    each_of: &EachOf<'_>,
    find: &dyn Fn(&LogRows, Lsn) -> Result<Option<Entry>>,
) -> Vec<Entry> {
    let mut all = Vec::new();
    for log in &directory.logs {
        let _ = each_of(log, &mut |entry| {
            assert!(entry.log == log.log && log.lsns.contains(entry.lsn), "a row that nobody knows");
            all.push(*entry);
            assert!(all.len() <= rows::BLOCK_ROWS * len, "a walk that does not end");
            Ok(())
        });
        for run in log.lsns.runs().take(5) {
            for lsn in [run.first, run.last(), run.last().saturating_add(1)] {
                if let Ok(found) = find(log, lsn) {
                    assert_eq!(found.map(|entry| entry.lsn), log.lsns.contains(lsn).then_some(lsn));
                }
            }
        }
    }
    all
}

/// Everything that can be done with a file of logs.
fn use_file(bytes: &[u8], kind: FileKind, uid: Uid) -> Result<()> {
    let stored = Arc::new(MemRead(bytes.to_vec()));
    match kind {
        FileKind::Index => {
            let (file, directory) = IndexFile::open(stored, NUMBER, uid)?;
            use_rows(&directory, bytes.len(), &|log, take| file.each_of(log, take), &|log, lsn| {
                file.find(log, lsn)
            });
            file.verify(&directory).map(drop)
        }
        FileKind::Cold => {
            let (file, directory) = ColdFile::open(stored, NUMBER, uid)?;
            let entries =
                use_rows(&directory, bytes.len(), &|log, take| file.each_of(log, take), &|log, lsn| {
                    file.find(log, lsn)
                });
            for entry in &entries {
                let mut out = Vec::new();
                if file.read(entry, &mut out).is_ok() {
                    assert_eq!(out.len(), entry.len as usize);
                }
            }
            let _ = file.read_run(&entries, &mut |entry, bytes| {
                assert_eq!(bytes.len(), entry.len as usize);
                Ok(())
            });
            let (mut records, mut end) = (file.records(), 0);
            while let Ok(Some((entry, bytes))) = records.next() {
                assert_eq!((entry.at, entry.len as usize), (end, bytes.len()), "records leave no gap");
                end += stored_len(entry.log, entry.lsn, entry.seq, entry.len);
            }
            file.verify(&directory).map(drop)
        }
        FileKind::Checkpoint => {
            let file = Checkpoint::open(stored, NUMBER, uid)?;
            let (mut last, mut count) = (None, 0);
            file.each(&mut |log| {
                assert!(last < Some(log.id) && log.id < file.head().next_log, "ids ascend");
                (last, count) = (Some(log.id), count + 1);
                Ok(())
            })?;
            assert_eq!(count, file.logs());
            file.verify().map(drop)
        }
    }
}

/// The bytes of any file of logs, by what it says that it is.
pub fn log_file(data: &[u8]) {
    if let Ok((kind, uid)) = identity_of(&MemRead(data.to_vec())) {
        let _ = use_file(data, kind, uid);
    }
}

/// Valid files of every kind.
pub fn log_file_seeds() -> Vec<Vec<u8>> {
    let golden: [&[u8]; 3] = [
        include_bytes!("../../crates/lavalog/tests/golden/index-v1.bin"),
        include_bytes!("../../crates/lavalog/tests/golden/cold-v1.bin"),
        include_bytes!("../../crates/lavalog/tests/golden/checkpoint-v1.bin"),
    ];
    let made = [log_indexes(), log_colds(), log_checkpoints()].concat();
    made.into_iter().map(|base| base.bytes).chain(golden.map(<[u8]>::to_vec)).collect()
}

/// A valid file, and its parts.
#[derive(Clone, Debug)]
struct Base {
    bytes: Vec<u8>,
    regions: Vec<Region>,
}

/// Log, LSN, sequence and length of each record: more than a block, gaps, lone records.
fn records(count: u64) -> Vec<(LogId, Lsn, u64, u32)> {
    let mut all: Vec<_> = (0..count).map(|i| (1, 50 + i, 9 + i, 12)).collect();
    all.extend((0..count / 5).map(|i| (2, 3 * i + i % 2, 9000 + i * i, (i % 7) as u32)));
    all.push((1 << 33, 7, 1, 0));
    all
}

fn footer(bytes: &[u8], kind: FileKind) -> Footer {
    let last = bytes.last_chunk::<FOOTER_LEN>().expect("a file has a footer");
    Footer::decode(kind, last, UID, bytes.len() as u64).expect("the file is valid")
}

/// `frames` are those before the directory.
fn finished(bytes: Vec<u8>, frames: Vec<(u64, u64)>, kind: FileKind) -> Base {
    let footer = footer(&bytes, kind);
    let directory = (footer.directory_offset, footer.directory_len);
    let frames = frames.into_iter().chain([directory]);
    let mut regions: Vec<Region> = frames.map(|(at, len)| frame_at(at as usize, len as usize, UID)).collect();
    regions.push(footer_of(&bytes));
    Base { bytes, regions }
}

fn blocks(directory: &Directory) -> Vec<(u64, u64)> {
    let blocks = directory.logs.iter().flat_map(|log| &log.blocks);
    blocks.map(|block| (block.offset, u64::from(block.len))).collect()
}

fn log_indexes() -> Vec<Base> {
    let build = |count: u64| {
        let file = MemAppend::default();
        let head = IndexHead { number: NUMBER, ltn: 3, group: UID, filled: 99, seqs: (1, 1 << 40) };
        let mut writer = IndexFileWriter::new(Box::new(file.clone()), Path::new("f"), UID, head);
        for (at, (log, lsn, seq, len)) in (0..).step_by(100).zip(records(count)) {
            writer.add(&Entry { log, lsn, seq, at, len }).expect("records ascend");
        }
        let done = writer.finish().expect("memory takes every write");
        finished(file.take(), blocks(&done.directory), FileKind::Index)
    };
    [0, 9, 600].map(build).into()
}

fn log_colds() -> Vec<Base> {
    let build = |count: u64| {
        let file = MemAppend::default();
        let head = ColdHead { number: NUMBER, generation: 1 };
        let mut writer = ColdFileWriter::new(Box::new(file.clone()), Path::new("f"), UID, head);
        let mut frames = Vec::new();
        for (log, lsn, seq, len) in records(count) {
            let entry = writer.add(log, lsn, seq, &vec![b'r'; len as usize]).expect("records ascend");
            frames.push((entry.at, stored_len(log, lsn, seq, len)));
        }
        let done = writer.finish().expect("memory takes every write");
        frames.extend(blocks(&done.directory));
        finished(file.take(), frames, FileKind::Cold)
    };
    [0, 9, 300].map(build).into()
}

fn log_checkpoints() -> Vec<Base> {
    let build = |count: u64| {
        let file = MemAppend::default();
        let head = CheckpointHead { number: NUMBER, replay_from: 7, next_seq: 9000, next_log: 9000 };
        let mut writer = CheckpointWriter::new(Box::new(file.clone()), Path::new("f"), UID, head);
        for id in 0..count {
            let log = SavedLog {
                id: 3 * id,
                created: id,
                name: format!("log {id}"),
                trimmed_below: 10 * id,
                last: (id % 2 == 0).then_some(11 * id),
                metadata: (id % 3 == 0).then(|| (100 + id, vec![7; id as usize])),
                truncations: (0..id % 3).map(|i| (200 + i, 50 * i)).collect(),
            };
            writer.add(&log).expect("logs ascend");
        }
        writer.finish().expect("memory takes every write");
        // So few logs are one frame.
        let bytes = file.take();
        let end = footer(&bytes, FileKind::Checkpoint).directory_offset;
        let frames = if count == 0 { Vec::new() } else { vec![(0, end)] };
        finished(bytes, frames, FileKind::Checkpoint)
    };
    [0, 1, 30].map(build).into()
}

/// Runs a script over one of several files.
fn damaged(bases: &[Base], data: &[u8]) -> Vec<u8> {
    let (&first, script) = data.split_first().unwrap_or((&0, &[]));
    let base = &bases[usize::from(first) % bases.len()];
    let mut bytes = base.bytes.clone();
    for patch in patches(script) {
        // Records are many: every other patch is for the last parts, blocks and directory.
        let skip = if patch.part % 2 == 0 { 0 } else { base.regions.len().saturating_sub(8) };
        let regions = &base.regions[skip..];
        let Some(region) = patch.region_of(regions.len()).map(|i| &regions[i]) else { continue };
        patch.apply(&mut bytes[region.start..region.start + region.len]);
        seal(&mut bytes, region);
    }
    bytes
}

/// Scripts for each of the files.
pub fn log_script_seeds() -> Vec<Vec<u8>> {
    script::seeds().into_iter().enumerate().map(|(i, s)| [&[i as u8][..], &s].concat()).collect()
}

/// A script of damage to a valid index file, under valid checksums. The first byte chooses the file.
pub fn log_index_sealed(data: &[u8]) {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    let _ = use_file(&damaged(BASES.get_or_init(log_indexes), data), FileKind::Index, UID);
}

/// The same of cold files.
pub fn log_cold_sealed(data: &[u8]) {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    let _ = use_file(&damaged(BASES.get_or_init(log_colds), data), FileKind::Cold, UID);
}

/// The same of checkpoints.
pub fn log_checkpoint_sealed(data: &[u8]) {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    let _ = use_file(&damaged(BASES.get_or_init(log_checkpoints), data), FileKind::Checkpoint, UID);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resealed_files_are_valid() {
        let kinds = [FileKind::Index, FileKind::Cold, FileKind::Checkpoint];
        for (kind, bases) in kinds.into_iter().zip([log_indexes(), log_colds(), log_checkpoints()]) {
            for Base { bytes, regions } in bases {
                let mut sealed = bytes.clone();
                regions.iter().for_each(|region| seal(&mut sealed, region));
                assert!(sealed == bytes);
                assert_eq!(regions.iter().map(|r| r.len).sum::<usize>(), bytes.len());
                use_file(&bytes, kind, UID).unwrap();
            }
        }
    }
}
