//! The expected outcome of every call of the row `transactions`.
//!
//! The contents after each write are kept, and for each key the number of the last write that
//! concerned it. A range deletion concerns all possible keys of its range.

use crate::check::{Check, ensure, show};
use crate::state::merged;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

/// Number of families.
pub(super) const FAMILIES: usize = 2;

pub(super) type Key = Vec<u8>;
pub(super) type Contents = BTreeMap<(usize, Key), Rc<[u8]>>;

/// A change of one family.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Set(usize, Key, Option<Rc<[u8]>>),
    /// An operand that is appended.
    Merge(usize, Key, Rc<[u8]>),
    /// From the first key up to the second one; `None`: without an end.
    DeleteRange(usize, Key, Option<Key>),
}

impl Change {
    /// Returns the bounds of the changed keys.
    fn range(&self) -> (usize, &[u8], Option<Vec<u8>>) {
        match self {
            Change::Set(nth, key, _) | Change::Merge(nth, key, _) => {
                (*nth, key, Some([key, &[0][..]].concat()))
            }
            Change::DeleteRange(nth, start, end) => (*nth, start, end.clone()),
        }
    }
}

/// The expected end of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Free,
    Conflict,
    /// Tracked keys were written and deleted again: compaction may have removed both.
    Either,
}

/// All writes, and the contents after each of them.
pub(super) struct Oracle {
    /// Contents after each write; the first ones are those at the open.
    after: Vec<Rc<Contents>>,
    /// The changes of each write; the first ones are empty.
    writes: Vec<Vec<Change>>,
    /// Writes that survive every crash.
    surviving: usize,
    failed: Check,
}

impl Default for Oracle {
    fn default() -> Oracle {
        Oracle { after: vec![Rc::default()], writes: vec![Vec::new()], surviving: 0, failed: Ok(()) }
    }
}

impl Oracle {
    /// Continues with the contents that a crash left: those after a write that had to survive, or a
    /// later one.
    pub fn settle_on(&mut self, found: &Contents) -> Check {
        self.failure()?;
        let kept = (self.surviving..self.after.len()).rev().find(|nth| *self.after[*nth] == *found);
        ensure!(
            kept.is_some(),
            "the store holds {} keys, which no prefix of {} writes from {} on has",
            found.len(),
            self.after.len() - 1,
            self.surviving
        );
        *self = Oracle { after: vec![Rc::new(found.clone())], ..Oracle::default() };
        Ok(())
    }

    /// Records that all writes survive a crash.
    pub fn all_survive(&mut self) {
        self.surviving = self.after.len() - 1;
    }

    /// Keeps the first failed check.
    pub fn note(&mut self, check: Check) {
        if self.failed.is_ok() {
            self.failed = check;
        }
    }

    pub fn failure(&self) -> Check {
        self.failed.clone()
    }

    fn now(&self) -> &Rc<Contents> {
        &self.after[self.after.len() - 1]
    }

    pub fn get(&self, nth: usize, key: &[u8]) -> Option<Rc<[u8]>> {
        self.now().get(&(nth, key.to_vec())).cloned()
    }

    pub fn apply(&mut self, changes: Vec<Change>, durable: bool) {
        // Without changes nothing is written, and nothing becomes durable.
        if changes.is_empty() {
            return;
        }
        let mut contents = Contents::clone(self.now());
        changes.iter().for_each(|change| apply(&mut contents, change));
        self.after.push(Rc::new(contents));
        self.writes.push(changes);
        if durable {
            self.all_survive();
        }
    }

    /// Begins a transaction.
    pub fn begin(&self, serializable: bool) -> View {
        View {
            begin: self.after.len() - 1,
            base: self.now().clone(),
            changes: Vec::new(),
            savepoints: Vec::new(),
            tracked: Vec::new(),
            serializable,
        }
    }

    /// Returns the expected end of the commit of a transaction.
    pub fn verdict(&self, view: &View) -> Verdict {
        let (mut written, mut differs) = (false, false);
        let now = self.now();
        for (nth, start, end) in &view.tracked {
            let in_tracked = |key: &[u8]| start[..] <= *key && end.as_deref().is_none_or(|end| key < end);
            for change in self.writes[view.begin + 1..].iter().flatten() {
                let (of, from, to) = change.range();
                let meets = of == *nth
                    && to.as_deref().is_none_or(|to| &start[..] < to)
                    && end.as_deref().is_none_or(|end| from < end);
                written |= meets;
                let in_change = |key: &[u8]| from <= key && to.as_deref().is_none_or(|to| key < to);
                let keys: BTreeSet<&(usize, Key)> = view.base.keys().chain(now.keys()).collect();
                differs |=
                    meets && keys.iter().any(|(of, key)| of == nth && in_tracked(key) && in_change(key));
            }
        }
        match (written, differs) {
            (false, _) => Verdict::Free,
            (true, true) => Verdict::Conflict,
            (true, false) => Verdict::Either,
        }
    }
}

