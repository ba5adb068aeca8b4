use super::*;
use crate::manifest::engine::Engines;
use crate::volumes::Volume;
use base::Uid;

const TOY: EngineId = EngineId(7);

fn group(ltn: u64, file: u64) -> Record {
    Record::AddLogGroup { group: LogGroupMeta { ltn, file, ..Default::default() } }
}

/// A group of eight pages.
fn pages(ltn: u64, file: u64) -> Record {
    Record::AddLogGroup { group: LogGroupMeta { ltn, file, len: 8 << 12, ..Default::default() } }
}

fn begin(ltn: u64, first_lpn: u64, lpn: u64) -> Record {
    Record::BeginLogGroup { ltn, begin: LogBegin { first_lpn, lpn, used: 200 } }
}

fn remove(ltn: u64) -> Record {
    Record::RemoveLogGroup { ltn }
}

fn seal(ltn: u64, end_lpn: u64) -> Record {
    Record::SealLogGroup { ltn, end_lpn }
}

fn engine(engine: EngineId) -> Record {
    Record::AddEngine { engine, name: "toy".into(), format: 1 }
}

fn file(number: u64) -> Record {
    let file = EngineFile { number, kind: 1, volume: Volume::DIRECTORY };
    Record::AddEngineFile { engine: TOY, file }
}

/// A log group in file 3, and an engine with the file 4.
fn sample() -> State {
    let state = State::empty(Uid::default(), 1, &Engines::default());
    state.changed(&[group(1, 3), engine(TOY), file(4)]).unwrap().0
}

#[test]
fn edits_that_contradict_the_store_are_refused_by_name() {
    let long =
        Record::AddEngine { engine: EngineId(9), name: "x".repeat(ENGINE_NAME_LEN_MAX + 1), format: 1 };
    let many = (1..=ENGINES_MAX as u32 + 1).map(|id| engine(EngineId(id))).collect();
    let cases: Vec<(&str, Vec<Record>)> = vec![
        ("engine 7 has no file 5", vec![Record::RemoveEngineFile { engine: TOY, number: 5 }]),
        ("engine 8 has not been added", vec![Record::EngineFloor { engine: EngineId(8), seq: 1 }]),
        ("the floor of engine 7", vec![Record::EngineFloor { engine: TOY, seq: MAX_SEQ + 1 }]),
        ("engine 0 cannot be added", vec![engine(EngineId::NATIVE)]),
        ("engine 9 cannot be added", vec![long]),
        ("there are too many engines", many),
        ("there is no engine 8", vec![Record::RemoveEngine { engine: EngineId(8), below_ltn: 1 }]),
        ("file 3 exists already", vec![file(3)]),
        ("file number 0 is out of range", vec![file(0)]),
        ("log group 1 exists already", vec![group(1, 9)]),
        ("log group 1 cannot be kept with 1 bytes", vec![Record::RetainLogGroup { ltn: 1, bytes: 1 }]),
        ("log group 1 is not kept as storage", vec![Record::ShareLogGroup { ltn: 1 }]),
        ("there is no log group 2", vec![Record::RemoveLogGroup { ltn: 2 }]),
        ("the log cannot begin at page 2 of log group 1", vec![begin(1, 1, 2)]),
        ("the log cannot begin at page 0 of log group 1", vec![begin(1, 1, 0)]),
        ("the log cannot begin at page 7 of log group 2", vec![pages(2, 9), begin(2, 7, 7)]),
        (
            "the log cannot begin at page 7 of log group 2",
            vec![remove(1), pages(2, 9), begin(2, 7, 8), begin(2, 7, 7)],
        ),
        (
            "the log cannot begin at page 8 of log group 2",
            vec![remove(1), pages(2, 9), begin(2, 7, 7), begin(2, 6, 8)],
        ),
        (
            "the log cannot begin at page 9 of log group 2",
            vec![remove(1), pages(2, 9), seal(2, 8), begin(2, 7, 9)],
        ),
        ("number 18446744073709551615 is out of range", vec![Record::NextFileNumber(u64::MAX)]),
        ("sequence 18446744073709551615 is out of range", vec![Record::LastSeq(u64::MAX)]),
    ];
    for (told, records) in cases {
        let e = sample().changed(&records).map(drop).expect_err(told);
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{told}: {e}");
        assert!(e.message().contains(told), "{told}: {e}");
    }
}

