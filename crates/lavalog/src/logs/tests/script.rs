//! Logs of a script: operations and files change them, and the results of look-ups are printed.

use super::*;
use datadriven::TestCase;
use std::error::Error;
use std::ops::RangeInclusive;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The logs of a script.
struct Script {
    logs: Logs,
    /// Sequence number of the last operation.
    seq: SeqNo,
    /// Group for new records.
    ltn: u64,
    /// Written files that are not installed yet, by name.
    files: HashMap<String, (Source, Vec<(LogId, RecordsInFile)>)>,
}

/// Parses `group-3` or `cold-9`.
fn source_of(name: &str) -> Source {
    let (kind, number) = name.split_once('-').unwrap();
    let number = number.parse().unwrap();
    match kind {
        "group" => Source::Group(number),
        "cold" => Source::Cold(number),
        other => panic!("no file is a {other}"),
    }
}

fn name_of(source: Source) -> String {
    match source {
        Source::Group(number) => format!("group-{number}"),
        Source::Cold(number) => format!("cold-{number}"),
    }
}

/// Parses LSNs: `7`, `1-9`.
fn lsns_of(text: &str) -> RangeInclusive<Lsn> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    first.parse().unwrap()..=last.parse().unwrap()
}

fn runs(runs: impl IntoIterator<Item = (Lsn, Lsn)>) -> String {
    let run = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    let runs: Vec<String> = runs.into_iter().map(run).collect();
    if runs.is_empty() { "none".into() } else { runs.join(", ") }
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or("none".into(), |value| value.to_string())
}

fn said(found: Result<Option<RecordLocation>>) -> String {
    match found {
        Err(e) => format!("{e}\n"),
        Ok(None) => "free\n".into(),
        Ok(Some(RecordLocation::Record(source, entry))) => {
            let Entry { seq, at, len, .. } = entry;
            format!("in {} at {at}, sequence {seq}, {len} B\n", name_of(source))
        }
        Ok(Some(RecordLocation::Block(source, block))) => {
            format!("in a block of {} at {}, {} B\n", name_of(source), block.offset, block.len)
        }
    }
}

