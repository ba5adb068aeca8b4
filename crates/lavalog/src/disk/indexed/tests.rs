use super::*;
use crate::disk::memory::{Stored, Written};
use crate::index_file::{IndexFile, IndexFileWriter, IndexHead};
use crate::lsn_set::LsnSet;
use std::path::Path;

fn head() -> IndexHead {
    IndexHead { number: 7, ltn: 3, group: Uid::from_words(3, 4), filled: 900, seqs: (1, 10_000) }
}

fn write(entries: &[Entry]) -> Result<(Vec<u8>, FinishedFile)> {
    let file = Written::default();
    let mut writer = IndexFileWriter::new(file.boxed(), Path::new("f"), Uid::from_words(1, 2), head());
    entries.iter().try_for_each(|entry| writer.add(entry))?;
    let finished = writer.finish()?;
    Ok((file.take(), finished))
}

fn entry(log: LogId, lsn: Lsn) -> Entry {
    Entry { log, lsn, seq: 5, at: 4096 * (lsn % 1000), len: 100 }
}

fn set(lsns: &[Lsn]) -> LsnSet {
    let mut set = Builder::default();
    lsns.iter().for_each(|lsn| set.push(*lsn, 100).unwrap());
    set.build()
}

#[test]
fn records_that_do_not_ascend_are_refused_and_the_file_goes_on() {
    let file = Written::default();
    let mut writer = IndexFileWriter::new(file.boxed(), Path::new("f"), Uid::from_words(1, 2), head());
    writer.add(&entry(5, 9)).unwrap();
    for (log, lsn) in [(5, 9), (5, 8), (4, 10), (6, LSN_MAX + 1)] {
        let e = writer.add(&entry(log, lsn)).unwrap_err();
        assert_eq!((e.kind(), e.file()), (base::ErrorKind::InvalidArgument, Some(Path::new("f"))));
    }
    writer.add(&entry(5, 10)).unwrap();
    assert_eq!(writer.finish().unwrap().directory.logs[0].lsns, set(&[9, 10]));
}

#[test]
fn a_block_of_another_log_is_no_block_of_this_one() {
    let (bytes, finished) = write(&[entry(5, 1), entry(6, 1), entry(6, 2)]).unwrap();
    let (file, directory) = IndexFile::open(Stored::new(bytes), 7, Uid::from_words(1, 2)).unwrap();
    assert_eq!(directory, finished.directory);
    let blocks: Vec<Block> = directory.logs.iter().flat_map(|log| log.blocks.clone()).collect();
    assert_eq!(file.block(5, blocks[0]).unwrap(), [entry(5, 1)]);
    assert!(file.block(5, blocks[1]).unwrap_err().is_corruption());
    let end = Block { offset: finished.len - 64, ..blocks[0] };
    assert!(file.block(5, end).unwrap_err().is_corruption(), "not where blocks are");
    assert!(file.block(5, Block { offset: u64::MAX, ..blocks[0] }).unwrap_err().is_corruption());
}

#[test]
fn rows_are_held_against_the_directory() {
    let (bytes, _) = write(&[entry(5, 1), entry(5, 2), entry(5, 4)]).unwrap();
    let (file, directory) = IndexFile::open(Stored::new(bytes), 7, Uid::from_words(1, 2)).unwrap();
    file.verify(&directory).unwrap();
    let good = directory.logs[0].clone();
    let of = |lsns: &[Lsn]| LogRows { lsns: set(lsns), ..good.clone() };
    let seqs = |low, high| LogRows { seqs: (low, high), ..good.clone() };
    for bad in [of(&[1, 2, 3]), of(&[1, 2]), of(&[1, 2, 4, 5]), of(&[1, 2, 5]), seqs(6, 9), seqs(1, 4)] {
        let e = file.verify(&Directory { logs: vec![bad] }).unwrap_err();
        assert!(e.is_corruption() && e.offset().is_some() && e.file().is_some(), "{e}");
    }
    // A row is not handed out before it is known that the directory has it.
    for (lsns, expected) in [(&[1, 2, 5][..], 2), (&[1, 2], 2), (&[2, 3, 4], 0), (&[1, 2, 4, 5], 3)] {
        let mut taken = 0;
        let read = file.each_of(&of(lsns), &mut |_| {
            taken += 1;
            Ok(())
        });
        assert!(read.unwrap_err().is_corruption() && taken == expected, "{lsns:?}: {taken}");
    }
    assert!(
        file.find(&of(&[1, 2, 3]), 3).unwrap_err().is_corruption(),
        "the directory has what the block lacks"
    );
}

#[test]
fn a_failure_stays() {
    for full_at in [0, 10, 20, 34, 50, 100, 140] {
        let file = Written { full_at: Some(full_at), ..Written::default() };
        let mut writer = IndexFileWriter::new(file.boxed(), Path::new("f"), Uid::from_words(1, 2), head());
        let _ = (0..300).try_for_each(|lsn| writer.add(&entry(1, lsn)));
        let e = writer.finish().unwrap_err();
        assert_eq!((e.kind(), e.file()), (base::ErrorKind::NoSpace, Some(Path::new("f"))));
    }
}
