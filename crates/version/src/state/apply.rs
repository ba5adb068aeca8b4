//! Applies an edit to a copy of the state. The parent module lists the edits that are rejected.

use super::{FamilyState, FileOwner, KvState, Slot};
use crate::changes::ReferenceChanges;
use crate::edit::{Edit, Record};
use crate::meta::{BlobId, FamilyId, FileMeta, VsstMeta};
use crate::uses::{ReferenceChange, ReferenceTotals, SumChange};
use crate::version::{AliasTarget, Level, Version, sort_level};
use base::limits::{FAMILIES_MAX, FAMILY_NAME_LEN_MAX, LEVELS_MAX};
use base::{Result, key};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::IdMap;
use store::manifest::{StateBuilder, refuse};

pub(super) fn apply(state: &KvState, edit: &Edit, ground: &mut StateBuilder<'_>) -> Result<KvState> {
    let mut draft = Draft { state: state.clone(), ground, families: BTreeMap::new() };
    for record in &edit.0 {
        if let Record::RemoveFile { family, level, number } = record {
            draft.remove_file(*family, *level, *number)?;
        }
    }
    for record in &edit.0 {
        draft.record(record)?;
    }
    draft.finish()
}

/// A state under construction.
struct Draft<'a, 'g> {
    state: KvState,
    ground: &'a mut StateBuilder<'g>,
    /// Families that the edit touches.
    families: BTreeMap<FamilyId, FamilyDraft>,
}

/// A family under construction: levels are rebuilt once at the end, everything else is changed in
/// place.
struct FamilyDraft {
    family: FamilyState,
    version: Version,
    /// Removed tables, with their level.
    removed: BTreeMap<u64, (usize, Arc<FileMeta>)>,
    added: Vec<(usize, Arc<FileMeta>)>,
    /// Changes of the sums under blob ids in the edit, if any.
    told: Option<Vec<ReferenceChanges>>,
    /// Blob ids with changed, nonzero sums whose targets are not known to exist.
    names_changed: Vec<BlobId>,
    /// Blob ids that must resolve to a vSST at the end if a table depends on them.
    names_touched: BTreeSet<BlobId>,
    /// Aliases whose targets must exist at the end.
    aliases_touched: BTreeSet<BlobId>,
}