fn apply(contents: &mut Contents, change: &Change) {
    match change {
        Change::Set(nth, key, Some(value)) => drop(contents.insert((*nth, key.clone()), value.clone())),
        Change::Set(nth, key, None) => drop(contents.remove(&(*nth, key.clone()))),
        Change::Merge(nth, key, operand) => {
            let before = contents.get(&(*nth, key.clone())).map(|value| value.to_vec());
            let value = merged(before.as_ref(), operand);
            contents.insert((*nth, key.clone()), Rc::from(value));
        }
        Change::DeleteRange(nth, start, end) => contents
            .retain(|(of, key), _| of != nth || key < start || end.as_ref().is_some_and(|end| end <= key)),
    }
}

/// A transaction: the contents at its begin, its changes, and the keys on which it depends.
pub(super) struct View {
    begin: usize,
    base: Rc<Contents>,
    changes: Vec<Change>,
    savepoints: Vec<usize>,
    /// Family, first key and end of each range.
    tracked: Vec<(usize, Key, Option<Key>)>,
    serializable: bool,
}

impl View {
    fn contents(&self) -> Contents {
        let mut contents = Contents::clone(&self.base);
        self.changes.iter().for_each(|change| apply(&mut contents, change));
        contents
    }

    fn track(&mut self, nth: usize, key: &[u8]) {
        self.tracked.push((nth, key.to_vec(), Some([key, &[0]].concat())));
    }

    pub fn get(&mut self, nth: usize, key: &[u8], for_update: bool) -> Option<Rc<[u8]>> {
        if for_update || self.serializable {
            self.track(nth, key);
        }
        self.contents().get(&(nth, key.to_vec())).cloned()
    }

    pub fn set(&mut self, nth: usize, key: Key, value: Option<Rc<[u8]>>) {
        self.track(nth, &key);
        self.changes.push(Change::Set(nth, key, value));
    }

    /// Adds an operand, which does not depend on the value.
    pub fn merge(&mut self, nth: usize, key: Key, operand: Rc<[u8]>) {
        self.changes.push(Change::Merge(nth, key, operand));
    }

    /// Returns up to `most` entries of a range.
    pub fn scan(
        &mut self,
        nth: usize,
        start: &[u8],
        end: Option<&[u8]>,
        most: usize,
    ) -> Vec<(Key, Rc<[u8]>)> {
        let contents = self.contents();
        let upper =
            end.map_or(Bound::Excluded((nth + 1, Key::new())), |end| Bound::Excluded((nth, end.to_vec())));
        let from = Bound::Included((nth, start.to_vec()));
        let within = end.is_none_or(|end| start <= end);
        let entries =
            contents.range((from, if within { upper } else { Bound::Excluded((nth, start.to_vec())) }));
        let found: Vec<(Key, Rc<[u8]>)> =
            entries.take(most).map(|((_, key), value)| (key.clone(), value.clone())).collect();
        if self.serializable {
            let shown = match found.last() {
                Some((key, _)) if found.len() == most => Some([&key[..], &[0]].concat()),
                _ => end.map(<[u8]>::to_vec),
            };
            self.tracked.push((nth, start.to_vec(), shown));
        }
        found
    }

    /// Moves the moment of the reads to the present, and depends on nothing yet.
    pub fn move_to_now(&mut self, oracle: &Oracle) {
        (self.begin, self.base) = (oracle.after.len() - 1, oracle.now().clone());
        self.tracked.clear();
    }

    /// Returns its own change of a key, or else the newest value.
    pub fn newest(&self, oracle: &Oracle, nth: usize, key: &[u8]) -> Option<Rc<[u8]>> {
        let mut contents = Contents::clone(oracle.now());
        self.changes.iter().for_each(|change| apply(&mut contents, change));
        contents.get(&(nth, key.to_vec())).cloned()
    }

    /// Returns a view of the same moment that depends on one key alone.
    pub fn of_key(&self, nth: usize, key: &[u8]) -> View {
        let (begin, base, changes, savepoints) = (self.begin, self.base.clone(), Vec::new(), Vec::new());
        let mut view = View { begin, base, changes, savepoints, tracked: Vec::new(), serializable: false };
        view.track(nth, key);
        view
    }

    /// Adds a change of a key on which the commit does not depend.
    pub fn set_locked(&mut self, nth: usize, key: Key, value: Option<Rc<[u8]>>) {
        self.changes.push(Change::Set(nth, key, value));
    }

    pub fn set_savepoint(&mut self) {
        self.savepoints.push(self.changes.len());
    }

    pub fn roll_back(&mut self) -> bool {
        let savepoint = self.savepoints.pop();
        self.changes.truncate(savepoint.unwrap_or(usize::MAX));
        savepoint.is_some()
    }

    pub fn changes(self) -> Vec<Change> {
        self.changes
    }

    pub fn describe(&self) -> String {
        let tracked = self.tracked.iter().map(|(nth, start, end)| {
            format!("{nth}: {} to {}", show(start), end.as_deref().map_or("the end".to_owned(), show))
        });
        format!("it depends on {}", tracked.collect::<Vec<_>>().join(", "))
    }
}
