//! Rules that decide which versions of each user key a merge job keeps.
//!
//! The versions of a key come newest first. `stripe(seq)` is the index of the first snapshot that
//! sees a version; the same readers see all versions in one stripe. The rules, for a version that
//! some snapshot sees:
//!
//! 1. **Covered**: if a range tombstone in the same stripe is newer, drop the version.
//! 2. **Shadowed**: if a value, reference or tombstone of the key in the same stripe is newer, drop
//!    the version. A single delete is not dropped because of a newer *value*. It must meet its own
//!    value; otherwise that older value would come back when the next single delete cancels the
//!    newer one.
//! 3. **Tombstones** are held back until the next version of the key that stays. If there is none,
//!    and nothing can be underneath, they are dropped; otherwise they are written.
//! 4. **Single deletes** are held back likewise. If a value comes next in the same stripe, both are
//!    dropped. Before any other entry (the caller broke the contract of single deletes) they become
//!    plain tombstones, which hide everything older.
//! 5. **Merge operands** of one stripe are collected if there is an operator. They are folded with
//!    the value in the same stripe, inline or separated, or without a base if a tombstone, a covering
//!    range tombstone or the bottom comes first. Without any of these they are combined into one
//!    operand, if the operator can.
//! 6. **The filter**, if there is one, decides on a value that only readers at the frontier see, and
//!    that is the newest version of its key: it is written, written with another value, or becomes a
//!    tombstone (rule 3). Values that this job folds are left to later jobs.
//! 7. **Sequences** become 0 for inline values in the lowest stripe with nothing underneath: all
//!    older versions are gone by rule 2. This excludes values under a kept range tombstone, which
//!    would then hide them, and references, whose records are found by their exact internal key.
//!
//! Versions above the last snapshot are written unchanged: a later snapshot may still fall between
//! them.

use super::output::{Output, OutputTable};
use super::{DropReason, JobEnv, MergeStats, Rewrite, ValueHook};
use crate::below::OlderEntryCheck;
use crate::filter::{Filter, FilterDecision, FilteredEntry, JobFilter};
use crate::operator::{MergeOperator, Operands, combine, fold};
use base::limits::VALUE_LEN_MAX;
use base::range_del::{Fragment, FragmentedRangeTombstones};
use base::{Error, Result, SeqNo, ValueKind};
use std::sync::Arc;

/// A tombstone that is held back until the next version of the key is known.
#[derive(Clone, Copy, Debug)]
struct Held {
    seq: SeqNo,
    kind: ValueKind,
    stripe: usize,
}

/// The version that hides older versions of the key in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shadow {
    stripe: usize,
    by_tombstone: bool,
}

pub(super) struct Rules {
    snapshots: Vec<SeqNo>,
    tombstones: FragmentedRangeTombstones,
    /// Index of the first fragment of `tombstones` that does not end before the key.
    fragment: usize,
    /// True if that fragment covers the key.
    in_fragment: bool,
    zero_sequences: bool,
    operator: Option<Arc<dyn MergeOperator>>,
    filter: Filter,
    key: Vec<u8>,
    has_key: bool,
    /// True if a version of the key was written.
    key_written: bool,
    /// True if a merge operand of the key was written: the value below it is not the newest version.
    operand_written: bool,
    held: Option<Held>,
    shadow: Option<Shadow>,
    /// Operands of one stripe, newest first; their sequences are in `run_seqs`.
    run: Operands,
    run_seqs: Vec<SeqNo>,
    run_stripe: usize,
    rewritten: Vec<u8>,
    folded: Vec<u8>,
    pub(super) stats: MergeStats,
}

