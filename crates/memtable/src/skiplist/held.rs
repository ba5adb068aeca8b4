//! Batch insertion: entries written in any order, by any thread, and linked in key order once all
//! are present.
//!
//! An insert into a list of millions is a search: a dozen steps from node to node, each a cache
//! miss. If no reader needs the entries before all are there (replay of the log), the nodes can be
//! written first and their addresses sorted. Then one pass over the list links them, with a
//! *finger* on each level: its last node before the present key. Keys in order only move the
//! fingers forward, and in an empty list not at all. Four million random keys took twenty seconds
//! of processor time as single inserts.
//!
//! Keys are sorted by the eight bytes behind their common prefix, so that most comparisons access
//! no node.
//!
//! # Why this is sound
//!
//! A held node is written by the code of [`SkipList::insert`], is initialized, and is in the arenas
//! of the list that [`Held`] keeps alive (1). No other thread knows it: no link leads there until
//! [`Held::link`] exchanges one. That is the same step as in an insert, with the same kind of gap
//! and the same memory orders (2, 3). A finger is the head or a node that has its level. So other
//! threads may read and insert meanwhile. An entry that was never linked is memory that is never
//! read.

use super::{Gap, HEIGHT_MAX, Links, Node, NodeRef, SkipList, Target, prefix_of, walk};
use crate::sync::Relaxed;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// Entries that are in the memory of a list, counted as being inserted, and not reachable yet.
/// Dropped ones are never found.
pub struct Held {
    list: Arc<SkipList>,
    /// Initialized nodes of `list` that no other thread knows.
    nodes: Vec<NonNull<Node>>,
}

// SAFETY: the nodes are plain memory that the `Arc` beside them keeps alive, and no other thread
// knows them.
unsafe impl Send for Held {}

/// The prefix that decides most comparisons, and the node.
type Sorted = (u64, NonNull<Node>);

impl Held {
    /// Returns an empty batch for a list.
    pub fn of(list: &Arc<SkipList>) -> Held {
        Held { list: list.clone(), nodes: Vec::new() }
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// As [`SkipList::insert`], except for a key that is already in the list, which linking
    /// detects.
    pub fn push(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) {
        let target = Target::new(user_key, trailer);
        self.nodes.push(self.list.new_node(&target, value).node);
    }

    /// Takes over the entries of another batch of the same list.
    ///
    /// # Panics
    /// If it is of another list.
    pub fn append(&mut self, mut other: Held) {
        assert!(Arc::ptr_eq(&self.list, &other.list), "entries of another list");
        self.nodes.append(&mut other.nodes);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn node(&self, node: NonNull<Node>) -> NodeRef<'_> {
        // The field's invariant is that of `NodeRef`, and the list is borrowed through `self`.
        NodeRef { node, list: PhantomData }
    }

    /// Returns the length of the common prefix of all user keys.
    fn common_len(&self) -> usize {
        let Some(first) = self.nodes.first() else { return 0 };
        let first = self.node(*first).user_key();
        self.nodes.iter().fold(first.len(), |common, node| {
            let key = self.node(*node).user_key();
            let same = first.iter().zip(key).take(common).take_while(|(a, b)| a == b);
            same.count()
        })
    }

    /// Returns the nodes in key order.
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

    /// Links all entries, which makes them visible to readers from then on.
    ///
    /// # Panics
    /// If an internal key is already in the list, or occurs twice in the batch.
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

/// Returns the gaps of a key that is behind all fingers, and advances the fingers to it.
fn find_from<'a>(
    list: &'a SkipList,
    fingers: &mut [Links<'a>; HEIGHT_MAX],
    target: &Target<'_>,
) -> [Gap<'a>; HEIGHT_MAX] {
    let mut gaps = [Gap { before: list.head(), after: None }; HEIGHT_MAX];
    let mut further: Option<Links<'a>> = None;
    for level in (0..list.height.load(Relaxed)).rev() {
        // A node reached on the level above is further than any finger: the fingers are before the
        // previous key.
        let from = further.unwrap_or(fingers[level]);
        // SAFETY: a finger has its level, and so has a node of a level above; both are the head or
        // before the target.
        let gap = unsafe { walk(from, level, target) };
        if !std::ptr::eq(gap.before.first, from.first) {
            further = Some(gap.before);
        }
        fingers[level] = gap.before;
        gaps[level] = gap;
    }
    gaps
}
