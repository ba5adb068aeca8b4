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

#[test]
fn edits_and_states_that_contradict_each_other_are_refused() {
    let mut state = LavaLog::empty();
    let missing = state.remove(3).unwrap_err();
    assert!(missing.message().ends_with("there is no file 3"), "{missing}");
    state.add(&file(7, Role::Index { ltn: 5 })).unwrap();
    let twice = state.clone().add(&file(8, Role::Index { ltn: 5 })).unwrap_err();
    assert!(twice.message().ends_with("is one too many"), "{twice}");
    assert_eq!(twice.kind(), base::ErrorKind::InvalidArgument);
    let store = StoreState::empty(Uid::from_words(1, 2), 1, &store::manifest::Engines::of::<LavaLog>());
    LavaLog::verify(&LavaLog::empty(), &store).unwrap();
    let unlisted = LavaLog::verify(&state, &store).unwrap_err();
    assert!(unlisted.is_corruption(), "{unlisted}");
}
