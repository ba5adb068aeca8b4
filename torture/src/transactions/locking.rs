//! Row `locks`: transactions with row locks, prepared ones among them, beside plain writes, with a
//! crash at the end of each life.
//!
//! One thread runs all of them and waits for no lock, so the oracle knows each answer:
//!
//! * a lock is refused with `Busy` if another open or prepared transaction has it, and with
//!   `Conflict` if the row has changed since the first read without a lock;
//! * a plain write is refused if one of its rows is locked;
//! * a locked read shows the newest value, and no commit conflicts;
//! * a prepared transaction is there after each crash, with its locks, until a commit or rollback
//!   survives.

use super::oracle::{Change, Contents, FAMILIES, Key, Oracle, Verdict, View};
use super::{NAMES, draw_key, draw_range, draw_value, options};
use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure, show};
use crate::crash::check_verify;
use crate::machine::{self, DIR};
use crate::plan::pick;
use crate::tally;
use io::Rng;
use lavastore::testing::{CrashKind, SimEnv};
use lavastore::{
    Db, Error, ErrorKind, Family, LockOptions, Options, Transaction, TransactionOptions, WriteBatch,
    WriteOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// The place of the prepared transactions in the oracle: behind the families.
const RECORDS: usize = FAMILIES;

type Row = (usize, Key);

/// An open transaction, and its state in the oracle.
struct Open {
    transaction: Transaction,
    view: View,
    /// A read without a lock has fixed the moment of the reads.
    is_fixed: bool,
    rows: BTreeSet<Row>,
    durable: bool,
}

/// A prepared transaction: its changes, and the rows that it locks.
struct Prepared {
    changes: Vec<Change>,
    rows: BTreeSet<Row>,
}

/// A store under test.
struct Store {
    sim: SimEnv,
    options: Options,
    oracle: Oracle,
    /// All transactions that were ever prepared, by name.
    prepared: BTreeMap<Key, Prepared>,
    committed: u64,
    refused: u64,
    recovered: u64,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6c6f_636b_7320_2020);
    let mut store = Store {
        sim: machine::new(seed),
        options: options(&mut rng),
        oracle: Oracle::default(),
        prepared: BTreeMap::new(),
        committed: 0,
        refused: 0,
        recovered: 0,
    };
    for _ in 0..rng.range(1, 5) {
        match store.life(&mut rng) {
            Ok(()) => outcome.passed += 1,
            Err(why) => {
                outcome.failures.push(why);
                break;
            }
        }
    }
    outcome.note("transactions committed", store.committed);
    outcome.note("locks and writes refused", store.refused);
    outcome.note("prepared transactions after a crash", store.recovered);
    outcome
}

/// Returns the rows of a transaction.
fn rows_of(changes: &[Change]) -> BTreeSet<Row> {
    let row = |change: &Change| match change {
        Change::Set(nth, key, _) | Change::Merge(nth, key, _) => (*nth, key.clone()),
        Change::DeleteRange(nth, start, _) => (*nth, start.clone()),
    };
    changes.iter().map(row).collect()
}

