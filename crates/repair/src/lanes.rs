//! The changes of LavaKV in the log: its own lane, and the batches embedded in the lane of records
//! by the secondary engine.
//!
//! The two are merged by sequence, as in an open (LavaKV's `records`). The merge reads ahead in the
//! lane of records by one page at most. With a manifest, only the log groups that an open would
//! replay are read; changes in groups kept as storage are in tables. Without a manifest all groups
//! are read. The files of the secondary engine tell up to which sequence its batches are in files
//! ([`Lanes::are_in_files_below`]). Embedded changes below that sequence are in tables, or were
//! before they were deleted, and are not replayed.
//!
//! **Losses.** A gap in one lane lies between two batches of LavaKV in that lane. Changes logged
//! between these two may be in the other lane, where they survive. So at most the sequences that no
//! lane has are lost. Nothing below the floors of all families is lost: those changes are in
//! tables.
//!
//! An embedded batch proves that everything logged before it in LavaKV's own lane was durable,
//! including the values placed outside the log (LavaKV's `write::embedded_batch`): see
//! [`Lanes::last_carried`].

use base::{Error, Result, SeqNo, Uid};
use io::Env;
use lavakv::repairing::{TENANT, decode};
use std::collections::VecDeque;
use std::path::Path;
use store::commit::tenant;
use store::manifest::{EngineId, ManifestState};
use store::repair::{Batches, GroupSelection, LogGap, OnSalvagedBatch, SalvagedLog, open_lane};
use store::secondary_engine::EmbeddedPrimaryBatch;
use wal::{Lane, LogFilePosition, TenantId};

/// Both lanes of the log: see the module.
pub(super) struct Lanes {
    own: SalvagedLog,
    /// Lane of records, and the tenant whose batches in it may embed LavaKV batches.
    records: Option<(SalvagedLog, TenantId)>,
    /// Sequence of the secondary engine below which its embedded changes are in tables, or were
    /// before they were deleted.
    in_files_below: SeqNo,
}

/// An embedded batch: its end in the log, its first sequence, its bytes.
type CarriedBatch = (LogFilePosition, SeqNo, Vec<u8>);

impl Lanes {
    /// Opens both lanes, or only LavaKV's lane if the manifest knows no secondary engine.
    ///
    /// # Errors
    /// As [`open_lane`].
    pub fn open(
        env: &Env,
        dir: &Path,
        state: Option<&ManifestState>,
        store: Option<Uid>,
        secondary: Option<EngineId>,
    ) -> Result<Lanes> {
        let own = open_lane(env, dir, (Lane::FIRST, GroupSelection::All), state, store)?;
        if state.is_some() && secondary.is_none() {
            return Ok(Lanes { own, records: None, in_files_below: 0 });
        }
        let store = store.or_else(|| (!own.is_empty()).then_some(own.store));
        let records = open_lane(env, dir, (Lane::LOG, GroupSelection::Replayed), state, store)?;
        let records = Some((records, secondary.and_then(tenant).unwrap_or_default()));
        Ok(Lanes { own, records, in_files_below: 0 })
    }

    /// Sets the sequence of the secondary engine below which batches are not replayed: see
    /// [`store::repair::SecondaryRepair::in_files_below`].
    pub fn are_in_files_below(&mut self, seq: SeqNo) {
        self.in_files_below = seq;
    }

    /// Returns the highest manifest edit that a page records as durable.
    pub fn witness_edit(&self) -> u64 {
        self.records.as_ref().map_or(0, |(records, _)| records.witness_edit).max(self.own.witness_edit)
    }

    /// Returns an error for each log file whose content does not match its name.
    pub fn displaced(&self) -> impl Iterator<Item = &Error> {
        let records = self.records.iter().flat_map(|(records, _)| &records.displaced);
        self.own.displaced.iter().chain(records)
    }

    /// Returns the uid of the store, if the pages of its own lane have one.
    pub fn store(&self) -> Option<Uid> {
        (!self.own.is_empty()).then_some(self.own.store)
    }

    /// Returns true if the lane of records has a page.
    pub fn has_records(&self) -> bool {
        self.records.as_ref().is_some_and(|(records, _)| !records.is_empty())
    }

    /// Passes every complete batch of LavaKV to `take` in sequence order. Returns the gaps of
    /// LavaKV's own lane.
    ///
    /// # Errors
    /// The errors of `take`.
    pub fn each(&self, take: &mut OnSalvagedBatch<'_>) -> Result<Vec<LogGap>> {
        let batches = self.records.as_ref().map(|(records, tenant)| records.batches(*tenant));
        let mut embedded = Ahead { batches, in_files_below: self.in_files_below, read: VecDeque::new() };
        let gaps = self.own.replay(TENANT, &mut |place, first_seq, payload| {
            embedded.below(first_seq, take)?;
            take(place, first_seq, payload)
        })?;
        embedded.below(SeqNo::MAX, take)?;
        Ok(gaps)
    }

    /// Returns the first sequence of the last embedded batch, or 0 if there is none.
    ///
    /// # Errors
    /// None of its own.
    pub fn last_carried(&self) -> Result<SeqNo> {
        let mut last = 0;
        if let Some((records, tenant)) = &self.records {
            records.replay(*tenant, &mut |_, _, payload| {
                last = embedded_by(payload).ok().flatten().map_or(last, |(first, _, _)| first);
                Ok(())
            })?;
        }
        Ok(last)
    }

    /// Returns the first sequence of LavaKV's own lane, if earlier log groups existed. Their
    /// changes are in tables, or were deleted since. Returns `None` if there were no earlier
    /// groups.
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

