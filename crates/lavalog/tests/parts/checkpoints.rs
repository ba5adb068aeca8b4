//! Checkpoints: names, trim points and truncations of all logs.

use crate::memory::{PATH, Stored, Written};
use base::{ErrorKind, MAX_SEQ, Result, Uid};
use io::Rng;
use lavalog::checkpoint::{Checkpoint, CheckpointHead, CheckpointWriter, SavedLog};
use lavalog::limits::{LSN_MAX, METADATA_LEN_MAX, NAME_LEN_MAX};
use lavalog::{LogId, Lsn};
use std::path::Path;

fn uid() -> Uid {
    Uid::from_words(0x5555, 0x6666)
}

fn head() -> CheckpointHead {
    CheckpointHead { number: 11, replay_from: 500, next_seq: 900, next_log: 40 }
}

fn some_logs(rng: &mut Rng, count: u64) -> Vec<SavedLog> {
    let mut id = 0;
    let mut log = |_| {
        id += 1 + rng.below(3);
        let mut seq = rng.below(1 << 30);
        let mut next_seq = || {
            seq += 1 + rng.below(1000);
            seq
        };
        let created = next_seq();
        let metadata = rng_bytes(created).map(|bytes| (next_seq(), bytes));
        let truncations = (0..created % 3).map(|i| (next_seq(), created * i)).collect();
        let last = (created % 5 > 0).then_some(created.wrapping_mul(3));
        let name = format!("log/{id}/{}", "x".repeat((created % 30) as usize));
        SavedLog { id, created, name, trimmed_below: created % 1000, last, metadata, truncations }
    };
    (0..count).map(&mut log).collect()
}

/// Metadata of half the logs.
fn rng_bytes(seed: u64) -> Option<Vec<u8>> {
    seed.is_multiple_of(2).then(|| vec![seed as u8; (seed % 70) as usize])
}

fn write(logs: &[SavedLog]) -> Vec<u8> {
    let file = Written::default();
    let mut writer = CheckpointWriter::new(file.boxed(), Path::new(PATH), uid(), head());
    logs.iter().for_each(|log| writer.add(log).unwrap());
    let len = writer.finish().unwrap();
    let bytes = file.take();
    assert_eq!(len, bytes.len() as u64);
    bytes
}

fn read(bytes: Vec<u8>) -> Result<(CheckpointHead, Vec<SavedLog>)> {
    let checkpoint = Checkpoint::open(Stored::new(bytes), 11, uid())?;
    let mut logs = Vec::new();
    checkpoint.each(&mut |log| {
        logs.push(log);
        Ok(())
    })?;
    assert_eq!(checkpoint.logs(), logs.len() as u64);
    assert_eq!(checkpoint.verify()?, checkpoint.file_len());
    Ok((*checkpoint.head(), logs))
}

#[test]
fn checkpoints_round_trip() {
    let mut rng = Rng::new(441);
    for count in [0, 1, 2, 100, 5000] {
        let logs = some_logs(&mut rng, count);
        let (found, read) = read(write(&logs)).unwrap();
        assert!(read == logs);
        assert_eq!((found.number, found.replay_from), (11, 500));
    }
}

#[test]
fn the_largest_log_round_trips_and_larger_ones_are_refused() {
    let largest = SavedLog {
        id: LogId::MAX - 1,
        created: 0,
        name: "n".repeat(NAME_LEN_MAX),
        trimmed_below: Lsn::MAX,
        last: Some(LSN_MAX),
        metadata: Some((MAX_SEQ - 1, vec![7; METADATA_LEN_MAX])),
        truncations: vec![(0, Lsn::MAX), (MAX_SEQ, 0)],
    };
    assert_eq!(read(write(std::slice::from_ref(&largest))).unwrap().1, std::slice::from_ref(&largest));
    let mut writer = CheckpointWriter::new(Written::default().boxed(), Path::new(PATH), uid(), head());
    let good = || largest.clone();
    for bad in [
        SavedLog { id: LogId::MAX, ..good() },
        SavedLog { name: String::new(), ..good() },
        SavedLog { name: "n".repeat(NAME_LEN_MAX + 1), ..good() },
        SavedLog { last: Some(Lsn::MAX), ..good() },
        SavedLog { metadata: Some((1, vec![7; METADATA_LEN_MAX + 1])), ..good() },
        SavedLog { metadata: Some((MAX_SEQ + 1, vec![])), ..good() },
        SavedLog { created: MAX_SEQ + 1, ..good() },
        SavedLog { truncations: vec![(5, 1), (5, 0)], ..good() },
    ] {
        assert_eq!(writer.add(&bad).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    writer.add(&SavedLog { id: 5, ..good() }).unwrap();
    assert_eq!(writer.add(&SavedLog { id: 5, ..good() }).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn every_flipped_bit_is_caught() {
    let logs = some_logs(&mut Rng::new(442), 12);
    let bytes = write(&logs);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let e = read(damaged).expect_err("a flip that nothing noticed");
        let is_typed = matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
        assert!(is_typed && e.file() == Some(Path::new(PATH)) && e.offset().is_some(), "bit {bit}: {e}");
    }
    for len in 0..bytes.len() {
        assert!(read(bytes[..len].to_vec()).unwrap_err().is_corruption(), "cut to {len}");
    }
    let open = |number, uid| Checkpoint::open(Stored::new(bytes.clone()), number, uid).unwrap_err();
    assert!(open(12, uid()).is_corruption() && open(11, Uid::default()).is_corruption());
}
