//! Row `transactions`: transactions, atomic updates and plain writes over two families, interleaved
//! at random, with a crash at the end of each life.
//!
//! One thread runs all of them, so the oracle knows every moment exactly ([`oracle`]):
//!
//! * each read of a transaction shows its begin with its own changes, whatever has been written
//!   since, also after a rollback to a savepoint;
//! * a commit fails with `Conflict` if a tracked key or range was changed since the begin, and only
//!   then;
//! * after a crash the store holds a prefix of the commits, each of them whole, with all durable
//!   ones.

mod anomalies;
pub(crate) mod histories;
pub(crate) mod locking;
mod oracle;

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure, show};
use crate::crash::check_verify;
use crate::machine::{self, DIR};
use crate::plan::{self, pick};
use crate::state::OPERATOR_DELIMITER;
use crate::tally;
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{
    Db, ErrorKind, Family, FamilyOptions, Isolation, MergeChoice, Options, PolicyChoice, Transaction,
    TransactionOptions, Update, VlsmOptions, WriteBatch, WriteOptions,
};
use oracle::{Change, FAMILIES, Key, Oracle, Verdict, View};
use std::rc::Rc;

/// Number of keys of a family.
const KEYS: u64 = 60;
/// Names of the families; the first one is the default.
const NAMES: [&str; FAMILIES] = ["default", "other"];

/// An open transaction, and its state in the oracle.
struct Open {
    transaction: Transaction,
    view: View,
    durable: bool,
}

/// A store under test.
struct Store {
    sim: SimEnv,
    options: Options,
    oracle: Oracle,
    committed: u64,
    conflicts: u64,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x7472_616e_7361_6374);
    let mut store = Store {
        sim: machine::new(seed),
        options: options(&mut rng),
        oracle: Oracle::default(),
        committed: 0,
        conflicts: 0,
    };
    for _ in 0..rng.range(1, 4) {
        match store.life(&mut rng) {
            Ok(()) => outcome.passed += 1,
            Err(why) => {
                outcome.failures.push(why);
                break;
            }
        }
    }
    outcome.note("transactions committed", store.committed);
    outcome.note("transactions in conflict", store.conflicts);
    outcome
}

fn options(rng: &mut Rng) -> Options {
    let policy =
        if rng.one_in(3) { PolicyChoice::vlsm(&VlsmOptions::default()) } else { PolicyChoice::default() };
    let family = FamilyOptions {
        policy,
        min_blob_size: pick(rng, &[0, 64, 1 << 10]),
        merge_operator: Some(MergeChoice::append(OPERATOR_DELIMITER)),
        ..Default::default()
    };
    let family = family.expert(|expert| {
        expert.file_bytes = pick(rng, &[4 << 10, 16 << 10]);
        expert.level_base_bytes = 4 * expert.file_bytes;
    });
    Options { memtable_bytes: pick(rng, &[32 << 10, 64 << 10, 1 << 20]), family, ..Options::default() }
        .expert(|expert| expert.log_group_bytes = 128 << 10)
}

fn draw_key(rng: &mut Rng) -> Key {
    format!("{:02}", rng.below(KEYS)).into_bytes()
}

fn draw_value(rng: &mut Rng) -> Vec<u8> {
    let len = pick(rng, &[0, 10, 100, 2_000]);
    (0..len).map(|_| rng.below(256) as u8).collect()
}

/// Returns true if a put of the family `default` is to be a merge, drawn aside so that recorded seeds keep their draws.
fn merges(rng: &Rng) -> bool {
    plan::aside(rng, 0x6f70_6572_616e).one_in(3)
}

/// Draws a range; `None`: without an end.
fn draw_range(rng: &mut Rng) -> (Key, Option<Key>) {
    let (a, b) = (draw_key(rng), draw_key(rng));
    let (start, end) = (a.clone().min(b.clone()), a.max(b));
    (start, (!rng.one_in(6)).then_some(end))
}

impl Store {
    /// Opens the store, runs it, and crashes it.
    fn life(&mut self, rng: &mut Rng) -> Check {
        let db = Db::open_in(&machine::env(&self.sim)?, DIR, &self.options).doing(|| "open".into())?;
        let families = NAMES.map(|name| db.family(name));
        let families: Vec<Family> =
            families.into_iter().collect::<Result<_, _>>().doing(|| "families".into())?;
        self.oracle.settle_on(&self.contents(&families)?)?;
        check_verify(&db)?;
        let mut open: Vec<Open> = Vec::new();
        for _ in 0..pick(rng, &[30, 150, 600]) {
            self.step(&db, &families, &mut open, rng)?;
        }
        tally::add(&db);
        drop((open, families));
        let kind = pick(rng, &[CrashKind::ProcessKill, CrashKind::PowerLoss]);
        let after = self.sim.crash(kind, rng.next_u64());
        drop(db);
        self.sim = after;
        if matches!(kind, CrashKind::ProcessKill) {
            self.oracle.all_survive();
        }
        Ok(())
    }

