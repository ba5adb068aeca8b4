//! Value segments: every range reads back, every damaged byte is detected, and format version 1
//! stays the same.

use crate::common::*;
use base::checksum;
use base::{Error, ErrorKind, Result, Uid};
use io::Rng;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::segment::footer::{FOOTER_LEN, SegmentFooter};
use table::segment::{CHUNK_LEN, RUN_CHUNKS, file_len};
use table::{FinishedSegment, SegmentIdentity, SegmentReader, SegmentWriter};

const KEY: &[u8] = b"photo/1";

fn identity() -> SegmentIdentity {
    SegmentIdentity { number: 7, uid: uid(), family: 3, edit: 44, created_unix_seconds: 1_700_000_000 }
}

fn bytes_of(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut value = vec![0; len];
    rng.fill(&mut value);
    value
}

/// Writes a value in pieces of random lengths.
fn write(value: &[u8], chunk_len: usize, rng: &mut Rng) -> (Vec<u8>, FinishedSegment) {
    let file = MemAppend::default();
    let bytes = file.shared();
    let mut writer =
        SegmentWriter::with_chunks(Box::new(file), Path::new(PATH), &identity(), KEY, chunk_len).unwrap();
    let mut rest = value;
    while !rest.is_empty() {
        let n = 1 + rng.below((3 * chunk_len).min(rest.len()) as u64) as usize;
        writer.append(&rest[..n.min(rest.len())]).unwrap();
        rest = &rest[n.min(rest.len())..];
    }
    assert_eq!(writer.raw_len(), value.len() as u64);
    let finished = writer.finish().unwrap();
    let bytes = std::mem::take(&mut *bytes.lock().unwrap());
    assert_eq!((finished.len, finished.raw_len), (bytes.len() as u64, value.len() as u64));
    (bytes, finished)
}

fn open(bytes: Vec<u8>) -> Result<Arc<SegmentReader>> {
    SegmentReader::open(MemRead::new(bytes), 7, uid()).map(Arc::new)
}

/// Reads the whole segment in every way; results without an error must be right.
fn read_everything(bytes: Vec<u8>, value: &[u8]) -> Result<()> {
    let segment = open(bytes)?;
    assert_eq!((segment.user_key(), segment.identity()), (KEY, &identity()));
    assert_eq!(segment.raw_len(), value.len() as u64);
    let whole = segment.read_all(1 << 20).inspect(|got| assert!(**got == *value));
    let verified = segment.verify();
    whole?;
    verified.map(drop)
}

#[test]
fn ranges_around_chunk_boundaries_read_correctly() {
    let mut rng = Rng::new(301);
    for chunk_len in [1, 7, 64] {
        for len in 0..(RUN_CHUNKS + 2) * chunk_len + 3 {
            let value = bytes_of(&mut rng, len);
            let (bytes, finished) = write(&value, chunk_len, &mut rng);
            read_everything(bytes.clone(), &value).unwrap();
            let segment = open(bytes).unwrap();
            assert_eq!((segment.checksum(), segment.file_len()), (finished.checksum, finished.len));
            for _ in 0..40 {
                let from = rng.below(len as u64 + 1) as usize;
                let to = from + rng.below((len - from) as u64 + 1) as usize;
                let mut got = vec![0xaa; to - from];
                segment.read_range(from as u64, &mut got).unwrap();
                assert!(got == value[from..to], "{from}..{to} of {len}");
            }
            for (from, n) in [(len as u64, 1), (len as u64 + 1, 0), (u64::MAX, 2)] {
                let e = segment.read_range(from, &mut vec![0; n]).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidArgument);
            }
        }
    }
}

