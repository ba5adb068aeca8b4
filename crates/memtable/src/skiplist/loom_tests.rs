//! A model of the memory order: loom runs it under every interleaving (up to a bound on
//! preemptions) and every behavior that the given orders allow. A reader that reaches a node must
//! see it initialized (`Plain` is a cell that loom watches). No insert may be lost, and no chunk
//! may be lost or shared. The list is reduced to two levels and the
//! chunks to one node or two: the races matter, not the size.

use super::*;
use base::key::{ValueKind, pack_trailer};
use loom::sync::Arc;
use loom::thread;

fn trailer(seq: u64) -> u64 {
    pack_trailer(seq, ValueKind::Value)
}

/// Returns a seed for which the first nodes have these heights.
fn seed_of(heights: &[usize]) -> u64 {
    (0u64..).map(|s| s << 8).find(|s| (0u64..).zip(heights).all(|(n, h)| height_of(n ^ s) == *h)).unwrap()
}

fn small_list(heights: &[usize], chunk_bytes: usize) -> SkipList {
    SkipList::with_arenas(seed_of(heights), Arena::new(chunk_bytes), Arena::new(chunk_bytes))
}

fn keys(list: &SkipList, level: usize) -> Vec<&[u8]> {
    let mut keys = Vec::new();
    // SAFETY: the head has every level, and the nodes found on a level have it.
    let mut node = unsafe { list.head().next(level) };
    while let Some(n) = node {
        assert_eq!(n.header().prefix.get(), prefix_of(n.user_key()));
        assert_eq!(n.value(), n.user_key());
        keys.push(n.user_key());
        // SAFETY: as above.
        node = unsafe { n.links().next(level) };
    }
    keys
}

fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}

/// Two writers race for the same gaps on both levels, and for the first chunk.
#[test]
fn loom_two_writers_insert_both_entries() {
    check(3, || {
        let list = Arc::new(small_list(&[2, 2], 4096));
        let other = {
            let list = list.clone();
            thread::spawn(move || list.insert(b"a", trailer(1), b"a"))
        };
        list.insert(b"b", trailer(2), b"b");
        other.join().unwrap();
        for level in 0..2 {
            assert_eq!(keys(&list, level), [b"a", b"b"]);
        }
        assert_eq!(list.len(), 2);
        assert_eq!(list.bytes(), 4096, "the loser of the race freed its chunk");
    });
}

/// A reader walks, searches and looks up while a writer inserts behind and before an existing node.
/// The reader is the thread that loom runs second: loom explores the earlier values of a load only
/// for stores that came before it.
#[test]
fn loom_a_reader_sees_complete_entries_of_a_writer() {
    check(3, || {
        let list = Arc::new(small_list(&[2, 2, 1], 4096));
        list.insert(b"m", trailer(1), b"m");
        let reader = {
            let list = list.clone();
            thread::spawn(move || {
                let found = keys(&list, 1);
                assert!(found.starts_with(&[b"m"]));
                let found = keys(&list, 0);
                assert!(found.contains(&&b"m"[..]) && found.is_sorted());
                let from = list.first_from(&Target::new(b"n", trailer(9))).map(|n| n.user_key());
                assert!(from.is_none() || from == Some(b"z"));
                let last = list.last().map(|n| (n.user_key(), n.header().prefix.get()));
                assert!([b"m", b"z"].iter().any(|k| last == Some((*k, prefix_of(*k)))));
            })
        };
        list.insert(b"z", trailer(2), b"z");
        list.insert(b"a", trailer(3), b"a");
        reader.join().unwrap();
        assert_eq!(keys(&list, 0), [b"a", b"m", b"z"]);
    });
}

/// Two appending writers and their tails: a stale tail is only a starting point.
#[test]
fn loom_stale_tails_are_only_starting_points() {
    check(3, || {
        let list = Arc::new(small_list(&[1, 1, 2, 1], 4096));
        list.insert(b"a", trailer(1), b"a");
        let other = {
            let list = list.clone();
            thread::spawn(move || list.insert(b"c", trailer(2), b"c"))
        };
        list.insert(b"b", trailer(3), b"b");
        other.join().unwrap();
        list.insert(b"d", trailer(4), b"d");
        assert_eq!(keys(&list, 0), [b"a", b"b", b"c", b"d"]);
    });
}

/// Two threads take pieces of chunks that hold two each.
#[test]
fn loom_arena_allocations_are_disjoint() {
    check(3, || {
        let arena = Arc::new(Arena::new(512));
        let fill = |arena: &Arena, byte: u8| {
            (0..2)
                .map(|_| {
                    let piece = arena.alloc(64).as_ptr();
                    // SAFETY: the piece has 64 bytes and belongs to this thread.
                    unsafe { piece.write_bytes(byte, 64) };
                    piece as usize
                })
                .collect::<Vec<_>>()
        };
        let other = {
            let arena = arena.clone();
            thread::spawn(move || fill(&arena, 1))
        };
        let mut all = fill(&arena, 2);
        all.extend(other.join().unwrap());
        all.sort_unstable();
        assert!(all.windows(2).all(|w| w[1] - w[0] >= 64), "pieces do not overlap");
    });
}

/// Two threads that insert and then call `take_grown` get the whole growth of the memtable, each
/// byte once.
#[test]
fn loom_growth_is_reported_exactly_once() {
    check(2, || {
        let table = Arc::new(crate::MemTable::new(1));
        let other = table.clone();
        let thread = thread::spawn(move || {
            other.insert(1, ValueKind::Value, b"a", b"a");
            other.take_grown().unwrap_or(0)
        });
        table.insert(2, ValueKind::Value, b"b", b"b");
        let own = table.take_grown().unwrap_or(0);
        assert_eq!(own + thread.join().unwrap(), table.bytes());
    });
}

/// Held entries are linked while another thread inserts into the same gaps, and a third one reads.
#[test]
fn loom_held_entries_and_a_writer() {
    check(2, || {
        // The standard `Arc`, which the model does not watch.
        let list = std::sync::Arc::new(small_list(&[2, 1, 2], 4096));
        let mut held = Held::of(&list);
        held.push(b"c", trailer(1), b"c");
        held.push(b"a", trailer(2), b"a");
        let other = {
            let list = list.clone();
            thread::spawn(move || {
                list.insert(b"b", trailer(3), b"b");
                let found = keys(&list, 0);
                assert!(found.contains(&&b"b"[..]) && found.is_sorted());
            })
        };
        held.link();
        other.join().unwrap();
        assert_eq!(keys(&list, 0), [b"a", b"b", b"c"]);
        assert_eq!(keys(&list, 1), [b"b", b"c"]);
    });
}