    fn contents(&self, families: &[Family]) -> Check<oracle::Contents> {
        let mut contents = oracle::Contents::default();
        for (nth, family) in families.iter().enumerate() {
            for entry in family.iter() {
                let (key, value) = entry.doing(|| "scan after the open".into())?;
                contents.insert((nth, key), Rc::from(value));
            }
        }
        Ok(contents)
    }

    fn step(&mut self, db: &Db, families: &[Family], open: &mut Vec<Open>, rng: &mut Rng) -> Check {
        let nth = rng.below(open.len().max(1) as u64) as usize;
        match rng.below(24) {
            0 | 1 if open.len() < 6 => self.begin(db, open, rng),
            2 | 3 if !open.is_empty() => self.commit(open.swap_remove(nth)),
            4 if !open.is_empty() && rng.one_in(4) => drop(open.swap_remove(nth)),
            5 => return self.write(db, families, rng),
            6 => return self.update(families, rng),
            7 => return self.compare(families, rng),
            8 => drop(db.engine().run_background_step()),
            9 if rng.one_in(5) => db.flush().doing(|| "flush".into())?,
            10 if rng.one_in(10) => db.compact_range(..).doing(|| "compact".into())?,
            11 if rng.one_in(5) => {
                db.sync().doing(|| "sync".into())?;
                self.oracle.all_survive();
            }
            _ => {
                if let Some(one) = open.get_mut(nth) {
                    return one.act(families, rng);
                }
            }
        }
        self.oracle.failure()
    }

    fn begin(&mut self, db: &Db, open: &mut Vec<Open>, rng: &mut Rng) {
        let isolation = pick(rng, &[Isolation::Snapshot, Isolation::Serializable]);
        let durable = rng.one_in(4);
        let write = if durable { WriteOptions::durable() } else { WriteOptions::default() };
        let options = TransactionOptions { isolation, write, ..TransactionOptions::default() };
        let transaction = db.transaction_with(&options);
        open.push(Open {
            transaction,
            view: self.oracle.begin(isolation == Isolation::Serializable),
            durable,
        });
    }

    fn commit(&mut self, one: Open) {
        let verdict = self.oracle.verdict(&one.view);
        let outcome = one.transaction.commit();
        let conflicts = outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::Conflict);
        self.oracle.note(match (&outcome, verdict) {
            (Ok(()), Verdict::Free | Verdict::Either) => Ok(()),
            (Err(_), Verdict::Conflict | Verdict::Either) if conflicts => Ok(()),
            _ => {
                Err(format!("a commit ended with {outcome:?}, expected {verdict:?}: {}", one.view.describe()))
            }
        });
        match outcome {
            Ok(()) => {
                self.committed += 1;
                self.oracle.apply(one.view.changes(), one.durable);
            }
            Err(_) => self.conflicts += 1,
        }
    }

    /// A plain batch.
    fn write(&mut self, db: &Db, families: &[Family], rng: &mut Rng) -> Check {
        let (mut batch, mut changes) = (WriteBatch::new(), Vec::new());
        for _ in 0..rng.range(1, 4) {
            let (nth, key) = (rng.below(FAMILIES as u64) as usize, draw_key(rng));
            let mut of_family = batch.family(&families[nth]);
            changes.push(match rng.below(6) {
                0 => {
                    let (start, end) = draw_range(rng);
                    match &end {
                        Some(end) => of_family.delete_range(&start[..]..&end[..]),
                        None => of_family.delete_range(&start[..]..),
                    };
                    Change::DeleteRange(nth, start, end)
                }
                1 => {
                    of_family.delete(&key);
                    Change::Set(nth, key, None)
                }
                _ if nth == 0 && merges(rng) => {
                    let operand = draw_value(rng);
                    of_family.merge(&key, &operand);
                    Change::Merge(nth, key, Rc::from(operand))
                }
                _ => {
                    let value = draw_value(rng);
                    of_family.put(&key, &value);
                    Change::Set(nth, key, Some(Rc::from(value)))
                }
            });
        }
        let durable = rng.one_in(8);
        let options = if durable { WriteOptions::durable() } else { WriteOptions::default() };
        db.writing(&options).write(&batch).doing(|| "write".into())?;
        self.oracle.apply(changes, durable);
        self.oracle.failure()
    }

    /// An update of one key by a function of its value.
    fn update(&mut self, families: &[Family], rng: &mut Rng) -> Check {
        let (nth, key, new) = (rng.below(FAMILIES as u64) as usize, draw_key(rng), draw_value(rng));
        let decision = match rng.below(4) {
            0 => Update::Keep,
            1 => Update::Delete,
            _ => Update::Set(new.clone()),
        };
        let durable = families[nth].writing(&WriteOptions::default());
        let old = durable.fetch_and_update(&key, |_| decision.clone()).doing(|| "update".into())?;
        let expected = self.oracle.get(nth, &key);
        ensure!(old.as_deref() == expected.as_deref(), "an update saw another value of {}", show(&key));
        let change = match decision {
            Update::Keep => return Ok(()),
            Update::Delete if expected.is_none() => return Ok(()),
            Update::Delete => Change::Set(nth, key, None),
            Update::Set(new) => Change::Set(nth, key, Some(Rc::from(new))),
        };
        self.oracle.apply(vec![change], false);
        Ok(())
    }

    /// A put if absent, or a compare and set.
    fn compare(&mut self, families: &[Family], rng: &mut Rng) -> Check {
        let (nth, key, new) = (rng.below(FAMILIES as u64) as usize, draw_key(rng), draw_value(rng));
        let present = self.oracle.get(nth, &key);
        let writer = families[nth].writing(&WriteOptions::default());
        let (set, expected) = match &present {
            _ if rng.one_in(2) => (writer.put_if_absent(&key, &new), present.is_none()),
            Some(old) if rng.one_in(2) => (writer.compare_and_set(&key, &old[..], &new), true),
            _ => {
                let other = [&b"not "[..], present.as_deref().unwrap_or_default()].concat();
                (writer.compare_and_set(&key, &other, &new), false)
            }
        };
        let set = set.doing(|| "compare".into())?;
        ensure!(set == expected, "a comparison of {} was {set}", show(&key));
        if set {
            self.oracle.apply(vec![Change::Set(nth, key, Some(Rc::from(new)))], false);
        }
        Ok(())
    }
}

