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

/// The bytes of slot 0 with a field changed, under a checksum that fits.
fn resealed(at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = sample().encode(0);
    bytes[at..at + field.len()].copy_from_slice(field);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let sum = checksum::stored(&bytes, sample().uid, slot_offset(0));
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn each_field_that_cannot_be_is_told() {
    let cases = [
        (8, 99u32, "the volume has format 99, this release reads those up to "),
        (56, 8192, "the volume has blocks of 8192 bytes, this release reads 4096"),
        (76, 9, "a volume of 9 devices"),
        (144, 9999, "a dump of 9999 runs of blocks"),
    ];
    for (at, field, told) in cases {
        let e = Superblock::decode(&resealed(at, &field.to_le_bytes()), 0).unwrap_err();
        assert!(e.message().starts_with(told), "{told}: {e}");
        let unsupported = told.contains("this release");
        assert_eq!(e.kind() == ErrorKind::Unsupported, unsupported, "{e}");
        assert!(unsupported || e.is_corruption(), "{e}");
    }
    let short = &sample().encode(0)[..100];
    assert_eq!(Superblock::decode(short, 0).unwrap_err().message(), "a superblock of 100 bytes");
}
