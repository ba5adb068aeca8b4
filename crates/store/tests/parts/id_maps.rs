//! Maps from numbers that share their runs.

use io::Rng;
use store::IdMap;

#[test]
fn id_map_changes_transform_one_map_into_the_other() {
    let mut rng = Rng::new(2);
    let mut maps: Vec<IdMap<u64, u64>> = vec![IdMap::new()];
    let mut map = IdMap::new();
    for step in 0..400 {
        for _ in 0..rng.range(1, 300) {
            let key = rng.below(3000);
            if rng.below(5) < 3 {
                map.insert(key, rng.below(4));
            } else {
                map.remove(&key);
            }
        }
        if step % 10 == 0 {
            // Also a map that shares no run.
            maps.push(map.iter().map(|(k, v)| (k, *v)).collect());
        }
        maps.push(map.clone());
        let before = &maps[rng.below(maps.len() as u64) as usize];
        let changes = map.changes(before);
        assert!(changes.is_sorted_by(|a, b| a.0 < b.0));
        let mut led = before.clone();
        for (key, old, new) in changes {
            assert_ne!(old, new);
            assert_eq!(before.get(&key), old);
            match new {
                Some(new) => led.insert(key, *new),
                None => led.remove(&key),
            };
        }
        assert_eq!(led, map);
        assert!(map.changes(&map.clone()).is_empty());
    }
}