impl Open {
    /// A read or a change of the transaction.
    fn act(&mut self, families: &[Family], rng: &mut Rng) -> Check {
        let (nth, key) = (rng.below(FAMILIES as u64) as usize, draw_key(rng));
        match rng.below(16) {
            0 => {
                self.transaction.set_savepoint();
                self.view.set_savepoint();
            }
            1 => ensure!(self.transaction.roll_back() == self.view.roll_back(), "savepoints differ"),
            2..5 => return self.scan(&families[nth], nth, rng),
            action => {
                let mut of_family = self.transaction.family(&families[nth]).doing(|| "family".into())?;
                match action {
                    5..8 => {
                        let got = of_family.get(&key).doing(|| "get".into())?;
                        let expected = self.view.get(nth, &key, false);
                        ensure!(got.as_deref() == expected.as_deref(), "get of {}", show(&key));
                    }
                    8 => {
                        let got = of_family.get_for_update(&key).doing(|| "get".into())?;
                        let expected = self.view.get(nth, &key, true);
                        ensure!(got.as_deref() == expected.as_deref(), "get for update of {}", show(&key));
                    }
                    9 | 10 => {
                        of_family.delete(&key).doing(|| "delete".into())?;
                        self.view.set(nth, key, None);
                    }
                    _ if nth == 0 && merges(rng) => {
                        let operand = draw_value(rng);
                        of_family.merge(&key, &operand).doing(|| "merge".into())?;
                        self.view.merge(nth, key, Rc::from(operand));
                    }
                    _ => {
                        let value = draw_value(rng);
                        of_family.put(&key, &value).doing(|| "put".into())?;
                        self.view.set(nth, key, Some(Rc::from(value)));
                    }
                }
            }
        }
        Ok(())
    }

    fn scan(&mut self, family: &Family, nth: usize, rng: &mut Rng) -> Check {
        let ((start, end), most) = (draw_range(rng), pick(rng, &[1, 5, 1_000]));
        let expected = self.view.scan(nth, &start, end.as_deref(), most);
        let mut of_family = self.transaction.family(family).doing(|| "family".into())?;
        let scan = match &end {
            Some(end) => of_family.range(&start[..]..&end[..]),
            None => of_family.range(&start[..]..),
        };
        let found: Result<Vec<_>, _> = scan.doing(|| "scan".into())?.take(most).collect();
        let found = found.doing(|| "scan".into())?;
        ensure!(
            found
                .iter()
                .map(|(key, value)| (&key[..], &value[..]))
                .eq(expected.iter().map(|(key, value)| (&key[..], &value[..]))),
            "a scan from {} found {} entries, expected {}",
            show(&start),
            found.len(),
            expected.len()
        );
        Ok(())
    }
}
