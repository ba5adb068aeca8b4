//! Errors of the lower components, on a store with a sealed group.

use super::*;
use crate::entry::Entry;
use crate::entry::Source;
use crate::files::RowFile;
use crate::manifest::{FileMeta, FileRole, LogEdit, commit};
use datadriven::TestCase;
use io::sim::SimEnv;
use std::error::Error as StdError;

/// Makes a store with three records in a sealed group. Returns it with the index file.
fn sealed_on(sim: &SimEnv) -> (LogStore, FileMeta) {
    let options = Options { group_bytes: Some(256 << 10), ..Options::default() };
    let store = LogStore::open(&sim.env(), Path::new("/logs"), &options).unwrap();
    let log = store.create_log("a").unwrap();
    (1..=3).for_each(|lsn| log.append(lsn, &[7; 100], Durability::Durable).unwrap());
    store.seal().unwrap();
    store.wait_idle().unwrap();
    let state = store.core().store.manifest.state();
    let index =
        state.files.values().find(|file| matches!(file.role, FileRole::Index { .. })).copied().unwrap();
    (store, index)
}

type Outcome<T> = std::result::Result<T, Box<dyn StdError>>;

/// The store of a script.
struct Script {
    sim: SimEnv,
    store: LogStore,
    index: FileMeta,
    /// Number of restorations of rows at the last look-up.
    looked_up_at: u64,
    hold: Option<crate::hold::Hold>,
    append: Option<Completion>,
}

fn shown(e: &Error) -> String {
    let file = e.file().map(|path| format!(" [{}]", path.display())).unwrap_or_default();
    format!("{}: {}{file}\n", e.kind().name(), e.message())
}

/// Formats a record whose bytes are all equal.
fn bytes(record: &[u8]) -> String {
    let first = record.first().copied().unwrap_or_default();
    assert!(record.iter().all(|byte| *byte == first), "{record:?}");
    format!("{} times {first:#04x}", record.len())
}

impl Script {
    fn new() -> Script {
        let sim = SimEnv::new(1);
        let (store, index) = sealed_on(&sim);
        Script { sim, store, index, looked_up_at: 0, hold: None, append: None }
    }

