//! What happened in a run with several writers, and what may be seen of it.
//!
//! Every writer has keys of its own, and writes each batch to two families alike. So what anybody sees falls apart into what
//! there is of each writer, and of each that must be what a *prefix* of its batches leaves, in both families. How
//! long the prefix is has bounds: what had returned when the look began, and what had begun when it ended. Between
//! writers there is one more rule, since the log is one for all: if a batch is there, so is every batch that had returned before
//! it began.

use crate::check::{Check, Doing, ensure};
use crate::history::{Found, Loss};
use crate::state::{Change, Contents, Entries, FamilyId, difference};
use lavastore::{Db, Durability};
use std::collections::BTreeMap;

/// A batch that a writer wrote.
pub(crate) struct Batch {
    /// When the call began and returned: ticks of a clock of the run's own, and counts of the machine's operations.
    pub begun: (u64, u64),
    pub ended: Option<(u64, u64)>,
    pub durability: Durability,
    pub changes: Vec<Change>,
    /// The call failed: the batch, which is its writer's last, may be there or not.
    pub failed: bool,
}

/// A checkpoint that was taken.
pub(crate) struct Copy {
    pub dir: String,
    /// Of each writer, how many batches had returned when it began, and had begun when it ended.
    pub bounds: Vec<(usize, usize)>,
    pub end_op: u64,
}

