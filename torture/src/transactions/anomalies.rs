//! A checker of transaction histories: list append in the manner of Elle (Kingsbury and Alvaro,
//! VLDB 2020), with ranges.
//!
//! Each value is a list, and each element is appended once in the history. So a read of a list shows
//! all versions before it, and the order of the versions of a key follows from the longest list. From the versions follow the dependencies between committed transactions (Adya,
//! 1999):
//!
//! * *ww*: one appended to the version of the other;
//! * *wr*: one read the version of the other;
//! * *rw*: one read a version to which the other appended. A range reads all keys in it; an absent
//!   key is the empty list.
//!
//! | anomaly | sign | forbidden by |
//! |---|---|---|
//! | G0, dirty write | a circle of ww, or lists that contradict each other | snapshot, serializable |
//! | G1a, aborted read | an element of a transaction that was rolled back | both |
//! | G1b, intermediate read | a list that ends between two elements of a transaction | both |
//! | G1c, circular information flow | a circle of ww and wr | both |
//! | lost update | an element of a committed transaction that is in no list at the end | both |
//! | G-single, read skew | a circle with one rw | both |
//! | G2, write skew; over a range: phantom | a circle with several rw | serializable |

use std::collections::{BTreeMap, BTreeSet};

pub(super) type Key = u32;
/// An element: unique in the history.
pub(super) type Element = u32;

/// An operation of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Append(Key, Element),
    Read(Key, Vec<Element>),
    /// From the first key up to the second one, and the lists that are not empty.
    Range(Key, Key, BTreeMap<Key, Vec<Element>>),
}

/// A transaction of a history.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub ops: Vec<Op>,
    /// False: it was rolled back.
    pub is_committed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Anomaly {
    G0,
    G1a,
    G1b,
    G1c,
    LostUpdate,
    GSingle,
    G2,
}

impl Anomaly {
    /// The anomalies that snapshot isolation prevents.
    pub const SNAPSHOT: [Anomaly; 6] =
        [Anomaly::G0, Anomaly::G1a, Anomaly::G1b, Anomaly::G1c, Anomaly::LostUpdate, Anomaly::GSingle];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ww,
    Wr,
    Rw,
}

/// Dependencies: for each transaction those that come after it.
type Edges = Vec<Vec<(usize, Kind)>>;

/// Returns the anomalies of a history, each with an example. `last`: the lists at the end.
pub(super) fn find(history: &[Recorded], last: &BTreeMap<Key, Vec<Element>>) -> BTreeMap<Anomaly, String> {
    let mut found = BTreeMap::new();
    let writers = writers(history);
    let versions = versions(history, last, &mut found);
    check_elements(history, &writers, &versions, &mut found);
    check_last(history, last, &mut found);
    let edges = edges(history, &writers, &versions);
    check_circles(&edges, &mut found);
    found
}

/// Returns the transaction of each element, and whether it is the last one of its key.
fn writers(history: &[Recorded]) -> BTreeMap<Element, (usize, bool)> {
    let mut writers = BTreeMap::new();
    for (nth, transaction) in history.iter().enumerate() {
        let mut last = BTreeMap::new();
        for op in &transaction.ops {
            if let Op::Append(key, element) = op {
                if let Some(before) = last.insert(*key, *element) {
                    writers.insert(before, (nth, false));
                }
                writers.insert(*element, (nth, true));
            }
        }
    }
    writers
}

/// Calls `each` with all lists that a transaction has read of others, without its own elements.
fn reads(
    nth: usize,
    ops: &[Op],
    writers: &BTreeMap<Element, (usize, bool)>,
    mut each: impl FnMut(Key, &[Element]),
) {
    let others = |list: &[Element]| {
        let own = |element: &Element| writers.get(element).is_some_and(|(writer, _)| *writer == nth);
        list.iter().position(own).unwrap_or(list.len())
    };
    for op in ops {
        match op {
            Op::Append(..) => {}
            Op::Read(key, list) => each(*key, &list[..others(list)]),
            Op::Range(from, to, lists) => {
                for key in *from..*to {
                    let list = lists.get(&key).map_or(&[][..], Vec::as_slice);
                    each(key, &list[..others(list)]);
                }
            }
        }
    }
}

