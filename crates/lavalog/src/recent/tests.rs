use super::*;
use datadriven::TestCase;
use io::Rng;
use std::collections::BTreeMap;

fn record(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn the_newest_records_are_cached_within_the_memory_limit() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let bytes_max = 1 << rng.range(12, 20);
        let mut recent = RecentBytes::new(bytes_max);
        let mut all: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        let (mut ltn, mut at) = (1, 0);
        for _ in 0..3000 {
            if rng.one_in(200) {
                (ltn, at) = (ltn + rng.range(1, 4), 0);
            }
            let len = [0, 1, 100, 1000, 70_000][rng.below(5) as usize];
            let bytes = record(&mut rng, len);
            recent.push(GroupPosition { ltn, at }, &bytes);
            all.insert((ltn, at), bytes);
            at += len as u64 + rng.range(1, 100);
            assert!(recent.memory_bytes() <= bytes_max + CHUNK_BYTES.max(70_000) + 100_000, "seed {seed}");
        }
        let found: Vec<bool> = all
            .iter()
            .map(|(&(ltn, at), bytes)| match recent.find(GroupPosition { ltn, at }) {
                Some(found) => {
                    assert_eq!(found, bytes, "seed {seed}");
                    true
                }
                None => false,
            })
            .collect();
        // From some record on, all records that fit are kept.
        let kept =
            all.values().zip(&found).filter(|(bytes, _)| !bytes.is_empty() && bytes.len() <= bytes_max);
        let kept: Vec<bool> = kept.map(|(_, found)| *found).collect();
        assert!(kept.is_sorted() && kept.last() == Some(&true), "seed {seed}: {kept:?}");
        assert!(recent.find(GroupPosition { ltn, at }).is_none());
        assert!(recent.find(GroupPosition { ltn: 0, at: 0 }).is_none());
    }
}

fn run(recent: &mut RecentBytes, case: &mut TestCase) -> Result<String, Box<dyn std::error::Error>> {
    let ltn = case.try_take_arg("group")?.unwrap_or(3);
    let out = match &*case.directive {
        "memory" => {
            *recent = RecentBytes::new(case.take_arg("bytes")?);
            String::new()
        }
        "push" => {
            let record: String = case.take_arg("record")?;
            recent.push(GroupPosition { ltn, at: case.take_arg("at")? }, record.as_bytes());
            String::new()
        }
        "find" => {
            let find = |at: u64| {
                let found = recent.find(GroupPosition { ltn, at }).map(String::from_utf8_lossy);
                format!("{at}: {}\n", found.as_deref().unwrap_or("none"))
            };
            case.take_args("at")?.into_iter().map(find).collect()
        }
        "used" => format!("{} B\n", recent.memory_bytes()),
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/recent/scripts", |file| {
        let mut recent = RecentBytes::new(0);
        file.run(|case| run(&mut recent, case));
    });
}
