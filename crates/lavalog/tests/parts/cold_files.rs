//! Cold files: records that outlived their groups.

use crate::memory::{PATH, Stored, Written};
use base::{ErrorKind, Result, SeqNo, Uid};
use io::Rng;
use lavalog::cold::{ColdFile, ColdFileWriter, ColdHead, stored_len};
use lavalog::disk::indexed::FinishedFile;
use lavalog::{Entry, LogId, Lsn, Source};
use std::path::Path;

fn uid() -> Uid {
    Uid::from_words(0x3333, 0x4444)
}

/// Log, LSN, sequence number, bytes.
type Record = (LogId, Lsn, SeqNo, Vec<u8>);

fn some_records(rng: &mut Rng, logs: u64, count: u64, len_max: u64) -> Vec<Record> {
    let mut all = Vec::new();
    for log in 1..=logs {
        let mut lsn = rng.below(1000);
        for _ in 0..rng.below(count) {
            let mut bytes = vec![0; rng.below(len_max) as usize];
            rng.fill(&mut bytes);
            let bits = rng.range(1, 56);
            all.push((log * 100, lsn, rng.below(1 << bits), bytes));
            lsn += 1 + rng.below(3);
        }
    }
    all
}

fn write(records: &[Record]) -> (Vec<u8>, Vec<Entry>, FinishedFile) {
    let file = Written::default();
    let head = ColdHead { number: 9, generation: 2 };
    let mut writer = ColdFileWriter::new(file.boxed(), Path::new(PATH), uid(), head);
    let mut entries = Vec::new();
    for (log, lsn, seq, bytes) in records {
        let before = writer.bytes();
        let entry = writer.add(*log, *lsn, *seq, bytes).unwrap();
        assert_eq!((entry.at, writer.bytes() - before), (before, stored_len(*log, *lsn, *seq, entry.len)));
        entries.push(entry);
    }
    let finished = writer.finish().unwrap();
    (file.take(), entries, finished)
}

fn read_everything(bytes: Vec<u8>, records: &[Record], entries: &[Entry]) -> Result<()> {
    let (file, directory) = ColdFile::open(Stored::new(bytes), 9, uid())?;
    assert_eq!(file.head(), &ColdHead { number: 9, generation: 2 });
    assert_eq!(file.head().source(), Source::Cold(9));
    let mut all = file.records();
    for ((_, _, _, expected), entry) in records.iter().zip(entries) {
        let found = file.find(directory.log(entry.log).unwrap(), entry.lsn)?.unwrap();
        assert_eq!(found, *entry);
        let mut out = b"before".to_vec();
        file.read(&found, &mut out)?;
        assert!(out.strip_prefix(b"before") == Some(expected));
        let (next, bytes) = all.next()?.unwrap();
        assert!(next == *entry && bytes == expected);
    }
    assert!(all.next()?.is_none());
    file.verify(&directory).map(drop)
}

#[test]
fn cold_files_round_trip_with_one_read_per_record() {
    let mut rng = Rng::new(431);
    for (logs, count, len_max) in [(0, 1, 1), (1, 2, 9), (1, 900, 40), (30, 60, 2000), (2, 9, 400_000)] {
        let records = some_records(&mut rng, logs, count, len_max);
        let (bytes, entries, finished) = write(&records);
        assert_eq!(finished.len, bytes.len() as u64);
        read_everything(bytes.clone(), &records, &entries).unwrap();
        let stored = Stored::new(bytes);
        let (file, directory) = ColdFile::open(stored.clone(), 9, uid()).unwrap();
        assert_eq!((&directory, stored.reads()), (&finished.directory, 2));
        for (record, entry) in records.iter().zip(&entries).take(9) {
            let before = stored.reads();
            let mut out = Vec::new();
            file.read(entry, &mut out).unwrap();
            assert_eq!((&out, stored.reads()), (&record.3, before + 1));
        }
    }
}

#[test]
fn a_run_of_cold_records_with_gaps_is_one_read() {
    let mut rng = Rng::new(432);
    let records = some_records(&mut rng, 4, 80, 300);
    let (bytes, entries, _) = write(&records);
    let stored = Stored::new(bytes);
    let (file, _) = ColdFile::open(stored.clone(), 9, uid()).unwrap();
    for _ in 0..200 {
        let from = rng.below(entries.len() as u64) as usize;
        let to = from + rng.below((entries.len() - from) as u64 + 1) as usize;
        let wanted: Vec<usize> = (from..to).filter(|_| !rng.one_in(3)).collect();
        let run: Vec<Entry> = wanted.iter().map(|&i| entries[i]).collect();
        let (before, mut seen) = (stored.reads(), 0);
        file.read_run(&run, &mut |entry, bytes| {
            let i = wanted[seen];
            assert!(*entry == entries[i] && bytes == records[i].3);
            seen += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!((seen, stored.reads() - before), (run.len(), u64::from(!run.is_empty())));
    }
}

#[test]
fn every_flipped_bit_is_caught() {
    let records = some_records(&mut Rng::new(434), 3, 20, 40);
    let (bytes, entries, _) = write(&records);
    read_everything(bytes.clone(), &records, &entries).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let e = read_everything(damaged, &records, &entries).expect_err("a flip that nothing noticed");
        let is_typed = matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
        assert!(is_typed && e.file() == Some(Path::new(PATH)) && e.offset().is_some(), "bit {bit}: {e}");
    }
}