/// Returns the longest list of each key. Others must be prefixes of it.
fn versions(
    history: &[Recorded],
    last: &BTreeMap<Key, Vec<Element>>,
    found: &mut BTreeMap<Anomaly, String>,
) -> BTreeMap<Key, Vec<Element>> {
    let mut longest = last.clone();
    let (nobody, mut contradicts) = (BTreeMap::new(), None);
    for transaction in history.iter().filter(|transaction| transaction.is_committed) {
        // A list may end with elements of the transaction itself, which show an order as well.
        reads(usize::MAX, &transaction.ops, &nobody, |key, list| {
            let known = longest.entry(key).or_default();
            let common = known.len().min(list.len());
            if known[..common] != list[..common] {
                contradicts.get_or_insert_with(|| format!("key {key}: {known:?} and {list:?}"));
            } else if list.len() > known.len() {
                *known = list.to_vec();
            }
        });
    }
    if let Some(why) = contradicts {
        found.insert(Anomaly::G0, why);
    }
    longest
}

fn check_elements(
    history: &[Recorded],
    writers: &BTreeMap<Element, (usize, bool)>,
    versions: &BTreeMap<Key, Vec<Element>>,
    found: &mut BTreeMap<Anomaly, String>,
) {
    for element in versions.values().flatten() {
        if !writers.get(element).is_some_and(|(nth, _)| history[*nth].is_committed) {
            found.entry(Anomaly::G1a).or_insert_with(|| format!("element {element} was read"));
        }
    }
    for (nth, transaction) in history.iter().enumerate() {
        if !transaction.is_committed {
            continue;
        }
        reads(nth, &transaction.ops, writers, |key, list| {
            if let Some(end) = list.last()
                && writers.get(end).is_some_and(|(_, is_last)| !is_last)
            {
                found.entry(Anomaly::G1b).or_insert_with(|| format!("key {key} was read up to {end}"));
            }
        });
    }
}

fn check_last(
    history: &[Recorded],
    last: &BTreeMap<Key, Vec<Element>>,
    found: &mut BTreeMap<Anomaly, String>,
) {
    let kept: BTreeSet<(Key, Element)> =
        last.iter().flat_map(|(key, list)| list.iter().map(|element| (*key, *element))).collect();
    for transaction in history.iter().filter(|transaction| transaction.is_committed) {
        for op in &transaction.ops {
            if let Op::Append(key, element) = op
                && !kept.contains(&(*key, *element))
            {
                found
                    .entry(Anomaly::LostUpdate)
                    .or_insert_with(|| format!("element {element} is not in key {key}"));
            }
        }
    }
}

fn edges(
    history: &[Recorded],
    writers: &BTreeMap<Element, (usize, bool)>,
    versions: &BTreeMap<Key, Vec<Element>>,
) -> Edges {
    let mut edges: Edges = vec![Vec::new(); history.len()];
    let writer = |element: &Element| writers.get(element).map(|(nth, _)| *nth);
    let mut add = |from: Option<usize>, to: Option<usize>, kind: Kind| {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            edges[from].push((to, kind));
        }
    };
    for list in versions.values() {
        for pair in list.windows(2) {
            add(writer(&pair[0]), writer(&pair[1]), Kind::Ww);
        }
    }
    for (nth, transaction) in history.iter().enumerate() {
        if !transaction.is_committed {
            continue;
        }
        reads(nth, &transaction.ops, writers, |key, list| {
            add(list.last().and_then(writer), Some(nth), Kind::Wr);
            let next = versions.get(&key).and_then(|longest| longest.get(list.len()));
            add(Some(nth), next.and_then(writer), Kind::Rw);
        });
    }
    for list in &mut edges {
        list.sort_unstable();
        list.dedup();
    }
    edges
}

