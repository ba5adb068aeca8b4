//! Writes the tables, then the log, into the new store.
//!
//! For each key, rebuild takes the newest visible version, as a reader of the old store would have
//! seen it; if that is a merge operand, all operands and their base ([`super::operands`]). If its value is lost the key is left out: an older version would be a wrong answer.
//!
//! Every change in the log at or above the floor is newer than the tables. So the log is replayed
//! over them in order: LavaKV's own lane merged with the embedded batches of a secondary engine
//! ([`super::lanes`]).
//!
//! Without a manifest the floor is only a lower bound, so tables may already have a change, or a
//! newer one that never was in the log. Replay therefore looks up each change with a sequence that
//! the tables reach, and skips it if they have a newer entry. The lookup reads only the tables
//! whose range contains the key ([`Ranges`]), about one for each sorted run. In each table it costs
//! as much as a get; [`OPEN_MAX`] tables stay open for the next lookups.

use super::RepairOptions;
use super::judge::{Counted, FamilyPlan, Plan};
use super::lanes::Lanes;
use super::lost_bases::LostBases;
use super::operands::{Base, Kept, KeptOperands};
use super::ranges::Ranges;
use super::report::{LostRange, RepairReport, RepairedFamily};
use super::runs::{Heard, WalkEvent, runs_of};
use super::scan::{RepairScan, Table, demote};
use super::target::Target;
use super::values::{self, Values};
use base::hash::key_hash;
use base::sync::lock;
use base::{Error, ErrorKind, HashMap, MAX_SEQ, Result, SeqNo, ValueKind};
use cache::Cache;
use io::Env;
use lavakv::repairing::{self, Change, DEFAULT_FAMILY};
use lsm::{MergingIterator, VisibleIterator, VisibleOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use store::repair::{Judged, LogGap, Places, SecondaryRepair};
use table::salvage::{self, Missing};
use table::segment::RecordReference;
use table::{Ksst, ReadCounters, SegmentReference};
use version::names;
use version::{FamilyId, ManifestWitness};

/// Secondary engine of the store whose logs the same call repairs, if there is one.
pub(super) type GuestOf<'g> = Option<&'g mut dyn SecondaryRepair>;

/// Rebuilds the store from the chosen tables. The new store stays marked as unfinished.
pub(super) fn rebuild(
    places: &Places<'_>,
    options: &RepairOptions,
    mut found: RepairScan,
    mut plan: Plan,
    mut secondary: GuestOf<'_>,
) -> Result<(RepairReport, Target)> {
    let (env, dir) = places.from;
    let state = found.witness.state.as_ref().map(|state| &*state.store);
    let engine = secondary.as_ref().map(|secondary| secondary.engine());
    let mut lanes = Lanes::open(env, dir, state, found.witness.store, engine)?;
    if let Some(e) = lost_end(dir, &found, &lanes) {
        found.report.damage(&e);
        return anew(places, options, found, secondary);
    }
    if engine.is_some() && !found.has_records && !lanes.has_records() {
        secondary = None;
    }
    if let Some(own) = &mut secondary {
        let store = found.witness.store.or_else(|| lanes.store());
        let judged = Judged { from_manifest: found.witness.state.is_some(), store };
        if own.look(places, &judged)?.is_some() {
            return anew(places, options, found, secondary);
        }
        lanes.are_in_files_below(own.in_files_below());
    }
    lanes.displaced().for_each(|e| found.report.damage(e));
    let (of_log, gaps) = families_of_log(&lanes)?;
    let has_keys = !plan.is_empty() || !of_log.is_empty() || lanes.last_carried()? > 0;
    check_halves(dir, &found, &lanes, secondary.is_some(), has_keys)?;
    plan.entry(DEFAULT_FAMILY).or_default();
    for id in of_log {
        if !plan.contains_key(&id) && may_be_there(&found.witness, id) {
            plan.entry(id).or_default();
        }
    }
    if found.witness.state.is_none() {
        tell_what_may_come_back(&lanes, &plan, &mut found.report)?;
    }
    lose_gaps(&lanes, gaps, &plan, &found.witness, &mut found.report)?;
    let names = names_of(&plan);
    let target = match options.dry_run {
        true => Target::Nowhere,
        false => {
            let secondary = secondary.as_deref_mut().map(SecondaryRepair::secondary);
            Target::make(places, &options.options, &plan, &names, secondary)?
        }
    };
    let saved = save(env, found, &plan, &names, &lanes, &target);
    match saved.and_then(|report| secondary.map_or(Ok(()), SecondaryRepair::save).map(|()| report)) {
        Ok(report) => Ok((report, target)),
        Err(e) => {
            target.discard();
            Err(e)
        }
    }
}

/// Returns an error if the log proves that the manifest has lost its end.
fn lost_end(dir: &Path, found: &RepairScan, lanes: &Lanes) -> Option<Error> {
    let (last, seen) = (found.witness.state.as_ref()?.store.edit_number, lanes.witness_edit());
    let why = format!(
        "the manifest ends at edit {last}, but the log confirms edit {seen}: the end of the manifest is \
         missing, and the repair goes by the files themselves"
    );
    (seen > last).then(|| Error::corruption(why).at_file(dir.join("MANIFEST")))
}

/// Rejects a repair that would save only one half of this store, or add a half that the store never
/// had.
fn check_halves(
    dir: &Path,
    found: &RepairScan,
    lanes: &Lanes,
    has_secondary: bool,
    plans: bool,
) -> Result<()> {
    if !has_secondary && lanes.has_records() {
        let why = "a log page belongs to the record lane of LavaLog: repair the store together with its logs";
        return Err(Error::new(ErrorKind::Unsupported, why).at_file(dir));
    }
    let has_keys = match &found.witness.state {
        // Every LavaKV store has had a family.
        Some(state) => state.next_family > 0,
        None => plans || found.files.have_keys(),
    };
    if has_secondary && !has_keys {
        let why = "the store has logs and no keys: repair it as a store of logs (lava log repair)";
        return Err(Error::new(ErrorKind::Unsupported, why).at_file(dir));
    }
    Ok(())
}

/// Writes the tables and the log into the new store.
fn save(
    env: &Env,
    mut found: RepairScan,
    plan: &Plan,
    names: &HashMap<FamilyId, String>,
    lanes: &Lanes,
    target: &Target,
) -> Result<RepairReport> {
    let RepairScan { cache, values, report, witness, .. } = &mut found;
    let is_exact = witness.state.is_some();
    // Without a manifest a missing table may have been replaced, and then nothing is lost.
    let known: &[LostRange] = if is_exact { &report.lost } else { &[] };
    let mut lost_bases = LostBases::new(with_operands(plan), known);
    for (id, family) in plan {
        let name = names.get(id).cloned().unwrap_or_default();
        let name_is_lost = family.name.is_none() && *id != DEFAULT_FAMILY;
        report.families.push(RepairedFamily {
            id: *id,
            name,
            name_is_lost,
            may_have_been_dropped: !is_exact && *id != DEFAULT_FAMILY,
            ..RepairedFamily::default()
        });
        let lost_bases = &mut lost_bases;
        let mut merge = Merge { env, cache, family: *id, values, report, target, lost_bases };
        merge.tables(&family.tables)?;
    }
    let closed = was_closed(witness);
    let asked = asked_tables(plan, is_exact);
    let open = HashMap::default();
    let mut replay =
        Replay { env, cache, plan, is_exact, values, report, target, asked: &asked, open, lost_bases };
    replay.run(lanes, closed)?;
    report.bytes_read += values.bytes_read;
    report.files_used += values.len() as u64;
    Ok(found.report)
}

/// Returns the families that may have merge operands.
fn with_operands(plan: &Plan) -> BTreeSet<FamilyId> {
    let may_have = |family: &FamilyPlan| {
        let options = family.options.as_deref().and_then(|bytes| repairing::stored_options(bytes).ok());
        options.is_none_or(|options| options.merge_operator.is_some())
            || family.tables.iter().any(|counted| counted.table.has_operands)
    };
    plan.iter().filter(|(_, family)| may_have(family)).map(|(id, _)| *id).collect()
}

/// Returns true if the manifest records where LavaKV's own lane ends: then changes missing before
/// that end are no torn end.
fn was_closed(witness: &ManifestWitness) -> bool {
    witness.state.as_ref().is_some_and(repairing::was_closed)
}

/// Tables of a family that may have changes of the log.
struct TablesAsked<'a> {
    /// Largest sequence in any of the tables.
    reached: SeqNo,
    by_key: Ranges<'a, &'a Table>,
}

