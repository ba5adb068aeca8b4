use super::*;
use crate::arbitrary::{KINDS, any_record};
use base::{ErrorKind, MAX_SEQ};
use io::Rng;
use store::manifest::LogGroupMeta;

/// Tags of store records in the same edits.
const NEXT_FILE_NUMBER: u64 = 16;
const LAST_SEQ: u64 = 17;

#[test]
fn every_kind_of_record_round_trips() {
    let mut rng = Rng::new(1);
    for round in 0..200 {
        for kind in 0..KINDS {
            let edit = Edit(vec![any_record(&mut rng, kind)]);
            let bytes = edit.encode();
            assert_eq!(Edit::decode(&bytes).unwrap(), edit, "round {round}");
            assert!(!edit.0[0].to_string().is_empty());
            let all_cuts = 1..bytes.len();
            for cut in all_cuts.step_by(if round < 5 { 1 } else { 17 }) {
                Edit::decode(&bytes[..cut]).expect_err("a prefix of one record is not an edit");
            }
        }
        let all = Edit((0..KINDS).map(|kind| any_record(&mut rng, kind)).collect());
        assert_eq!(Edit::decode(&all.encode()).unwrap(), all);
    }
}

#[test]
fn records_of_a_newer_release_are_unsupported() {
    let unknown_tag = [200, 1, 3, 1, 2, 3];
    assert_eq!(Edit::decode(&unknown_tag).unwrap_err().kind(), ErrorKind::Unsupported);
    // A known record with an extra field.
    let mut more = Vec::new();
    put_varint(&mut more, LAST_SEQ);
    put_bytes(&mut more, &[5, 1]);
    assert_eq!(Edit::decode(&more).unwrap_err().kind(), ErrorKind::Unsupported);
    // A record with an extra flag.
    let group = LogGroupMeta { ltn: 1, file: 2, len: 3, ..LogGroupMeta::default() };
    let mut flagged = Edit(vec![Record::Store(StoreRecord::AddLogGroup { group })]).encode();
    *flagged.last_mut().unwrap() = 8;
    assert_eq!(Edit::decode(&flagged).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (tag, value) in [
        (NEXT_FILE_NUMBER, u64::MAX),
        (LAST_SEQ, MAX_SEQ + 1),
        (tag::NEXT_FAMILY, 1 << 32),
        (tag::DROP_FAMILY, u64::MAX),
    ] {
        let (mut body, mut bytes) = (Vec::new(), Vec::new());
        put_varint(&mut body, value);
        put_varint(&mut bytes, tag);
        put_bytes(&mut bytes, &body);
        assert!(Edit::decode(&bytes).unwrap_err().is_corruption(), "{tag}");
    }
}

/// Random bytes and random changes of good bytes: an error or an edit that encodes again, never a
/// panic.
#[test]
fn hostile_edits_never_panic() {
    let mut rng = Rng::new(2);
    for _ in 0..20_000 {
        let mut bytes =
            Edit((0..3).map(|_| any_record(&mut rng.fork(), rng.below(KINDS))).collect()).encode();
        for _ in 0..rng.range(1, 4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = rng.next_u64() as u8,
                1 => bytes[at] ^= 1 << rng.below(8),
                _ => bytes.truncate(at + 1),
            }
        }
        if let Ok(edit) = Edit::decode(&bytes) {
            assert_eq!(Edit::decode(&edit.encode()).unwrap(), edit);
        }
        let mut noise = vec![0; rng.below(64) as usize];
        rng.fill(&mut noise);
        let _ = Edit::decode(&noise);
    }
}