#[test]
fn an_uncompressed_value_of_several_runs_round_trips() {
    let mut rng = Rng::new(302);
    let value = bytes_of(&mut rng, CHUNK_LEN * (RUN_CHUNKS + 1) + 12_345);
    let (bytes, finished) = write(&value, CHUNK_LEN, &mut rng);
    let header_len = finished.len - value.len() as u64 - 6 * 4 - FOOTER_LEN as u64;
    assert_eq!(file_len(header_len, value.len() as u64, CHUNK_LEN as u64), Some(finished.len));
    let file = MemRead::new(bytes);
    let segment = SegmentReader::open(file.clone(), 7, uid()).unwrap();
    assert_eq!(file.reads(), 2, "footer and header");
    let (mut at, mut run, mut got) = (0, Vec::new(), Vec::new());
    while at < segment.raw_len() {
        let range = segment.read_run(at, segment.raw_len(), &mut run).unwrap();
        assert_eq!(range.start, at);
        got.extend_from_slice(&run);
        at = range.end;
    }
    assert!(got == value);
    assert_eq!(file.reads(), 2 + 6, "each chunk once");
    let mut middle = [0; 100];
    segment.read_range(CHUNK_LEN as u64 - 50, &mut middle).unwrap();
    assert_eq!((&middle[..], file.reads()), (&value[CHUNK_LEN - 50..CHUNK_LEN + 50], 2 + 6 + 2));
    assert_eq!(segment.read_all(100).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(Arc::new(segment).verify().unwrap(), finished.len);
}

/// Returns the maximum number of reads requested together, and the number of all reads.
fn reads_of(file: &MemRead) -> (u64, u64) {
    (file.together.load(std::sync::atomic::Ordering::Relaxed), file.reads())
}

#[test]
fn the_chunks_of_a_long_range_are_read_together() {
    let mut rng = Rng::new(307);
    let value = bytes_of(&mut rng, 64 * 40 + 5);
    let (bytes, _) = write(&value, 64, &mut rng);
    let file = MemRead::new(bytes);
    let segment = SegmentReader::open(file.clone(), 7, uid()).unwrap();
    assert!(*segment.read_all(1 << 20).unwrap() == *value);
    assert_eq!(reads_of(&file), (16, 2 + 41), "windows of 16 chunks, each chunk once");
}

#[test]
fn equal_values_have_equal_checksums_at_any_offset() {
    let mut rng = Rng::new(303);
    let value = bytes_of(&mut rng, 1000);
    let (_, one) = write(&value, 300, &mut rng);
    let file = MemAppend::default();
    let other = SegmentIdentity { uid: Uid::from_words(8, 9), number: 9, ..identity() };
    let mut writer =
        SegmentWriter::with_chunks(Box::new(file), Path::new(PATH), &other, b"another key", 300).unwrap();
    writer.append(&value).unwrap();
    assert_eq!(writer.finish().unwrap().checksum, one.checksum);
}

fn is_typed(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported)
        && e.file().is_some_and(|f| f.ends_with(PATH))
        && e.offset().is_some()
}

#[test]
fn every_flipped_bit_is_caught() {
    let mut rng = Rng::new(304);
    let value = bytes_of(&mut rng, 300);
    let (bytes, _) = write(&value, 64, &mut rng);
    read_everything(bytes.clone(), &value).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let e = read_everything(damaged, &value).expect_err("a flip that nothing noticed");
        assert!(is_typed(&e), "bit {bit}: {e}");
    }
}

#[test]
fn damage_in_one_chunk_leaves_the_others_readable() {
    let mut rng = Rng::new(305);
    let value = bytes_of(&mut rng, 300);
    let (mut bytes, finished) = write(&value, 64, &mut rng);
    let header_len = finished.len as usize - 300 - 5 * 4 - FOOTER_LEN;
    bytes[header_len + 68 + 10] ^= 4;
    let segment = open(bytes).unwrap();
    let mut got = [0; 64];
    for chunk in [0, 2, 3] {
        segment.read_range(chunk * 64, &mut got).unwrap();
        assert!(got == value[chunk as usize * 64..][..64]);
    }
    let e = segment.read_range(127, &mut [0]).unwrap_err();
    assert!(is_typed(&e) && e.offset() == Some(header_len as u64 + 68), "{e}");
}

#[test]
fn truncated_swapped_and_rearranged_files_are_caught() {
    let mut rng = Rng::new(306);
    let value = bytes_of(&mut rng, 300);
    let (bytes, finished) = write(&value, 64, &mut rng);
    for len in 0..bytes.len() {
        let e = open(bytes[..len].to_vec()).expect_err("a cut file was opened");
        assert!(is_typed(&e), "{len}: {e}");
    }
    for more in [&[0][..], &bytes] {
        assert!(is_typed(&open([&bytes, more].concat()).unwrap_err()));
    }
    let e = SegmentReader::open(MemRead::new(bytes.clone()), 7, Uid::from_words(9, 9)).unwrap_err();
    assert!(e.is_corruption() && is_typed(&e), "{e}");
    let e = SegmentReader::open(MemRead::new(bytes.clone()), 8, uid()).unwrap_err();
    assert!(e.is_corruption() && is_typed(&e), "{e}");
    // Two chunks change places: each is intact, but in the wrong place.
    let header_len = finished.len as usize - 300 - 5 * 4 - FOOTER_LEN;
    let mut rearranged = bytes;
    let (a, b) = rearranged[header_len..header_len + 136].split_at_mut(68);
    a.swap_with_slice(b);
    assert!(is_typed(&read_everything(rearranged, &value).unwrap_err()));
}

