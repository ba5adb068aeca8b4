//! Blocks of rows, the columns of index and cold files.

use base::{ErrorKind, MAX_SEQ};
use io::Rng;
use lavalog::disk::rows::{BLOCK_LEN_MAX, BLOCK_ROWS, decode, encode, find};
use lavalog::limits::{LSN_MAX, RECORD_LEN_MAX};
use lavalog::{Entry, LogId};

/// Makes rows of a log among others; with `wild`, of arbitrary numbers.
fn some_rows(rng: &mut Rng, log: LogId, count: usize, wild: bool) -> Vec<Entry> {
    let mut row = Entry { log, lsn: rng.below(1000), seq: rng.below(1 << 40), at: 77 << 12, len: 1000 };
    let mut rows = Vec::new();
    for _ in 0..count {
        rows.push(row);
        row.lsn += 1 + rng.below(if wild { 1 << 50 } else { 2 });
        row.seq = if wild { rng.below(MAX_SEQ + 1) } else { row.seq + 1 + rng.below(60) };
        row.at = if wild { rng.next_u64() } else { row.at + 1024 * (1 + rng.below(60)) };
        row.len = if wild { rng.below(RECORD_LEN_MAX as u64 + 1) as u32 } else { 1000 };
    }
    rows
}

fn encoded(rows: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, rows);
    assert!(out.len() <= BLOCK_LEN_MAX);
    out
}

#[test]
fn blocks_of_any_number_of_rows_round_trip() {
    let mut rng = Rng::new(401);
    for count in 1..=BLOCK_ROWS {
        for wild in [false, true] {
            let log = rng.next_u64() >> rng.below(64);
            let rows = some_rows(&mut rng, log, count, wild);
            assert_eq!(decode(&encoded(&rows)).unwrap(), rows);
            let row = rows[rng.below(count as u64) as usize];
            assert_eq!(find(&rows, row.lsn), Some(row));
            let missing = row.lsn + 1;
            assert_eq!(find(&rows, missing).is_some(), rows.iter().any(|row| row.lsn == missing));
        }
    }
}

#[test]
fn extreme_column_values_round_trip() {
    let low = Entry { log: u64::MAX, lsn: 0, seq: 0, at: 0, len: 0 };
    let high = Entry { log: u64::MAX, lsn: LSN_MAX, seq: MAX_SEQ, at: u64::MAX, len: RECORD_LEN_MAX as u32 };
    let crossed = vec![Entry { lsn: 0, ..high }, Entry { lsn: LSN_MAX, ..low }];
    for rows in [vec![low], vec![high], vec![low, high], crossed] {
        assert_eq!(decode(&encoded(&rows)).unwrap(), rows);
    }
}

#[test]
fn constant_columns_take_no_bytes_per_row() {
    let row = |i| Entry { log: 3, lsn: 1000 + i, seq: 7 * i, at: (1 << 30) + 1024 * i, len: 1000 };
    let rows: Vec<Entry> = (0..BLOCK_ROWS as u64).map(row).collect();
    let all = encoded(&rows);
    assert!(all.len() <= encoded(&rows[..2]).len(), "{} bytes", all.len());
    let among_others = encoded(&some_rows(&mut Rng::new(402), 3, BLOCK_ROWS, false));
    assert!(among_others.len() < 5 * BLOCK_ROWS + 50, "{} bytes", among_others.len());
}

#[test]
fn impossible_blocks_are_refused() {
    let rows = some_rows(&mut Rng::new(403), 300, 9, false);
    let good = encoded(&rows);
    for len in 0..good.len() {
        assert!(decode(&good[..len]).unwrap_err().is_corruption(), "cut to {len}");
    }
    assert!(decode(&[&good[..], &[0]].concat()).unwrap_err().is_corruption());
    let mut newer = good.clone();
    newer[3] |= 0x20;
    assert_eq!(decode(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    let twice = [rows[0], rows[0]];
    let back = [rows[1], rows[0]];
    let late = [Entry { seq: MAX_SEQ + 1, ..rows[0] }];
    let last = [Entry { lsn: u64::MAX, ..rows[0] }];
    let long = [Entry { len: RECORD_LEN_MAX as u32 + 1, ..rows[0] }];
    for bad in [&twice[..], &back, &late, &last, &long] {
        assert!(decode(&encoded(bad)).unwrap_err().is_corruption());
    }
}