impl Draft<'_, '_> {
    fn family(&mut self, id: FamilyId) -> Result<&mut FamilyDraft> {
        use std::collections::btree_map::Entry;
        match self.families.entry(id) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => match self.state.families.get(&id) {
                Some(family) => Ok(entry.insert(FamilyDraft::new(FamilyState::clone(family)))),
                None => refuse(format!("column family {id} does not exist")),
            },
        }
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        match record {
            Record::RemoveFile { .. } => Ok(()), // Done before all others.
            Record::AddFile { family, level, meta } => self.add_file(*family, *level, meta),
            Record::LogFloor { family, seq } => {
                let version = &mut self.family(*family)?.version;
                if *seq < version.log_floor || *seq > base::MAX_SEQ {
                    return refuse(format!(
                        "log floor (first sequence in the log) {seq} of column family {family} is below \
                         {}, or over 56 bits",
                        version.log_floor
                    ));
                }
                version.log_floor = *seq;
                Ok(())
            }
            Record::CreateFamily { id, name, options } => self.create_family(*id, name, options),
            Record::UpdateFamily { id, options } => {
                self.family(*id)?.family.options.clone_from(options);
                Ok(())
            }
            Record::DropFamily { id } => self.drop_family(*id),
            Record::AddVsst { family, meta } => self.add_vsst(*family, meta),
            Record::RemoveVsst { family, number } => self.remove_vsst(*family, *number).map(|_| ()),
            Record::ReplaceVsst { family, inputs, outputs } => self.replace_vsst(*family, inputs, outputs),
            Record::SetAlias { family, blob_id, targets } => {
                let draft = self.family(*family)?;
                draft.version.aliases.insert(*blob_id, Arc::new(targets.clone()));
                draft.touch_alias(*blob_id);
                Ok(())
            }
            Record::DropAlias { family, blob_id } => {
                let draft = self.family(*family)?;
                draft.touch_alias(*blob_id);
                match draft.version.aliases.remove(blob_id) {
                    Some(_) => Ok(()),
                    None => refuse(format!(
                        "column family {family} has no successors for the replaced value file (vSST) \
                         {blob_id}"
                    )),
                }
            }
            Record::References { family, changes } => {
                self.family(*family)?.told.get_or_insert_default().push(changes.clone());
                Ok(())
            }
            Record::NextFamily(n) => {
                self.state.next_family = self.state.next_family.max(*n);
                Ok(())
            }
            Record::ShareFile { number } => self.share_file(*number),
            Record::Store(record) => refuse(format!("only the store may make the record \"{record}\"")),
        }
    }

    fn occupy(&mut self, number: u64, place: FileOwner, table: Option<Arc<FileMeta>>) -> Result<()> {
        if let Some(old) = self.state.index.insert(number, Slot { place, table }) {
            return refuse(format!("file {number} exists already ({})", old.place));
        }
        self.ground.take_number(number)
    }

    fn add_file(&mut self, family: FamilyId, level: u32, meta: &FileMeta) -> Result<()> {
        meta.validate()?;
        if level as usize >= LEVELS_MAX {
            let last = LEVELS_MAX - 1;
            return refuse(format!(
                "key table (kSST) {} is added at level {level}, but the last level is {last}",
                meta.number
            ));
        }
        let table = Arc::new(meta.clone());
        self.family(family)?.add_file(level as usize, table.clone())?;
        self.occupy(meta.number, FileOwner::Table { family, level }, Some(table))?;
        self.ground.raise_seq(meta.max_seq.max(meta.seq_range().1))
    }

    fn remove_file(&mut self, family: FamilyId, level: u32, number: u64) -> Result<()> {
        let slot = self.state.index.remove(&number);
        let (place, table) = slot.map_or((None, None), |slot| (Some(slot.place), slot.table));
        match table {
            Some(table) if place == Some(FileOwner::Table { family, level }) => {
                self.family(family)?.remove_file(level as usize, table);
                Ok(())
            }
            _ => {
                let place = place.map_or_else(|| "not listed".to_owned(), |place| place.to_string());
                refuse(format!(
                    "key table (kSST) {number} is not at level {level} of column family {family}, but {place}"
                ))
            }
        }
    }

    fn create_family(&mut self, id: FamilyId, name: &str, options: &[u8]) -> Result<()> {
        if id < self.state.next_family || id == FamilyId::MAX {
            let next = self.state.next_family;
            return refuse(format!(
                "column family id {id} was used before, or is over the limit: the next is {next}"
            ));
        }
        if name.len() > FAMILY_NAME_LEN_MAX || self.state.families.len() >= FAMILIES_MAX {
            return refuse(format!(
                "the name of a column family has {} bytes (at most {FAMILY_NAME_LEN_MAX}), or there are \
                 {FAMILIES_MAX} families",
                name.len()
            ));
        }
        let is_named = |id: &FamilyId| match self.families.get(id) {
            Some(draft) => draft.family.name == name,
            None => self.state.families.get(id).is_some_and(|family| family.name == name),
        };
        if self.state.directory.candidates(name).iter().any(is_named) {
            return refuse(format!("a column family named \"{}\" exists", name.escape_debug()));
        }
        self.state.next_family = id + 1;
        self.state.directory.name(id, name);
        let version = Arc::new(Version::new(id));
        let family = FamilyState { id, name: name.to_owned(), options: options.to_vec(), version };
        self.families.insert(id, FamilyDraft::new(family));
        Ok(())
    }

    fn drop_family(&mut self, id: FamilyId) -> Result<()> {
        let draft = self.family(id)?;
        let gone: Vec<u64> = draft.version.file_numbers().collect();
        let gone: Vec<u64> = gone.into_iter().filter(|n| !draft.removed.contains_key(n)).collect();
        let added: Vec<u64> = draft.added.iter().map(|(_, f)| f.number).collect();
        gone.iter().chain(&added).for_each(|n| {
            self.state.index.remove(n);
        });
        let draft = self.families.remove(&id);
        let before = self.state.families.remove(&id);
        if let Some(draft) = draft {
            self.state.directory.drop_family(before.as_deref(), &draft.family.name, id);
        }
        Ok(())
    }

    fn add_vsst(&mut self, family: FamilyId, meta: &VsstMeta) -> Result<()> {
        meta.validate()?;
        let draft = self.family(family)?;
        if draft.version.aliases.contains_key(&meta.number) {
            return refuse(format!(
                "value file (vSST) {} has the number of a replaced value file",
                meta.number
            ));
        }
        draft.version.vssts.insert(meta.number, Arc::new(meta.clone()));
        self.occupy(meta.number, FileOwner::Vsst { family }, None)?;
        self.ground.raise_seq(meta.global_seq.unwrap_or(meta.max_seq).max(meta.max_seq))
    }

    fn remove_vsst(&mut self, family: FamilyId, number: u64) -> Result<Arc<VsstMeta>> {
        let draft = self.family(family)?;
        let Some(meta) = draft.version.vssts.remove(&number) else {
            return refuse(format!("there is no value file (vSST) {number} in family {family}"));
        };
        draft.touch_alias(number);
        meta.blob_ids.iter().for_each(|&id| draft.touch_alias(id));
        self.state.index.remove(&number);
        Ok(meta)
    }

    fn replace_vsst(&mut self, family: FamilyId, inputs: &[u64], outputs: &[VsstMeta]) -> Result<()> {
        let in_order = |a: &VsstMeta, b: &VsstMeta| key::compare(&a.largest, &b.smallest).is_lt();
        if !outputs.is_sorted_by(in_order) {
            return refuse("the new value files (vSSTs) of a replacement are not in key order");
        }
        let version = &self.family(family)?.version;
        let names: BTreeSet<BlobId> = inputs.iter().flat_map(|&n| version.names_of(n)).collect();
        let mut moved = Vec::new();
        for &name in &names {
            let own = [AliasTarget { first_key: Vec::new(), file: name }];
            let targets = version.aliases.get(&name).map_or(&own[..], |targets| targets.as_slice());
            moved.push((name, redirect(targets, inputs, outputs)));
        }
        for &number in inputs {
            self.remove_vsst(family, number)?;
        }
        for meta in outputs {
            self.add_vsst(family, meta)?;
        }
        let draft = self.family(family)?;
        for (name, targets) in moved {
            if targets.is_empty() {
                draft.version.aliases.remove(&name);
            } else {
                draft.version.aliases.insert(name, Arc::new(targets));
            }
            draft.touch_alias(name);
        }
        Ok(())
    }

    fn share_file(&mut self, number: u64) -> Result<()> {
        match self.state.place_of(number) {
            Some(FileOwner::Table { family, level }) => {
                let meta = self.state.index.get(&number).and_then(|slot| slot.table.clone());
                // A table that this edit adds or moves is described by the edit: the flag belongs
                // into that description.
                let added = self.family(family)?.added.iter().any(|(_, f)| f.number == number);
                let Some(meta) = meta.filter(|_| !added) else {
                    return refuse(format!(
                        "key table (kSST) {number} is shared by an edit that also adds it"
                    ));
                };
                self.remove_file(family, level, number)?;
                self.add_file(family, level, &FileMeta { shared: true, ..FileMeta::clone(&meta) })
            }
            Some(FileOwner::Vsst { family }) => {
                let vssts = &mut self.family(family)?.version.vssts;
                if let Some(meta) = vssts.get(&number).cloned() {
                    vssts.insert(number, Arc::new(VsstMeta { shared: true, ..VsstMeta::clone(&meta) }));
                }
                Ok(())
            }
            None => refuse(format!("file {number} cannot be shared: it is not listed")),
        }
    }

    fn finish(mut self) -> Result<KvState> {
        for (id, draft) in self.families {
            let family = draft.finish()?;
            let before = self.state.families.get(&id);
            self.state.directory.change(before.map(|before| &**before), &family);
            self.state.families.insert(id, Arc::new(family));
        }
        Ok(self.state)
    }
}