/// Returns the tables to look up for each family, if the log floors are only lower bounds.
fn asked_tables(plan: &Plan, is_exact: bool) -> HashMap<FamilyId, TablesAsked<'_>> {
    let mut asked = HashMap::default();
    for (id, family) in plan.iter().filter(|_| !is_exact) {
        let tables = || family.tables.iter().map(|counted| &counted.table);
        if let Some(reached) = tables().map(|table| table.max_seq).max() {
            let ranges = tables().map(|table| (&table.smallest[..], &table.largest[..], table));
            let by_key = Ranges::new(ranges);
            asked.insert(*id, TablesAsked { reached, by_key });
        }
    }
    asked
}

/// Starts over, without the manifest state.
fn anew(
    places: &Places<'_>,
    options: &RepairOptions,
    found: RepairScan,
    secondary: GuestOf<'_>,
) -> Result<(RepairReport, Target)> {
    let (env, dir) = places.from;
    let RepairScan { mut witness, mut report, has_records, .. } = found;
    demote(&mut witness);
    report.from_manifest = false;
    let mut found = super::scan::scan_with(env, dir, witness, report)?;
    found.has_records = has_records;
    let plan = super::judge::judge(&mut found);
    rebuild(places, options, found, plan, secondary)
}

/// Returns true if a family that only the log knows may belong to the store.
fn may_be_there(witness: &ManifestWitness, id: FamilyId) -> bool {
    match &witness.state {
        // A family with a known id that the state does not have was dropped.
        Some(state) => id >= state.next_family,
        None => witness.families.get(&id).is_none_or(|family| !family.is_dropped),
    }
}