impl Store {
    /// Opens the store, runs it, and crashes it.
    fn life(&mut self, rng: &mut Rng) -> Check {
        let db = Db::open_in(&machine::env(&self.sim)?, DIR, &self.options).doing(|| "open".into())?;
        let families = NAMES.map(|name| db.family(name));
        let families: Vec<Family> =
            families.into_iter().collect::<Result<_, _>>().doing(|| "families".into())?;
        let found = self.contents(&db, &families)?;
        self.recovered += found.keys().filter(|(nth, _)| *nth == RECORDS).count() as u64;
        self.oracle.settle_on(&found)?;
        // An open locks the changed rows alone.
        self.prepared.values_mut().for_each(|prepared| prepared.rows = rows_of(&prepared.changes));
        check_verify(&db)?;
        let mut open: Vec<Open> = Vec::new();
        for _ in 0..pick(rng, &[20, 100, 400]) {
            self.step(&db, &families, &mut open, rng)?;
            self.oracle.failure()?;
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

    fn contents(&self, db: &Db, families: &[Family]) -> Check<Contents> {
        let mut contents = Contents::default();
        for (nth, family) in families.iter().enumerate() {
            for entry in family.iter() {
                let (key, value) = entry.doing(|| "scan after the open".into())?;
                contents.insert((nth, key), Rc::from(value));
            }
        }
        for name in db.prepared_transactions().doing(|| "prepared transactions".into())? {
            contents.insert((RECORDS, name), Rc::from(&b"prepared"[..]));
        }
        Ok(contents)
    }

    /// Returns the names of the prepared transactions now.
    fn names(&self) -> Vec<Key> {
        self.prepared.keys().filter(|name| self.oracle.get(RECORDS, name).is_some()).cloned().collect()
    }

    /// Returns true if a row is locked by a prepared transaction, or by an open one other than
    /// `except`.
    fn is_locked(&self, open: &[Open], except: Option<usize>, row: &Row) -> bool {
        let by_open = open.iter().enumerate().any(|(nth, one)| Some(nth) != except && one.rows.contains(row));
        by_open || self.names().iter().any(|name| self.prepared[name].rows.contains(row))
    }

    fn step(&mut self, db: &Db, families: &[Family], open: &mut Vec<Open>, rng: &mut Rng) -> Check {
        let nth = rng.below(open.len().max(1) as u64) as usize;
        match rng.below(20) {
            0 | 1 if open.len() < 5 => self.begin(db, open, rng),
            2 if !open.is_empty() => return self.commit(open.swap_remove(nth)),
            3 if !open.is_empty() => return self.prepare(db, open.swap_remove(nth), rng),
            4 if !open.is_empty() && rng.one_in(3) => drop(open.swap_remove(nth)),
            5 | 6 => return self.write(db, families, open, rng),
            7 => return self.decide(db, rng),
            8 => drop(db.engine().run_background_step()),
            9 if rng.one_in(5) => db.flush().doing(|| "flush".into())?,
            10 if rng.one_in(5) => {
                db.sync().doing(|| "sync".into())?;
                self.oracle.all_survive();
            }
            _ if nth < open.len() => return self.act(families, open, nth, rng),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, db: &Db, open: &mut Vec<Open>, rng: &mut Rng) {
        let durable = rng.one_in(4);
        let write = if durable { WriteOptions::durable() } else { WriteOptions::default() };
        let locks = LockOptions { wait_at_most: Duration::ZERO, ..LockOptions::default() };
        let options = TransactionOptions { locks: Some(locks), write, ..TransactionOptions::default() };
        let (transaction, view) = (db.transaction_with(&options), self.oracle.begin(false));
        open.push(Open { transaction, view, is_fixed: false, rows: BTreeSet::new(), durable });
    }

    fn commit(&mut self, one: Open) -> Check {
        one.transaction.commit().doing(|| "commit".into())?;
        self.oracle.apply(one.view.changes(), one.durable);
        self.committed += 1;
        Ok(())
    }

    fn prepare(&mut self, db: &Db, one: Open, rng: &mut Rng) -> Check {
        let Open { transaction, view, rows, .. } = one;
        let name = format!("{:03}", self.prepared.len()).into_bytes();
        let prepared = transaction.prepare(&name);
        let prepared = prepared.doing(|| "prepare".into())?;
        // The creation of the family and the record are durable, and with them all writes before.
        self.oracle.apply(vec![Change::Set(RECORDS, name.clone(), Some(Rc::from(&b"prepared"[..])))], true);
        let changes = view.changes();
        self.prepared.insert(name.clone(), Prepared { changes, rows });
        if rng.one_in(2) {
            drop(prepared);
            return Ok(());
        }
        drop(prepared);
        self.end(db, &name, rng)
    }

    /// Commits or rolls back a prepared transaction.
    fn decide(&mut self, db: &Db, rng: &mut Rng) -> Check {
        let names = self.names();
        let found = db.prepared_transactions().doing(|| "prepared transactions".into())?;
        ensure!(found == names, "{} prepared transactions, expected {}", found.len(), names.len());
        match names.get(rng.below(names.len().max(1) as u64) as usize) {
            Some(name) => self.end(db, name, rng),
            None => Ok(()),
        }
    }

    fn end(&mut self, db: &Db, name: &[u8], rng: &mut Rng) -> Check {
        let taken = db.prepared_transaction(name).doing(|| "take".into())?;
        let Some(taken) = taken else { return Err(format!("{} is not prepared", show(name))) };
        let mut changes = match rng.one_in(3) {
            true => {
                taken.roll_back().doing(|| "roll back".into())?;
                Vec::new()
            }
            false => {
                taken.commit().doing(|| "commit of a prepared transaction".into())?;
                self.committed += 1;
                self.prepared[name].changes.clone()
            }
        };
        changes.push(Change::Set(RECORDS, name.to_vec(), None));
        self.oracle.apply(changes, false);
        Ok(())
    }

    /// A plain batch, which waits for no lock.
    fn write(&mut self, db: &Db, families: &[Family], open: &[Open], rng: &mut Rng) -> Check {
        let (mut batch, mut changes, mut is_locked) = (WriteBatch::new(), Vec::new(), false);
        for _ in 0..rng.range(1, 4) {
            let (nth, key) = (rng.below(FAMILIES as u64) as usize, draw_key(rng));
            let mut of_family = batch.family(&families[nth]);
            if rng.one_in(8) {
                let (start, end) = draw_range(rng);
                match &end {
                    Some(end) => of_family.delete_range(&start[..]..&end[..]),
                    None => of_family.delete_range(&start[..]..),
                };
                let keys = (0..super::KEYS).map(|n| format!("{n:02}").into_bytes());
                is_locked |= keys
                    .filter(|key| start <= *key && end.as_ref().is_none_or(|end| key < end))
                    .any(|key| self.is_locked(open, None, &(nth, key)));
                changes.push(Change::DeleteRange(nth, start, end));
                continue;
            }
            let value = draw_value(rng);
            of_family.put(&key, &value);
            is_locked |= self.is_locked(open, None, &(nth, key.clone()));
            changes.push(Change::Set(nth, key, Some(Rc::from(value))));
        }
        let options = WriteOptions { wait_at_most: Some(Duration::ZERO), ..WriteOptions::default() };
        match db.writing(&options).write(&batch) {
            Ok(()) if !is_locked => self.oracle.apply(changes, false),
            Err(e) if is_locked && e.kind() == ErrorKind::Busy => self.refused += 1,
            // A full memtable, or the like.
            Err(e) if e.kind() == ErrorKind::Busy && !e.to_string().contains("row lock") => {}
            outcome => {
                return Err(format!("a write of rows with locks ({is_locked}) ended with {outcome:?}"));
            }
        }
        Ok(())
    }

    /// A read or a change of a transaction.
    fn act(&mut self, families: &[Family], open: &mut [Open], nth: usize, rng: &mut Rng) -> Check {
        let row = (rng.below(FAMILIES as u64) as usize, draw_key(rng));
        let is_locked = self.is_locked(open, Some(nth), &row);
        let one = &mut open[nth];
        let family = &families[row.0];
        match rng.below(10) {
            0 => {
                one.transaction.set_savepoint();
                one.view.set_savepoint();
                Ok(())
            }
            1 => {
                ensure!(one.transaction.roll_back() == one.view.roll_back(), "savepoints differ");
                Ok(())
            }
            2 => one.read(&self.oracle, family, &row),
            3 => {
                one.transaction.set_snapshot().doing(|| "set_snapshot".into())?;
                one.is_fixed = true;
                one.view.move_to_now(&self.oracle);
                Ok(())
            }
            action => {
                let refused = one.lock(&self.oracle, (family, &row), is_locked, action < 6, rng)?;
                self.refused += u64::from(refused);
                Ok(())
            }
        }
    }
}

impl Open {
    /// A read without a lock.
    fn read(&mut self, oracle: &Oracle, family: &Family, (nth, key): &Row) -> Check {
        if !std::mem::replace(&mut self.is_fixed, true) {
            self.view.move_to_now(oracle);
        }
        let mut of_family = self.transaction.family(family).doing(|| "family".into())?;
        let got = of_family.get(key).doing(|| "get".into())?;
        let expected = self.view.get(*nth, key, false);
        ensure!(got.as_deref() == expected.as_deref(), "get of {}", show(key));
        Ok(())
    }

    /// A read for update, or a change. Returns whether it was refused.
    fn lock(
        &mut self,
        oracle: &Oracle,
        (family, row): (&Family, &Row),
        is_locked: bool,
        reads: bool,
        rng: &mut Rng,
    ) -> Check<bool> {
        let (nth, key) = row;
        let verdict = match self.is_fixed {
            true => oracle.verdict(&self.view.of_key(*nth, key)),
            false => Verdict::Free,
        };
        let mut of_family = self.transaction.family(family).doing(|| "family".into())?;
        let value = (!rng.one_in(4)).then(|| draw_value(rng));
        let outcome: Result<(), Error> = match (reads, &value) {
            (true, _) => of_family.get_for_update(key).map(|got| {
                let expected = self.view.newest(oracle, *nth, key);
                assert_eq!(got.as_deref(), expected.as_deref(), "a locked read of {}", show(key));
            }),
            (false, Some(value)) => of_family.put(key, value),
            (false, None) => of_family.delete(key),
        };
        if !is_locked {
            self.rows.insert(row.clone());
        }
        match outcome {
            Ok(()) if !is_locked && verdict != Verdict::Conflict => {
                if !reads {
                    self.view.set_locked(*nth, key.clone(), value.map(Rc::from));
                }
                Ok(false)
            }
            Err(e) if is_locked && e.kind() == ErrorKind::Busy => Ok(true),
            Err(e) if !is_locked && verdict != Verdict::Free && e.kind() == ErrorKind::Conflict => Ok(true),
            outcome => Err(format!(
                "a lock of {} ended with {outcome:?}, expected {verdict:?}, locked by another: {is_locked}",
                show(key)
            )),
        }
    }
}