    /// Returns the gaps in which changes are lost, and the missing end of LavaKV's own lane. Each
    /// gap is narrowed to its first and last missing sequence and has the first error there. `own`
    /// has the gaps of LavaKV's own lane. `end` is the first sequence that may be missing at its
    /// end, where a loss cannot be told from volatile changes; `None` means that the end is
    /// complete. Changes below a floor are in tables: `own_floor` applies to LavaKV's own lane,
    /// `floor` to the lane of records.
    ///
    /// # Errors
    /// `Corruption` if a batch cannot be decoded.
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

    /// Returns the hull of the changes missing between the last batch of LavaKV's own lane and an
    /// embedded batch. The lane itself cannot show them: this end looks like a torn end. But
    /// everything logged before an embedded batch was durable, and sequences have no holes. So the
    /// missing changes are lost, or were volatile. `told` has the gaps that are reported anyway.
    /// Changes before `from` may be in tables and are not reported.
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
        let mut missing: Option<SeqRange> = None;
        records.replay(*tenant, &mut |place, seq, payload| {
            let Ok(Some((first, last, _))) = embedded_by(payload) else { return Ok(()) };
            let is_hole = seq >= self.in_files_below && next < first && !is_told(next, first - 1);
            if is_hole {
                missing = Some((missing.map_or(next, |(before, _)| before), first - 1));
                at.get_or_insert_with(|| place.clone());
            }
            next = next.max(last + 1);
            Ok(())
        })?;
        let Some(((first, last), at)) = missing.zip(at) else { return Ok(None) };
        let why = format!(
            "the log has lost its end here, or the next writes were volatile: some of the sequences \
             {first} to {last} are missing, and a later embedded batch confirms all earlier writes as \
             durable"
        );
        let error = Error::corruption(why).at_file(&at.path).at_offset(at.offset);
        let (after_seq, before_seq) = (first - 1, Some(last + 1));
        Ok(Some(LogGap { error, after_seq, before_seq, between_groups: false }))
    }
}

/// Decodes the batch embedded in a batch of the lane of records: its first and last sequence, and
/// its bytes.
fn embedded_by(payload: &[u8]) -> Result<Option<(SeqNo, SeqNo, &[u8])>> {
    let Some(embedded) = EmbeddedPrimaryBatch::read(payload)? else { return Ok(None) };
    let (first, count, mut entries) = decode(embedded.bytes)?;
    entries.try_for_each(|change| change.map(drop))?;
    Ok(Some((first, first + SeqNo::from(count) - 1, embedded.bytes)))
}

/// Returns the gaps of the lane of records at or above `below`, in sequences of the embedded
/// batches. An embedded batch that cannot be decoded counts as a gap.
fn gaps_of_records(records: &SalvagedLog, tenant: TenantId, below: SeqNo) -> Result<Vec<LogGap>> {
    let mut lost = records.replay(tenant, &mut |_, _, _| Ok(()))?;
    lost.retain(|gap| gap.before_seq.is_none_or(|before| before > below));
    let (mut lost, mut out) = (lost.into_iter().peekable(), Vec::new());
    let mut last = 0;
    records.replay(tenant, &mut |place, first_seq, payload| {
        while let Some(gap) = lost.next_if(|gap| gap.after_seq < first_seq) {
            open_gap(&mut out, last, gap.error);
        }
        match embedded_by(payload) {
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

/// Opens a gap. Gaps without a LavaKV batch between them are merged.
fn open_gap(all: &mut Vec<LogGap>, after_seq: SeqNo, error: Error) {
    if all.last().is_none_or(|gap| gap.before_seq.is_some()) {
        all.push(LogGap { error, after_seq, before_seq: None, between_groups: false });
    }
}

/// First and last sequence of a run.
type SeqRange = (SeqNo, SeqNo);

/// The sequences of each gap of one lane that no lane has, from the first to the last.
struct Missing {
    /// First and last sequence of each gap, and of the missing sequences in it.
    gaps: Vec<(SeqRange, Option<SeqRange>)>,
    /// Index of the first gap that may still overlap sequences to come.
    from: usize,
}

impl Missing {
    /// Starts with the gaps clipped to the sequences from `floor` on.
    fn between(gaps: &[LogGap], floor: SeqNo) -> Missing {
        let last = |gap: &LogGap| gap.before_seq.map_or(SeqNo::MAX, |before| before - 1);
        let ends = |gap: &LogGap| ((gap.after_seq + 1).max(floor), last(gap));
        Missing { gaps: gaps.iter().map(|gap| (ends(gap), None)).collect(), from: 0 }
    }

    /// Records that no lane has `first` to `last`. Calls must be in ascending order.
    fn add(&mut self, first: SeqNo, last: SeqNo) {
        while self.gaps.get(self.from).is_some_and(|((_, end), _)| *end < first) {
            self.from += 1;
        }
        for ((from, to), missing) in self.gaps.iter_mut().skip(self.from) {
            if *from > last {
                break;
            }
            let (first, last) = (first.max(*from), last.min(*to));
            // A gap below the floor is empty.
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

/// Iterator over the embedded batches, at most one page ahead of LavaKV's own lane.
struct Ahead<'l> {
    batches: Option<Batches<'l>>,
    in_files_below: SeqNo,
    read: VecDeque<CarriedBatch>,
}

impl Ahead<'_> {
    /// Passes the batches before a sequence to `take`.
    fn below(&mut self, seq: SeqNo, take: &mut OnSalvagedBatch<'_>) -> Result<()> {
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
                // A batch that cannot be decoded is reported as a gap.
                if seq >= in_files_below
                    && let Ok(Some((first, _, bytes))) = embedded_by(payload)
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
