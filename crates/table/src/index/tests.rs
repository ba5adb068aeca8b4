use super::*;
use io::Rng;

#[test]
fn search_agrees_with_a_linear_scan() {
    let mut rng = Rng::new(31);
    for round in 0..400 {
        let mut rows: Vec<(Vec<u8>, u64)> = (0..rng.below(40))
            .map(|_| {
                let mut user = b"same"[..(round % 5) as usize].to_vec();
                (0..rng.below(4)).for_each(|_| user.push(b'a' + rng.below(3) as u8));
                (user, if rng.one_in(3) { rng.below(5) } else { 0 })
            })
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        rows.dedup();
        let mut separators = Separators::default();
        separators.push_with(9, |out| out.extend_from_slice(b"not in the block"));
        rows.iter().for_each(|(user, trailer)| separators.push_with(*trailer, |out| out.extend(user)));
        let column: Vec<u64> = (0..rows.len() as u64).map(|i| i * i).collect();
        let mut block = vec![1, 2, 3];
        encode(&mut block, &separators, 1..rows.len() + 1, &[&column, &column]);
        let shape = IndexShape::<2>::parse(&block, 3).unwrap();
        assert_eq!(shape.rows(), rows.len());
        let mut user = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            assert_eq!((shape.separator(&block, i, &mut user), &user), (row.1, &row.0));
            assert_eq!(shape.column(&block, 1, i), column[i]);
        }
        for _ in 0..60 {
            let mut user = b"same"[..rng.below(5) as usize].to_vec();
            (0..rng.below(4)).for_each(|_| user.push(b'a' + rng.below(3) as u8));
            let trailer = rng.below(6);
            let expected = rows.partition_point(|(u, t)| before(u, *t, &user, trailer));
            assert_eq!(shape.search(&block, &user, trailer), expected, "{rows:?} {user:?} {trailer}");
        }
    }
}

#[test]
fn hostile_bytes_never_panic() {
    let mut rng = Rng::new(32);
    let mut separators = Separators::default();
    (0..20u8).for_each(|i| separators.push_with(u64::from(i % 3), |out| out.extend([b'k', i])));
    let column: Vec<u64> = (0..20).collect();
    let mut block = Vec::new();
    encode(&mut block, &separators, 0..20, &[&column, &column]);
    for _ in 0..20_000 {
        let mut bytes = block.clone();
        if rng.one_in(4) {
            bytes.truncate(rng.below(60) as usize);
            rng.fill(&mut bytes);
        }
        for _ in 0..1 + rng.below(3) {
            if !bytes.is_empty() {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
        }
        let Ok(shape) = IndexShape::<2>::parse(&bytes, 0) else { continue };
        let row = shape.search(&bytes, b"k\x07", 1);
        assert!(row <= shape.rows());
        shape.column(&bytes, 0, row);
        shape.separator(&bytes, row, &mut Vec::new());
    }
}