impl Script {
    fn new() -> Script {
        Script { logs: Logs::new(), seq: 0, ltn: 1, files: HashMap::default() }
    }

    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let input = std::mem::take(&mut case.input);
        let out = match &*case.directive {
            "new" => {
                *self = Script::new();
                String::new()
            }
            "apply" => self.apply(case, &input)?,
            "write-file" => self.write_file(case, &input)?,
            "install" | "relocate" | "load" => self.take_file(case)?,
            "reopen" => self.reopen(),
            "restore" => self.restore(&input),
            "forget-truncations" => {
                let left = self.logs.forget_truncations(case.take_arg("below")?, 0, 9);
                assert_eq!(left, None, "all logs at once");
                String::new()
            }
            _ => self.ask(case)?,
        };
        case.expect_empty()?;
        Ok(out)
    }

    /// Applies the operation of each line, at the next sequence numbers or at the given one.
    fn apply(&mut self, case: &mut TestCase, input: &str) -> Outcome<String> {
        self.ltn = case.try_take_arg("group")?.unwrap_or(self.ltn);
        let at: Option<SeqNo> = case.try_take_arg("sequence")?;
        let mut out = String::new();
        for line in input.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (kind, log, rest) = (words[0], words[1].parse()?, words.get(2).copied().unwrap_or_default());
            let mut one = |op: Op<'_>| {
                self.seq += u64::from(at.is_none());
                let seq = at.unwrap_or(self.seq);
                if let Err(e) = self.logs.apply(seq, &op, GroupPosition { ltn: self.ltn, at: 1000 * seq }) {
                    out += &format!("{e}\n");
                }
            };
            match kind {
                "create" => one(Op::Create { log, name: rest }),
                "delete" => one(Op::Delete { log }),
                "append" => lsns_of(rest).for_each(|lsn| one(Op::Append { log, lsn, bytes: &[7; 100] })),
                "trim-below" => one(Op::Trim { log, below: rest.parse()? }),
                "truncate-after" => one(Op::TruncateAfter { log, lsn: rest.parse()? }),
                "set-metadata" => one(Op::SetMetadata { log, bytes: rest.as_bytes() }),
                other => return Err(format!("no operation is called {other}").into()),
            }
        }
        Ok(out)
    }

    /// Writes a file with records of 100 bytes, up to the last operation: `5 1-9,20`.
    fn write_file(&mut self, case: &mut TestCase, input: &str) -> Outcome<String> {
        let source = source_of(&case.take_arg::<String>("of")?);
        let last_seq = case.try_take_arg("up-to")?.unwrap_or(self.seq);
        let part = |line: &str| {
            let (log, lsns) = line.split_once(' ').unwrap();
            let mut set = Builder::default();
            lsns.split(',').flat_map(lsns_of).for_each(|lsn| set.push(lsn, 100).unwrap());
            (log.parse().unwrap(), part_of(source, last_seq, set))
        };
        self.files.insert(case.take_arg("name")?, (source, input.lines().map(part).collect()));
        Ok(String::new())
    }

    fn take_file(&mut self, case: &mut TestCase) -> Outcome<String> {
        let (source, parts) =
            self.files.remove(&case.take_arg::<String>("name")?).ok_or("there is no such file")?;
        match (&*case.directive, source) {
            ("install", Source::Group(ltn)) => install(&mut self.logs, ltn, parts),
            ("load", _) => parts.into_iter().for_each(|(log, part)| assert!(self.logs.load(log, part))),
            // Each collected file with its lowest LSN: `from=(group-3.30,group-4.40)`.
            _ => {
                let from: Vec<String> = case.take_args("from")?;
                let file = |text: &String| {
                    let (source, low) = text.split_once('.').unwrap();
                    (source_of(source), low.parse::<Lsn>().unwrap())
                };
                let from: Vec<(Source, Lsn)> = from.iter().map(file).collect();
                let sources: Vec<Source> = from.iter().map(|file| file.0).collect();
                let moved = |(log, part)| Moved { log, from: from.clone(), to: Some(part) };
                self.logs.relocate(parts.into_iter().map(moved).collect::<Vec<_>>());
                self.logs.forget(&sources);
            }
        }
        Ok(String::new())
    }

    /// Restores the logs from their checkpoint. Records are in files, or in groups to be replayed.
    fn reopen(&mut self) -> String {
        let mut again = Logs::new();
        let saved: Vec<SavedLog> = self.logs.registry().iter().map(Log::save).collect();
        saved.into_iter().for_each(|log| again.restore(log).unwrap());
        again.reach_id(self.logs.registry().next_id());
        self.logs = again;
        String::new()
    }

    fn restore(&mut self, input: &str) -> String {
        let restore = |line: &str| {
            let (id, name) = line.split_once(' ').unwrap();
            let saved = SavedLog { id: id.parse().unwrap(), name: name.into(), ..SavedLog::default() };
            self.logs.restore(saved).map_or_else(|e| format!("{line}: {e}\n"), |()| String::new())
        };
        input.lines().map(restore).collect()
    }

    fn ask(&self, case: &mut TestCase) -> Outcome<String> {
        Ok(match &*case.directive {
            "log" => self.log(self.logs.log(case.take_arg("id")?)?),
            "logs" => {
                let from: String = case.try_take_arg("from")?.unwrap_or_default();
                let log = |log: &Log| format!("{} {}\n", log.id(), log.name());
                let listed: String = self.logs.registry().list_from(&from).map(log).collect();
                format!("{listed}next id {}\n", self.logs.registry().next_id())
            }
            "admit" => said(self.logs.log(case.take_arg("id")?)?.admit(case.take_arg("lsn")?)),
            "find" => said(self.logs.log(case.take_arg("id")?)?.find(case.take_arg("lsn")?).map(Some)),
            "refuse" => format!("{}\n", self.logs.log(case.take_arg("id")?)?.exists(case.take_arg("lsn")?)),
            "gaps" => {
                let limit = case.try_take_arg("limit")?.unwrap_or(9);
                let (from, to) = (case.take_arg("from")?, case.take_arg("to")?);
                runs(self.logs.log(case.take_arg("id")?)?.live().gaps(from, to, limit)) + "\n"
            }
            "live" => {
                let live = |source: String| {
                    let Size { records, bytes } = self.logs.ledger().usage(source_of(&source)).live;
                    format!("{source}: {records} records, {bytes} B\n")
                };
                case.take_args("of")?.into_iter().map(live).collect()
            }
            "index" => {
                let log = self.logs.log(case.take_arg("id")?)?;
                format!("{}\n", runs(log.live().index().runs_from(0).take(1)))
            }
            "named" => {
                let named = self.logs.registry().named(&case.take_arg::<String>("name")?);
                named.map_or_else(|e| format!("{e}\n"), |log| format!("log {}\n", log.id()))
            }
            "check-create" => {
                let len: usize = case.try_take_arg("name-len")?.unwrap_or(0);
                let name = case.try_take_arg("name")?.unwrap_or_else(|| "n".repeat(len));
                self.logs
                    .registry()
                    .check_create(&name)
                    .map_or_else(|e| format!("{e}\n"), |()| "it may be created\n".into())
            }
            other => return Err(format!("no command is called {other}").into()),
        })
    }

    fn log(&self, log: &Log) -> String {
        let SavedLog { truncations, .. } = log.save();
        let truncations: Vec<String> =
            truncations.iter().map(|(seq, lsn)| format!("after {lsn} by sequence {seq}")).collect();
        let metadata = log.metadata().map(|bytes| format!("{:?}", String::from_utf8_lossy(bytes)));
        format!(
            "records {}; first {}, last {}; trimmed below {}\nmetadata {}; truncations {}\n",
            runs(log.live().index().runs_from(0)),
            shown(log.live().first()),
            shown(log.last()),
            log.live().trimmed_below(),
            shown(metadata),
            if truncations.is_empty() { "none".into() } else { truncations.join(", ") },
        )
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/logs/scripts", |file| {
        let mut script = Script::new();
        file.run(|case| script.run(case));
    });
}
