use super::*;
use io::Rng;
use std::collections::BTreeMap;

const KEYS: u64 = 400;

fn key(nth: u64) -> Vec<u8> {
    format!("{nth:03}").into_bytes()
}

/// The history of each key: sequences, and whether the key exists from each on.
#[derive(Default)]
struct Model {
    history: BTreeMap<u64, Vec<(SeqNo, bool)>>,
    seq: SeqNo,
}

impl Model {
    fn sees(&self, nth: u64, snapshot: SeqNo) -> bool {
        let history = self.history.get(&nth).into_iter().flatten();
        history.take_while(|(seq, _)| *seq <= snapshot).last().is_some_and(|(_, is_there)| *is_there)
    }

    fn write(&mut self, nth: u64, is_there: bool) {
        self.seq += 1;
        self.history.entry(nth).or_default().push((self.seq, is_there));
    }
}

/// A family whose memtable is the model.
struct Fixture {
    ranges: EmptyRanges,
    snapshots: Arc<Snapshots>,
    model: Model,
    used: u64,
}

impl Fixture {
    fn new() -> Fixture {
        let (ranges, snapshots) = (EmptyRanges::default(), Arc::default());
        ranges.join(&snapshots);
        Fixture { ranges, snapshots, model: Model::default(), used: 0 }
    }

    fn write(&mut self, nth: u64, is_there: bool) {
        self.model.write(nth, is_there);
        self.snapshots.register(self.model.seq);
        if is_there {
            self.ranges.put(&key(nth));
        }
    }

    /// Walks forward or backward like an iterator. Returns the number of keys it passed.
    fn walk(&mut self, from: u64, snapshot: SeqNo, forward: bool) -> u64 {
        let (mut nth, mut keys, mut low) = (from as i64, 0, from as i64);
        let step = if forward { 1 } else { -1 };
        while (0..KEYS as i64).contains(&nth) && !self.model.sees(nth as u64, snapshot) {
            keys += 1;
            low = low.min(nth);
            match self.ranges.around(&key(nth as u64), snapshot) {
                None => nth += step,
                Some(range) => {
                    self.check(&range, snapshot);
                    let inside = |at: i64| (0..KEYS as i64).contains(&at) && range.contains(&key(at as u64));
                    while inside(nth) {
                        nth += step;
                    }
                }
            }
        }
        let high = if forward { nth } else { from as i64 + 1 };
        let low = if forward { from } else { (nth + 1).max(0) as u64 };
        let high = (high < KEYS as i64).then(|| key(high as u64));
        self.ranges.found(&KeyRange { low: key(low), high }, (snapshot, keys.max(KEYS_MIN)), || {});
        keys
    }

    fn check(&mut self, range: &KeyRange, snapshot: SeqNo) {
        self.used += 1;
        let wrong = (0..KEYS).find(|nth| range.contains(&key(*nth)) && self.model.sees(*nth, snapshot));
        assert_eq!(wrong, None, "{range:?} at {snapshot}");
    }
}

#[test]
fn a_known_range_has_no_key_that_the_snapshot_sees() {
    let mut used = 0;
    for case in 0..400 {
        let mut rng = Rng::new(case);
        let mut fixture = Fixture::new();
        let keys = rng.range(3, KEYS);
        let puts = rng.range(1, 8);
        for _ in 0..rng.range(20, 400) {
            match rng.below(12) {
                0..=3 => fixture.write(rng.below(keys), rng.below(8) < puts),
                4 => {
                    let nth = rng.below(keys);
                    (nth..keys.min(nth + 20)).for_each(|nth| fixture.write(nth, false));
                }
                _ => {
                    let now = fixture.model.seq;
                    let snapshot = if rng.one_in(3) { rng.below(now + 1) } else { now };
                    fixture.walk(rng.below(KEYS), snapshot, rng.one_in(2));
                }
            }
        }
        used += fixture.used;
    }
    assert!(used > 10_000, "{used} known ranges were used");
}

/// Runs a queue of `depth` elements: they enter at one end and leave at the other.
fn passed_by_a_queue(depth: u64, forward: bool) -> u64 {
    let mut fixture = Fixture::new();
    let place = |nth: u64| if forward { nth } else { KEYS - 1 - nth };
    (0..depth).for_each(|nth| fixture.write(place(nth), true));
    let mut passed = 0;
    for nth in 0..KEYS - depth {
        let seq = fixture.model.seq;
        passed += fixture.walk(place(0), seq, forward);
        fixture.write(place(nth), false);
        fixture.write(place(nth + depth), true);
    }
    passed / (KEYS - depth)
}

#[test]
fn an_empty_queue_head_is_skipped_at_once() {
    for forward in [true, false] {
        for depth in [1, 2, 10, 100] {
            let passed = passed_by_a_queue(depth, forward);
            assert!(passed <= 3, "{passed} keys for each element, depth {depth}, forward {forward}");
        }
    }
}

#[test]
fn an_unused_range_watch_is_dropped() {
    let mut fixture = Fixture::new();
    fixture.walk(0, 0, true);
    assert!(fixture.ranges.is_watched.load(Ordering::Relaxed));
    (0..=UNUSED_PUTS_MAX).for_each(|_| fixture.write(KEYS, true));
    assert!(!fixture.ranges.is_watched.load(Ordering::Relaxed));
}

#[test]
fn range_watches_are_bounded() {
    let mut fixture = Fixture::new();
    for nth in 0..KEYS / 2 {
        fixture.write(2 * nth, true);
    }
    let seq = fixture.model.seq;
    for nth in 0..KEYS / 2 {
        fixture.walk(2 * nth + 1, seq, true);
    }
    assert_eq!(lock(&fixture.ranges.watches).len(), WATCHES_MAX);
}
