use super::*;
use crate::batch::WriteBatch;
use version::{Edit, FamilyId, InitialState, KvState, Record};

/// A state with families 1 and 2, flushed up to these sequences.
fn state(floors: [SeqNo; 2]) -> State {
    let empty = State::new(base::Uid([7; 16]), &InitialState::default(), KvState::default());
    let create = |id: FamilyId| Record::CreateFamily { id, name: id.to_string(), options: Vec::new() };
    let made = empty.apply(Edit((0..3).map(create).collect())).unwrap();
    let raise = |(family, seq)| Record::LogFloor { family, seq };
    made.apply(Edit([1, 2].into_iter().zip(floors).map(raise).collect())).unwrap()
}

/// A logged batch with one change of each of these families.
fn batch(first_seq: SeqNo, families: &[FamilyId]) -> Vec<u8> {
    let mut body = WriteBatch::new();
    for family in families {
        body.push(base::ValueKind::Value, *family, b"k", b"v");
    }
    [&batch::header(first_seq, families.len() as u32)[..], body.body()].concat()
}

#[test]
fn only_batches_that_tables_lack_are_kept() {
    let state = state([100, 50]);
    let lacks = |first_seq, families: &[FamilyId], dropped| {
        is_in_no_table(&state, &batch(first_seq, families), dropped).unwrap()
    };
    use WithoutFamily::{Gone, Kept};
    for dropped in [Gone, Kept] {
        assert!(!lacks(99, &[1], dropped));
        assert!(lacks(100, &[1], dropped));
        assert!(!lacks(48, &[1, 2], dropped));
        assert!(lacks(49, &[1, 2], dropped), "its second change is at the floor of family 2");
        assert!(lacks(60, &[1, 2], dropped));
    }
    // The last assigned sequence may belong to a change whose family was dropped since.
    assert!(lacks(99, &[9], Kept) && !lacks(99, &[9], Gone));
    assert!(is_in_no_table(&state, &[1, 2, 3], Gone).unwrap_err().is_corruption());
}
