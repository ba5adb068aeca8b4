use super::*;
use crate::pick::tests::{Shop, dependency};
use version::{Volume, VsstClass};

#[test]
fn unreferenced_bytes_are_garbage() {
    let mut shop = Shop::new();
    shop.vsst(10, 1000).vsst(11, 500).vsst(12, 300);
    shop.table(1, &[dependency(10, 4, 400), dependency(11, 5, 500)]).table(2, &[dependency(10, 1, 100)]);
    let version = shop.version();
    let ledger = Ledger::of(&version);
    let of = |n| {
        let g = ledger.garbage_of(n);
        (g.referenced_bytes, g.garbage_bytes, g.references, g.exact)
    };
    assert_eq!(of(10), (500, 500, 5, true));
    assert_eq!(of(11), (500, 0, 5, true));
    assert_eq!(of(12), (0, 300, 0, true));
    assert_eq!(ledger.garbage_of(99), FileGarbage::default());
    assert_eq!((ledger.record_bytes(), ledger.referenced_bytes(), ledger.exposed_bytes()), (1800, 1000, 800));
    assert_eq!(ledger.garbage_of(10).ratio_ppm(), 500_000);
    assert!(ledger.garbage_of(10).is_at_least(50) && !ledger.garbage_of(10).is_at_least(51));
    assert_eq!(ledger.iter().count(), 3);
}

#[test]
fn aliases_of_one_file_are_exact_and_others_are_apportioned() {
    let mut shop = Shop::new();
    shop.vsst(10, 1000).vsst(11, 3000);
    // Two aliases of 10, and one that resolves to both files, in three parts.
    shop.alias(5, &[10]).alias(6, &[10]).alias(7, &[10, 11, 10]);
    shop.table(1, &[dependency(5, 1, 100), dependency(6, 2, 200), dependency(10, 1, 50)]);
    let exact = Ledger::of(&shop.version());
    assert_eq!(exact.garbage_of(10).garbage_bytes, 650);
    assert!(exact.garbage_of(10).exact && exact.garbage_of(11).exact, "nothing uses the parted name");
    shop.table(2, &[dependency(7, 10, 500)]);
    let version = shop.version();
    let ledger = Ledger::of(&version);
    // File 10 has two parts of 1000 in it, file 11 one of 3000.
    assert_eq!(ledger.garbage_of(10).referenced_bytes, 350 + 200);
    assert_eq!(ledger.garbage_of(11).referenced_bytes, 300);
    assert!(!ledger.garbage_of(10).exact && !ledger.garbage_of(11).exact);
    assert_eq!(ledger.exposed_bytes(), 4000 - 850, "the sum is exact");
    for n in [10, 11] {
        assert_eq!(version.referenced_in(n).stored_bytes, ledger.garbage_of(n).referenced_bytes);
    }
}

/// Files that may leave the fast tier are kept in order, from version to version.
#[test]
fn long_lived_fast_tier_files_are_listed_in_order() {
    let mut shop = Shop::new();
    for number in 10..16 {
        let volume = if number > 10 { Volume::FAST } else { Volume::DIRECTORY };
        shop.vsst(number, 100 * number).edit(number, |v| v.volume = volume);
    }
    shop.edit(12, |v| v.class = VsstClass::Hot).edit(13, |v| v.class = VsstClass::Cold);
    shop.edit(14, |v| v.global_seq = Some(7)).edit(15, |v| v.segment = true);
    let mut version = shop.version();
    let mut ledger = Ledger::of(&version);
    assert_eq!(ledger.lasting().collect::<Vec<_>>(), [11, 13]);
    assert_eq!((ledger.lasting_bytes(), ledger.speed_bytes()), (2 * 4096, 5 * 4096), "in whole pages");
    // One file comes, and two change their class.
    let lasting_then: [&[u64]; 3] = [&[11, 13, 16], &[11, 16], &[16]];
    // Survivors of the collection of a hot file are long-lived.
    let warm = shop.edit(12, |v| v.blob_ids = vec![5]).version();
    assert_eq!(ledger.after(&version, &warm).lasting().collect::<Vec<_>>(), [11, 12, 13]);
    shop.edit(12, |v| v.blob_ids.clear());
    for (step, lasting) in lasting_then.into_iter().enumerate() {
        match step {
            0 => shop.vsst(16, 500).edit(16, |v| v.volume = Volume::FAST),
            1 => shop.edit(13, |v| v.volume = Volume::DIRECTORY),
            _ => shop.edit(11, |v| v.class = VsstClass::Hot),
        };
        let next = shop.version();
        ledger = ledger.after(&version, &next);
        assert_eq!(ledger.lasting().collect::<Vec<_>>(), lasting);
        assert_eq!(ledger, Ledger::of(&next));
        version = next;
    }
}