impl Rules {
    pub(super) fn new(
        snapshots: Vec<SeqNo>,
        tombstones: FragmentedRangeTombstones,
        zero_sequences: bool,
        (operator, filter): (Option<Arc<dyn MergeOperator>>, Option<JobFilter>),
    ) -> Self {
        let input_range_tombstones = tombstones.fragments().iter().map(|f| f.seqs.len() as u64).sum();
        Rules {
            snapshots,
            tombstones,
            fragment: 0,
            in_fragment: false,
            zero_sequences,
            operator,
            filter: Filter::begin(filter),
            key: Vec::with_capacity(64),
            has_key: false,
            key_written: false,
            operand_written: false,
            held: None,
            shadow: None,
            run: Operands::default(),
            run_seqs: Vec::new(),
            run_stripe: 0,
            rewritten: Vec::new(),
            folded: Vec::new(),
            stats: MergeStats { input_range_tombstones, ..MergeStats::default() },
        }
    }

    /// Returns the range tombstones that the job must keep: the newest of each stripe, except in
    /// the lowest stripe with nothing underneath. There this job itself drops the covered entries
    /// of the inputs.
    pub(super) fn retained(&self, below: &mut dyn OlderEntryCheck) -> Vec<Fragment> {
        let mut kept = Vec::new();
        for f in self.tombstones.fragments() {
            let mut seqs: Vec<SeqNo> = Vec::with_capacity(f.seqs.len());
            let mut stripe = usize::MAX;
            for &seq in &f.seqs {
                let s = self.stripe(seq);
                if s == stripe && s < self.snapshots.len() {
                    continue;
                }
                stripe = s;
                if s == 0 && !self.snapshots.is_empty() && !below.may_hold_range(&f.start, &f.end) {
                    continue;
                }
                seqs.push(seq);
            }
            if !seqs.is_empty() {
                kept.push(Fragment { start: f.start.clone(), end: f.end.clone(), seqs });
            }
        }
        kept
    }

    /// Returns the index of the first snapshot that sees `seq`, or the number of snapshots if none
    /// does.
    #[inline]
    fn stripe(&self, seq: SeqNo) -> usize {
        match self.snapshots.first() {
            Some(&first) if seq <= first => 0,
            _ => self.snapshots.partition_point(|&s| s < seq),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(super) fn has_key(&self) -> bool {
        self.has_key
    }

    #[inline]
    pub(super) fn begin_key(&mut self, user_key: &[u8]) {
        debug_assert!(self.held.is_none() && self.run.is_empty(), "the last key was not ended");
        self.key.clear();
        self.key.extend_from_slice(user_key);
        self.has_key = true;
        (self.key_written, self.operand_written) = (false, false);
        self.shadow = None;
        let fragments = self.tombstones.fragments();
        while fragments.get(self.fragment).is_some_and(|f| f.end.as_slice() <= user_key) {
            self.fragment += 1;
        }
        self.in_fragment = fragments.get(self.fragment).is_some_and(|f| f.start.as_slice() <= user_key);
    }

    /// Returns true if a range tombstone hides the version from every reader of its stripe.
    #[inline]
    fn covered(&self, seq: SeqNo, stripe: usize) -> bool {
        if !self.in_fragment {
            return false;
        }
        let (Some(f), Some(&snapshot)) =
            (self.tombstones.fragments().get(self.fragment), self.snapshots.get(stripe))
        else {
            return false;
        };
        f.seqs.get(f.seqs.partition_point(|&s| s > snapshot)).is_some_and(|&t| t > seq)
    }

    /// Handles the next version of the current key.
    #[inline]
    pub(super) fn entry<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
        trailer: u64,
        value: &[u8],
    ) -> Result<()> {
        self.stats.input_entries += 1;
        self.stats.input_bytes += (self.key.len() + base::key::TRAILER_LEN + value.len()) as u64;
        let kind = point_kind(trailer)?;
        let seq = trailer >> 8;
        let stripe = self.stripe(seq);
        if stripe == self.snapshots.len() {
            return self.write(hooks, output, seq, kind, value);
        }
        if self.covered(seq, stripe) {
            if !self.run.is_empty() && self.run_stripe == stripe && !self.fold_run(hooks, output, None)? {
                self.write_held(hooks, output)?;
            }
            self.drop_entry(hooks, seq, kind, value, DropReason::Covered);
            return Ok(());
        }
        if let Some(single) = self.held.filter(|h| h.kind == ValueKind::SingleDeletion && h.stripe == stripe)
            && self.meet_single(hooks, single, seq, kind, value)
        {
            return Ok(());
        }
        if let Some(shadow) = self.shadow.filter(|s| s.stripe == stripe) {
            let needed = !shadow.by_tombstone;
            if kind == ValueKind::SingleDeletion && needed {
                self.write_held(hooks, output)?;
                self.held = Some(Held { seq, kind, stripe });
            } else {
                self.drop_entry(hooks, seq, kind, value, DropReason::Shadowed);
            }
            return Ok(());
        }
        self.newest_in_stripe(hooks, output, Held { seq, kind, stripe }, value)
    }

    /// Handles a version that follows a held single delete in the same stripe. Returns true if the
    /// version needs no further handling.
    fn meet_single<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        single: Held,
        seq: SeqNo,
        kind: ValueKind,
        value: &[u8],
    ) -> bool {
        self.held = None;
        if is_value(kind) {
            self.drop_entry(hooks, single.seq, single.kind, &[], DropReason::Annihilated);
            self.drop_entry(hooks, seq, kind, value, DropReason::Annihilated);
            return true;
        }
        if self.shadow.is_some_and(|s| s.stripe == single.stripe) {
            self.drop_entry(hooks, single.seq, single.kind, &[], DropReason::Shadowed);
            return false;
        }
        self.held = Some(Held { kind: ValueKind::Deletion, ..single });
        self.shadow = Some(Shadow { stripe: single.stripe, by_tombstone: true });
        self.drop_entry(hooks, seq, kind, value, DropReason::Shadowed);
        true
    }