/// Arbitrary bytes under valid checksums: an error or a value, never a panic, never a large
/// allocation.
#[test]
fn hostile_bytes_with_valid_checksums_never_panic() {
    let mut rng = Rng::new(307);
    let value = bytes_of(&mut rng, 200);
    let (bytes, _) = write(&value, 64, &mut rng);
    for _ in 0..20_000 {
        let mut hostile = bytes.clone();
        let footer_at = hostile.len() - FOOTER_LEN;
        for _ in 0..1 + rng.below(3) {
            let in_header = rng.below(2) == 0;
            let at = if in_header { rng.below(20) as usize } else { footer_at + 16 + rng.below(32) as usize };
            hostile[at] = [0, 1, 0x7f, 0x80, 0xff, rng.below(256) as u8][rng.below(6) as usize];
        }
        let header_len = (bytes.len() - FOOTER_LEN - 200 - 4 * 4).min(hostile.len());
        let sum = checksum::stored(&hostile[..header_len - 4], uid(), 0);
        hostile[header_len - 4..header_len].copy_from_slice(&sum.to_le_bytes());
        let footer: &mut [u8] = &mut hostile[footer_at..];
        let sum =
            checksum::checksum_of(&[&footer[..48], &footer[52..]]) ^ checksum::mask(uid(), footer_at as u64);
        footer[48..52].copy_from_slice(&sum.to_le_bytes());
        if let Ok(segment) = open(hostile) {
            let _ = segment.verify();
            let _ = segment.read_all(1 << 20);
            let _ = segment.read_range(rng.below(300), &mut [0; 50]);
        }
    }
    for len in 0..200 {
        let garbage = bytes_of(&mut rng, len);
        assert!(open(garbage).is_err());
    }
}

#[test]
fn a_failed_write_fails_everything_after_it() {
    struct Full(u64);
    impl io::AppendFile for Full {
        fn append(&mut self, data: &[u8]) -> Result<()> {
            if self.0 > 100 {
                return Err(Error::new(ErrorKind::NoSpace, "full"));
            }
            self.0 += data.len() as u64;
            Ok(())
        }
        fn len(&self) -> u64 {
            self.0
        }
        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
        fn sync(&mut self, _: io::SyncKind) -> Result<()> {
            Ok(())
        }
    }
    let mut writer =
        SegmentWriter::with_chunks(Box::new(Full(0)), Path::new(PATH), &identity(), KEY, 64).unwrap();
    let e = writer.append(&[1; 1000]).unwrap_err();
    assert!(e.kind() == ErrorKind::NoSpace && e.file().is_some());
    assert_eq!(writer.append(&[1; 64]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::NoSpace);
}

fn fixed_value() -> Vec<u8> {
    (0..2500u32).map(|i| ((i * i) >> 3) as u8).collect()
}

#[allow(clippy::disallowed_methods)]
fn stored() -> Vec<u8> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/segment-v1.bin");
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, write(&fixed_value(), 1000, &mut Rng::new(1)).0).unwrap();
    }
    std::fs::read(&path).unwrap()
}

#[test]
fn the_writer_still_writes_version_1() {
    assert!(write(&fixed_value(), 1000, &mut Rng::new(1)).0 == stored(), "the format has changed");
}

#[test]
fn version_1_can_be_read() {
    let bytes = stored();
    read_everything(bytes.clone(), &fixed_value()).unwrap();
    let tail: &[u8; FOOTER_LEN] = bytes.last_chunk().unwrap();
    let footer = SegmentFooter::decode(tail, uid(), bytes.len() as u64).unwrap();
    assert_eq!((footer.raw_len, footer.chunk_len, footer.chunks), (2500, 1000, 3));
    assert_eq!(table::footer::uid_of(&*Arc::<MemRead>::clone(&MemRead::new(bytes))).unwrap(), uid());
}
