use super::*;
use io::Rng;
use std::collections::BTreeMap;

fn list(rng: &mut Rng, names: u64) -> Vec<Dependency> {
    let mut all = Vec::new();
    for blob_id in 1..=names {
        if rng.one_in(2) {
            let (count, raw_bytes) = (rng.range(1, 9), rng.below(1000));
            all.push(Dependency { blob_id, count, raw_bytes, stored_bytes: raw_bytes + count });
        }
    }
    all
}

#[test]
fn sums_agree_with_the_dependency_list() {
    let d = |blob_id, count| Dependency { blob_id, count, raw_bytes: 10 * count, stored_bytes: 11 * count };
    let uses = TableReferences::from(vec![d(4, 1), d(9, 5)]);
    let sums = UseSums { names: 2, references: 6, raw_bytes: 60, stored_bytes: 66, first: 4, last: 9 };
    assert_eq!(*uses.sums(), sums);
    assert!(uses.may_have(4) && !uses.may_have(5) && uses.may_have(9));
    let bare = uses.without_list();
    assert_eq!((bare.list(), bare.sums(), &bare), (None, &sums, &uses));
    assert!(!bare.may_have(3) && bare.may_have(4) && bare.may_have(5) && !bare.may_have(10));
    let none = TableReferences::default();
    assert_eq!(none.without_list().list(), Some(&[][..]), "an empty list is no list that is missing");
    assert!(!none.may_have(0));
    let (mut bytes, mut of_list) = (Vec::new(), Vec::new());
    bare.encode_sums(&mut bytes);
    TableReferences::encode_list(uses.list().unwrap(), &mut of_list);
    assert_eq!(TableReferences::decode_sums(&mut Reader::new(&bytes)).unwrap(), uses);
    assert_eq!(TableReferences::decode_list(&mut Reader::new(&of_list)).unwrap().list(), uses.list());
}

#[test]
fn impossible_sums_are_detected() {
    let bare = |sums| TableReferences { sums, list: None };
    let good = UseSums { names: 2, references: 2, raw_bytes: 1, stored_bytes: 1, first: 4, last: 5 };
    assert_eq!(bare(good).fault(), None);
    for wrong in [
        UseSums { names: 3, ..good },
        UseSums { first: 6, ..good },
        UseSums { names: 0, ..good },
        UseSums { names: 0, references: 1, ..UseSums::default() },
    ] {
        assert_eq!(
            bare(wrong).fault(),
            Some("its sums of references to value files contradict each other"),
            "{wrong:?}"
        );
    }
}

/// Net changes of random tables equal those of a model, survive encoding, and lead to the sums of
/// the tables.
#[test]
fn reference_changes_are_net_differences() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let come: Vec<_> = (0..rng.below(4)).map(|_| list(&mut rng, 12)).collect();
        let go: Vec<_> = (0..rng.below(4)).map(|_| list(&mut rng, 12)).collect();
        let changes = reference_changes(come.iter().map(Vec::as_slice), go.iter().map(Vec::as_slice));
        let mut model: BTreeMap<u64, [i64; 4]> = BTreeMap::new();
        for (lists, sign) in [(&come, 1), (&go, -1)] {
            for d in lists.iter().flatten() {
                let by = [1, d.count as i64, d.raw_bytes as i64, d.stored_bytes as i64];
                model.entry(d.blob_id).or_default().iter_mut().zip(by).for_each(|(sum, n)| *sum += sign * n);
            }
        }
        model.retain(|_, by| *by != [0; 4]);
        let told: Vec<_> =
            changes.iter().map(|c| (c.blob_id, [c.tables, c.count, c.raw_bytes, c.stored_bytes])).collect();
        assert_eq!(told, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
        let mut bytes = Vec::new();
        encode_changes(&changes, &mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(decode_changes(&mut reader).unwrap(), changes);
        assert!(reader.is_empty());
        let mut sums = ReferenceSums::default();
        come.iter().for_each(|list| sums.add(list));
        if go.is_empty() {
            let mut kept: IdMap<BlobId, ReferenceTotals> = IdMap::new();
            for change in &changes {
                let totals = SumChange::from(change).applied(&ReferenceTotals::default()).unwrap();
                kept.insert(change.blob_id, totals);
            }
            assert_eq!(sums.difference(&kept, true), None);
            kept.insert(99, ReferenceTotals { tables: 1, ..ReferenceTotals::default() });
            assert_eq!((sums.difference(&kept, true), sums.difference(&kept, false)), (Some(99), None));
            if let Some(first) = changes.first() {
                kept.remove(&first.blob_id);
                let wrong = Some(first.blob_id);
                assert_eq!((sums.difference(&kept, true), sums.difference(&kept, false)), (wrong, wrong));
            }
        }
    }
}

#[test]
fn unsorted_or_truncated_changes_are_damage() {
    let change = |blob_id, count| ReferenceChange { blob_id, count, ..ReferenceChange::default() };
    let mut bytes = Vec::new();
    encode_changes(&[change(7, i64::MIN), change(7, i64::MAX)], &mut bytes);
    let e = decode_changes(&mut Reader::new(&bytes)).unwrap_err();
    assert!(e.is_corruption() && e.message().contains("not in ascending order"), "{e}");
    bytes.clear();
    encode_changes(&[change(7, i64::MIN), change(9, i64::MAX)], &mut bytes);
    assert_eq!(decode_changes(&mut Reader::new(&bytes)).unwrap()[1], change(9, i64::MAX));
    for len in 0..bytes.len() {
        assert!(decode_changes(&mut Reader::new(&bytes[..len])).unwrap_err().is_corruption(), "{len}");
    }
}
