//! Derives the ledger of a version from that of another version of the same family, by their
//! differences alone.
//!
//! Versions share unchanged data, so the differences are found without a walk
//! ([`version::IdMap::changes`]). A file's garbage depends on its own description and on the sums
//! under the blob ids that resolve to it. If such a blob id resolves to other files as well, it
//! also depends on theirs. So the files that a changed blob id resolves to, before and after, are
//! *touched*, and the garbage of each touched file is summed up from its blob ids. If many files
//! are touched, a pass over all of them is cheaper.

use super::{FileGarbage, Ledger, has_lasted};
use std::cmp::Reverse;
use version::{BlobId, IdMap, Version, VsstMeta};

/// The ledger is recomputed if more than one in this many files is touched.
const ANEW_PART: usize = 4;

/// Sorts and deduplicates numbers.
fn sort_once(numbers: &mut Vec<u64>) {
    numbers.sort_unstable();
    numbers.dedup();
}

impl Ledger {
    /// Returns the ledger of `now`; `self` must be that of `before`.
    #[must_use]
    pub fn after(&self, before: &Version, now: &Version) -> Ledger {
        let ledger = self.changed(before, now).unwrap_or_else(|| Ledger::of(now));
        // Checked only sometimes: this code exists to save a walk, and tests make many versions.
        if cfg!(debug_assertions) && (now.references.len() < 64 || self.sums.references.is_multiple_of(16)) {
            assert_eq!(ledger, Ledger::of(now), "what is kept is what a walk finds");
        }
        ledger
    }

    /// Returns `None` if there are too many differences.
    fn changed(&self, before: &Version, now: &Version) -> Option<Ledger> {
        let (of_names, of_files) =
            (now.references.changes(&before.references), now.vssts.changes(&before.vssts));
        let most = now.vssts.len() / ANEW_PART + 64;
        // Checked before any work for each of them.
        if of_names.len().max(of_files.len()) > most {
            return None;
        }
        let mut ledger = self.clone();
        let (mut names, mut files) = (Vec::new(), Vec::new());
        for (name, old, new) in of_names {
            names.push(name);
            if let Some(old) = old {
                ledger.sums.referenced_bytes -= u128::from(old.stored_bytes);
                ledger.sums.references -= u128::from(old.count);
            }
            if let Some(new) = new {
                ledger.sums.referenced_bytes += u128::from(new.stored_bytes);
                ledger.sums.references += u128::from(new.count);
            }
        }
        for (number, old, new) in of_files {
            files.push(number);
            old.iter().for_each(|meta| ledger.sums.remove_file(meta));
            new.iter().for_each(|meta| ledger.sums.add_file(meta));
            for meta in [old, new].into_iter().flatten() {
                names.push(number);
                names.extend(meta.blob_ids.iter().copied());
            }
            let length = |meta: &VsstMeta| (Reverse(meta.record_bytes), number);
            if let Some(old) = old.filter(|meta| !meta.segment) {
                ledger.by_length.remove(&length(old));
            }
            if let Some(new) = new.filter(|meta| !meta.segment) {
                ledger.by_length.insert(length(new), ());
            }
            match new.is_some_and(|meta| has_lasted(meta)) {
                true => _ = ledger.lasting.insert(number, ()),
                false => _ = ledger.lasting.remove(&number),
            }
        }
        names.extend(now.aliases.changes(&before.aliases).into_iter().map(|(name, ..)| name));
        sort_once(&mut names);
        for &name in &names {
            files.extend(before.resolve_all(name).chain(now.resolve_all(name)).map(|meta| meta.number));
        }
        sort_once(&mut files);
        if files.len().max(names.len()) > most {
            return None;
        }
        ledger.look_at_names(now, &names);
        ledger.look_at_files(now, &files);
        Some(ledger)
    }

    fn look_at_names(&mut self, now: &Version, names: &[BlobId]) {
        let is_unused = |name: &BlobId| now.aliases.contains_key(name) && !now.references.contains_key(name);
        set_members(&mut self.unused.aliases, names.iter().map(|name| (*name, is_unused(name))));
    }

    fn look_at_files(&mut self, now: &Version, numbers: &[u64]) {
        let (mut seen, mut unused, mut ranks) = (Vec::new(), Vec::new(), Vec::new());
        for &number in numbers {
            let found = garbage_in(now, number);
            let garbage = found.map(|(garbage, _)| garbage);
            let before = self.garbage_of(number).rank(number);
            let after = garbage.and_then(|garbage| garbage.rank(number));
            if before != after {
                ranks.extend(before.map(|rank| (rank, None)));
                ranks.extend(after.map(|rank| (rank, Some(()))));
            }
            seen.push((number, garbage));
            unused.push((number, found.is_some_and(|(_, is_unused)| is_unused)));
        }
        // No two files have the same rank.
        ranks.sort_unstable_by_key(|(rank, _)| *rank);
        self.by_garbage.set_all(&ranks);
        self.files.set_all(&seen);
        set_members(&mut self.unused.files, unused.into_iter());
    }
}

/// Sets the membership of keys, which must ascend.
fn set_members(set: &mut IdMap<u64, ()>, are_in: impl Iterator<Item = (u64, bool)>) {
    let differs = |(key, is_in): &(u64, bool)| set.contains_key(key) != *is_in;
    let changes: Vec<(u64, Option<()>)> =
        are_in.filter(differs).map(|(key, is_in)| (key, is_in.then_some(()))).collect();
    set.set_all(&changes);
}

/// Returns the garbage of a file, and whether none of its blob ids is referenced. `None`: it is not
/// in the version.
fn garbage_in(now: &Version, number: u64) -> Option<(FileGarbage, bool)> {
    let meta = now.vssts.get(&number)?;
    let mut file = FileGarbage { record_bytes: meta.record_bytes, exact: true, ..FileGarbage::default() };
    let mut is_unused = true;
    for name in now.names_of(number) {
        let Some(totals) = now.references.get(&name) else { continue };
        is_unused = false;
        let (mut here, mut all, mut alone) = (0, 0, true);
        for target in now.resolve_all(name) {
            let part = u128::from(target.record_bytes);
            all += part;
            here += if target.number == number { part } else { 0 };
            alone &= target.number == number;
        }
        file.refer(totals, if alone { (1, 1) } else { (here, all) }, alone);
    }
    Some((file.settled(), is_unused))
}
