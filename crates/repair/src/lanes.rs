//! The log as LavaKV's changes lie in it: in its own lane, and in what batches of a guest's carry in the lane of records.
//!
//! The two are merged by sequence, as an open does it (LavaKV's `records`): of the lane of records one page is read ahead, no more. With
//! a manifest only those of its groups are read that an open would replay; what groups carry that are kept as storage is in tables. Without
//! one all groups are read, and the guest's files tell up to where that is so ([`Lanes::are_in_files_below`]): what is in tables, or was before
//! it was deleted, is not replayed.
//!
//! **What is lost.** A gap in one lane lies between two batches of LavaKV's in that lane. But what was logged between these two may be in the
//! other lane, and is there; lost are at most the sequences that no lane has. Nothing below the floors of all families is lost: that is in
//! tables.
//!
//! A batch that is carried proves that all logged before it in LavaKV's own lane was durable, the values that are placed outside of the
//! log included (LavaKV's `write::carry`): see [`Lanes::last_carried`].

use base::{Error, Result, SeqNo, Uid};
use io::Env;
use lavakv::repairing::{TENANT, decode};
use std::collections::VecDeque;
use std::path::Path;
use store::commit::tenant;
use store::guest::Carried;
use store::manifest::{EngineId, State};
use store::repair::{Batches, Groups, LogGap, OnBatch, SalvagedLog, open_lane};
use wal::{Lane, LogPlace, TenantId};

/// See the module.
pub(super) struct Lanes {
    own: SalvagedLog,
    /// The lane of records, and whose batches there may carry some.
    records: Option<(SalvagedLog, TenantId)>,
    /// What the guest's batches below this sequence of its own carry is in tables, or came of what was.
    in_files_below: SeqNo,
}

/// A batch that was carried: where it ends, its first sequence, its bytes.
type CarriedBatch = (LogPlace, SeqNo, Vec<u8>);

impl Lanes {
    /// Opens both lanes, or only its own where a manifest tells that there is no guest.
    ///
    /// # Errors
    /// As [`open_lane`].
    pub fn open(
        env: &Env,
        dir: &Path,
        state: Option<&State>,
        store: Option<Uid>,
        guest: Option<EngineId>,
    ) -> Result<Lanes> {
        let own = open_lane(env, dir, (Lane::FIRST, Groups::All), state, store)?;
        if state.is_some() && guest.is_none() {
            return Ok(Lanes { own, records: None, in_files_below: 0 });
        }
        let store = store.or_else(|| (!own.is_empty()).then_some(own.store));
        let records = open_lane(env, dir, (Lane::LOG, Groups::Replayed), state, store)?;
        let records = Some((records, guest.and_then(tenant).unwrap_or_default()));
        Ok(Lanes { own, records, in_files_below: 0 })
    }

    /// What comes below this sequence of the guest's is not replayed: see [`store::repair::GuestRepair::in_files_below`].
    pub fn are_in_files_below(&mut self, seq: SeqNo) {
        self.in_files_below = seq;
    }

    /// The highest edit of the manifest that a page saw durable.
    pub fn witness_edit(&self) -> u64 {
        self.records.as_ref().map_or(0, |(records, _)| records.witness_edit).max(self.own.witness_edit)
    }

    /// Files of the log that are not what their names say.
    pub fn displaced(&self) -> impl Iterator<Item = &Error> {
        let records = self.records.iter().flat_map(|(records, _)| &records.displaced);
        self.own.displaced.iter().chain(records)
    }

    /// Which store it is, as far as the pages of its own lane tell it.
    pub fn store(&self) -> Option<Uid> {
        (!self.own.is_empty()).then_some(self.own.store)
    }

    /// True if there is a page of the lane of records.
    pub fn has_records(&self) -> bool {
        self.records.as_ref().is_some_and(|(records, _)| !records.is_empty())
    }