fn nets_of(changes: &[ReferenceChange]) -> Vec<(BlobId, SumChange)> {
    changes.iter().map(|change| (change.blob_id, SumChange::from(change))).collect()
}

/// Returns `targets` with every file of `inputs` replaced by the `outputs` with its keys.
fn redirect(targets: &[AliasTarget], inputs: &[u64], outputs: &[VsstMeta]) -> Vec<AliasTarget> {
    let mut new: Vec<AliasTarget> = Vec::new();
    let mut push = |first_key: &[u8], file: u64| {
        if new.last().is_none_or(|last| last.file != file) {
            let first_key = if new.is_empty() { Vec::new() } else { first_key.to_vec() };
            new.push(AliasTarget { first_key, file });
        }
    };
    for (i, target) in targets.iter().enumerate() {
        if !inputs.contains(&target.file) {
            push(&target.first_key, target.file);
            continue;
        }
        let end = targets.get(i + 1).map(|next| next.first_key.as_slice());
        for (j, output) in outputs.iter().enumerate() {
            // Output j serves the keys from its smallest key to before the smallest of the next
            // one; the first output also serves everything below.
            let serves_to = outputs.get(j + 1).map(|o| o.smallest.as_slice());
            let over = serves_to.is_some_and(|to| key::compare(to, &target.first_key).is_le());
            let from = if j == 0 { &[][..] } else { output.smallest.as_slice() };
            let beyond = end.is_some_and(|end| key::compare(from, end).is_ge());
            if !over && !beyond {
                let from =
                    if key::compare(from, &target.first_key).is_gt() { from } else { &target.first_key };
                push(from, output.number);
            }
        }
    }
    new
}