/// Returns the names of the families in the new store, without duplicates.
fn names_of(plan: &Plan) -> HashMap<FamilyId, String> {
    let mut names: HashMap<FamilyId, String> = HashMap::default();
    names.insert(DEFAULT_FAMILY, "default".into());
    for (id, family) in plan.iter().filter(|(id, _)| **id != DEFAULT_FAMILY) {
        let mut name = family.name.clone().unwrap_or_else(|| format!("recovered-{id}"));
        while names.values().any(|other| *other == name) {
            name = format!("{name}-{id}");
        }
        names.insert(*id, name);
    }
    names
}

/// Returns the families that the log names, and the gaps of LavaKV's lane.
fn families_of_log(lanes: &Lanes) -> Result<(Vec<FamilyId>, Vec<LogGap>)> {
    let mut all = Vec::new();
    let gaps = lanes.each(&mut |_, _, payload| {
        for change in repairing::decode(payload)?.2 {
            let family = change?.family;
            if !all.contains(&family) {
                all.push(family);
            }
        }
        Ok(())
    })?;
    Ok((all, gaps))
}

/// Reports families without tables whose embedded changes may be stale. Such a change may have been
/// flushed, and then deleted by a change in a log group of LavaKV's own lane that is gone. No
/// evidence of that deletion would be left.
fn tell_what_may_come_back(lanes: &Lanes, plan: &Plan, report: &mut RepairReport) -> Result<()> {
    let silent = plan.iter().filter(|(_, family)| family.tables.is_empty());
    let mut silent: BTreeSet<FamilyId> = silent.map(|(id, _)| *id).collect();
    let Some(begins) = lanes.begins_late()?.filter(|_| !silent.is_empty()) else { return Ok(()) };
    lanes.each(&mut |place, first_seq, payload| {
        for change in repairing::decode(payload)?.2 {
            let family = change?.family;
            if first_seq < begins && silent.remove(&family) {
                let why = "the repair brings back keys of an embedded batch, which may have been deleted \
                           since";
                let at = Error::corruption(why).at_file(&place.path).at_offset(place.offset);
                report.lose(LostRange {
                    family: Some(family),
                    may_come_back: true,
                    only_come_back: true,
                    ..LostRange::at(&at)
                });
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Reports the losses of the log.
fn lose_gaps(
    lanes: &Lanes,
    gaps: Vec<LogGap>,
    plan: &Plan,
    witness: &ManifestWitness,
    report: &mut RepairReport,
) -> Result<()> {
    let floor = plan.values().map(|family| family.log_floor).min().unwrap_or(0);
    // Groups of either lane were deleted once the families with changes in them were flushed.
    let in_tables = |family: &FamilyPlan| {
        let tables = family.tables.iter().map(|counted| counted.table.max_seq.saturating_add(1));
        tables.chain([family.log_floor]).max()
    };
    let last_seq = witness.state.as_ref().map_or(0, |state| state.store.last_seq);
    let end = plan.values().filter_map(in_tables).chain([last_seq + 1]).max();
    // Without a manifest a family may exist only in the lost changes.
    let own_floor = if witness.state.is_some() { floor } else { 0 };
    // Harmless damage is reported as damage too.
    gaps.iter().for_each(|gap| report.damage(&gap.error));
    let end = end.filter(|_| !was_closed(witness));
    let (gaps, missing_end) = lanes.gaps(gaps, (own_floor, floor), end)?;
    let range = |gap: &LogGap| LostRange {
        sequences: Some((gap.after_seq + 1, gap.before_seq.map_or(MAX_SEQ, |before| before - 1))),
        may_come_back: true,
        ..LostRange::at(&gap.error)
    };
    for gap in gaps {
        report.damage(&gap.error);
        report.lose(range(&gap));
    }
    // After a kill, a store lacks its volatile changes without any damage.
    if let Some(gap) = missing_end {
        report.lose(LostRange { unknown: Some(gap.error.message().to_owned()), ..range(&gap) });
    }
    Ok(())
}

/// The merge of the tables of a family.
struct Merge<'a> {
    env: &'a Env,
    cache: &'a Arc<Cache>,
    family: FamilyId,
    values: &'a mut Values,
    report: &'a mut RepairReport,
    target: &'a Target,
    lost_bases: &'a mut LostBases,
}

impl Merge<'_> {
    fn tables(&mut self, tables: &[Counted]) -> Result<()> {
        for Counted { table, .. } in tables {
            for missing in &table.missing {
                self.report.damage(missing.error());
                if !matches!(missing, Missing::Properties(_)) {
                    let only_come_back = matches!(missing, Missing::RangeTombstones(_));
                    self.lose(&table.smallest, &table.largest, only_come_back, missing.error());
                }
            }
        }
        let met = Heard::default();
        let (runs, tombstones) = runs_of(self.env, self.cache, tables, &met);
        let inner = MergingIterator::new(runs);
        let kept = Arc::new(KeptOperands::default());
        let options = VisibleOptions {
            operator: Some(kept.clone()),
            resolver: Some(kept.clone()),
            ..VisibleOptions::at(MAX_SEQ)
        };
        let mut entries = VisibleIterator::new(inner, tombstones, options);
        entries.seek_to_first()?;
        // Consecutive keys with lost values in one file form one range.
        let mut lost: Option<LostRange> = None;
        while entries.valid() {
            self.note(&met);
            let (key, seq) = (entries.key(), entries.seq());
            let saved = match entries.value_kind() {
                ValueKind::Value => match kept.take() {
                    Some(kept) => self.operands(key, entries.value(), &kept)?,
                    None => {
                        self.target.put(self.family, key, entries.value())?;
                        Ok(entries.value().len() as u64)
                    }
                },
                _ => self.separated(key, seq, entries.value())?,
            };
            match saved {
                Ok(len) => {
                    self.report.lost.extend(lost.take());
                    if let Some(family) = self.report.families.last_mut() {
                        family.records += 1;
                        family.bytes += key.len() as u64 + len;
                    }
                }
                Err(e) => {
                    self.report.damage(&e);
                    self.lost_bases.lose(self.family, key);
                    let one = self.lost_key(key, &e);
                    match &mut lost {
                        Some(range) if range.file == one.file => {
                            range.to = one.to;
                            range.keys = range.keys.map(|keys| keys + 1);
                        }
                        range => {
                            if let Some(before) = range.replace(one) {
                                self.report.lose(before);
                            }
                        }
                    }
                }
            }
            entries.next()?;
        }
        self.report.lost.extend(lost);
        self.note(&met);
        Ok(())
    }

    /// Saves a separated value. Returns its length, or the reason for its loss.
    fn separated(&mut self, key: &[u8], seq: SeqNo, reference: &[u8]) -> Result<Result<u64>> {
        match self.values.get(key, seq, reference) {
            Ok(values::SalvagedValue::Bytes(value)) => {
                self.target.put(self.family, key, &value)?;
                Ok(Ok(value.len() as u64))
            }
            Ok(values::SalvagedValue::Segment(segment)) => {
                let done = self.target.put_segment(self.family, key, &segment)?;
                Ok(done.map(|()| segment.raw_len()))
            }
            Err(e) => Ok(Err(e)),
        }
    }

    /// Saves merge operands and their base. Returns the bytes of the values, or the reason for their
    /// loss.
    fn operands(&mut self, key: &[u8], inline: &[u8], kept: &Kept) -> Result<Result<u64>> {
        if self.lost_bases.concerns(self.family, key) {
            return Ok(Ok(0));
        }
        let mut bytes = match &kept.base {
            Base::Absent => 0,
            Base::Inline => {
                self.target.put(self.family, key, inline)?;
                inline.len() as u64
            }
            Base::Separated(seq, reference) => match self.separated(key, *seq, reference)? {
                Ok(bytes) => bytes,
                Err(e) => return Ok(Err(e)),
            },
        };
        for operand in &kept.operands {
            if let Err(e) = self.target.merge(self.family, key, operand)? {
                // Base and older operands alone would be a wrong value.
                self.target.delete(self.family, key)?;
                return Ok(Err(e));
            }
            bytes += operand.len() as u64;
        }
        Ok(Ok(bytes))
    }

    fn lost_key(&self, key: &[u8], e: &Error) -> LostRange {
        LostRange {
            family: Some(self.family),
            from: Some(key.to_vec()),
            to: Some(key.to_vec()),
            keys: Some(1),
            ..LostRange::at(e)
        }
    }

    fn lose(&mut self, from: &[u8], to: &[u8], only_come_back: bool, e: &Error) {
        if !only_come_back {
            self.lost_bases.lose_range(self.family, from, Some(to));
        }
        self.report.lose(LostRange {
            family: Some(self.family),
            from: Some(from.to_vec()),
            to: Some(to.to_vec()),
            may_come_back: true,
            only_come_back,
            ..LostRange::at(e)
        });
    }

    /// Moves the events of the table walks into the report.
    fn note(&mut self, met: &Heard) {
        let all = std::mem::take(&mut *lock(met));
        for met in all {
            match met {
                WalkEvent::Table(len) => self.report.bytes_read += len,
                WalkEvent::Lost(lost) => {
                    self.report.damage(&lost.error);
                    self.lose(&lost.from, &lost.to, false, &lost.error);
                }
            }
        }
    }
}

/// The replay of the log.
struct Replay<'a> {
    env: &'a Env,
    cache: &'a Arc<Cache>,
    plan: &'a Plan,
    /// The log floors are from a manifest.
    is_exact: bool,
    values: &'a mut Values,
    report: &'a mut RepairReport,
    target: &'a Target,
    /// See [`asked_tables`].
    asked: &'a HashMap<FamilyId, TablesAsked<'a>>,
    open: HashMap<u64, Arc<Ksst>>,
    lost_bases: LostBases,
}

/// Maximum number of tables kept open for lookups of log changes.
const OPEN_MAX: usize = 256;

impl Replay<'_> {
    fn run(&mut self, lanes: &Lanes, closed: bool) -> Result<()> {
        lanes.each(&mut |place, first_seq, payload| {
            self.report.bytes_read += payload.len() as u64;
            self.batch(first_seq, payload, closed, place)
        })?;
        Ok(())
    }

    /// Replays a batch. `closed` means that the log was closed, so every value placed beside it is
    /// complete in its file.
    fn batch(
        &mut self,
        first_seq: SeqNo,
        payload: &[u8],
        closed: bool,
        place: &wal::LogFilePosition,
    ) -> Result<()> {
        let (_, _, entries) = repairing::decode(payload)?;
        let mut placed = Vec::new();
        for (seq, change) in (first_seq..).zip(entries.clone()) {
            let change = change?;
            if !change.is_placed() || !self.counts(change.family, seq) {
                continue;
            }
            let reference = RecordReference::decode(change.value)?;
            let record = self.values.placed(change.key, seq, &reference);
            // Without a manifest it is unknown whether the file was deleted because tables had all
            // of it.
            if record.is_none() && !closed && self.is_exact {
                return Err(repairing::not_closed().at_file(&place.path));
            }
            placed.push(record.ok_or(reference));
        }
        let mut placed = placed.into_iter();
        for (seq, change) in (first_seq..).zip(entries) {
            let change = change?;
            if !self.counts(change.family, seq) {
                continue;
            }
            let record = if change.is_placed() { placed.next() } else { None };
            if self.is_in_tables(change.family, change.key, seq, change.kind)? {
                continue;
            }
            if self.is_without_base(&change) {
                continue;
            }
            self.change(seq, &change, record, place)?;
            let family = self.report.families.iter_mut().find(|family| family.id == change.family);
            family.into_iter().for_each(|family| family.log_changes += 1);
        }
        Ok(())
    }

    /// Returns true for an operand whose base is lost, which the report tells. Other changes of the
    /// key make it whole.
    fn is_without_base(&mut self, change: &Change<'_>) -> bool {
        let (family, key) = (change.family, change.key);
        match change.kind {
            ValueKind::Merge => return self.lost_bases.concerns(family, key),
            ValueKind::RangeDeletion => self.lost_bases.is_deleted(family, key, change.value),
            _ => self.lost_bases.is_whole(family, key),
        }
        false
    }

    /// Returns true if the family exists and the change is at or above its log floor.
    fn counts(&self, family: FamilyId, seq: SeqNo) -> bool {
        self.plan.get(&family).is_some_and(|plan| seq >= plan.log_floor)
    }

    fn change(
        &mut self,
        seq: SeqNo,
        change: &Change<'_>,
        record: Option<std::result::Result<table::vsst::record::LooseRecord, RecordReference>>,
        place: &wal::LogFilePosition,
    ) -> Result<()> {
        let family = change.family;
        let lost = match (change.kind, record) {
            (_, Some(Ok(record))) => return self.target.put(family, change.key, &record.value),
            (_, Some(Err(reference))) => {
                let why = "a durable value that the log refers to is missing, so this change of its key is \
                           lost";
                let path = place.path.with_file_name(names::vsst(reference.file));
                Error::corruption(why).at_file(path).at_offset(reference.offset)
            }
            (ValueKind::Value, _) => return self.target.put(family, change.key, change.value),
            (ValueKind::PlacedReference, _) => {
                let segment = SegmentReference::decode(change.value)
                    .and_then(|reference| self.values.segment(change.key, &reference));
                let put = segment.map(|segment| self.target.put_segment(family, change.key, &segment));
                match put {
                    Ok(done) => match done? {
                        Ok(()) => return Ok(()),
                        Err(e) => e,
                    },
                    Err(e) => e,
                }
            }
            (ValueKind::Merge, _) => match self.target.merge(family, change.key, change.value)? {
                Ok(()) => return Ok(()),
                Err(e) => e.at_file(&place.path).at_offset(place.offset),
            },
            (ValueKind::RangeDeletion, _) => return self.delete_range(seq, change),
            (kind, _) if kind.is_tombstone() => return self.target.delete(family, change.key),
            (kind, _) => unreachable!("a batch has no change of kind {kind}"),
        };
        if self.is_reached(family, seq) {
            // The change was in tables, and was deleted there together with its value.
            return Ok(());
        }
        self.lost_bases.lose(family, change.key);
        // The tables have an older version of the key. Without a manifest the lost value may never
        // have been durable, and then the older version is the one that was promised.
        if self.is_exact {
            self.target.delete(family, change.key)?;
        }
        self.report.damage(&lost);
        self.report.lose(LostRange {
            family: Some(family),
            from: Some(change.key.to_vec()),
            to: Some(change.key.to_vec()),
            keys: Some(1),
            may_come_back: !self.is_exact,
            ..LostRange::at(&lost)
        });
        Ok(())
    }

    fn delete_range(&mut self, seq: SeqNo, change: &Change<'_>) -> Result<()> {
        let family = change.family;
        if !self.is_reached(family, seq) {
            return self.target.delete_range(family, change, None);
        }
        let target = self.target;
        let mut is_older = |key: &[u8]| Ok(!self.is_in_tables(family, key, seq, ValueKind::Value)?);
        target.delete_range(family, change, Some(&mut is_older))
    }

    /// Returns true if tables may have a change, or may have had it.
    fn is_reached(&self, family: FamilyId, seq: SeqNo) -> bool {
        self.asked.get(&family).is_some_and(|asked| seq <= asked.reached)
    }

    /// Returns true if the tables have an entry of the key at `seq` or newer, or a newer range
    /// tombstone over it.
    fn is_in_tables(&mut self, family: FamilyId, key: &[u8], seq: SeqNo, kind: ValueKind) -> Result<bool> {
        if !self.is_reached(family, seq) || kind == ValueKind::RangeDeletion {
            return Ok(false);
        }
        let Some(asked) = self.asked.get(&family) else { return Ok(false) };
        Ok(asked.by_key.any(key, |table| self.has_newer(table, key, seq)))
    }

    /// Returns true if a table has an entry of the key at `seq` or newer, or a newer range
    /// tombstone over it.
    fn has_newer(&mut self, table: &Table, key: &[u8], seq: SeqNo) -> bool {
        if table.max_seq < seq {
            return false;
        }
        if table.tombstones.covering(key, MAX_SEQ).is_some_and(|newest| newest > seq) {
            return true;
        }
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        if !self.open.contains_key(&table.number) {
            let opened = table
                .place
                .open(self.env)
                .and_then(|file| salvage::open(file, table.number, table.uid, self.cache.clone()));
            let Ok((opened, _)) = opened else { return false };
            self.open.insert(table.number, opened);
        }
        let Some(open) = self.open.get(&table.number) else { return false };
        // If the table is unreadable, the log has the newest surviving version.
        let newest = open.get(key, MAX_SEQ, key_hash(key), &mut ReadCounters::default());
        newest.is_ok_and(|found| found.is_some_and(|entry| entry.seq >= seq))
    }
}
