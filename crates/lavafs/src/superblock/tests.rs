use super::*;

fn sample() -> Superblock {
    Superblock {
        version: VERSION,
        uid: Uid::from_words(1, 2),
        generation: 7,
        key: Uid::from_words(3, 4),
        unit_blocks: 256,
        small_unit_blocks: 16,
        journal_blocks: 256,
        sparse: true,
        checkpoint: 40,
        reached: 44,
        dump: vec![Extent::new(32, 5), Extent::new(100, 1)],
        devices: vec![DeviceRecord { uid: Uid::from_words(5, 6), blocks: 1000 }],
    }
}

#[test]
fn a_slot_is_read_as_it_was_written() {
    for slot in 0..2 {
        assert_eq!(Superblock::decode(&sample().encode(slot), slot).unwrap(), sample());
        assert!(Superblock::decode(&sample().encode(slot), 1 - slot).unwrap_err().is_corruption());
    }
}

#[test]
fn every_flip_is_noticed() {
    let good = sample().encode(0);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&bytes, 0).is_err(), "bit {bit}");
    }
}

#[test]
fn numbers_that_no_release_writes_are_refused() {
    let edits: [fn(&mut Superblock); 7] = [
        |s| s.dump.clear(),
        |s| s.generation = 0,
        |s| s.unit_blocks = 0,
        |s| s.small_unit_blocks = s.unit_blocks + 1,
        |s| s.devices[0].blocks = 10,
        |s| s.dump[0] = Extent::new(3, 1),
        |s| s.dump[0] = Extent::new(999, 2),
    ];
    for (n, edit) in edits.into_iter().enumerate() {
        let mut s = sample();
        edit(&mut s);
        assert!(Superblock::decode(&s.encode(0), 0).unwrap_err().is_corruption(), "edit {n}");
    }
    let mut two = sample();
    two.devices.push(DeviceRecord { uid: Uid::from_words(7, 7), blocks: 500 });
    assert_eq!(Superblock::decode(&two.encode(0), 0).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn the_newer_slot_counts_and_either_one_is_enough() {
    let older = Superblock { generation: 6, ..sample() };
    let damaged = || Err(Error::corruption("damaged"));
    let chosen = |a: Result<Superblock>, b: Result<Superblock>| Slots { found: [a, b] }.choose();
    assert_eq!(chosen(Ok(sample()), Ok(sample())).unwrap(), (sample(), true));
    assert_eq!(chosen(Ok(older.clone()), Ok(sample())).unwrap(), (sample(), false));
    assert_eq!(chosen(Ok(sample()), Ok(older)).unwrap(), (sample(), false));
    assert_eq!(chosen(damaged(), Ok(sample())).unwrap(), (sample(), false));
    assert_eq!(chosen(Ok(sample()), damaged()).unwrap(), (sample(), false));
    assert!(chosen(damaged(), Err(Error::not_found("none"))).unwrap_err().is_corruption());
    let stranger = Superblock { uid: Uid::from_words(9, 9), ..sample() };
    assert!(chosen(Ok(sample()), Ok(stranger)).unwrap_err().is_corruption());
    let newer = || Err(Error::new(ErrorKind::Unsupported, "newer"));
    assert_eq!(chosen(Ok(sample()), newer()).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_volume_becomes_one_of_a_version_that_knows_its_dump() {
    let old = Superblock { version: 1, ..sample() };
    let runs = [Extent::new(200, 4), Extent::new(300, 4)];
    let next = old.leading_to(50, &runs, &runs);
    assert_eq!((next.version, next.checkpoint, &next.dump[..]), (1, 50, &runs[..]));
    let chained = old.leading_to(50, &runs[..1], &runs);
    assert_eq!((chained.version, &chained.dump[..]), (VERSION_WITH_CHAINS, &runs[..1]));
}
