use super::*;
use base::key::encode;
use base::range_del::RangeTombstone;
use base::{Error, ErrorKind, InternalIterator, MAX_SEQ, ValueKind};
use io::Rng;
use table::Ksst;

/// A source without tables: only ranges and sequences matter here.
struct NoTables;

impl TableSource for NoTables {
    fn table(&self, _file: &FileMeta) -> Result<Arc<Ksst>> {
        Err(Error::new(ErrorKind::NotFound, "no tables here"))
    }
}

fn file(number: u64, low: u8, high: u8, exclusive: bool, seqs: (SeqNo, SeqNo)) -> FileMeta {
    let kind = if exclusive { ValueKind::Seek } else { ValueKind::Value };
    let largest = encode(&[high], if exclusive { MAX_SEQ } else { 0 }, kind);
    let smallest = encode(&[low], 1, ValueKind::Value);
    FileMeta { number, smallest, largest, min_seq: seqs.0, max_seq: seqs.1, ..FileMeta::default() }
}

/// A hidden file shows no entry to any reader, for any keys and sequences, and some files are
/// hidden.
#[test]
fn hidden_files_show_no_entry_to_any_reader() {
    let mut hidden = 0;
    for case in 0..20_000 {
        let mut rng = Rng::new(case);
        let all: Vec<RangeTombstone> = (0..1 + rng.below(4))
            .map(|_| RangeTombstone {
                start: vec![rng.below(6) as u8],
                end: vec![rng.below(12) as u8],
                seq: rng.below(20),
            })
            .collect();
        let tombstones = Arc::new(FragmentedRangeTombstones::new(&all));
        let mut snapshots: Vec<SeqNo> = (0..1 + rng.below(3)).map(|_| rng.below(20)).collect();
        snapshots.sort_unstable();
        let scan = rng.one_in(2);
        let readers =
            if scan { Visibility::At(snapshots[0]) } else { Visibility::Snapshots(snapshots.clone()) };
        let mut sources = Sources::new(readers, Arc::new(NoTables), IterOptions::default());
        sources.tombstones.push(tombstones.clone());
        let low = rng.below(6) as u8;
        let (high, exclusive) = (low + 1 + rng.below(4) as u8, rng.one_in(2));
        let min = rng.below(12);
        let max = min + rng.below(4);
        if !sources.hides(&file(1, low, high, exclusive, (min, max))) {
            continue;
        }
        hidden += 1;
        // Keys of one byte stand for the ranges between them; the readers of a job include all
        // later ones.
        let readers: Vec<SeqNo> = if scan {
            vec![snapshots[0]]
        } else {
            snapshots.iter().copied().chain(snapshots[snapshots.len() - 1]..25).collect()
        };
        for key in low..high + u8::from(!exclusive) {
            for &reader in &readers {
                for seq in (min..=max).filter(|&s| s <= reader) {
                    let newest = tombstones.covering(&[key], reader);
                    assert!(newest > Some(seq), "case {case}: key {key} seq {seq} reader {reader}");
                }
            }
        }
    }
    assert!(hidden > 200, "only {hidden} cases hid a file");
}

#[test]
fn files_of_a_sorted_level_are_left_out_without_opening_them() {
    let level: Level = (0..5u8)
        .map(|i| Arc::new(file(u64::from(i) + 1, i * 10, i * 10 + 9, false, (1, 5))))
        .collect::<Vec<_>>()
        .into();
    let mut sources = Sources::new(Visibility::At(9), Arc::new(NoTables), IterOptions::default());
    let t = RangeTombstone { start: vec![5], end: vec![35], seq: 7 };
    sources.tombstones.push(Arc::new(FragmentedRangeTombstones::new(&[t])));
    sources.add([(1, &level)].into_iter(), Bounds::default()).unwrap();
    assert_eq!((sources.cursors.len(), sources.hidden_tables), (1, 2));
    let bounds = Bounds { lower: Some(&[10]), upper: Some(&[30]) };
    let mut sources = Sources { cursors: Vec::new(), hidden_tables: 0, ..sources };
    sources.add([(1, &level)].into_iter(), bounds).unwrap();
    assert_eq!((sources.cursors.len(), sources.hidden_tables), (0, 2));
    // The files of level 0 are opened at once. A job fails there; a scan fails on reaching them.
    let mut scan = Sources { cursors: Vec::new(), tombstones: Vec::new(), ..sources };
    scan.add([(0, &level)].into_iter(), Bounds::default()).unwrap();
    let mut merged = crate::MergingIterator::over(std::mem::take(&mut scan.cursors));
    assert_eq!(merged.seek_to_first().unwrap_err().kind(), ErrorKind::NotFound);
    let gap = merged.gap().unwrap();
    assert_eq!((&gap.first, &gap.last), (&level[0].smallest, &level[0].largest));
    // A seek after all of them succeeds.
    merged.seek(&base::key::encode(&[99], 9, base::ValueKind::Seek)).unwrap();
    assert!(!merged.valid());
    let mut job = Sources { readers: Visibility::Snapshots(vec![9]), ..scan };
    let added = job.add([(0, &level)].into_iter(), Bounds::default());
    assert_eq!(added.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Tables of level 0 share cursors. Each is in one run, and runs ascend without overlap. There are
/// at most as many runs as tables that contain one key.
#[test]
fn non_overlapping_level_0_tables_share_a_cursor() {
    for case in 0..2_000 {
        let mut rng = Rng::new(case);
        let files: Vec<Arc<FileMeta>> = (0..rng.below(12))
            .map(|number| {
                let low = rng.below(20) as u8;
                let exclusive = rng.one_in(2);
                let high = low + u8::from(exclusive) + rng.below(8) as u8;
                Arc::new(file(number, low, high, exclusive, (number, number)))
            })
            .collect();
        let runs = disjoint_runs(files.iter().collect());
        let mut numbers: Vec<u64> = runs.iter().flatten().map(|f| f.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..files.len() as u64).collect::<Vec<_>>());
        for run in &runs {
            assert!(run.windows(2).all(|two| two[0].ends_before(two[1].smallest_user_key())), "{run:?}");
        }
        let depth = |key: u8| files.iter().filter(|f| f.covers(&[key])).count();
        assert_eq!(runs.len(), (0..40).map(depth).max().unwrap_or(0), "case {case}");
    }
}
