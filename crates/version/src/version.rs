//! One immutable version of one column family: the tables at each level, and the vSSTs to which
//! their references resolve.
//!
//! Level 0 is ordered newest first, so that a lookup may stop at the first file that has the key.
//! The files of every other level are ordered by key and disjoint in **user** keys: a user key
//! never spans two files. So a lookup reads one file, found by binary search. All ranges in queries
//! are of user keys.
//!
//! A reference names a [`BlobId`]. It resolves through [`Version::aliases`] if there is an alias,
//! else to the vSST with that number. This is the file-number inheritance of LavaStore and
//! TerarkDB, flattened: garbage collection replaces the files behind the blob ids and never
//! rewrites a reference.

use crate::meta::{BlobId, FamilyId, FileMeta, VsstMeta};
use crate::placed::Placed;
use crate::uses::ReferenceTotals;
use base::SeqNo;
use base::key;
use base::limits::LEVELS_MAX;
use std::cmp::{Ordering, Reverse};
use std::fmt::{self, Write as _};
use std::ops::{Add, Deref, Range, Sub};
use std::sync::Arc;
use store::IdMap;

/// Tables of one level: a shared slice with its sums.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Level(Arc<LevelFiles>);

#[derive(Default, PartialEq, Eq)]
struct LevelFiles {
    files: Vec<Arc<FileMeta>>,
    sums: LevelSums,
}

/// Sums over the tables of a level, too wide to overflow for any file sizes. An edit updates them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelSums {
    /// Physical bytes.
    pub bytes: u128,
    /// See [`FileMeta::compensated`].
    pub compensated_bytes: u128,
    /// Number of entries.
    pub entries: u128,
    /// Number of references to vSSTs.
    pub references: u128,
    /// Bytes of the records that are referenced.
    pub stored_bytes: u128,
    /// Numbers of tables on each tier.
    pub placed: Placed,
}

impl LevelSums {
    fn of(file: &FileMeta) -> LevelSums {
        LevelSums {
            bytes: file.len.into(),
            compensated_bytes: file.compensated().into(),
            entries: file.entries.into(),
            references: file.uses.sums().references.into(),
            stored_bytes: file.uses.sums().stored_bytes.into(),
            placed: Placed::of(file),
        }
    }

    fn changed(self, other: &LevelSums, by: fn(u128, u128) -> u128) -> LevelSums {
        LevelSums {
            bytes: by(self.bytes, other.bytes),
            compensated_bytes: by(self.compensated_bytes, other.compensated_bytes),
            entries: by(self.entries, other.entries),
            references: by(self.references, other.references),
            stored_bytes: by(self.stored_bytes, other.stored_bytes),
            placed: self.placed.changed(&other.placed, by),
        }
    }

    fn with(self, files: &[Arc<FileMeta>]) -> LevelSums {
        files.iter().fold(self, |sums, file| sums.changed(&LevelSums::of(file), u128::add))
    }

    fn without(self, files: &[Arc<FileMeta>]) -> LevelSums {
        files.iter().fold(self, |sums, file| sums.changed(&LevelSums::of(file), u128::sub))
    }
}

impl Level {
    /// Returns the physical bytes of the files.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.0.sums.bytes).unwrap_or(u64::MAX)
    }

    /// Returns the compensated bytes of the files (see [`FileMeta::compensated`]).
    pub fn compensated_bytes(&self) -> u64 {
        u64::try_from(self.0.sums.compensated_bytes).unwrap_or(u64::MAX)
    }

    /// Returns the sums over the files.
    pub fn sums(&self) -> &LevelSums {
        &self.0.sums
    }

    /// Returns the differences from `before`, for a level below level 0. Shared files are skipped
    /// by their address.
    pub fn changes<'l>(&'l self, before: &'l Level) -> LevelChanges<'l> {
        let mut changes = LevelChanges::default();
        if Arc::ptr_eq(&self.0, &before.0) {
            return changes;
        }
        let (mut old, mut new) = (before.iter().peekable(), self.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return changes,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {
                    old.next();
                    new.next();
                    continue;
                }
                (Some(a), Some(b)) => key::compare(&a.smallest, &b.smallest),
            };
            changes.gone.extend(old.next_if(|_| order.is_le()));
            changes.came.extend(new.next_if(|_| order.is_ge()));
        }
    }

    /// Returns the level (not level 0) without the files `removed`, all of which it must have, and
    /// with `added`, sorted by smallest key. Copies the list in runs and updates the sums: a level
    /// may have ten thousand files, and visiting each costs a cache miss.
    pub(crate) fn edited(&self, removed: &[Arc<FileMeta>], added: &[Arc<FileMeta>]) -> Level {
        let position =
            |f: &FileMeta| self.partition_point(|g| key::compare(&g.smallest, &f.smallest).is_lt());
        let mut changes: Vec<(usize, Option<&Arc<FileMeta>>)> =
            added.iter().map(|f| (position(f), Some(f))).collect();
        changes.extend(removed.iter().map(|f| (position(f), None)));
        // Stable: files added at a place stay in order, before the removal of the file that was
        // there.
        changes.sort_by_key(|(at, file)| (*at, file.is_none()));
        let mut files = Vec::with_capacity(self.len() + added.len() - removed.len());
        let mut from = 0;
        for (at, file) in changes {
            files.extend_from_slice(&self[from..at]);
            files.extend(file.cloned());
            from = at + usize::from(file.is_none());
        }
        files.extend_from_slice(&self[from..]);
        Level(Arc::new(LevelFiles { files, sums: self.0.sums.with(added).without(removed) }))
    }
}

