use super::*;
use crate::disk::memory::{PATH, Stored, Written};
use io::Rng;

fn uid() -> Uid {
    Uid::from_words(0x3333, 0x4444)
}

/// Log, LSN, sequence, bytes.
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
        assert_eq!((entry.at, writer.bytes() - before), (before, len_of(&entry)));
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
fn everything_comes_back_and_a_record_is_one_read() {
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
fn a_run_of_records_is_one_read_with_gaps_and_all() {
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
fn an_entry_that_leads_elsewhere_is_refused() {
    let records = some_records(&mut Rng::new(433), 2, 40, 100);
    let (bytes, entries, _) = write(&records);
    let len = bytes.len() as u64;
    let (file, _) = ColdFile::open(Stored::new(bytes), 9, uid()).unwrap();
    let good = entries[3];
    for bad in [
        Entry { lsn: good.lsn + 1, ..good },
        Entry { log: good.log + 1, ..good },
        Entry { seq: good.seq ^ 1, ..good },
        Entry { len: good.len + 1, ..good },
        Entry { at: entries[4].at, ..good },
        Entry { at: good.at + 1, ..good },
        Entry { at: len, ..good },
        Entry { at: u64::MAX, ..good },
        Entry { len: u32::MAX, ..good },
    ] {
        let mut out = Vec::new();
        let e = file.read(&bad, &mut out).unwrap_err();
        assert!(e.is_corruption() && e.offset() == Some(bad.at) && out.is_empty(), "{bad:?}: {e}");
    }
    let backward = [entries[4], entries[3], entries[5]];
    assert!(file.read_run(&backward, &mut |_, _| Ok(())).unwrap_err().is_corruption());
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

#[test]
fn damage_in_one_record_leaves_the_others_readable() {
    let records = some_records(&mut Rng::new(435), 2, 40, 100);
    let (mut bytes, entries, _) = write(&records);
    let damaged = entries[5];
    bytes[damaged.at as usize + 2] ^= 0x40;
    let (file, directory) = ColdFile::open(Stored::new(bytes), 9, uid()).unwrap();
    for (record, entry) in records.iter().zip(&entries) {
        let mut out = Vec::new();
        let read = file.read(entry, &mut out);
        assert_eq!(read.is_ok(), *entry != damaged);
        assert!(out == record.3 || *entry == damaged);
    }
    assert_eq!(file.verify(&directory).unwrap_err().offset(), Some(damaged.at));
}

#[test]
fn what_no_record_can_be_is_refused_before_it_is_written() {
    let file = Written::default();
    let head = ColdHead { number: 9, generation: 1 };
    let mut writer = ColdFileWriter::new(file.boxed(), Path::new(PATH), uid(), head);
    writer.add(5, 9, 1, b"a").unwrap();
    let before = writer.bytes();
    let kind = |e: Error| e.kind();
    assert_eq!(writer.add(5, 9, 1, b"a").map_err(kind), Err(ErrorKind::InvalidArgument));
    let long = vec![0; crate::limits::RECORD_LEN_MAX + 1];
    assert_eq!(writer.add(5, 10, 1, &long).map_err(kind), Err(ErrorKind::TooLarge));
    assert_eq!(writer.bytes(), before);
    assert_eq!(writer.finish().unwrap().directory.size().records, 1);
}

/// Checksums fit, and yet no release writes it.
#[test]
fn a_file_with_another_head_or_a_record_without_a_row_is_told() {
    let writer = || {
        let (file, head) = (Written::default(), ColdHead { number: 9, generation: 1 });
        let mut writer = ColdFileWriter::new(file.boxed(), Path::new(PATH), uid(), head);
        writer.add(5, 1, 1, b"a").unwrap();
        (file, writer)
    };
    let (file, writer_of_another_head) = writer();
    let ColdFileWriter { output, indexing, .. } = writer_of_another_head;
    let end = output.offset();
    indexing.finish(output, FileKind::Cold, &[9, 1, 0], end).unwrap();
    let e = ColdFile::open(Stored::new(file.take()), 9, uid()).unwrap_err();
    assert!(e.is_corruption() && e.message() == "the head of a cold file is none", "{e}");
    assert_eq!(e.file(), Some(Path::new(PATH)));

    let (file, mut writer) = writer();
    let unlisted = Entry { log: 5, lsn: 2, seq: 2, at: writer.bytes(), len: 1 };
    let mut head = Vec::new();
    put_head(&mut head, &unlisted);
    writer.output.frame(&[&head, b"b"]).unwrap();
    writer.finish().unwrap();
    let (file, directory) = ColdFile::open(Stored::new(file.take()), 9, uid()).unwrap();
    let e = file.verify(&directory).unwrap_err();
    assert!(e.is_corruption() && e.message().ends_with("is in no row of the index"), "{e}");
    assert_eq!((e.file(), e.offset()), (Some(Path::new(PATH)), Some(unlisted.at)));
}