    /// Hands out every whole batch of LavaKV's, in the order of their sequences. Returns the gaps of its own lane.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn each(&self, take: &mut OnBatch<'_>) -> Result<Vec<LogGap>> {
        let batches = self.records.as_ref().map(|(records, tenant)| records.batches(*tenant));
        let mut carried = Ahead { batches, in_files_below: self.in_files_below, read: VecDeque::new() };
        let gaps = self.own.replay(TENANT, &mut |place, first_seq, payload| {
            carried.below(first_seq, take)?;
            take(place, first_seq, payload)
        })?;
        carried.below(SeqNo::MAX, take)?;
        Ok(gaps)
    }

    /// The first sequence of the last batch that is carried; 0: there is none.
    ///
    /// # Errors
    /// None of its own.
    pub fn last_carried(&self) -> Result<SeqNo> {
        let mut last = 0;
        if let Some((records, tenant)) = &self.records {
            records.replay(*tenant, &mut |_, _, payload| {
                last = carried_by(payload).ok().flatten().map_or(last, |(first, _, _)| first);
                Ok(())
            })?;
        }
        Ok(last)
    }

    /// The first sequence of its own lane, if there were groups before: what they had is in tables, or was deleted since. `None`: there were
    /// none.
    ///
    /// # Errors
    /// None of its own.
    pub fn begins_late(&self) -> Result<Option<SeqNo>> {
        if !self.own.begins_late {
            return Ok(None);
        }
        // Sequences ascend.
        let (mut batches, mut first) = (self.own.batches(TENANT), SeqNo::MAX);
        loop {
            let is_more = batches.step(&mut |_, first_seq, _| {
                first = first_seq.min(first);
                Ok(())
            })?;
            if !is_more || first < SeqNo::MAX {
                return Ok(Some(first));
            }
        }
    }

    /// Where changes are lost: of each gap the sequences before the first and behind the last that is, with the first error there. Beside
    /// these what is missing at the end of its own lane, from `end` on, of which it is unknown whether it was volatile; `None`: that is known
    /// to be whole. `own`: the gaps of its own lane. Changes before a floor are in tables: one for its own lane, one for that of records.
    ///
    /// # Errors
    /// `Corruption` of a batch that nobody can have written.
    pub fn gaps(
        &self,
        mut own: Vec<LogGap>,
        (own_floor, floor): (SeqNo, SeqNo),
        end: Option<SeqNo>,
    ) -> Result<(Vec<LogGap>, Option<LogGap>)> {
        let mut all = match &self.records {
            Some((records, tenant)) => gaps_of_records(records, *tenant, self.in_files_below)?,
            None => Vec::new(),
        };
        let end = end.map(|from| self.missing_end(own.iter().chain(&all), from)).transpose()?.flatten();
        if own.is_empty() && all.is_empty() {
            return Ok((Vec::new(), end));
        }
        let (mut of_own, mut of_records) = (Missing::between(&own, own_floor), Missing::between(&all, floor));
        let mut next = 1;
        self.each(&mut |_, first_seq, payload| {
            let (_, count, _) = decode(payload)?;
            if next < first_seq {
                of_own.add(next, first_seq - 1);
                of_records.add(next, first_seq - 1);
            }
            next = next.max(first_seq + SeqNo::from(count));
            Ok(())
        })?;
        of_own.add(next, SeqNo::MAX);
        of_records.add(next, SeqNo::MAX);
        of_own.narrow(&mut own);
        of_records.narrow(&mut all);
        own.extend(all);
        Ok((own, end))
    }

    /// What is missing behind the last batch of its own lane and before one that is carried, as the hull of it. The lane says nothing of it: its
    /// end cannot be told from a torn one. But all that was logged before what is carried was durable, and sequences have no holes. So what
    /// is missing is lost, or was volatile. `told`: gaps that are told anyway. `from`: what comes before may be in tables, and of that nothing
    /// is said.
    fn missing_end<'g>(
        &self,
        told: impl Iterator<Item = &'g LogGap> + Clone,
        from: SeqNo,
    ) -> Result<Option<LogGap>> {
        let Some((records, tenant)) = &self.records else { return Ok(None) };
        let (mut next, mut at) = (from, None);
        self.own.replay(TENANT, &mut |place, first_seq, payload| {
            next = next.max(first_seq + SeqNo::from(decode(payload)?.1));
            at = Some(place.clone());
            Ok(())
        })?;
        let is_told = |first: SeqNo, last: SeqNo| {
            let covers = |gap: &LogGap| gap.after_seq < first && gap.before_seq.is_none_or(|seq| last < seq);
            told.clone().any(covers)
        };
        let mut missing: Option<Run> = None;
        records.replay(*tenant, &mut |place, seq, payload| {
            let Ok(Some((first, last, _))) = carried_by(payload) else { return Ok(()) };
            let is_hole = seq >= self.in_files_below && next < first && !is_told(next, first - 1);
            if is_hole {
                missing = Some((missing.map_or(next, |(before, _)| before), first - 1));
                at.get_or_insert_with(|| place.clone());
            }
            next = next.max(last + 1);
            Ok(())
        })?;
        let Some(((first, last), at)) = missing.zip(at) else { return Ok(None) };
        let why = "the log has lost its end here, or what came next was volatile: a batch of both engines came later, and says that what was \
                   logged before it was durable";
        let error = Error::corruption(why).at_file(&at.path).at_offset(at.offset);
        let (after_seq, before_seq) = (first - 1, Some(last + 1));
        Ok(Some(LogGap { error, after_seq, before_seq, between_groups: false }))
    }
}

/// What a batch of the lane of records carries: its first and its last sequence, its bytes.
fn carried_by(payload: &[u8]) -> Result<Option<(SeqNo, SeqNo, &[u8])>> {
    let Some(carried) = Carried::read(payload)? else { return Ok(None) };
    let (first, count, mut entries) = decode(carried.bytes)?;
    entries.try_for_each(|change| change.map(drop))?;
    Ok(Some((first, first + SeqNo::from(count) - 1, carried.bytes)))
}

