//! Row `queue`: keys are put at one end and deleted at the other, which leaves tombstones where the
//! next read begins.
//!
//! A queue in key order is filled, drained and read at its first or last key, beside writes to
//! another range. Some elements return to their former position. Every read, also of a snapshot, is
//! compared with a model. Then either reads continue: they pay for compactions, after which they
//! pass few entries, whatever was deleted. Or the store stays idle, after which a read passes next
//! to none.

use crate::case::{Context, Outcome};
use crate::check::{Check, Doing, ensure};
use crate::crash::check_verify;
use crate::machine::{self, DIR};
use crate::plan::{self, pick};
use crate::tally;
use io::Rng;
use lavastore::testing::SimEnv;
use lavastore::{Db, FamilyOptions, Options, PolicyChoice, Snapshot, VlsmOptions};
use std::collections::BTreeSet;

/// Maximum number of entries in the memtables of these options, and in level 0 before its
/// compaction.
const FEW: u64 = 1_500;
/// Number of drained entries.
const MANY: u64 = 6_000;
/// Maximum number of entries that a read may pass in an idle store.
const NEXT_TO_NONE: u64 = 16;
const REST_NS: u64 = 70_000_000_000;
const STEP_NS: u64 = 100_000_000;
/// Number of reads after which later ones pass few entries.
const READS: u64 = 400;

struct Queue {
    sim: SimEnv,
    options: Options,
    db: Option<Db>,
    model: BTreeSet<u64>,
    next: u64,
    /// The queue is read at its last key and filled at its first.
    backward: bool,
}

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x7175_6575_6500);
    let policy =
        if rng.one_in(3) { PolicyChoice::vlsm(&VlsmOptions::default()) } else { PolicyChoice::default() };
    let family = FamilyOptions { policy, min_blob_size: 64, ..FamilyOptions::default() };
    let family = family.expert(|expert| {
        expert.file_bytes = pick(&mut rng, &[16 << 10, 64 << 10]);
        expert.level_base_bytes = 4 * expert.file_bytes;
        expert.gc_ratio_percent = 20;
    });
    let options = Options { memtable_bytes: 32 << 10, family, ..Options::default() }
        .expert(|expert| expert.log_group_bytes = 128 << 10);
    let (sim, backward) = (machine::new(seed), rng.one_in(2));
    let mut queue = Queue { sim, options, db: None, model: BTreeSet::new(), next: 0, backward };
    let ran = queue.run(&mut rng);
    outcome
        .take(ran.map_err(|why| format!("backward {backward}, {}: {why}", queue.options.family.policy.name)));
    outcome
}