#[test]
fn a_state_that_contradicts_itself_is_found_out() {
    fn part(state: &mut State) -> &mut Part {
        state.part_mut(TOY).unwrap()
    }
    type Meddle = fn(&mut State);
    let cases: [(&str, Meddle); 8] = [
        ("file 3 is listed twice", |s| {
            let file = EngineFile { number: 3, kind: 1, volume: Volume::DIRECTORY };
            part(s).files.insert(3, file);
        }),
        ("file 4 is past the next number", |s| s.next_file_number = 4),
        ("log group 1 is out of place", |s| s.next_ltn = 1),
        ("the index of log files", |s| s.log_files = IdMap::new()),
        ("the engines are not in their order", |s| {
            let body = Body::Away { steps: IdMap::new() };
            s.parts.push(Part::new(EngineId(1), "", 0, body));
        }),
        ("file 4 of engine 7 is listed as 5", |s| {
            let file = part(s).files.remove(&4).unwrap();
            part(s).files.insert(5, file);
        }),
        ("the log begins in log group 2, which is not its oldest", |s| {
            let begin = Some(LogBegin::default());
            s.log_groups.insert(2, LogGroupMeta { ltn: 2, file: 2, begin, ..Default::default() });
            s.log_files.insert(2, 2);
            s.next_ltn = 3;
        }),
        ("log group 2 is out of place", |s| {
            let group = *s.log_groups.get(&1).unwrap();
            s.log_groups.insert(2, group);
        }),
    ];
    sample().verify().unwrap();
    for (told, meddle) in cases {
        let mut state = sample();
        meddle(&mut state);
        let e = state.verify().expect_err(told);
        assert_eq!(e.kind(), ErrorKind::Corruption, "{told}: {e}");
        assert!(e.message().contains(told), "{told}: {e}");
    }
}

#[test]
fn the_beginning_of_the_log_goes_with_its_group() {
    let begun = sample().changed(&[remove(1), pages(2, 9), begin(2, 7, 7), begin(2, 7, 9)]).unwrap().0;
    let of = |state: &State| state.log_chain(Lane::FIRST).map(|group| group.begin).collect::<Vec<_>>();
    assert_eq!(of(&begun), [Some(LogBegin { first_lpn: 7, lpn: 9, used: 200 })]);
    begun.verify().unwrap();
    let read = State::from_snapshot(begun.uid, begun.edit_number, &begun.snapshot(), &Engines::default());
    assert_eq!(read.unwrap(), begun);
    let gone = begun.changed(&[pages(3, 10), remove(2)]).unwrap().0;
    assert_eq!(of(&gone), [None], "older releases read it again");
}

#[test]
fn the_last_ceiling_holds_until_there_is_none() {
    let after = |state: &State, bytes| state.changed(&[Record::SpaceCeiling { bytes }]).unwrap().0;
    let bounded = after(&after(&sample(), 9 << 40), u64::MAX);
    assert_eq!(bounded.space_ceiling, Some(u64::MAX));
    let read =
        State::from_snapshot(bounded.uid, bounded.edit_number, &bounded.snapshot(), &Engines::default());
    assert_eq!(read.unwrap(), bounded);
    assert_eq!(after(&bounded, 0), State { edit_number: bounded.edit_number + 1, ..sample_at(&bounded) });
    assert!(!sample().snapshot().windows(2).any(|w| w == [31, 1]), "nothing is said where there is none");
}

fn sample_at(other: &State) -> State {
    State { uid: other.uid, ..sample() }
}
