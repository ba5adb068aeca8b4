//! Permitted answers of a damaged store with both engines: the right value, or an error that names
//! a file. If the store was not closed, the damage may look like a torn end; then the answer of a
//! shorter life is also permitted. A batch of both engines is never answered with one half only.

use super::life::{Found, HEAD, Life, head, key, value};
use base::{Error, ErrorKind, Result};
use lavakv::Db;
use lavalog::{LogHandle, LogStore};
use std::collections::BTreeMap;

/// A single answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    There,
    Absent,
    Damaged,
}

/// Answers of a damaged store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered {
    /// Number of errors.
    pub damaged: u64,
    /// Number of missing writes of a store that was not closed.
    pub cut: u64,
}

/// Checks that the error of a damaged store has a kind of damage, and names a file.
pub fn names_a_file(error: &Error, what: &str) {
    let kinds = [ErrorKind::Corruption, ErrorKind::Unsupported, ErrorKind::Poisoned];
    assert!(kinds.contains(&error.kind()), "{what} failed with another kind: {error}");
    assert!(error.file().is_some(), "{what} failed without naming a file: {error}");
}

fn answer(found: Result<Option<Vec<u8>>>, wanted: &[u8], what: &str) -> Answer {
    match found {
        Ok(None) => Answer::Absent,
        Ok(Some(found)) => {
            assert!(found == wanted, "{what} is another: {} bytes, not {}", found.len(), wanted.len());
            Answer::There
        }
        Err(e) => {
            names_a_file(&e, what);
            Answer::Damaged
        }
    }
}

/// Answers for the writes of a life, by engine.
struct Answers {
    keys: Vec<Answer>,
    records: BTreeMap<u64, Answer>,
}

/// Reads everything that a life wrote. `closed`: the store was closed, so everything must be there.
pub fn ask(life: &Life, db: &Db, logs: &LogStore, closed: bool) -> Answered {
    let Found { keys, log } = life.now;
    let get = |n: u64| {
        answer(db.get(&key(n)).map(|found| found.map(|v| v.to_vec())), &value(n), &format!("key {n}"))
    };
    let keys: Vec<Answer> = (0..keys).map(get).collect();
    let handle = match logs.open_log("log") {
        Ok(log) => Some(log),
        Err(e) if e.kind() == ErrorKind::NotFound && !closed => None,
        Err(e) if e.kind() == ErrorKind::NotFound && log == Found::NOTHING.log => None,
        Err(e) => panic!("the log: {e}"),
    };
    let records = (log.first..=log.last).map(|lsn| (lsn, read(handle.as_ref(), lsn))).collect();
    let answers = Answers { keys, records };
    answers.check_ends(closed);
    for (n, lsn) in life.joint() {
        answers.check_halves(n, lsn);
    }
    check_head(db, answers.keys.len() as u64, closed);
    if let Some(handle) = handle {
        let behind = handle.read(log.last + 1);
        assert!(matches!(behind, Ok(None)), "behind the end of the log: {behind:?}");
    }
    answers.count()
}

fn read(log: Option<&LogHandle>, lsn: u64) -> Answer {
    let found = log.map_or(Ok(None), |log| log.read(lsn));
    // The last trim may be missing, and its records may be back.
    answer(found, &value(lsn + 1), &format!("record {lsn}"))
}

/// Checks the key that all writes set: it has the value of the last one, or of an earlier one if
/// the store was not closed.
fn check_head(db: &Db, keys: u64, closed: bool) {
    match db.get(HEAD) {
        Ok(found) => {
            let found = found.map(|v| v.to_vec());
            let may_be = |n: u64| found == n.checked_sub(1).map(head);
            assert!(if closed { may_be(keys) } else { (0..=keys).any(may_be) }, "the head with {keys} keys");
        }
        Err(e) => names_a_file(&e, "the head"),
    }
}

impl Answers {
    /// Checks that each engine has all its writes, or a prefix of them.
    fn check_ends(&self, closed: bool) {
        let records: Vec<Answer> = self.records.values().copied().collect();
        for (of, answers) in [("keys", &self.keys), ("records", &records)] {
            let end = answers.iter().position(|answer| *answer == Answer::Absent).unwrap_or(answers.len());
            let behind = answers.iter().skip(end).position(|answer| *answer == Answer::There);
            assert!(!closed || end == answers.len(), "{of}: {end} of {} is called absent", answers.len());
            assert!(behind.is_none(), "{of}: {end} is absent, and what came after it is there");
        }
    }

    fn check_halves(&self, n: u64, lsn: u64) {
        let (Some(of_keys), Some(of_log)) = (self.keys.get(n as usize), self.records.get(&lsn)) else {
            return;
        };
        let is_half =
            matches!((of_keys, of_log), (Answer::There, Answer::Absent) | (Answer::Absent, Answer::There));
        assert!(!is_half, "half of a batch of both: key {n} is {of_keys:?}, record {lsn} {of_log:?}");
    }

    fn count(&self) -> Answered {
        let all = || self.keys.iter().chain(self.records.values());
        let of = |wanted: Answer| all().filter(|answer| **answer == wanted).count() as u64;
        Answered { damaged: of(Answer::Damaged), cut: of(Answer::Absent) }
    }
}