impl FamilyDraft {
    fn new(family: FamilyState) -> Self {
        FamilyDraft {
            version: Version::clone(&family.version),
            family,
            removed: BTreeMap::new(),
            added: Vec::new(),
            told: None,
            names_changed: Vec::new(),
            names_touched: BTreeSet::new(),
            aliases_touched: BTreeSet::new(),
        }
    }

    fn touch_alias(&mut self, id: BlobId) {
        self.aliases_touched.insert(id);
        self.names_touched.insert(id);
    }

    fn add_file(&mut self, level: usize, file: Arc<FileMeta>) -> Result<()> {
        let number = file.number;
        if self.removed.get(&number).is_some_and(|(_, old)| old.uid != file.uid) {
            return refuse(format!(
                "key table (kSST) {number} is removed and added again with another file id"
            ));
        }
        self.added.push((level, file));
        Ok(())
    }

    fn remove_file(&mut self, level: usize, file: Arc<FileMeta>) {
        self.removed.insert(file.number, (level, file));
    }

    /// Changes the sums under each blob id by the added and removed tables: by the edit's own
    /// changes, and by the dependency lists of its tables, if it has such.
    fn change_references(&mut self) -> Result<()> {
        let told = self.told.take();
        let has_list = self.added.iter().any(|(_, f)| f.uses.has_list());
        if let Some([told]) = told.as_deref()
            && let Some((sums, names)) = told.on_footing(&self.version).filter(|_| !has_list)
        {
            if cfg!(debug_assertions) && sums.len() < 256 {
                let made = self.changed_by(&nets_of(told))?.0;
                assert_eq!(sums, made, "what was prepared is what is made anew");
            }
            (self.version.references, self.names_changed) = (sums, names);
            return self.check_sums(told.net());
        }
        let of = |f: &Arc<FileMeta>, sign| -> Vec<(BlobId, SumChange)> {
            f.uses.list().into_iter().flatten().map(|d| (d.blob_id, SumChange::of(d, sign))).collect()
        };
        let mut lists: Vec<Vec<(BlobId, SumChange)>> = self.added.iter().map(|(_, f)| of(f, 1)).collect();
        match told {
            Some(told) => lists.extend(told.iter().map(|told| nets_of(told))),
            None => lists.extend(self.removed.values().map(|(_, f)| of(f, -1))),
        }
        let nets = SumChange::by_name(lists.concat());
        (self.version.references, self.names_changed) = self.changed_by(&nets)?;
        let sum = nets.iter().fold(SumChange::default(), |sum, (_, net)| sum.plus(net));
        self.check_sums(&sum)
    }

    /// Returns the sums with these changes, and the changed blob ids that have references then.
    fn changed_by(
        &self,
        nets: &[(BlobId, SumChange)],
    ) -> Result<(IdMap<BlobId, ReferenceTotals>, Vec<BlobId>)> {
        let (mut references, mut names) = (self.version.references.clone(), Vec::new());
        references.change_all(nets, |name, net, before| {
            let Some(totals) = net.applied(&before.copied().unwrap_or_default()) else {
                let uses = |f: &Arc<FileMeta>| f.uses.may_have(name);
                let table = self.added.iter().find(|(_, f)| uses(f));
                let with =
                    table.map_or_else(String::new, |(_, f)| format!(" with key table (kSST) {}", f.number));
                return refuse(format!(
                    "the references to value file (vSST) {name} change by {net}{with}, and overflow or \
                     undercut its sums"
                ));
            };
            let is_used = totals != ReferenceTotals::default();
            names.extend(is_used.then_some(name));
            Ok(is_used.then_some(totals))
        })?;
        Ok((references, names))
    }