impl Queue {
    fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open")
    }

    fn open(&mut self) -> Check {
        if let Some(db) = self.db.take() {
            tally::add(&db);
            db.close().doing(|| "close".into())?;
        }
        let env = machine::env(&self.sim)?;
        self.db = Some(Db::open_in(&env, DIR, &self.options).doing(|| "open".into())?);
        Ok(())
    }

    /// Returns the key of an element: ascending, or descending for a queue that is read at its last
    /// key.
    fn key(&self, nth: u64) -> Vec<u8> {
        let nth = if self.backward { u64::from(u32::MAX) - nth } else { nth };
        format!("queue/{nth:012}").into_bytes()
    }

    fn push(&mut self, rng: &mut Rng) -> Check {
        self.put(self.next, rng)?;
        self.next += 1;
        Ok(())
    }

    fn put(&mut self, nth: u64, rng: &mut Rng) -> Check {
        let len = rng.range(20, 120) as usize;
        self.model.insert(nth);
        self.db().put(self.key(nth), vec![b'q'; len]).doing(|| "put".into())
    }

    fn pop(&mut self) -> Check {
        let Some(nth) = self.model.pop_first() else { return Ok(()) };
        self.db().delete(self.key(nth)).doing(|| "delete".into())
    }

    /// Puts a deleted element back.
    fn put_back(&mut self, rng: &mut Rng) -> Check {
        match self.model.first().copied().unwrap_or(self.next) {
            0 => Ok(()),
            first => self.put(first - 1 - rng.below(first.min(100)), rng),
        }
    }

    /// Reads the next element; returns the number of entries passed.
    fn read(&self) -> Check<u64> {
        let mut iter = self.db().engine().iter(Default::default()).doing(|| "iterate".into())?;
        match self.backward {
            true => iter.seek_for_prev(b"queue/~"),
            false => iter.seek(b"queue/"),
        }
        .doing(|| "seek".into())?;
        let found = Some(iter.key().to_vec()).filter(|key| key.starts_with(b"queue/"));
        let next = self.model.first().copied();
        let expected = next.map(|nth| self.key(nth));
        ensure!(found == expected, "{found:?} was read for {expected:?}");
        if let Some(nth) = next {
            let got = self.db().get(self.key(nth)).doing(|| "get".into())?;
            ensure!(got.is_some_and(|value| value.starts_with(b"q")), "{nth} is not got");
        }
        Ok(iter.hidden_entries())
    }

    /// Reads the element that was next when the snapshot was taken.
    fn read_at(&self, snapshot: &Snapshot, next: Option<u64>) -> Check {
        let mut entries = snapshot.prefix("queue/");
        let found = if self.backward { entries.next_back() } else { entries.next() };
        let found = found.transpose().doing(|| "read a snapshot".into())?.map(|(key, _)| key);
        let expected = next.map(|nth| self.key(nth));
        ensure!(found == expected, "{found:?} was read for {expected:?} of a snapshot");
        Ok(())
    }

    /// Reads the drained elements again and again, with tables only. These reads learn a range
    /// without keys, which must hide nothing outside of it.
    fn read_within(&self) -> Check {
        self.db().flush().doing(|| "flush".into())?;
        let next = self.model.first().copied().unwrap_or(self.next);
        let (low, high) = match self.backward {
            true => (self.key(next.saturating_sub(1)), self.key(0)),
            false => (self.key(0), self.key(next)),
        };
        for n in 0..6 {
            let part = self.db().range(&low[..]..&high[..]);
            let part = if n % 2 == 0 { count(part.rev()) } else { count(part) };
            let part = part.doing(|| "read a range".into())?;
            ensure!(part <= 1, "{part} drained elements are read");
        }
        let all = count(self.db().iter()).doing(|| "read everything".into())?;
        let expected = self.model.len() + 100;
        ensure!(all == expected, "{all} entries are read for {expected}");
        Ok(())
    }

    fn steps(&self, count: u64) {
        for _ in 0..count {
            self.db().engine().run_background_step();
        }
    }

    fn run(&mut self, rng: &mut Rng) -> Check {
        self.open()?;
        for key in 0..50 {
            self.db().put(format!("before/{key}"), "b").doing(|| "put".into())?;
            self.db().put(format!("zeta/{key}"), "z").doing(|| "put".into())?;
        }
        for _ in 0..MANY {
            self.push(rng)?;
            self.steps(rng.below(2));
        }
        for n in 0..MANY - rng.below(3) {
            self.pop()?;
            self.steps(rng.below(2));
            if n % 1_000 == 0 {
                self.read()?;
            }
        }
        if rng.one_in(2) {
            self.open()?;
        }
        if plan::aside(rng, 0x626f_756e_6465).one_in(3) {
            self.read_within()?;
        }
        if rng.one_in(2) {
            self.read_on(rng)?
        } else {
            self.leave_alone()?
        }
        check_verify(self.db())?;
        tally::add(self.db());
        Ok(())
    }

    /// Uses the queue: reads pay for compactions.
    fn read_on(&mut self, rng: &mut Rng) -> Check {
        let mut seen = None;
        for n in 0..2 * READS {
            match rng.below(40) {
                0..=18 => self.push(rng)?,
                19..=37 => self.pop()?,
                38 => self.put_back(rng)?,
                // A snapshot retains tombstones, so only the first reads hold one.
                _ if n < READS / 2 => seen = Some((self.db().snapshot(), self.model.first().copied())),
                _ => seen = None,
            }
            self.steps(20);
            if let Some((snapshot, next)) = &seen {
                self.read_at(snapshot, *next)?;
            }
            let passed = self.read()?;
            ensure!(n < READS || passed <= FEW, "a read passes {passed} entries: {}", self.db().describe());
        }
        Ok(())
    }

    /// Lets time pass without calls.
    fn leave_alone(&mut self) -> Check {
        let clock = machine::env(&self.sim)?.clock;
        let end_ns = clock.now_ns() + REST_NS;
        while clock.now_ns() < end_ns {
            if !self.db().engine().run_background_step() {
                clock.sleep_ns(STEP_NS);
            }
        }
        let passed = self.read()?;
        ensure!(passed <= NEXT_TO_NONE, "a read passes {passed} entries: {}", self.db().describe());
        Ok(())
    }
}

fn count(
    mut entries: impl Iterator<Item = lavastore::Result<(Vec<u8>, Vec<u8>)>>,
) -> lavastore::Result<usize> {
    entries.try_fold(0, |count, entry| entry.map(|_| count + 1))
}
