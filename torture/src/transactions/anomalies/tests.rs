//! Each anomaly is found where it is seeded, and in no serial history.

use super::*;
use io::Rng;

fn committed(ops: Vec<Op>) -> Recorded {
    Recorded { ops, is_committed: true }
}

fn read(key: Key, list: &[Element]) -> Op {
    Op::Read(key, list.to_vec())
}

fn append(key: Key, element: Element) -> Op {
    Op::Append(key, element)
}

fn kinds(history: &[Recorded], last: &[(Key, &[Element])]) -> Vec<Anomaly> {
    let last = last.iter().map(|(key, list)| (*key, list.to_vec())).collect();
    find(history, &last).into_keys().collect()
}

#[test]
fn dirty_writes_are_found() {
    let history =
        [committed(vec![append(1, 10), append(2, 20)]), committed(vec![append(1, 11), append(2, 21)])];
    assert_eq!(kinds(&history, &[(1, &[10, 11]), (2, &[21, 20])]), [Anomaly::G0]);
    assert_eq!(kinds(&history, &[(1, &[10, 11]), (2, &[20, 21])]), []);
    let contradiction =
        [committed(vec![append(1, 10)]), committed(vec![append(1, 11)]), committed(vec![read(1, &[11])])];
    assert!(kinds(&contradiction, &[(1, &[10, 11])]).contains(&Anomaly::G0));
}

#[test]
fn aborted_and_intermediate_reads_are_found() {
    let aborted =
        [Recorded { ops: vec![append(1, 10)], is_committed: false }, committed(vec![read(1, &[10])])];
    assert_eq!(kinds(&aborted, &[]), [Anomaly::G1a]);
    let intermediate = [committed(vec![append(1, 10), append(1, 11)]), committed(vec![read(1, &[10])])];
    assert!(kinds(&intermediate, &[(1, &[10, 11])]).contains(&Anomaly::G1b));
}

#[test]
fn circular_information_flow_is_found() {
    let history =
        [committed(vec![append(1, 10), read(2, &[20])]), committed(vec![append(2, 20), read(1, &[10])])];
    assert_eq!(kinds(&history, &[(1, &[10]), (2, &[20])]), [Anomaly::G1c]);
}

#[test]
fn a_lost_update_is_found() {
    let history =
        [committed(vec![read(1, &[]), append(1, 10)]), committed(vec![read(1, &[]), append(1, 11)])];
    assert_eq!(kinds(&history, &[(1, &[11])]), [Anomaly::LostUpdate]);
}

#[test]
fn read_skew_is_found_and_is_no_write_skew() {
    let writer = committed(vec![append(1, 10), append(2, 20)]);
    let history = [writer.clone(), committed(vec![read(1, &[]), read(2, &[20])])];
    assert_eq!(kinds(&history, &[(1, &[10]), (2, &[20])]), [Anomaly::GSingle]);
    let over_a_range = [writer, committed(vec![read(2, &[20]), Op::Range(0, 2, BTreeMap::new())])];
    assert_eq!(kinds(&over_a_range, &[(1, &[10]), (2, &[20])]), [Anomaly::GSingle]);
}

#[test]
fn write_skew_and_phantoms_are_found() {
    let skew = [committed(vec![read(1, &[]), append(2, 20)]), committed(vec![read(2, &[]), append(1, 10)])];
    assert_eq!(kinds(&skew, &[(1, &[10]), (2, &[20])]), [Anomaly::G2]);
    let counts = |key, element| committed(vec![Op::Range(0, 5, BTreeMap::new()), append(key, element)]);
    assert_eq!(kinds(&[counts(1, 10), counts(2, 20)], &[(1, &[10]), (2, &[20])]), [Anomaly::G2]);
    let one_after_the_other =
        [counts(1, 10), committed(vec![Op::Range(0, 5, BTreeMap::from([(1, vec![10])])), append(2, 20)])];
    assert_eq!(kinds(&one_after_the_other, &[(1, &[10]), (2, &[20])]), []);
}

/// Serial histories have no anomaly, whatever they do; with one stale read they mostly have one.
#[test]
fn serial_histories_have_no_anomaly_and_stale_reads_show() {
    let mut shown = 0;
    for seed in 0..200 {
        let (mut rng, mut lists) = (Rng::new(seed), BTreeMap::<Key, Vec<Element>>::new());
        let (mut history, mut element, stale) = (Vec::new(), 0, rng.below(60) as usize);
        for nth in 0..60 {
            let before = lists.clone();
            let (mut ops, mut read_keys) = (Vec::new(), Vec::new());
            for _ in 0..rng.range(1, 5) {
                let key = rng.below(4) as Key;
                match rng.below(3) {
                    0 => ops.push(Op::Range(
                        0,
                        key,
                        before.range(0..key).map(|(k, l)| (*k, l.clone())).collect(),
                    )),
                    1 => {
                        read_keys.push(key);
                        ops.push(read(key, before.get(&key).map_or(&[][..], Vec::as_slice)));
                    }
                    _ => {
                        element += 1;
                        lists.entry(key).or_default().push(element);
                        ops.push(append(key, element));
                    }
                }
            }
            history.push(committed(ops));
            if nth == stale {
                history.push(committed(vec![
                    read(0, &[]),
                    read(1, before.get(&1).map_or(&[][..], Vec::as_slice)),
                ]));
            }
        }
        let honest: Vec<Recorded> = history
            .iter()
            .enumerate()
            .filter(|(nth, _)| *nth != stale + 1)
            .map(|(_, one)| one.clone())
            .collect();
        assert_eq!(find(&honest, &lists), BTreeMap::new(), "seed {seed}");
        shown += u32::from(!find(&history, &lists).is_empty());
    }
    assert!(shown > 100, "{shown}");
}
