use super::*;

fn file(number: u64, role: Role) -> FileMeta {
    FileMeta { number, uid: Uid::from_words(number, 1), len: 4096, role }
}

fn step() -> Step {
    Step {
        floor: Some(900),
        remove: vec![3],
        add: vec![
            file(7, Role::Index { ltn: 5 }),
            file(8, Role::Checkpoint),
            file(9, Role::Cold { generation: 2 }),
        ],
    }
}

#[test]
fn a_step_is_read_as_it_was_written() {
    for step in [Step::default(), step(), Step { floor: None, ..step() }] {
        assert_eq!(LavaLog::decode(&LavaLog::encode(&step)).unwrap(), step);
    }
    assert_eq!(LavaLog::list(&LavaLog::encode(&step())).unwrap().len(), 5);
}

#[test]
fn whatever_is_damaged_or_newer_is_told() {
    let bytes = LavaLog::encode(&step());
    for len in 1..bytes.len() {
        LavaLog::decode(&bytes[..len]).unwrap_err();
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(LavaLog::decode(&longer).unwrap_err().kind(), base::ErrorKind::Unsupported);
    let mut other = LavaLog::encode(&Step {
        floor: None,
        remove: vec![],
        add: vec![file(7, Role::Cold { generation: 2 })],
    });
    other[3] = 9;
    assert_eq!(LavaLog::decode(&other).unwrap_err().kind(), base::ErrorKind::Unsupported);
}