    fn ltn(&self) -> u64 {
        let FileRole::Index { ltn } = self.index.role else { unreachable!("{:?}", self.index) };
        ltn
    }

    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let out = match &*case.directive {
            "store" => {
                *self = Script::new();
                String::new()
            }
            "read" => self.read(case)?,
            "scan" => self.scan(case.take_arg("from")?)?,
            "read-while" => self.read_while(case)?,
            "append" => {
                let (lsns, log) = (case.take_args::<Lsn>("lsns")?, self.store.open_log("a")?);
                for lsn in lsns[0]..=lsns[1] {
                    log.append(lsn, &[lsn as u8; 100], Durability::Durable)?;
                    if lsn % 2 == 0 {
                        self.store.seal()?;
                        self.store.wait_idle()?;
                    }
                }
                String::new()
            }
            "settle" => {
                self.store.wait_idle()?;
                String::new()
            }
            "remade-files" => format!("{}\n", self.store.statistics().remade_files),
            "open-index" | "rows" | "lower-floor" | "look-up" | "take-in-rows" | "rows-looked-up" => {
                self.look(case)?
            }
            _ => self.meddle(case)?,
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn read(&self, case: &mut TestCase) -> Outcome<String> {
        let (log, begun_ns) = (self.store.open_log("a")?, self.sim.now_ns());
        let read = |lsn: Lsn| match log.read(lsn) {
            Ok(Some(record)) => format!("{lsn}: {}\n", bytes(&record)),
            Ok(None) => format!("{lsn}: none\n"),
            Err(e) => format!("{lsn}: {}", shown(&e)),
        };
        let out: String = case.take_args("lsns")?.into_iter().map(read).collect();
        match (self.sim.now_ns() - begun_ns) / 1_000_000 {
            0 => Ok(out),
            took_ms => Ok(format!("{out}waited {took_ms} ms\n")),
        }
    }

    fn scan(&self, from: Lsn) -> Outcome<String> {
        let (log, mut out) = (self.store.open_log("a")?, String::new());
        let mut scan = log.scan(from);
        loop {
            match scan.read_next() {
                Ok(Some((lsn, record))) => out += &format!("{lsn}: {}\n", bytes(&record)),
                Ok(None) => break Ok(out),
                Err(e) => break Ok(out + &shown(&e)),
            }
        }
    }

    /// Reads after a look-up, with failures of the first reads and a change of the log during the
    /// first one.
    fn read_while(&self, case: &mut TestCase) -> Outcome<String> {
        let (store, lsn): (&LogStore, Lsn) = (&self.store, case.take_arg("lsn")?);
        let (fails, is_moved) = (case.take_arg::<u64>("fails")?, case.take_flag("moved")?);
        let meanwhile: Option<String> = case.try_take_arg("meanwhile")?;
        let (core, log) = (store.core().clone(), store.open_log("a")?);
        let mut reads = 0;
        let read = |_: &crate::index::RecordLocation| -> Result<()> {
            reads += 1;
            match meanwhile.as_deref().filter(|_| reads == 1) {
                None => {}
                Some("trim") => log.trim(lsn + 1)?,
                Some("truncation") => log.truncate_after(lsn - 1, Durability::Buffered)?,
                Some("deletion") => store.delete_log("a")?,
                // Restores the rows to memory, as after the loss of the index file.
                Some("taking-in") => {
                    let rows = self.rows_of_index(log.id());
                    assert!(core.catalog.edit().take_in(self.ltn(), [(log.id(), &rows[..])]));
                }
                Some(other) => panic!("nothing is called {other}"),
            }
            match (reads <= fails, is_moved) {
                (false, _) => Ok(()),
                (true, true) => Err(Error::not_found("moved")),
                (true, false) => Err(Error::corruption("damaged")),
            }
        };
        let look_up = |logs: &crate::logs::Logs| logs.log(log.id())?.admit(lsn);
        let found = core.records.read_found(look_up, |then, now| then == now, read);
        Ok(match found {
            Ok(Some(())) => format!("it is read by read {reads}\n"),
            Ok(None) => "there is none\n".into(),
            Err(e) => shown(&e),
        })
    }

    fn rows_of_index(&self, log: LogId) -> Vec<Entry> {
        let core = self.store.core();
        match core.records.rows().of(self.index.source().unwrap()).unwrap() {
            RowFile::Index(file) => {
                let (_, directory) = RowFile::open(core.context(), &self.index).unwrap();
                file.block(log, directory.logs[0].blocks[0]).unwrap()
            }
            RowFile::Cold(file) => panic!("{file:?}"),
        }
    }

    /// Prints the answers of the lower components.
    fn look(&mut self, case: &mut TestCase) -> Outcome<String> {
        let (core, ltn, index) = (self.store.core(), self.ltn(), self.index);
        let directory = || RowFile::open(core.context(), &index).map(|(_, directory)| directory);
        let found = |rows: Result<Vec<Entry>>| match rows {
            Ok(rows) => format!("records {:?}\n", rows.iter().map(|row| row.lsn).collect::<Vec<_>>()),
            Err(e) => shown(&e),
        };
        Ok(match &*case.directive {
            "open-index" => {
                let role = FileRole::Index { ltn: ltn + case.take_arg::<u64>("of-groups-later")? };
                let opened = RowFile::open(core.context(), &FileMeta { role, ..index });
                opened.map_or_else(|e| shown(&e), |_| "it is opened\n".into())
            }
            "rows" => {
                let (directory, lsns) = (directory()?, case.take_args::<Lsn>("lsns")?);
                let (rows, lsns) = (&directory.logs[0], lsns[0]..=*lsns.last().unwrap_or(&0));
                found(core.records.rows().rows(Source::Group(ltn), rows.log, &lsns, rows.blocks[0]))
            }
            "lower-floor" => {
                let manifest = &core.store.manifest;
                let floor = manifest.state().floor;
                let step = LogEdit { floor: Some(floor - 1), ..LogEdit::default() };
                let e = manifest.commit(commit(step, Vec::new())).unwrap_err();
                assert_eq!(manifest.state().floor, floor);
                shown(&e)
            }
            "look-up" => {
                self.looked_up_at = core.catalog.view().groups().taken_in();
                String::new()
            }
            "take-in-rows" => {
                core.catalog.edit().took_in();
                String::new()
            }
            _ => {
                let (directory, lsn) = (directory()?, case.take_arg::<Lsn>("lsn")?);
                let (rows, source) = (&directory.logs[0], (index.source().unwrap(), self.looked_up_at));
                found(core.records.rows_of(source, rows.log, &(lsn..=lsn), rows.blocks[0]))
            }
        })
    }

    /// Makes changes that a store never makes by itself.
    fn meddle(&mut self, case: &mut TestCase) -> Outcome<String> {
        let core = self.store.core();
        match &*case.directive {
            "damage-index" => self.sim.flip_bit(core.context().path(&self.index.name()), 9, 3)?,
            "hold-jobs" => self.hold = Some(core.moves.hold()?),
            "release-jobs" => self.hold = None,
            "volume-is-full" => {
                let full = Error::new(ErrorKind::NoSpace, "full");
                core.context().health.no_space_at(core.context().now_ns(), &full);
            }
            // As if a collection moved the record each time: the index refers to a file that is no
            // longer known.
            "forget-rows" => core.records.rows().forget(self.index.source().unwrap()),
            "add-rows" => core.records.rows().add(&self.index),
            // As during a trim.
            "begin-trim" => {
                let trim = Op::Trim { log: self.store.open_log("a")?.id(), below: case.take_arg("below")? };
                let mut logs = core.catalog.edit();
                logs.apply(1_000, &trim, crate::logs::GroupPosition { ltn: 0, at: 0 })?;
                return Ok(format!("the index has trimmed records: {}\n", logs.has_to_cut()));
            }
            "begin-append" => {
                self.append = Some(self.store.open_log("a")?.append_async(case.take_arg("lsn")?, b"x")?)
            }
            "poison" => {
                core.context().health.poison(&Error::new(ErrorKind::Io, "the manifest, say"));
            }
            "steps" => {
                for _ in 0..case.take_arg("times")? {
                    self.store.step();
                }
            }
            "completion" => {
                let append = self.append.as_mut().ok_or("nothing is appended")?;
                return Ok(match append.take() {
                    None => "none yet\n".into(),
                    Some(Ok(_)) => "it is durable\n".into(),
                    Some(Err(e)) => shown(&e),
                });
            }
            other => return Err(format!("no command is called {other}").into()),
        }
        Ok(String::new())
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/log_store/scripts", |file| {
        let mut script = Script::new();
        file.run(|case| script.run(case));
    });
}
