//! Many entries at once: written in any order, by any thread, and linked in the order of keys when all are there.
//!
//! To insert a key into a list of millions is to search: a dozen steps from node to node, each of which waits for memory. Whoever has
//! many entries before anybody wants to read them (a replay of the log) can write the nodes first, sort their addresses, and then go through the list once,
//! with a *finger* on each level: the last node on it that is before the key of the moment. Keys that come in order move fingers
//! forward only, and into an empty list not at all. Four million keys by chance took twenty seconds of processor time as inserts.
//!
//! Keys are sorted by the eight bytes behind what all have in common, so that a comparison mostly looks at no node.
//!
//! # Why this is sound
//!
//! A held node was written by [`SkipList::insert`]'s own means, is initialised, and lies in the arenas of the list that [`Held`] keeps alive
//! (1). Nobody else knows it: no link leads there until [`Held::link`] exchanges one, with the same step, from the same kind of gap, and with the
//! same orders as an insert (2, 3). A finger is the head or a node that has its level. So other threads may read and insert meanwhile; an entry that
//! nobody linked is memory that nobody reads.

use super::{Gap, HEIGHT_MAX, Links, Node, NodeRef, SkipList, Target, prefix_of, walk};
use crate::sync::Relaxed;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Entries that are in the memory of a list, counted as being inserted, and not found there yet. What is dropped is never found.
pub struct Held {
    list: Arc<SkipList>,
    /// Initialised nodes of `list` that nobody else knows.
    nodes: Vec<NonNull<Node>>,
}

// SAFETY: the nodes are plain memory that the `Arc` beside them keeps alive, and no other thread knows them.
unsafe impl Send for Held {}

/// A node, and what decides most comparisons.
type Sorted = (u64, NonNull<Node>);

impl Held {
    /// None of a list.
    pub fn of(list: &Arc<SkipList>) -> Held {
        Held { list: list.clone(), nodes: Vec::new() }
    }

    /// Writes an entry.
    ///
    /// # Panics
    /// As [`SkipList::insert`], but for a key that is in the list: that is found out when it is linked.
    pub fn push(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) {
        let target = Target::new(user_key, trailer);
        self.nodes.push(self.list.new_node(&target, value).node);
    }

    /// Takes over the entries of another one of the same list.
    ///
    /// # Panics
    /// If it is of another list.
    pub fn append(&mut self, mut other: Held) {
        assert!(Arc::ptr_eq(&self.list, &other.list), "entries of another list");
        self.nodes.append(&mut other.nodes);
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn node(&self, node: NonNull<Node>) -> NodeRef<'_> {
        // The field's invariant is that of `NodeRef`, and the list is borrowed through `self`.
        NodeRef { node, list: PhantomData }
    }

    /// Bytes that all user keys begin with.
    fn common_len(&self) -> usize {
        let Some(first) = self.nodes.first() else { return 0 };
        let first = self.node(*first).user_key();
        self.nodes.iter().fold(first.len(), |common, node| {
            let key = self.node(*node).user_key();
            let same = first.iter().zip(key).take(common).take_while(|(a, b)| a == b);
            same.count()
        })
    }

    /// The nodes in the order of their keys.
    fn sorted(&self) -> Vec<Sorted> {
        let common = self.common_len();
        let rest =
            |node: &NonNull<Node>| prefix_of(self.node(*node).user_key().get(common..).unwrap_or_default());
        let mut sorted: Vec<Sorted> = self.nodes.iter().map(|node| (rest(node), *node)).collect();
        sorted.sort_unstable_by(|(a, one), (b, other)| {
            a.cmp(b).then_with(|| self.node(*one).compare(&Target::encoded(self.node(*other).key())))
        });
        sorted
    }

    /// Links all of them: they are found by whoever looks from then on.
    ///
    /// # Panics
    /// If an internal key is in the list already, or twice among these.
    pub fn link(self) {
        let list = &*self.list;
        let mut fingers = [list.head(); HEIGHT_MAX];
        for (_, node) in self.sorted() {
            let node = self.node(node);
            let target = Target::encoded(node.key());
            let gaps = find_from(list, &mut fingers, &target);
            for (level, gap) in gaps.iter().enumerate().take(node.height()) {
                list.link(node, &target, level, *gap);
                fingers[level] = node.links();
            }
        }
    }
}

/// The gaps of a key that comes after all fingers, which it moves as far as they lead to it.
fn find_from<'a>(
    list: &'a SkipList,
    fingers: &mut [Links<'a>; HEIGHT_MAX],
    target: &Target<'_>,
) -> [Gap<'a>; HEIGHT_MAX] {
    let mut gaps = [Gap { before: list.head(), after: None }; HEIGHT_MAX];
    let mut further: Option<Links<'a>> = None;
    for level in (0..list.height.load(Relaxed)).rev() {
        // Whoever has moved on the level above is further than any finger: all of these are before the key before.
        let from = further.unwrap_or(fingers[level]);
        // SAFETY: a finger has its level, and so has a node of a level above; both are the head or before the target.
        let gap = unsafe { walk(from, level, target) };
        if !std::ptr::eq(gap.before.first, from.first) {
            further = Some(gap.before);
        }
        fingers[level] = gap.before;
        gaps[level] = gap;
    }
    gaps
}
