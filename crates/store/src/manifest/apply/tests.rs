use super::*;
use crate::manifest::engine::Engines;
use crate::volumes::Volume;
use base::{HashMap, Uid};
use datadriven::TestCase;
use wal::{Lane, LogBegin};

const TOY: EngineId = EngineId(7);

/// Parses the record of a line: `group 2 file=9 pages=8`.
fn record(line: &str) -> Record {
    let mut words = line.split_whitespace();
    let (kind, number) = (words.next().unwrap(), words.next().map_or(0, |n| n.parse().unwrap()));
    let fields: HashMap<&str, u64> = words
        .map(|word| word.split_once('=').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_else(|| panic!("{line} has no {name}"));
    let (ltn, engine) = (number, EngineId(number as u32));
    match kind {
        "group" => {
            let len = fields.get("pages").map_or(0, |pages| pages << 12);
            Record::AddLogGroup {
                group: LogGroupMeta { ltn, file: field("file"), len, ..Default::default() },
            }
        }
        "begin" => {
            let begin = LogBegin { first_lpn: field("first-page"), lpn: field("page"), used: 200 };
            Record::BeginLogGroup { ltn, begin }
        }
        "seal" => Record::SealLogGroup { ltn, end_lpn: field("end-page") },
        "retain" => Record::RetainLogGroup { ltn, bytes: field("bytes") },
        "share" => Record::ShareLogGroup { ltn },
        "remove-group" => Record::RemoveLogGroup { ltn },
        "engine" => {
            let name = "x".repeat(fields.get("name-len").map_or(3, |len| *len as usize));
            Record::AddEngine { engine, name, format: 1 }
        }
        "remove-engine" => Record::RemoveEngine { engine, below_ltn: 1 },
        "floor" => Record::EngineFloor { engine, seq: field("sequence") },
        "file" => {
            let file = EngineFile { number, kind: 1, volume: Volume::DIRECTORY };
            Record::AddEngineFile { engine: EngineId(field("engine") as u32), file }
        }
        "remove-file" => Record::RemoveEngineFile { engine: EngineId(field("engine") as u32), number },
        "next-file" => Record::NextFileNumber(number),
        "last-sequence" => Record::LastSeq(number),
        "ceiling" => Record::SpaceCeiling { bytes: number },
        other => panic!("no record is called {other}"),
    }
}

/// Parses the record of a line, or adds the engines from 1 to 17 for `engines 17`.
fn records(line: &str) -> Vec<Record> {
    match line.strip_prefix("engines ") {
        Some(count) => (1..=count.parse().unwrap()).map(|id: u32| record(&format!("engine {id}"))).collect(),
        None => vec![record(line)],
    }
}

/// Checks a state, reads it back from its snapshot, and prints it for a script.
fn shown(state: &ManifestState) -> String {
    state.verify().unwrap();
    let snapshot = state.snapshot();
    let read = ManifestState::from_snapshot(state.uid, state.edit_number, &snapshot, &Engines::default());
    assert_eq!(read.unwrap(), *state);
    let mut out = String::new();
    for group in state.log_groups.chain(Lane::FIRST) {
        let begin = group.begin.map_or("its beginning".into(), |begin| {
            format!("page {}, in a log that began with page {} there", begin.lpn, begin.first_lpn)
        });
        out += &format!("log group {}: read from {begin}\n", group.ltn);
    }
    for part in state.engines.all() {
        let listed = state.engines.files().filter(|(id, ..)| *id == part.id);
        let files: Vec<u64> = listed.map(|(_, file, _)| file.number).collect();
        out += &format!("engine {}: files {files:?}\n", part.id);
    }
    let ceiling = state.space_ceiling.map_or("none".into(), |bytes| format!("{bytes} B"));
    out + &format!("space ceiling: {ceiling}; snapshot: {} B\n", snapshot.len())
}

fn empty() -> ManifestState {
    ManifestState::empty(Uid::default(), 1, &Engines::default())
}

/// Returns a state with a log group in file 3, and an engine with file 4.
fn sample() -> ManifestState {
    let records = ["group 1 file=3", "engine 7", "file 4 engine=7"].map(record);
    empty().changed(&records).unwrap().0
}

fn run(state: &mut ManifestState, case: &mut TestCase) -> Result<String, String> {
    match &*case.directive {
        "store" => *state = empty(),
        // Each line is an edit of its own, which the next one does not see.
        "refused" => {
            let kind = |edit: &str| {
                let records: Vec<Record> = edit.split(", ").flat_map(records).collect();
                match state.changed(&records) {
                    Ok(_) => "it is accepted\n".into(),
                    Err(e) => format!("{e}\n"),
                }
            };
            return Ok(case.input.lines().map(kind).collect());
        }
        "edit" => {}
        other => return Err(format!("no command is called {other}")),
    }
    let records: Vec<Record> = case.input.lines().map(record).collect();
    *state = state.changed(&records).map_err(|e| e.to_string())?.0;
    Ok(shown(state))
}

#[test]
fn scripts() {
    datadriven::walk("src/manifest/apply/scripts", |file| {
        let mut state = empty();
        file.run(|case| run(&mut state, case));
    });
}

#[test]
fn an_inconsistent_state_is_detected() {
    fn file(number: u64) -> EngineFile {
        EngineFile { number, kind: 1, volume: Volume::DIRECTORY }
    }
    type Meddle = fn(&mut ManifestState);
    let cases: [(&str, Meddle); 8] = [
        ("file 3 is listed twice", |s| s.engines.contradict(TOY, (3, file(3)))),
        ("file 4 is past the next number", |s| s.next_file_number = 4),
        ("log group 1 is out of place", |s| s.next_ltn = 1),
        ("the index of log files", |s| s.log_groups.contradict(None)),
        ("the engines are not in their order", |s| s.engines.contradict(EngineId(1), (0, file(0)))),
        ("file 4 of engine 7 is listed as 5", |s| {
            assert!(s.engines.added(TOY).unwrap().remove_file(4));
            s.engines.contradict(TOY, (5, file(4)));
        }),
        ("the log begins in log group 2, which is not its oldest", |s| {
            let begin = Some(LogBegin::default());
            s.log_groups.add(LogGroupMeta { ltn: 2, file: 2, begin, ..Default::default() });
            s.next_ltn = 3;
        }),
        ("log group 2 is out of place", |s| {
            let group = *s.log_groups.get(&1).unwrap();
            s.log_groups.contradict(Some((2, group)));
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
