use super::*;
use base::{MAX_SEQ, ValueKind, key};

/// Returns a table of the keys `low` to `high`, with sizes in KiB.
fn table(number: u64, low: u32, high: u32, len: u64, raw_bytes: u64) -> Arc<FileMeta> {
    let end = |user_key: u32| key::encode(&user_key.to_be_bytes(), 1, ValueKind::Value);
    let (smallest, largest) = (end(low), end(high));
    let (len, raw_bytes) = (len << 10, raw_bytes << 10);
    Arc::new(FileMeta { number, len, smallest, largest, raw_bytes, ..FileMeta::default() })
}

/// Returns a compaction of level 0 and all of level 1 into level 1, with tables of 10 KiB.
fn from_level_0(version: &Version) -> Compaction {
    let inputs = (0..2).map(|level| (level, version.files(level).to_vec()));
    Compaction {
        family: 0,
        level: 0,
        output_level: 1,
        inputs: inputs.filter(|(_, files)| !files.is_empty()).collect(),
        reason: Reason::L0Files,
        trivial_move: false,
        file_bytes: 10 << 10,
        overlap_max: 0,
        compensated: false,
        relocate_vssts: Vec::new(),
        volume: 0,
    }
}

fn told(cuts: Vec<Vec<u8>>) -> Vec<u32> {
    cuts.iter().map(|cut| u32::from_be_bytes(cut[..].try_into().expect("a key of four bytes"))).collect()
}

/// Returns a level 2 of tables of 10 keys from 0 on.
fn tens(tables: u32) -> Vec<Arc<FileMeta>> {
    (0..tables).map(|n| table(100 + u64::from(n), 10 * n + 3, 10 * n + 9, 10, 10)).collect()
}

#[test]
fn subcompactions_into_the_base_level_align_with_next_level() {
    let level_1 = vec![table(2, 0, 44, 40, 40), table(3, 45, 99, 40, 40)];
    let version = Version::with_files(0, vec![vec![table(1, 0, 99, 80, 80)], level_1.clone(), tens(10)]);
    let compaction = from_level_0(&version);
    assert_eq!(told(cuts(&compaction, &version, 2)), [53], "as near to the middle as there is one");
    assert_eq!(told(cuts(&compaction, &version, 4)), [23, 53, 73]);
    assert!(cuts(&compaction, &version, 1).is_empty());
    // Without a level below, cuts follow the input tables.
    let alone = Version::with_files(0, vec![vec![table(1, 0, 99, 80, 80)], level_1.clone()]);
    assert_eq!(told(cuts(&compaction, &alone, 4)), [45]);
    // Into a deeper level, cuts follow the tables of that level.
    let deeper = Compaction {
        level: 1,
        output_level: 2,
        inputs: vec![(1, level_1), (2, tens(10))],
        ..from_level_0(&version)
    };
    let below = (0..20).map(|n| table(200 + u64::from(n), 5 * n, 5 * n + 4, 10, 10)).collect();
    let version = Version::with_files(0, vec![vec![], version.files(1).to_vec(), tens(10), below]);
    assert_eq!(told(cuts(&deeper, &version, 2)), [53]);
    // Only compactions that cannot be cut stay whole.
    let intra = Compaction { output_level: 0, ..compaction.clone() };
    let moved = Compaction { trivial_move: true, ..compaction.clone() };
    let relocating = Compaction { relocate_vssts: vec![7], ..compaction.clone() };
    let walk = Compaction { reason: Reason::Relocation, ..compaction };
    for whole in [intra, moved, relocating, walk] {
        assert!(cuts(&whole, &version, 8).is_empty(), "{whole:?}");
    }
}

#[test]
fn subcompactions_have_a_minimum_size() {
    for (bytes, pieces) in [(9, 1), (39, 1), (40, 2), (59, 2), (60, 3), (9000, 8)] {
        let version = Version::with_files(0, vec![vec![table(1, 0, 999, bytes, bytes)], vec![], tens(100)]);
        let cuts = cuts(&from_level_0(&version), &version, 8);
        assert_eq!(cuts.len() + 1, pieces, "{bytes}");
        assert!(cuts.is_sorted_by(|a, b| a < b));
    }
    // Referenced values count toward the size of tables, but a piece must also be worth physical
    // files.
    for (len, pieces) in [(1, 1), (10, 2), (100, 4)] {
        let version = Version::with_files(0, vec![vec![table(1, 0, 999, len, 80)], vec![], tens(100)]);
        let compaction = Compaction { compensated: true, ..from_level_0(&version) };
        assert_eq!(cuts(&compaction, &version, 8).len() + 1, pieces, "{len}");
    }
    // All data lies on one side of the only possible cut.
    let version = Version::with_files(
        0,
        vec![vec![table(1, 0, 4, 99, 99), table(2, 6, 90, 9, 9)], vec![], vec![table(3, 5, 90, 1, 1)]],
    );
    assert!(cuts(&from_level_0(&version), &version, 8).is_empty());
}

/// A table that ends with a range tombstone does not overlap a table that begins at that end.
#[test]
fn an_exclusive_end_does_not_overlap_a_table_starting_there() {
    let end = key::encode(&50u32.to_be_bytes(), MAX_SEQ, ValueKind::Seek);
    let first = FileMeta { largest: end, ..(*table(1, 0, 0, 30, 30)).clone() };
    let inputs = vec![Arc::new(first), table(2, 50, 90, 30, 30)];
    let version = Version::with_files(0, vec![inputs, vec![], vec![table(3, 50, 90, 1, 1)]]);
    let compaction = from_level_0(&version);
    assert_eq!(told(cuts(&compaction, &version, 2)), [50]);
    let places = [50u32.to_be_bytes()];
    let before = bytes_before(&compaction, &[&places[0]]);
    assert_eq!(before.iter().map(|b| b.physical >> 10).collect::<Vec<_>>(), [30]);
}
