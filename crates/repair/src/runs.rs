//! The tables of a family as sorted runs. A run is a list of non-overlapping tables, which a cursor
//! walks forward around damage.

use super::files::DataFilePath;
use super::judge::Counted;
use base::range_del::FragmentedRangeTombstones;
use base::sync::{Mutex, lock, rank};
use base::{Error, InternalIterator, Result, Uid, key};
use cache::Cache;
use io::Env;
use std::sync::Arc;
use table::salvage::{self, LostEntries, SalvageIter};

/// An event of a walk over tables, collected by its caller between two steps.
#[derive(Debug)]
pub(super) enum WalkEvent {
    /// Unreadable entries.
    Lost(LostEntries),
    /// A table that was opened, with its length in bytes.
    Table(u64),
}

/// Events not collected yet. One thread uses both ends; the lock is needed because cursors must be
/// `Send`.
pub(super) type Heard = Arc<Mutex<Vec<WalkEvent>, rank::RepairHeard>>;

/// A table of a run.
struct Member {
    number: u64,
    uid: Uid,
    place: DataFilePath,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    superseded: Option<(Vec<u8>, Vec<u8>)>,
}

/// A cursor over the tables of a run.
pub(super) struct Run {
    env: Env,
    cache: Arc<Cache>,
    members: Vec<Member>,
    /// Index of the next table to open.
    next: usize,
    iter: Option<SalvageIter>,
    met: Heard,
}

/// Arranges tables into sorted runs. Returns the runs and the range tombstones.
pub(super) fn runs_of(
    env: &Env,
    cache: &Arc<Cache>,
    tables: &[Counted],
    met: &Heard,
) -> (Vec<Box<dyn InternalIterator>>, Vec<Arc<FragmentedRangeTombstones>>) {
    let mut order: Vec<&Counted> = tables.iter().collect();
    order.sort_by(|a, b| a.table.smallest.cmp(&b.table.smallest));
    let mut runs: Vec<Run> = Vec::new();
    let mut tombstones = Vec::new();
    for counted in order {
        let table = &counted.table;
        if !table.tombstones.is_empty() && counted.superseded.is_none() {
            tombstones.push(table.tombstones.clone());
        }
        let member = Member {
            number: table.number,
            uid: table.uid,
            place: table.place.clone(),
            smallest: table.smallest.clone(),
            largest: table.largest.clone(),
            superseded: counted.superseded.clone(),
        };
        let ends_before = |run: &&mut Run| {
            run.members.last().is_none_or(|last| last.largest < member.smallest && !last.largest.is_empty())
        };
        match runs.iter_mut().find(ends_before) {
            Some(run) => run.members.push(member),
            None => runs.push(Run {
                env: env.clone(),
                cache: cache.clone(),
                members: vec![member],
                next: 0,
                iter: None,
                met: met.clone(),
            }),
        }
    }
    (runs.into_iter().map(|run| Box::new(run) as Box<dyn InternalIterator>).collect(), tombstones)
}

impl Run {
    /// Skips superseded entries and exhausted tables, until the cursor is at a live entry or at the
    /// end.
    fn settle(&mut self) {
        loop {
            let Some(iter) = &mut self.iter else {
                let Some(member) = self.members.get(self.next) else { return };
                self.next += 1;
                self.iter = open(&self.env, &self.cache, member, &self.met);
                continue;
            };
            for lost in iter.take_lost() {
                tell(&self.met, WalkEvent::Lost(lost));
            }
            if !iter.valid() {
                self.iter = None;
                if self.next >= self.members.len() {
                    return;
                }
                continue;
            }
            let user_key = key::user_key(iter.key());
            let member = self.next.checked_sub(1).and_then(|at| self.members.get(at));
            let superseded = member.and_then(|member| member.superseded.as_ref());
            match superseded {
                Some((from, to)) if from.as_slice() <= user_key && user_key <= to.as_slice() => {
                    iter.advance()
                }
                _ => return,
            }
        }
    }
}

fn open(env: &Env, cache: &Arc<Cache>, member: &Member, met: &Heard) -> Option<SalvageIter> {
    let opened = member.place.open(env);
    let opened = opened.and_then(|file| salvage::open(file, member.number, member.uid, cache.clone()));
    match opened {
        Ok((table, _)) => {
            tell(met, WalkEvent::Table(member.place.len));
            Some(SalvageIter::new(table))
        }
        Err(e) => {
            let (from, to) = (member.smallest.clone(), member.largest.clone());
            tell(met, WalkEvent::Lost(LostEntries { from, to, error: e.at_file(&member.place.path) }));
            None
        }
    }
}

fn tell(met: &Heard, what: WalkEvent) {
    lock(met).push(what);
}

/// Returns the error of a backward move: a repair only goes forward.
fn backward() -> Error {
    Error::invalid("a scan over damaged tables can only move forward")
}

impl InternalIterator for Run {
    fn valid(&self) -> bool {
        self.iter.as_ref().is_some_and(SalvageIter::valid)
    }
    fn seek_to_first(&mut self) -> Result<()> {
        (self.next, self.iter) = (0, None);
        self.settle();
        Ok(())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        Err(backward())
    }
    /// Moves forward to the target, which is never after the cursor.
    fn seek(&mut self, target: &[u8]) -> Result<()> {
        while self.valid() && key::compare(self.key(), target).is_lt() {
            self.next()?;
        }
        Ok(())
    }
    fn seek_for_prev(&mut self, _target: &[u8]) -> Result<()> {
        Err(backward())
    }
    fn next(&mut self) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            iter.advance();
        }
        self.settle();
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        Err(backward())
    }
    fn key(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], SalvageIter::key)
    }
    fn value(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], SalvageIter::value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;
    use io::sim::SimEnv;

    #[test]
    fn a_run_refuses_backward_moves() {
        let (env, cache) = (SimEnv::new(1).env(), Arc::new(Cache::new(0)));
        let mut run = Run { env, cache, members: Vec::new(), next: 0, iter: None, met: Heard::default() };
        run.seek_to_first().unwrap();
        assert!(!run.valid());
        for refused in [run.seek_to_last(), run.seek_for_prev(b"a"), run.prev()] {
            let e = refused.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument);
            assert_eq!(e.message(), "a scan over damaged tables can only move forward");
        }
    }
}