/// A family that came and went: when each call began and returned, in operations.
pub(crate) struct Guest {
    pub name: String,
    pub created: (u64, Option<u64>),
    pub dropped: Option<(u64, Option<u64>)>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Story {
    /// From this operation on the store and its second family were there.
    pub created_op: u64,
    pub mirror: FamilyId,
    pub writers: Vec<Vec<Batch>>,
    pub checkpoints: Vec<Copy>,
    pub guests: Vec<Guest>,
    /// A call of the file system failed by plan.
    pub faulted: bool,
    /// Batches that were not to wait and were refused: they are there, with no changes.
    pub refused: u64,
    /// Its log may have had several writes at the device at once, and there was more than one writer.
    pub is_wide: bool,
    /// What the engine did.
    pub counts: Vec<(&'static str, u64)>,
}

fn prefix(writer: usize) -> Vec<u8> {
    format!("{writer}/").into_bytes()
}

/// A key of a writer.
pub(crate) fn key(writer: usize, slot: u64) -> Vec<u8> {
    format!("{writer}/{slot:02}").into_bytes()
}

impl Story {
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.writers.iter().flatten()
    }

    /// Of each writer, how many batches have returned, and how many have begun.
    pub fn bounds(&self) -> Vec<(usize, usize)> {
        let returned =
            |batches: &Vec<Batch>| batches.iter().filter(|b| b.ended.is_some() && !b.failed).count();
        self.writers.iter().map(|batches| (returned(batches), batches.len())).collect()
    }

    /// Checks what a look at both families gave, between these bounds.
    pub fn check_look(&self, default: &Entries, mirror: &Entries, bounds: &[(usize, usize)]) -> Check {
        difference(default, mirror).map_err(|why| format!("the families differ: {why}"))?;
        let mut seen = Vec::new();
        for (writer, (least, most)) in bounds.iter().enumerate() {
            seen.push(self.prefixes(writer, default, *least, *most)?);
        }
        self.check_between(&seen)
    }

    /// The shortest and the longest prefix of a writer's batches that explain what is there of it.
    fn prefixes(&self, writer: usize, found: &Entries, least: usize, most: usize) -> Check<(usize, usize)> {
        let start = prefix(writer);
        let mine: Entries = found
            .range(start.clone()..)
            .take_while(|(key, _)| key.starts_with(&start))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let print = Contents::from_entries(mine.clone()).fingerprint();
        let mut contents = Contents::default();
        let (mut lengths, mut expected) = (Vec::new(), None);
        for n in 0..=most {
            if n > 0 {
                self.writers[writer][n - 1].changes.iter().for_each(|change| contents.apply(change));
            }
            if n >= least && contents.fingerprint() == print {
                lengths.push(n);
            }
            if n == least {
                expected = Some(contents.clone());
            }
        }
        if let (Some(first), Some(last)) = (lengths.first(), lengths.last()) {
            return Ok((*first, *last));
        }
        let least_contents = expected.unwrap_or_default();
        let versus = |contents: &Contents| difference(contents.entries(), &mine).err().unwrap_or_default();
        Err(format!(
            "no prefix of {least} to {most} batches of writer {writer} explains it; not {least}: {}; not {most}: {}",
            versus(&least_contents),
            versus(&contents)
        ))
    }

    /// What a batch that is there may rest on is there.
    fn check_between(&self, seen: &[(usize, usize)]) -> Check {
        for (writer, (least, _)) in seen.iter().enumerate() {
            let Some(last) = least.checked_sub(1).and_then(|n| self.writers[writer].get(n)) else { continue };
            for (other, (_, most)) in seen.iter().enumerate() {
                let before = |b: &&Batch| !b.failed && b.ended.is_some_and(|(tick, _)| tick < last.begun.0);
                let needed = self.writers[other].iter().filter(before).count();
                ensure!(
                    needed <= *most,
                    "batch {least} of writer {writer} is there, and of writer {other} only {most} of {needed} \
                     that had returned before it began"
                );
            }
        }
        Ok(())
    }

    /// Checks a store that was opened again after the run, or after a crash at an operation.
    pub fn check_reopened(&self, db: &Db, found: &Found, op: u64, loss: Option<Loss>) -> Check {
        let promised = |batch: &Batch| match batch.durability {
            Durability::Durable => true,
            // A failed sync may take what only the page cache held.
            Durability::Buffered => loss != Some(Loss::Power) && !self.faulted,
            // A close that comes to its end writes them to tables.
            Durability::Volatile => loss.is_none() && !self.faulted,
        };
        let kept = |batch: &Batch| {
            !batch.failed && batch.ended.is_some_and(|(_, ended)| ended <= op) && promised(batch)
        };
        let bound = |batches: &Vec<Batch>| {
            let least = batches.iter().rposition(kept).map_or(0, |last| last + 1);
            (least, batches.iter().filter(|b| b.begun.1 <= op).count().max(least))
        };
        let bounds: Vec<(usize, usize)> = self.writers.iter().map(bound).collect();
        self.check_look(self.family(found, 0)?, self.family(found, self.mirror)?, &bounds)?;
        self.check_guests(&db.family_names(), op)
    }

    fn family<'a>(&self, found: &'a Found, id: FamilyId) -> Check<&'a Entries> {
        found.get(&id).ok_or_else(|| format!("family {id} is not there, only {:?}", found.keys()))
    }

    /// Families are there from the return of the call that made them to the call that drops them.
    fn check_guests(&self, names: &[String], op: u64) -> Check {
        for guest in &self.guests {
            let is_there = names.contains(&guest.name);
            let made = guest.created.1.is_some_and(|ended| ended <= op);
            let drop_begun = guest.dropped.is_some_and(|(begun, _)| begun <= op);
            let gone = guest.dropped.and_then(|d| d.1).is_some_and(|ended| ended <= op);
            let must = made && !drop_begun;
            let must_not = gone || guest.created.0 > op;
            ensure!(is_there || !must, "family {} was made, and is not there", guest.name);
            ensure!(
                !is_there || !must_not,
                "family {} was dropped, or not yet made, and is there",
                guest.name
            );
        }
        Ok(())
    }

    /// Checks an opened checkpoint.
    pub fn check_checkpoint(&self, copy: &Copy, found: &Found) -> Check {
        self.check_look(self.family(found, 0)?, self.family(found, self.mirror)?, &copy.bounds)
    }
}

/// Everything in a family, in some state of the store.
pub(crate) fn contents(family: lavastore::Iter, backwards: bool) -> Check<Entries> {
    let mut iterator = family.cursor().doing(|| "iter".into())?;
    let mut entries = BTreeMap::new();
    if backwards { iterator.seek_to_last() } else { iterator.seek_to_first() }.doing(|| "seek".into())?;
    while iterator.valid() {
        entries.insert(iterator.key().to_vec(), iterator.value().doing(|| "value".into())?.to_vec());
        if backwards { iterator.prev() } else { iterator.next() }.doing(|| "step".into())?;
    }
    Ok(entries)
}