/// Differences between two versions of a level, in key order. A table with a changed description is
/// in both lists.
#[derive(Debug, Default)]
pub struct LevelChanges<'l> {
    /// Removed tables.
    pub gone: Vec<&'l Arc<FileMeta>>,
    /// Added tables.
    pub came: Vec<&'l Arc<FileMeta>>,
}

impl From<Vec<Arc<FileMeta>>> for Level {
    fn from(files: Vec<Arc<FileMeta>>) -> Self {
        let sums = LevelSums::default().with(&files);
        Level(Arc::new(LevelFiles { files, sums }))
    }
}

impl Deref for Level {
    type Target = [Arc<FileMeta>];
    fn deref(&self) -> &Self::Target {
        &self.0.files
    }
}

impl<'a> IntoIterator for &'a Level {
    type Item = &'a Arc<FileMeta>;
    type IntoIter = std::slice::Iter<'a, Arc<FileMeta>>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.files.iter()
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|file| file.number)).finish()
    }
}

/// A target of a blob id, for records from one internal key on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasTarget {
    /// First internal key, encoded; empty in the first target of an alias, which begins before
    /// every key.
    pub first_key: Vec<u8>,
    /// Number of the vSST.
    pub file: u64,
}

/// One version of one column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The family.
    pub family: FamilyId,
    /// The levels: always [`LEVELS_MAX`] of them, the unused ones empty.
    pub levels: Vec<Level>,
    /// The vSSTs by file number.
    pub vssts: IdMap<u64, Arc<VsstMeta>>,
    /// Targets of blob ids whose own file is gone: in key order, normally one.
    pub aliases: IdMap<BlobId, Arc<Vec<AliasTarget>>>,
    /// References of the tables, by blob id: see [`crate::uses`]. Ids without references are
    /// absent.
    pub references: IdMap<BlobId, ReferenceTotals>,
    /// Every record of the family with a lower sequence is in tables: log replay skips it.
    pub log_floor: SeqNo,
}

impl Version {
    /// Returns a version without files.
    pub fn new(family: FamilyId) -> Self {
        Version {
            family,
            levels: vec![Level::default(); LEVELS_MAX],
            vssts: IdMap::new(),
            aliases: IdMap::new(),
            references: IdMap::new(),
            log_floor: 0,
        }
    }

    /// Returns a version with the given tables (one list a level, in any order) and no vSSTs: for
    /// tests and simulations of policies, which need neither a manifest nor files. It sorts the
    /// files, and checks nothing.
    pub fn with_files(family: FamilyId, levels: Vec<Vec<Arc<FileMeta>>>) -> Self {
        let mut version = Version::new(family);
        for (level, mut files) in levels.into_iter().enumerate().take(LEVELS_MAX) {
            sort_level(level, &mut files);
            version.levels[level] = files.into();
        }
        version
    }

    /// Returns the files of a level; none for a level that cannot exist.
    pub fn files(&self, level: usize) -> &[Arc<FileMeta>] {
        self.levels.get(level).map_or(&[], |l| l)
    }