    /// Checks that the sums under blob ids change by the same amounts as those of the tables.
    fn check_sums(&self, of_names: &SumChange) -> Result<()> {
        let added = self.added.iter().map(|(_, f)| SumChange::of_table(f.uses.sums(), 1));
        let removed = self.removed.values().map(|(_, f)| SumChange::of_table(f.uses.sums(), -1));
        let of_tables = added.chain(removed).fold(SumChange::default(), |sum, net| sum.plus(&net));
        if of_tables == *of_names {
            return Ok(());
        }
        refuse(format!(
            "the sums of references to value files change by other amounts than those of the tables: by \
             {of_names}, not {of_tables}"
        ))
    }

    fn finish(mut self) -> Result<FamilyState> {
        self.change_references()?;
        for level in 0..LEVELS_MAX {
            self.rebuild_level(level)?;
        }
        for &id in self.names_changed.iter().chain(&self.names_touched) {
            if self.version.references.contains_key(&id) && !self.version.resolves(id) {
                return refuse(format!(
                    "a key table (kSST) depends on value file (vSST) {id}, which has gone without a successor"
                ));
            }
        }
        for id in self.aliases_touched {
            check_alias(&self.version, id)?;
        }
        self.family.version = Arc::new(self.version);
        Ok(self.family)
    }

    fn rebuild_level(&mut self, level: usize) -> Result<()> {
        let here = |l: usize, f: &Arc<FileMeta>| (l == level).then(|| f.clone());
        let removed: Vec<_> = self.removed.values().filter_map(|(l, f)| here(*l, f)).collect();
        let mut added: Vec<_> = self.added.iter().filter_map(|(l, f)| here(*l, f)).collect();
        if removed.is_empty() && added.is_empty() {
            return Ok(());
        }
        sort_level(level, &mut added);
        let old = &self.version.levels[level];
        let files = if level == 0 {
            let stays = |f: &&Arc<FileMeta>| !self.removed.contains_key(&f.number);
            let mut files: Vec<_> = old.iter().filter(stays).chain(&added).cloned().collect();
            sort_level(level, &mut files);
            Level::from(files)
        } else {
            old.edited(&removed, &added)
        };
        for file in &added {
            check_neighbours(level, &files, file)?;
        }
        self.version.levels[level] = files;
        Ok(())
    }
}

/// Checks that `file` fits among the others of its level.
fn check_neighbours(level: usize, files: &[Arc<FileMeta>], file: &FileMeta) -> Result<()> {
    let clash = if level == 0 {
        let (min, max) = file.seq_range();
        files.iter().find(|f| {
            let (low, high) = f.seq_range();
            f.number != file.number && low <= max && min <= high && f.overlaps(file)
        })
    } else {
        // Sorted by smallest key: every file that starts before this one must end before it, and so
        // on.
        let at = files.partition_point(|f| key::compare(&f.smallest, &file.smallest).is_lt());
        let near = files.get(at.saturating_sub(1)..files.len().min(at + 2)).unwrap_or_default();
        near.iter().find(|f| f.number != file.number && f.overlaps(file))
    };
    match clash {
        Some(f) => {
            refuse(format!("key tables (kSSTs) {} and {} overlap at level {level}", f.number, file.number))
        }
        None => Ok(()),
    }
}

/// Checks that an alias, if `id` is one, is well formed and resolves to live files that list it.
pub(super) fn check_alias(version: &Version, id: BlobId) -> Result<()> {
    let Some(targets) = version.aliases.get(&id) else { return Ok(()) };
    let knows =
        |t: &AliasTarget| version.vssts.get(&t.file).is_some_and(|v| v.blob_ids.binary_search(&id).is_ok());
    let ascending = targets.windows(2).all(|w| key::compare(&w[0].first_key, &w[1].first_key).is_lt());
    if version.vssts.contains_key(&id) {
        refuse(format!("value file (vSST) {id} is listed both as present and as replaced"))
    } else if !targets.first().is_some_and(|t| t.first_key.is_empty()) || !ascending {
        refuse(format!(
            "the {} successors of the replaced value file (vSST) {id} do not cover all keys in ascending \
             order",
            targets.len()
        ))
    } else if let Some(target) = targets.iter().find(|t| !knows(t)) {
        let file = target.file;
        refuse(format!(
            "the replaced value file (vSST) {id} leads to value file {file}, which is gone or does not \
             list it"
        ))
    } else {
        Ok(())
    }
}
