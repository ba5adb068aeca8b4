//! The history of a run with several writers, and the allowed observations.
//!
//! Every writer owns its keys, and writes each batch to two families. So every observation splits
//! into one per writer, and each must be the state after a *prefix* of its batches, equal in both
//! families. The length of the prefix has bounds: the batches returned at the begin of the
//! observation, and those begun at its end. All writers share one log, so if a batch is there,
//! every batch that returned before it began is there too.

use crate::check::{Check, Doing, ensure};
use crate::history::{FamilyEntries, Loss};
use crate::state::{Change, Contents, Entries, FamilyId, difference};
use lavastore::{Db, Durability};
use std::collections::BTreeMap;

/// A batch of a writer.
pub(crate) struct Batch {
    /// Begin and return of the call, each as a tick of the run's clock and an operation count of
    /// the machine.
    pub begun: (u64, u64),
    pub ended: Option<(u64, u64)>,
    pub durability: Durability,
    pub changes: Vec<Change>,
    /// The call failed: the writer's last batch may be there or not.
    pub failed: bool,
}

/// A checkpoint.
pub(crate) struct Checkpoint {
    pub dir: String,
    /// For each writer, the number of batches returned at its begin, and begun at its end.
    pub bounds: Vec<(usize, usize)>,
    pub end_op: u64,
}

/// A created and dropped family, with the begin and return of each call in operations.
pub(crate) struct Guest {
    pub name: String,
    pub created: (u64, Option<u64>),
    pub dropped: Option<(u64, Option<u64>)>,
}

/// The history; see the module.
#[derive(Default)]
pub(crate) struct Story {
    /// Operation since which the store and its second family exist.
    pub created_op: u64,
    pub mirror: FamilyId,
    pub writers: Vec<Vec<Batch>>,
    pub checkpoints: Vec<Checkpoint>,
    pub guests: Vec<Guest>,
    /// A planned file system fault occurred.
    pub faulted: bool,
    /// Writes refused since they may not wait: recorded as batches without changes.
    pub refused: u64,
    /// The log may have had several writes in flight, with more than one writer.
    pub is_wide: bool,
    /// Counts of engine events.
    pub counts: Vec<(&'static str, u64)>,
}

fn prefix(writer: usize) -> Vec<u8> {
    format!("{writer}/").into_bytes()
}

/// Returns a key of a writer.
pub(crate) fn key(writer: usize, slot: u64) -> Vec<u8> {
    format!("{writer}/{slot:02}").into_bytes()
}

impl Story {
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.writers.iter().flatten()
    }

    /// Returns for each writer the numbers of returned and of begun batches.
    pub fn bounds(&self) -> Vec<(usize, usize)> {
        let returned =
            |batches: &Vec<Batch>| batches.iter().filter(|b| b.ended.is_some() && !b.failed).count();
        self.writers.iter().map(|batches| (returned(batches), batches.len())).collect()
    }

    /// Checks an observation of both families against these bounds.
    pub fn check_look(&self, default: &Entries, mirror: &Entries, bounds: &[(usize, usize)]) -> Check {
        difference(default, mirror).map_err(|why| format!("the families differ: {why}"))?;
        let mut seen = Vec::new();
        for (writer, (least, most)) in bounds.iter().enumerate() {
            seen.push(self.prefixes(writer, default, *least, *most)?);
        }
        self.check_between(&seen)
    }

    /// Returns the shortest and the longest prefix of a writer's batches that explain its keys.
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

    /// Checks that every batch that returned before a present one began is there.
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

    /// Checks a store that was reopened after the run, or after a crash at an operation.
    pub fn check_reopened(&self, db: &Db, found: &FamilyEntries, op: u64, loss: Option<Loss>) -> Check {
        let promised = |batch: &Batch| match batch.durability {
            Durability::Durable => true,
            // A failed sync may lose data that was only in the page cache.
            Durability::Buffered => loss != Some(Loss::Power) && !self.faulted,
            // A completed close flushes them to tables.
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

    fn family<'a>(&self, found: &'a FamilyEntries, id: FamilyId) -> Check<&'a Entries> {
        found.get(&id).ok_or_else(|| format!("family {id} is not there, only {:?}", found.keys()))
    }

    /// Checks that families exist from the return of their creation to the begin of their drop.
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
    pub fn check_checkpoint(&self, copy: &Checkpoint, found: &FamilyEntries) -> Check {
        self.check_look(self.family(found, 0)?, self.family(found, self.mirror)?, &copy.bounds)
    }
}

/// Returns all entries of a family in one state of the store.
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