    /// Returns the physical bytes of a level.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, Level::bytes)
    }

    /// Returns the compensated bytes of a level.
    pub fn level_compensated_bytes(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, Level::compensated_bytes)
    }

    /// Returns the deepest level that has files; `None` if there are none at all.
    pub fn deepest_level(&self) -> Option<usize> {
        (0..self.levels.len()).rev().find(|&level| !self.levels[level].is_empty())
    }

    /// Returns the files of a level **below 0** whose user keys overlap `[low, high]` (both
    /// inclusive; `None`: unbounded), as indexes into the level.
    ///
    /// # Panics
    /// For level 0, whose files are in order of age.
    pub fn overlap_range(&self, level: usize, low: Option<&[u8]>, high: Option<&[u8]>) -> Range<usize> {
        assert!(level > 0, "level 0 is not ordered by key");
        let files = self.files(level);
        let from = low.map_or(0, |low| files.partition_point(|f| f.ends_before(low)));
        let to = high.map_or(files.len(), |high| files.partition_point(|f| !f.starts_after(high)));
        from..to.max(from)
    }

    /// Returns the files of any level whose user keys overlap `[low, high]` (both inclusive;
    /// `None`: unbounded), in the order of the level.
    pub fn overlapping(&self, level: usize, low: Option<&[u8]>, high: Option<&[u8]>) -> Vec<Arc<FileMeta>> {
        if level > 0 {
            return self.files(level)[self.overlap_range(level, low, high)].to_vec();
        }
        let meets = |f: &&Arc<FileMeta>| {
            !low.is_some_and(|low| f.ends_before(low)) && !high.is_some_and(|high| f.starts_after(high))
        };
        self.files(0).iter().filter(meets).cloned().collect()
    }

    /// Returns the file of a level below 0 whose range contains `user_key`.
    pub fn file_at(&self, level: usize, user_key: &[u8]) -> Option<&Arc<FileMeta>> {
        debug_assert!(level > 0, "level 0 is not ordered by key");
        let files = self.files(level);
        files.get(files.partition_point(|f| f.ends_before(user_key))).filter(|f| !f.starts_after(user_key))
    }

    /// Returns every file whose range contains `user_key`, in lookup order: newest data first.
    pub fn lookup<'a>(&'a self, user_key: &'a [u8]) -> impl Iterator<Item = (usize, &'a Arc<FileMeta>)> + 'a {
        let newest = self.files(0).iter().filter(move |f| f.covers(user_key)).map(|f| (0, f));
        newest.chain((1..self.levels.len()).filter_map(move |l| self.file_at(l, user_key).map(|f| (l, f))))
    }

    /// Returns the vSST that holds the record of `(user_key, seq)` under `blob_id`. Kinds do not
    /// matter: the same entry is a reference in a table and a value in a vSST.
    pub fn resolve(&self, blob_id: BlobId, user_key: &[u8], seq: SeqNo) -> Option<&Arc<VsstMeta>> {
        let Some(targets) = self.aliases.get(&blob_id) else { return self.vssts.get(&blob_id) };
        let begins_up_to = |target: &AliasTarget| {
            // The first target begins before every key.
            if target.first_key.is_empty() {
                return true;
            }
            let (first, trailer) = key::split(&target.first_key);
            first.cmp(user_key).then(seq.cmp(&(trailer >> 8))).is_le()
        };
        let after = targets.partition_point(begins_up_to);
        self.vssts.get(&targets.get(after.max(1) - 1)?.file)
    }

    /// Returns every vSST to which `blob_id` resolves, with repetition if an alias returns to a
    /// file.
    pub fn resolve_all(&self, blob_id: BlobId) -> impl Iterator<Item = &Arc<VsstMeta>> + '_ {
        let targets = self.aliases.get(&blob_id).map_or(&[][..], |t| t.as_slice());
        let own = if targets.is_empty() { self.vssts.get(&blob_id) } else { None };
        own.into_iter().chain(targets.iter().filter_map(|t| self.vssts.get(&t.file)))
    }

    /// Returns true if `blob_id` resolves to a file.
    pub fn resolves(&self, blob_id: BlobId) -> bool {
        self.aliases.contains_key(&blob_id) || self.vssts.contains_key(&blob_id)
    }

    /// Returns the blob ids that resolve to the vSST `number`: its own, and the aliases.
    pub fn names_of(&self, number: u64) -> Vec<BlobId> {
        let Some(meta) = self.vssts.get(&number) else { return Vec::new() };
        let leads_here = |id: &&BlobId| {
            self.aliases.get(id).is_some_and(|targets| targets.iter().any(|t| t.file == number))
        };
        std::iter::once(number).chain(meta.blob_ids.iter().filter(leads_here).copied()).collect()
    }

    /// Returns the references of the tables to the vSST `number` under all its blob ids. Exact if
    /// an alias has one target; the references of an alias with several are divided in proportion
    /// to the targets' record bytes.
    pub fn referenced_in(&self, number: u64) -> ReferenceTotals {
        let mut sum = ReferenceTotals::default();
        for id in self.names_of(number) {
            let Some(totals) = self.references.get(&id) else { continue };
            let all = self.resolve_all(id).fold(0u128, |all, v| all + u128::from(v.record_bytes));
            let here = self.resolve_all(id).filter(|v| v.number == number);
            let here = here.fold(0u128, |here, v| here + u128::from(v.record_bytes));
            let share = |n: u64| if all == here { n } else { (u128::from(n) * here / all) as u64 };
            sum.tables += totals.tables;
            sum.count = sum.count.saturating_add(share(totals.count));
            sum.raw_bytes = sum.raw_bytes.saturating_add(share(totals.raw_bytes));
            sum.stored_bytes = sum.stored_bytes.saturating_add(share(totals.stored_bytes));
        }
        sum
    }

    /// Returns the aliases and vSSTs that no table depends on: candidates to be dropped, once no
    /// running job has pinned them.
    pub fn unreferenced(&self) -> (Vec<BlobId>, Vec<u64>) {
        let unused = |id: &BlobId| !self.references.contains_key(id);
        let aliases = self.aliases.keys().filter(unused).collect();
        let vssts = self.vssts.keys().filter(|&n| self.names_of(n).iter().all(unused)).collect();
        (aliases, vssts)
    }

    /// Returns the numbers of all files of the version: tables by level, then vSSTs.
    pub fn file_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.levels.iter().flatten().map(|f| f.number).chain(self.vssts.keys())
    }

    /// Returns the number of tables in all levels.
    pub fn table_count(&self) -> usize {
        self.levels.iter().map(|l| l.len()).sum()
    }

    /// Returns a human-readable listing, with a line for each level, file, vSST and alias.
    pub fn describe(&self) -> String {
        let mut out = format!("family {}, log floor {}\n", self.family, self.log_floor);
        // Writing to a string cannot fail.
        let _ = self.write_description(&mut out);
        out
    }

    fn write_description(&self, out: &mut String) -> fmt::Result {
        for (i, level) in self.levels.iter().enumerate().filter(|(_, l)| !l.is_empty()) {
            let (bytes, compensated) = (level.bytes(), level.compensated_bytes());
            writeln!(out, "level {i}: {} tables, {bytes} B, compensated {compensated} B", level.len())?;
            for f in level {
                writeln!(out, "  {f}")?;
            }
        }
        for v in self.vssts.values() {
            let used = self.referenced_in(v.number);
            writeln!(out, "{v} referenced {} B by {} tables", used.stored_bytes, used.tables)?;
        }
        for (id, targets) in self.aliases.iter() {
            write!(out, "alias {id} ->")?;
            for t in targets.iter() {
                write!(out, " {} from \"{}\"", t.file, key::user_key(&t.first_key).escape_ascii())?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl fmt::Display for FileMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.smallest_user_key().escape_ascii(), self.largest_user_key().escape_ascii());
        let end = if self.largest_is_exclusive() { ')' } else { ']' };
        write!(f, "table {} [\"{low}\", \"{high}\"{end} {} B", self.number, self.len)?;
        write!(f, " compensated {} B, {} entries", self.compensated(), self.entries)?;
        write!(f, " ({} tombstones, {} ranges)", self.tombstones, self.range_tombstones)?;
        write!(f, " seq {}..{} location {}", self.min_seq, self.max_seq, self.volume)?;
        if let Some(seq) = self.global_seq {
            write!(f, " global seq {seq}")?;
        }
        if self.shared {
            write!(f, " shared")?;
        }
        match self.uses.list() {
            Some(list) => {
                list.iter().try_for_each(|d| write!(f, " blob {}: {} B", d.blob_id, d.stored_bytes))
            }
            None => {
                let sums = self.uses.sums();
                let (names, bytes) = (sums.names, sums.stored_bytes);
                write!(f, " {names} blobs from {} to {}: {bytes} B", sums.first, sums.last)
            }
        }
    }
}

impl fmt::Display for VsstMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "vSST {} {} B, records {} B, {} entries",
            self.number, self.len, self.record_bytes, self.entries
        )?;
        write!(f, " {:?} location {} took over {:?}", self.class, self.volume, self.blob_ids)
    }
}

/// Sorts the files of a level into its order.
pub(crate) fn sort_level(level: usize, files: &mut [Arc<FileMeta>]) {
    if level == 0 {
        files.sort_by_key(|f| Reverse((f.seq_range().1, f.number)));
    } else {
        files.sort_by(|a, b| key::compare(&a.smallest, &b.smallest));
    }
}

#[cfg(test)]
mod tests;