/// The gaps of the lane of records at `below` or above, in the sequences of what is carried there. A batch that carries what cannot be
/// decoded is one, too.
fn gaps_of_records(records: &SalvagedLog, tenant: TenantId, below: SeqNo) -> Result<Vec<LogGap>> {
    let mut lost = records.replay(tenant, &mut |_, _, _| Ok(()))?;
    lost.retain(|gap| gap.before_seq.is_none_or(|before| before > below));
    let (mut lost, mut out) = (lost.into_iter().peekable(), Vec::new());
    let mut last = 0;
    records.replay(tenant, &mut |place, first_seq, payload| {
        while let Some(gap) = lost.next_if(|gap| gap.after_seq < first_seq) {
            open_gap(&mut out, last, gap.error);
        }
        match carried_by(payload) {
            Ok(None) => {}
            Ok(Some((first, last_of, _))) => {
                if let Some(gap) = out.last_mut() {
                    gap.before_seq.get_or_insert(first);
                }
                last = last_of;
            }
            Err(_) if first_seq < below => {}
            Err(e) => open_gap(&mut out, last, e.at_file(&place.path).at_offset(place.offset)),
        }
        Ok(())
    })?;
    lost.for_each(|gap| open_gap(&mut out, last, gap.error));
    Ok(out)
}

/// Gaps with nothing of LavaKV's between them are one.
fn open_gap(all: &mut Vec<LogGap>, after_seq: SeqNo, error: Error) {
    if all.last().is_none_or(|gap| gap.before_seq.is_some()) {
        all.push(LogGap { error, after_seq, before_seq: None, between_groups: false });
    }
}

/// Sequences: the first and the last.
type Run = (SeqNo, SeqNo);

/// What no lane has between the ends of each gap of one lane, from the first to the last of it.
struct Missing {
    /// The first and the last sequence of each gap, and of what is missing in it.
    gaps: Vec<(Run, Option<Run>)>,
    /// Those before end before what is still to come.
    from: usize,
}

impl Missing {
    /// Of sequences from `floor` on.
    fn between(gaps: &[LogGap], floor: SeqNo) -> Missing {
        let last = |gap: &LogGap| gap.before_seq.map_or(SeqNo::MAX, |before| before - 1);
        let ends = |gap: &LogGap| ((gap.after_seq + 1).max(floor), last(gap));
        Missing { gaps: gaps.iter().map(|gap| (ends(gap), None)).collect(), from: 0 }
    }

    /// No lane has `first` to `last`. In ascending order.
    fn add(&mut self, first: SeqNo, last: SeqNo) {
        while self.gaps.get(self.from).is_some_and(|((_, end), _)| *end < first) {
            self.from += 1;
        }
        for ((from, to), missing) in self.gaps.iter_mut().skip(self.from) {
            if *from > last {
                break;
            }
            let (first, last) = (first.max(*from), last.min(*to));
            // Nothing is left of a gap below the floor.
            if first <= last {
                *missing = Some((missing.map_or(first, |(before, _)| before), last));
            }
        }
    }

    /// Narrows each gap to its missing sequences, and drops those without any.
    fn narrow(self, gaps: &mut Vec<LogGap>) {
        let mut missing = self.gaps.into_iter().map(|(_, missing)| missing);
        gaps.retain_mut(|gap| {
            let Some((first, last)) = missing.next().flatten() else { return false };
            gap.after_seq = first - 1;
            gap.before_seq = (last != SeqNo::MAX).then(|| last + 1);
            true
        });
    }
}

/// What is carried, a page ahead of LavaKV's own lane.
struct Ahead<'l> {
    batches: Option<Batches<'l>>,
    in_files_below: SeqNo,
    read: VecDeque<CarriedBatch>,
}

impl Ahead<'_> {
    /// Hands out what comes before a sequence.
    fn below(&mut self, seq: SeqNo, take: &mut OnBatch<'_>) -> Result<()> {
        let Some(batches) = &mut self.batches else { return Ok(()) };
        loop {
            while self.read.front().is_some_and(|(_, first, _)| *first < seq) {
                let Some((place, first_seq, payload)) = self.read.pop_front() else { break };
                take(&place, first_seq, &payload)?;
            }
            if !self.read.is_empty() {
                return Ok(());
            }
            let (read, in_files_below) = (&mut self.read, self.in_files_below);
            let more = batches.step(&mut |place, seq, payload| {
                // What cannot be decoded is told as a gap.
                if seq >= in_files_below
                    && let Ok(Some((first, _, bytes))) = carried_by(payload)
                {
                    read.push_back((place.clone(), first, bytes.to_vec()));
                }
                Ok(())
            })?;
            if !more {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