/// Looks for circles, those with the fewest kinds of edges first.
fn check_circles(edges: &Edges, found: &mut BTreeMap<Anomaly, String>) {
    let mut known: BTreeSet<usize> = BTreeSet::new();
    for (anomaly, kinds) in [
        (Anomaly::G0, &[Kind::Ww][..]),
        (Anomaly::G1c, &[Kind::Ww, Kind::Wr]),
        (Anomaly::G2, &[Kind::Ww, Kind::Wr, Kind::Rw]),
    ] {
        let components = components(edges, kinds);
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (nth, component) in components.iter().enumerate() {
            members.entry(*component).or_default().push(nth);
        }
        for circle in members.into_values().filter(|members| members.len() > 1) {
            // A circle of fewer kinds is one of more kinds, too.
            if circle.iter().all(|member| known.contains(member)) {
                continue;
            }
            known.extend(&circle);
            let single = single_rw(edges, &circle, &components);
            let anomaly = match anomaly {
                Anomaly::G2 if single => Anomaly::GSingle,
                anomaly => anomaly,
            };
            let first = &circle[..circle.len().min(8)];
            found.entry(anomaly).or_insert_with(|| format!("a circle among the transactions {first:?}"));
        }
    }
}

/// Returns true if some circle within a component has exactly one rw.
fn single_rw(edges: &Edges, circle: &[usize], components: &[usize]) -> bool {
    circle.iter().any(|from| {
        let rw = edges[*from]
            .iter()
            .filter(|(to, kind)| *kind == Kind::Rw && components[*to] == components[*from]);
        rw.into_iter().any(|(to, _)| is_path(edges, *to, *from, components))
    })
}

/// Returns true if ww and wr lead from one transaction to another within their component.
fn is_path(edges: &Edges, from: usize, to: usize, components: &[usize]) -> bool {
    let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(at) = next.pop() {
        if at == to {
            return true;
        }
        for (after, kind) in &edges[at] {
            if *kind != Kind::Rw && components[*after] == components[to] && seen.insert(*after) {
                next.push(*after);
            }
        }
    }
    false
}

/// Returns the strongly connected component of each transaction (Tarjan), over these kinds of edges.
fn components(edges: &Edges, kinds: &[Kind]) -> Vec<usize> {
    const NEW: usize = usize::MAX;
    let count = edges.len();
    let (mut index, mut low, mut component) = (vec![NEW; count], vec![0; count], vec![NEW; count]);
    let (mut stack, mut number) = (Vec::new(), 0);
    for root in 0..count {
        // The path from the root: a transaction, and its next edge.
        let mut path = vec![(root, 0)];
        if index[root] != NEW {
            continue;
        }
        while let Some((at, edge)) = path.pop() {
            if edge == 0 {
                (index[at], low[at]) = (number, number);
                number += 1;
                stack.push(at);
            }
            let mut next = edge;
            let mut deeper = None;
            while let Some((to, kind)) = edges[at].get(next) {
                next += 1;
                if !kinds.contains(kind) {
                    continue;
                }
                if index[*to] == NEW {
                    deeper = Some(*to);
                    break;
                }
                if component[*to] == NEW {
                    low[at] = low[at].min(index[*to]);
                }
            }
            if let Some(to) = deeper {
                // The edge is looked at again, for the lowest transaction that `to` leads to.
                path.push((at, next));
                path.push((to, 0));
                continue;
            }
            if low[at] == index[at] {
                while let Some(member) = stack.pop() {
                    component[member] = at;
                    if member == at {
                        break;
                    }
                }
            }
            if let Some((parent, _)) = path.last() {
                low[*parent] = low[*parent].min(low[at]);
            }
        }
    }
    component
}

#[cfg(test)]
mod tests;
