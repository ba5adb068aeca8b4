//! Index files: the rows of all records of a group.

use crate::memory::{PATH, Stored, Written};
use base::{ErrorKind, Result, Uid};
use io::Rng;
use lavalog::Entry;
use lavalog::Source;
use lavalog::cold::ColdFile;
use lavalog::disk::footer::FileKind;
use lavalog::disk::indexed::FinishedFile;
use lavalog::disk::input::identity_of;
use lavalog::index_file::{IndexFile, IndexFileWriter, IndexHead};
use lavalog::lsn_set::Size;
use std::path::Path;

fn uid() -> Uid {
    Uid::from_words(0x1111, 0x2222)
}

fn head() -> IndexHead {
    IndexHead { number: 7, ltn: 12, group: Uid::from_words(5, 6), filled: 70_000, seqs: (40, 1 << 40) }
}

/// Makes the records of a group: many logs, with a gap after every hundredth record.
fn some_entries(rng: &mut Rng, logs: u64, records: u64) -> Vec<Entry> {
    let mut all = Vec::new();
    for log in 1..=logs {
        let mut lsn = rng.below(1000);
        for _ in 0..rng.below(records) {
            let len = rng.below(3000) as u32;
            all.push(Entry { log: log * 3, lsn, seq: 40 + rng.below(1 << 39), at: rng.below(1 << 28), len });
            lsn += if rng.one_in(100) { 1 + rng.below(9) } else { 1 };
        }
    }
    all
}

fn write(entries: &[Entry]) -> (Vec<u8>, FinishedFile) {
    let file = Written::default();
    let mut writer = IndexFileWriter::new(file.boxed(), Path::new(PATH), uid(), head());
    entries.iter().for_each(|entry| writer.add(entry).unwrap());
    let finished = writer.finish().unwrap();
    let bytes = file.take();
    assert_eq!(finished.len, bytes.len() as u64);
    (bytes, finished)
}

/// Reads the whole file in each way, and compares the rows with the entries.
fn read_everything(bytes: Vec<u8>, entries: &[Entry]) -> Result<()> {
    let (file, directory) = IndexFile::open(Stored::new(bytes), 7, uid())?;
    assert_eq!((file.head(), file.head().source()), (&head(), Source::Group(12)));
    let mut found = Vec::new();
    for log in &directory.logs {
        file.each_of(log, &mut |entry| {
            found.push(*entry);
            Ok(())
        })?;
    }
    assert!(found == entries);
    for entry in entries {
        let log = directory.log(entry.log).unwrap();
        assert_eq!(file.find(log, entry.lsn)?, Some(*entry));
    }
    file.verify(&directory).map(drop)
}

#[test]
fn index_files_round_trip_with_one_read_per_lookup() {
    let mut rng = Rng::new(421);
    for (logs, records) in [(0, 1), (1, 2), (1, 2000), (40, 300), (300, 3)] {
        let entries = some_entries(&mut rng, logs, records);
        let (bytes, finished) = write(&entries);
        assert_eq!(finished.directory.size(), entries.iter().map(|entry| Size::one(entry.len)).sum());
        read_everything(bytes.clone(), &entries).unwrap();
        let stored = Stored::new(bytes);
        let (file, directory) = IndexFile::open(stored.clone(), 7, uid()).unwrap();
        assert_eq!(directory, finished.directory);
        assert_eq!(stored.reads(), 2, "footer and directory");
        for entry in entries.iter().take(50) {
            let before = stored.reads();
            let log = directory.log(entry.log).unwrap();
            assert_eq!(file.find(log, entry.lsn).unwrap(), Some(*entry));
            assert_eq!(stored.reads(), before + 1);
            let last = log.lsns.last().unwrap();
            assert_eq!(file.find(log, last + 1).unwrap(), None, "answered by the directory");
            assert_eq!(stored.reads(), before + 1);
        }
    }
}

#[test]
fn index_of_a_thousand_logs_takes_few_bytes_per_record() {
    // 256 MB of records of 1,000 B, written by 1,000 logs in turn: their positions are 1,024 times
    // 1,000 bytes apart.
    let entries: Vec<Entry> = (0..1000u64)
        .flat_map(|log| {
            (0..256).map(move |i| {
                let n = i * 1000 + log;
                Entry { log, lsn: 5000 + i, seq: 1000 + n, at: n * 1024 + n / 3 * 112, len: 1000 }
            })
        })
        .collect();
    let (bytes, _) = write(&entries);
    let share = bytes.len() as f64 / (entries.len() * 1000) as f64;
    assert!(share < 0.01, "the index file takes {share} of the records");
    let (_, directory) = IndexFile::open(Stored::new(bytes), 7, uid()).unwrap();
    assert!(directory.logs.iter().all(|log| log.lsns.runs().count() == 1 && log.blocks.len() == 1));
}

#[test]
fn every_flipped_bit_is_caught() {
    let entries = some_entries(&mut Rng::new(422), 3, 60);
    let (bytes, _) = write(&entries);
    read_everything(bytes.clone(), &entries).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let e = read_everything(damaged, &entries).expect_err("a flip that nothing noticed");
        let is_typed = matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
        assert!(is_typed && e.file() == Some(Path::new(PATH)) && e.offset().is_some(), "bit {bit}: {e}");
    }
    for len in 0..bytes.len() {
        let e = read_everything(bytes[..len].to_vec(), &entries).unwrap_err();
        assert!(e.is_corruption() && e.file() == Some(Path::new(PATH)), "cut to {len}: {e}");
    }
}

#[test]
fn another_file_is_refused() {
    let (bytes, _) = write(&some_entries(&mut Rng::new(423), 2, 20));
    let open = |number, uid| IndexFile::open(Stored::new(bytes.clone()), number, uid).unwrap_err();
    assert!(open(8, uid()).is_corruption());
    assert!(open(7, Uid::from_words(1, 1)).is_corruption());
    assert!(ColdFile::open(Stored::new(bytes.clone()), 7, uid()).unwrap_err().is_corruption());
    let identity = identity_of(&*Stored::new(bytes)).unwrap();
    assert_eq!(identity, (FileKind::Index, uid()));
    assert!(identity_of(&*Stored::new(vec![0; 99])).unwrap_err().is_corruption());
}

/// Finishing reports the first failure of the file, at whatever length the file was full.
#[test]
fn a_failed_append_is_the_failure_of_the_file() {
    for full_at in [0, 10, 20, 34, 50, 100, 140] {
        let file = Written { full_at: Some(full_at), ..Written::default() };
        let mut writer = IndexFileWriter::new(file.boxed(), Path::new("f"), uid(), head());
        let row = |lsn| Entry { log: 1, lsn, seq: 50, at: 4096 * lsn, len: 100 };
        let _ = (0..300).try_for_each(|lsn| writer.add(&row(lsn)));
        let e = writer.finish().unwrap_err();
        assert_eq!((e.kind(), e.file()), (ErrorKind::NoSpace, Some(Path::new("f"))));
    }
}