    /// Handles a version that no newer entry in its stripe hides.
    #[inline]
    fn newest_in_stripe<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
        version: Held,
        value: &[u8],
    ) -> Result<()> {
        let Held { seq, kind, stripe } = version;
        if !self.run.is_empty() && self.run_stripe == stripe {
            let folded = match kind {
                ValueKind::Value => self.fold_run(hooks, output, Some(value))?,
                ValueKind::Reference => self.fold_onto_separated(hooks, output, seq, value)?,
                ValueKind::Deletion => self.fold_run(hooks, output, None)?,
                _ => false,
            };
            if folded {
                self.drop_entry(hooks, seq, kind, value, DropReason::Folded);
                return Ok(());
            }
            if kind == ValueKind::Merge && self.run.bytes() + value.len() <= VALUE_LEN_MAX {
                self.run.push_older(value);
                self.run_seqs.push(seq);
                return Ok(());
            }
        }
        self.write_held(hooks, output)?;
        match kind {
            ValueKind::SingleDeletion => self.held = Some(version),
            ValueKind::Deletion => {
                self.held = Some(version);
                self.shadow = Some(Shadow { stripe, by_tombstone: true });
            }
            ValueKind::Merge if self.operator.is_some() => {
                self.run.push_older(value);
                self.run_seqs.push(seq);
                self.run_stripe = stripe;
            }
            ValueKind::Merge => self.write(hooks, output, seq, kind, value)?,
            _ if self.filter.is_on() => self.filtered(hooks, output, version, value)?,
            _ => {
                self.write(hooks, output, seq, kind, value)?;
                self.shadow = Some(Shadow { stripe, by_tombstone: false });
            }
        }
        Ok(())
    }

    /// Writes a value or reference as the filter decides, if no snapshot sees it.
    fn filtered<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
        version: Held,
        value: &[u8],
    ) -> Result<()> {
        let Held { seq, kind, stripe } = version;
        let is_unseen = stripe + 1 == self.snapshots.len() && self.filter.may_decide(seq);
        let is_unseen = is_unseen && !self.operand_written;
        let decision = if is_unseen { self.decision(hooks, seq, kind, value) } else { FilterDecision::Keep };
        match decision {
            FilterDecision::Keep => self.write(hooks, output, seq, kind, value)?,
            FilterDecision::Change(changed) if changed.len() <= VALUE_LEN_MAX => {
                self.stats.filter_changes += 1;
                self.write(hooks, output, seq, ValueKind::Value, &changed)?;
            }
            FilterDecision::Change(_) => {
                self.stats.filter_failures += 1;
                self.write(hooks, output, seq, kind, value)?;
            }
            FilterDecision::Remove => {
                self.stats.filter_removals += 1;
                self.held = Some(Held { kind: ValueKind::Deletion, ..version });
                self.shadow = Some(Shadow { stripe, by_tombstone: true });
                return Ok(());
            }
        }
        self.shadow = Some(Shadow { stripe, by_tombstone: false });
        Ok(())
    }

    fn decision<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        seq: SeqNo,
        kind: ValueKind,
        value: &[u8],
    ) -> FilterDecision {
        let values = hooks.values.as_mut().map(|values| &mut **values as &mut dyn ValueHook);
        let mut entry = FilteredEntry::new(&self.key, (seq, kind), value, values);
        self.filter.decide(&mut entry).unwrap_or(FilterDecision::Keep)
    }

    /// Counts a failure of the filter.
    pub(super) fn note_filter(&mut self) {
        self.stats.filter_failures += u64::from(self.filter.take_failure());
    }

    /// Ends the current key.
    #[inline]
    pub(super) fn end_key<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
    ) -> Result<()> {
        if self.held.is_none() && self.run.is_empty() {
            return Ok(());
        }
        if !hooks.below.may_hold_key(&self.key) {
            if let Some(h) = self.held.take() {
                self.drop_entry(hooks, h.seq, h.kind, &[], DropReason::Obsolete);
            } else if self.fold_run(hooks, output, None)? {
                return Ok(());
            }
        }
        self.write_held(hooks, output)
    }

    /// Writes the held tombstone, or the held operands, combined if the operator can.
    #[inline]
    fn write_held<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
    ) -> Result<()> {
        if let Some(h) = self.held.take() {
            self.write(hooks, output, h.seq, h.kind, &[])?;
        }
        if !self.run.is_empty() {
            self.write_run(hooks, output)?;
        }
        Ok(())
    }

    /// Writes the collected operands.
    fn write_run<T: OutputTable>(&mut self, hooks: &mut JobEnv<'_, T>, output: &mut Output<T>) -> Result<()> {
        let (mut run, mut seqs) = (std::mem::take(&mut self.run), std::mem::take(&mut self.run_seqs));
        let combined = match &self.operator {
            Some(operator) => combine(&**operator, &self.key, &run, &mut self.folded).unwrap_or_else(|_| {
                self.stats.fold_failures += 1;
                false
            }),
            None => false,
        };
        if combined && self.folded.len() <= VALUE_LEN_MAX {
            for (i, &seq) in seqs.iter().enumerate().skip(1) {
                self.drop_entry(hooks, seq, ValueKind::Merge, run.get(i), DropReason::Folded);
            }
            seqs.truncate(1);
            run.clear();
            run.push_older(&self.folded);
        }
        for (i, &seq) in seqs.iter().enumerate() {
            self.write(hooks, output, seq, ValueKind::Merge, run.get(i))?;
        }
        run.clear();
        seqs.clear();
        (self.run, self.run_seqs) = (run, seqs);
        Ok(())
    }

    /// Folds the collected operands with a separated value, if the job can read it.
    fn fold_onto_separated<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
        seq: SeqNo,
        reference: &[u8],
    ) -> Result<bool> {
        let Some(values) = &mut hooks.values else { return Ok(false) };
        match values.base(&self.key, seq, reference)? {
            Some(base) => self.fold_run(hooks, output, Some(&base)),
            None => Ok(false),
        }
    }

    /// Folds the collected operands with `base`, and writes the value in place of the newest
    /// operand. Returns false if the operator failed; then the operands are still held.
    fn fold_run<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
        base: Option<&[u8]>,
    ) -> Result<bool> {
        let (Some(operator), Some(&newest)) = (&self.operator, self.run_seqs.first()) else {
            return Ok(false);
        };
        let made = fold(&**operator, &self.key, base, &self.run, &mut self.folded);
        if made.is_err() || self.folded.len() > VALUE_LEN_MAX {
            self.stats.fold_failures += 1;
            return Ok(false);
        }
        let (mut run, mut seqs) = (std::mem::take(&mut self.run), std::mem::take(&mut self.run_seqs));
        for (i, &seq) in seqs.iter().enumerate().skip(1) {
            self.drop_entry(hooks, seq, ValueKind::Merge, run.get(i), DropReason::Folded);
        }
        run.clear();
        seqs.clear();
        (self.run, self.run_seqs) = (run, seqs);
        self.shadow = Some(Shadow { stripe: self.run_stripe, by_tombstone: false });
        let value = std::mem::take(&mut self.folded);
        let written = self.write(hooks, output, newest, ValueKind::Value, &value);
        self.folded = value;
        written.map(|()| true)
    }

    #[inline]
    fn drop_entry<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        seq: SeqNo,
        kind: ValueKind,
        value: &[u8],
        reason: DropReason,
    ) {
        *match reason {
            DropReason::Shadowed => &mut self.stats.shadowed,
            DropReason::Covered => &mut self.stats.covered,
            DropReason::Annihilated => &mut self.stats.annihilated,
            DropReason::Obsolete => &mut self.stats.obsolete,
            DropReason::Folded => &mut self.stats.folded,
        } += 1;
        if let Some(observer) = &mut hooks.observer {
            observer.dropped(&self.key, seq, kind, value, reason);
        }
    }

    /// Writes a version of the current key.
    #[inline]
    fn write<T: OutputTable>(
        &mut self,
        hooks: &mut JobEnv<'_, T>,
        output: &mut Output<T>,
        seq: SeqNo,
        kind: ValueKind,
        value: &[u8],
    ) -> Result<()> {
        if !self.key_written {
            output.begin_key(hooks, &self.key)?;
            self.key_written = true;
        }
        self.operand_written |= kind == ValueKind::Merge;
        let (mut kind, mut value, mut seq) = (kind, value, seq);
        if let Some(values) = &mut hooks.values
            && is_value(kind)
        {
            self.rewritten.clear();
            if let Rewrite::As(new) = values.rewrite(&self.key, seq, kind, value, &mut self.rewritten)? {
                assert!(
                    matches!(new, ValueKind::Value | ValueKind::Reference),
                    "a value hook may make values and references, not {new:?}"
                );
                (kind, value) = (new, &self.rewritten);
            }
        }
        if kind == ValueKind::PlacedReference {
            let why = "a flush or compaction has no resolver for a reference to a large value: set one in \
                       its options";
            return Err(Error::invalid(why));
        }
        if kind == ValueKind::Value
            && seq > 0
            && self.zero_sequences
            && self.snapshots.first().is_some_and(|&first| seq <= first)
            && !output.deletes(&self.key)
            && !hooks.below.may_hold_key(&self.key)
        {
            seq = 0;
            self.stats.zeroed += 1;
        }
        self.stats.output_entries += 1;
        self.stats.output_bytes += (self.key.len() + base::key::TRAILER_LEN + value.len()) as u64;
        // The internal key is built in the buffer of the user key, to save a copy.
        let len = self.key.len();
        self.key.extend_from_slice(&base::key::pack_trailer(seq, kind).to_le_bytes());
        let added = output.add(hooks, &self.key, value);
        self.key.truncate(len);
        added
    }
}

/// Returns true if the entry has a value, inline or elsewhere.
#[inline]
fn is_value(kind: ValueKind) -> bool {
    matches!(kind, ValueKind::Value | ValueKind::Reference | ValueKind::PlacedReference)
}

/// Decodes the kind of a point entry.
#[inline]
fn point_kind(trailer: u64) -> Result<ValueKind> {
    match ValueKind::from_u8(trailer as u8) {
        Some(kind) if is_value(kind) || kind.is_tombstone() || kind == ValueKind::Merge => Ok(kind),
        _ => Err(Error::corruption(format!(
            "a key table has an entry with sequence {} of kind {}, which is no value, deletion or merge \
             operand",
            trailer >> 8,
            trailer as u8
        ))),
    }
}
