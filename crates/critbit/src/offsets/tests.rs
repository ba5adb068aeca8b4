use super::*;

fn check(values: &[u64], encode: fn(&[u64], &mut Vec<u8>)) -> usize {
    let mut bytes = Vec::new();
    encode(values, &mut bytes);
    let end = bytes.len();
    for behind in [&b""[..], &[0xff; 20]] {
        bytes.truncate(end);
        bytes.extend_from_slice(behind);
        let offsets = Offsets::parse(&bytes).unwrap();
        assert_eq!((offsets.len(), offsets.encoded_len()), (values.len(), end));
        for (i, &v) in values.iter().enumerate() {
            assert_eq!(offsets.get(i), Some(v), "{i} of {values:?}");
        }
        assert_eq!(offsets.get(values.len()), None);
        assert_eq!(offsets.get(usize::MAX), None);
    }
    for cut in (0..end).step_by(1 + end / 32) {
        assert!(Offsets::parse(&bytes[..cut]).unwrap_err().is_corruption());
    }
    end
}

#[test]
fn every_width_and_count_round_trips() {
    let mut rng = io::Rng::new(5);
    for count in 1..=BLOCK_KEYS_MAX {
        for bits in 0..=64 {
            let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            let mut values: Vec<u64> = (0..count).map(|_| rng.next_u64() & mask).collect();
            check(&values, encode_any);
            values.sort_unstable();
            check(&values, encode_ascending);
            check(&values, encode_any);
        }
    }
}

#[test]
fn extremes_round_trip() {
    for values in [
        &[0][..],
        &[u64::MAX],
        &[0, u64::MAX],
        &[0, 0, u64::MAX],
        &[0, u64::MAX, u64::MAX],
        &[u64::MAX - 1, u64::MAX],
        &[u64::MAX; 128],
        &[0; 128],
    ] {
        check(values, encode_ascending);
        check(values, encode_any);
    }
    check(&[u64::MAX, 0, 1 << 63], encode_any);
    let mut steps = [0; 128];
    steps[127] = u64::MAX;
    check(&steps, encode_ascending);
    let spread: Vec<u64> = (0..128).map(|i| i * (u64::MAX / 127)).collect();
    check(&spread, encode_ascending);
}

#[test]
fn encoded_offsets_stay_within_size_bounds() {
    let mut rng = io::Rng::new(6);
    // Of one length: only the line. With one in a hundred a unit longer, little more.
    let equal: Vec<u64> = (0..128).map(|i| 1_000_000 + i * 257).collect();
    assert!(check(&equal, encode_ascending) <= 8);
    let alternating: Vec<u64> = (0..128).map(|i| 1_000_000 + i * 257 + i / 2).collect();
    assert!(check(&alternating, encode_ascending) <= 8 + 16);
    // Of lengths without any pattern: two bits over the logarithm of their mean.
    let mut at = 0;
    let skewed = |rng: &mut io::Rng| if rng.one_in(10) { 2000 } else { rng.range(1, 20) };
    let mixed: Vec<u64> = (0..128)
        .map(|_| {
            at += skewed(&mut rng);
            at
        })
        .collect();
    let bytes = check(&mixed, encode_ascending);
    assert!(bytes <= 128 * 10 / 8 + 8, "{bytes}");
}

#[test]
fn hostile_bytes_never_panic() {
    let mut rng = io::Rng::new(7);
    let mut good = [Vec::new(), Vec::new()];
    let line: Vec<u64> = (0..100).map(|i| i * 300 + rng.below(40)).collect();
    encode_ascending(&line, &mut good[0]);
    let stairs: Vec<u64> = (0..100).map(|i| i * i * i).collect();
    encode_ascending(&stairs, &mut good[1]);
    assert_eq!((good[0][0], good[1][0]), (99, 99 | ELIAS_FANO), "one of each");
    let mut parsed = 0;
    for round in 0..60_000 {
        let mut bytes = good[round % 2].clone();
        if round % 4 < 2 {
            bytes.truncate(rng.below(300) as usize);
            rng.fill(&mut bytes);
        } else {
            for _ in 0..rng.range(1, 6) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
        }
        let Ok(offsets) = Offsets::parse(&bytes) else { continue };
        parsed += 1;
        for i in 0..offsets.len() {
            assert!(offsets.get(i).is_some());
        }
    }
    assert!(parsed > 5_000, "{parsed} were taken");
}
