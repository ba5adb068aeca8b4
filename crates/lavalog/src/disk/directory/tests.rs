use super::*;
use crate::limits::LSN_MAX;
use io::Rng;

/// A directory of records whose LSNs have gaps now and then, with made-up lengths of blocks from offset 100 on; and where the blocks end.
fn some_directory(rng: &mut Rng, logs: u64, records: u64) -> (Directory, u64) {
    let (mut directory, mut log, mut end) = (Directory::default(), 0, 100);
    for _ in 0..logs {
        log += 1 + rng.below(3);
        let (mut lsn, mut lsns, mut blocks) = (rng.below(50), Builder::default(), Vec::new());
        for i in 0..1 + rng.below(records) {
            if i % 256 == 0 {
                let len = 9 + rng.below(1000) as u32;
                blocks.push(Block { first: lsn, offset: end, len });
                end += u64::from(len);
            }
            lsns.push(lsn, rng.below(2000) as u32).unwrap();
            lsn += if rng.one_in(20) { 2 + rng.below(1 << 40) } else { 1 };
        }
        let low = rng.below(1 << 30);
        directory.logs.push(LogRows { log, seqs: (low, low + rng.below(99)), lsns: lsns.build(), blocks });
    }
    (directory, end)
}

#[test]
fn it_comes_back() {
    let mut rng = Rng::new(411);
    for logs in 0..30 {
        let (directory, end) = some_directory(&mut rng, logs, 1500);
        let bytes = directory.encode(b"head", 100);
        let (head, decoded) = Directory::decode(&bytes, end).unwrap();
        assert_eq!((head, &decoded), (&b"head"[..], &directory));
        assert_eq!(decoded.size(), directory.logs.iter().map(|log| log.lsns.size()).sum());
        for log in &directory.logs {
            assert_eq!(decoded.log(log.log), Some(log));
        }
        assert_eq!(decoded.log(u64::MAX), None);
    }
}

#[test]
fn the_block_of_an_lsn_follows_from_those_before_it() {
    let (directory, _) = some_directory(&mut Rng::new(412), 10, 1500);
    for log in &directory.logs {
        let lsns: Vec<u64> = log.lsns.runs().flat_map(|run| run.first..=run.last()).collect();
        assert_eq!(log.blocks.len(), lsns.len().div_ceil(256));
        for (i, lsn) in lsns.iter().enumerate() {
            assert_eq!(log.block_of(*lsn), Some(log.blocks[i / 256]));
            let has_next = lsns.binary_search(&(lsn + 1)).is_ok();
            assert_eq!(log.block_of(lsn + 1).is_some(), has_next);
        }
        assert_eq!(log.block_of(lsns[0].wrapping_sub(1)), None);
    }
}

#[test]
fn the_largest_numbers_come_back() {
    let log = |log, lsns: &[Lsn], offset| {
        let mut builder = Builder::default();
        lsns.iter().for_each(|lsn| builder.push(*lsn, crate::limits::RECORD_LEN_MAX as u32).unwrap());
        let blocks = vec![Block { first: lsns[0], offset, len: 30 }];
        LogRows { log, seqs: (0, MAX_SEQ), lsns: builder.build(), blocks }
    };
    let logs = vec![log(0, &[0, LSN_MAX], 0), log(u64::MAX - 1, &[LSN_MAX], 30), log(u64::MAX, &[0], 60)];
    let directory = Directory { logs };
    let bytes = directory.encode(b"", 0);
    assert_eq!(Directory::decode(&bytes, 90).unwrap().1, directory);
}

#[test]
fn what_cannot_be_a_directory_is_refused() {
    let (directory, end) = some_directory(&mut Rng::new(413), 3, 300);
    let good = directory.encode(b"head", 100);
    for len in 0..good.len() {
        assert!(Directory::decode(&good[..len], end).unwrap_err().is_corruption(), "cut to {len}");
    }
    for (bytes, end) in [(good.clone(), end - 1), (good.clone(), end + 1), ([&good[..], &[0]].concat(), end)]
    {
        assert!(Directory::decode(&bytes, end).unwrap_err().is_corruption());
    }
    // No head, one log at 0: id, sequences, runs, lengths of blocks.
    let of = |numbers: &[u64]| {
        let mut out = vec![0, 1, 0];
        numbers.iter().for_each(|n| put_varint(&mut out, *n));
        Directory::decode(&out, 30).map(|(_, directory)| directory)
    };
    let found = of(&[5, 1, 0, 1, 7, 1, 9, 30]).unwrap();
    assert_eq!(found.logs[0].lsns.runs().next(), Some(Run { first: 7, count: 1, bytes: 9 }));
    for bad in [
        &[5, 1, MAX_SEQ, 1, 7, 1, 9, 30][..],
        &[5, 1, u64::MAX, 1, 7, 1, 9, 30],
        &[5, 1, 0, 1, 7, 1, 1 << 33, 30],
        &[5, 1, 0, 0, 30],
        &[5, 1, 0, 1, u64::MAX, 1, 9, 30],
        &[5, 1, 0, 1, 7, 0, 0, 30],
        &[5, 1, 0, 1, 7, 1 << 32, 9, 30],
        &[5, 1, 0, 2, LSN_MAX, 1, 9, 0, 1, 9, 30],
        &[5, 1, 0, 1, 7, 257, 9, 30],
        &[5, 1, 0, 1, 7, 1, 9, 1 << 40],
        &[5, 1, 0, u64::MAX, 7, 1, 9, 30],
    ] {
        assert!(of(bad).unwrap_err().is_corruption(), "{bad:?}");
    }
}

#[test]
fn numbers_that_wrap_around_are_refused() {
    // No head, blocks from 0 on.
    let of = |logs: u8, numbers: &[u64]| {
        let mut out = vec![0, logs, 0];
        numbers.iter().for_each(|n| put_varint(&mut out, *n));
        Directory::decode(&out, 60).map(drop).unwrap_err()
    };
    let last_id = [u64::MAX, 1, 0, 1, 7, 1, 9, 30, 0, 1, 0, 1, 7, 1, 9, 30];
    for (logs, numbers, why) in [
        (1, &[5, 1, 0, 2, 7, 1, 9, u64::MAX, 1, 9, 60][..], "an LSN above all there can be"),
        (2, &last_id, "an id above all there can be"),
    ] {
        let e = of(logs, numbers);
        assert!(e.is_corruption() && e.message().ends_with(why), "{e}");
    }
}
