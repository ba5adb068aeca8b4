use super::*;
use crate::disk::memory::{PATH, Stored, Written};

fn uid() -> Uid {
    Uid::from_words(0x1111, 0x2222)
}

fn head() -> IndexHead {
    IndexHead { number: 7, ltn: 12, group: Uid::from_words(5, 6), filled: 70_000, seqs: (40, 1 << 40) }
}

/// The checksums are valid, but no release writes such a file.
#[test]
fn malformed_index_file_blocks_are_reported() {
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
    assert!(
        e.is_corruption() && e.message() == "the log index file has 10 unused bytes before its first block",
        "{e}"
    );
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
    assert!(
        e.is_corruption()
            && e.message() == "a part (frame) of the file is shorter than its checksum of 4 bytes",
        "{e}"
    );
    assert_eq!((e.file(), e.offset()), (Some(Path::new(PATH)), Some(0)));
}
