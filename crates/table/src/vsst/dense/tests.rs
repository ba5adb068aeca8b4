use super::*;
use crate::prefix::shared_len;
use io::Rng;

fn random_rows(rng: &mut Rng, with_offsets: bool) -> Vec<(Vec<u8>, DenseRow)> {
    let mut offset_units = rng.below(1 << 40);
    (0..rng.below(60))
        .map(|_| {
            let mut key = vec![0; rng.below(13) as usize];
            key.iter_mut().for_each(|b| *b = rng.below(3) as u8);
            let (units_max, raw_max) = (1 << rng.below(20), 1 << rng.below(24));
            let units = 1 + rng.below(units_max);
            let (seq, raw_len) = (rng.next_u64() >> (8 + rng.below(50)), rng.below(raw_max));
            let row = DenseRow { seq, raw_len, units, offset_units };
            offset_units = if with_offsets { rng.below(1 << 50) } else { offset_units + units };
            (key, row)
        })
        .collect()
}

fn encode(rows: &[(Vec<u8>, DenseRow)], with_offsets: bool) -> Vec<u8> {
    let mut builder = DenseBuilder { with_offsets, ..DenseBuilder::default() };
    let mut last: &[u8] = b"\0\0\0 the last key of the partition before";
    for (key, row) in rows {
        builder.push(key, shared_len(last, key), *row);
        last = key;
    }
    let bytes = builder.finish();
    assert!(builder.len() == 0 && builder.count == 0);
    bytes
}

#[test]
fn rows_round_trip() {
    let mut rng = Rng::new(71);
    for i in 0..400 {
        let with_offsets = i % 2 == 1;
        let rows = random_rows(&mut rng, with_offsets);
        let mut cursor = DenseCursor::default();
        cursor.load(encode(&rows, with_offsets).into()).unwrap();
        for (key, row) in &rows {
            assert!(cursor.advance().unwrap());
            assert_eq!((&cursor.user_key, cursor.row), (key, *row));
        }
        assert!(!cursor.advance().unwrap());
    }
}

#[test]
fn rows_without_a_suffix_round_trip() {
    for key in [&b"k"[..], b""] {
        let units = 9;
        let rows: Vec<_> = (0..200)
            .map(|n| {
                let row = DenseRow { seq: 1000 - n, raw_len: 70, units, offset_units: n * units };
                (key.to_vec(), row)
            })
            .collect();
        let mut cursor = DenseCursor::default();
        cursor.load(encode(&rows, false).into()).unwrap_or_else(|e| panic!("{key:?}: {e}"));
        for (key, row) in &rows {
            assert!(cursor.advance().unwrap());
            assert_eq!((&cursor.user_key, cursor.row), (key, *row));
        }
        assert!(!cursor.advance().unwrap());
    }
}

#[test]
fn hostile_bytes_never_panic() {
    let mut rng = Rng::new(72);
    for _ in 0..5000 {
        let with_offsets = rng.one_in(2);
        let rows = random_rows(&mut rng, with_offsets);
        let mut bytes = encode(&rows, with_offsets);
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        let mut cursor = DenseCursor::default();
        if cursor.load(bytes.into()).is_ok() {
            while let Ok(true) = cursor.advance() {
                assert!(cursor.user_key.len() <= limits::KEY_LEN_MAX);
            }
            let _ = cursor.advance();
        }
    }
}
