use super::*;
use crate::disk::memory::{PATH, Stored, Written};
use crate::lsn_set::Size;
use base::ErrorKind;
use io::Rng;

fn uid() -> Uid {
    Uid::from_words(0x1111, 0x2222)
}

fn head() -> IndexHead {
    IndexHead { number: 7, ltn: 12, group: Uid::from_words(5, 6), filled: 70_000, seqs: (40, 1 << 40) }
}

/// Records as a group has them: of many logs, out of order by a percent, trimmed here and there.
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

/// All that the file gives, of which nothing may be wrong.
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
fn everything_comes_back_and_a_lookup_is_one_read() {
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
fn a_group_of_a_thousand_logs_is_indexed_in_a_few_bytes_for_each_record() {
    // 256 MB in records of 1,000 B of 1,000 logs in turns: their places are 1,024 times 1,000 bytes apart.
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
    assert!(crate::cold::ColdFile::open(Stored::new(bytes.clone()), 7, uid()).unwrap_err().is_corruption());
    let identity = crate::disk::input::identity_of(&*Stored::new(bytes)).unwrap();
    assert_eq!(identity, (FileKind::Index, uid()));
    assert!(crate::disk::input::identity_of(&*Stored::new(vec![0; 99])).unwrap_err().is_corruption());
}

/// Checksums fit, and yet no release writes it.
#[test]
fn a_file_whose_blocks_do_not_begin_it_or_have_no_room_for_a_checksum_is_told() {
    let new = || {
        let file = Written::default();
        let writer = IndexFileWriter::new(file.boxed(), Path::new(PATH), uid(), head());
        (file, writer)
    };
    let (file, mut writer) = new();
    let begin = writer.output.frame(&[b"before"]).unwrap();
    writer.indexing.add(&Entry { log: 3, lsn: 1, seq: 50, at: 0, len: 9 }).unwrap();
    writer.indexing.finish(writer.output, FileKind::Index, &head().encode(), begin).unwrap();
    let e = IndexFile::open(Stored::new(file.take()), 7, uid()).unwrap_err();
    assert!(e.is_corruption() && e.message() == "10 bytes before the first block of an index file", "{e}");
    assert_eq!(e.file(), Some(Path::new(PATH)));

    let (file, mut writer) = new();
    (0..257).for_each(|lsn| writer.add(&Entry { log: 3, lsn, seq: 50, at: 0, len: 9 }).unwrap());
    let bytes = {
        writer.finish().unwrap();
        file.take()
    };
    let (_, mut directory) = IndexFile::open(Stored::new(bytes), 7, uid()).unwrap();
    let (first, second) = directory.logs[0].blocks.split_at_mut(1);
    second[0].len += first[0].len - 2;
    first[0].len = 2;
    let len = second[0].len + 2;
    let (file, mut writer) = new();
    writer.output.frame(&[&vec![0; len as usize - 4]]).unwrap();
    writer.output.finish(FileKind::Index, &directory.encode(&head().encode(), 0), 257).unwrap();
    let (file, directory) = IndexFile::open(Stored::new(file.take()), 7, uid()).unwrap();
    let e = file.verify(&directory).unwrap_err();
    assert!(e.is_corruption() && e.message() == "a frame shorter than its checksum", "{e}");
    assert_eq!((e.file(), e.offset()), (Some(Path::new(PATH)), Some(0)));
}
