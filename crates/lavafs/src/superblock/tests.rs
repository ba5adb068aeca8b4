use super::*;

fn sample() -> Superblock {
    Superblock {
        version: VERSION_OF_ONE,
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
        devices: DeviceTable {
            records: vec![DeviceRecord { uid: Uid::from_words(5, 6), blocks: 1000 }],
            bond: None,
        },
    }
}

/// Returns the sample for two devices, as stored on the device with this role.
fn sample_of(role: Role) -> Superblock {
    let mut two = Superblock { version: VERSION_OF_TWO, ..sample() };
    two.devices.records.push(DeviceRecord { uid: Uid::from_words(7, 7), blocks: 500 });
    let (session, previous) = (Uid::from_words(8, 9), Uid::from_words(10, 11));
    two.devices.bond = Some(DevicePairing { role, session, previous, mounts: 77 });
    if role == Role::Capacity {
        two.dump.clear();
    }
    two
}

#[test]
fn a_slot_is_read_as_it_was_written() {
    for slot in 0..2 {
        assert_eq!(Superblock::decode(&sample().encode(slot), slot).unwrap(), sample());
        assert!(Superblock::decode(&sample().encode(slot), 1 - slot).unwrap_err().is_corruption());
    }
}

#[test]
fn every_bit_flip_is_detected() {
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
        |s| s.devices.records[0].blocks = 10,
        |s| s.dump[0] = Extent::new(3, 1),
        |s| s.dump[0] = Extent::new(999, 2),
    ];
    for (n, edit) in edits.into_iter().enumerate() {
        let mut s = sample();
        edit(&mut s);
        assert!(Superblock::decode(&s.encode(0), 0).unwrap_err().is_corruption(), "edit {n}");
    }
    let edits: [fn(&mut Superblock); 6] = [
        |s| s.version = VERSION_OF_ONE,
        |s| s.devices.records.truncate(1),
        |s| s.devices.records[1].blocks = 10,
        |s| s.devices.records[1].blocks = DEVICE_BLOCKS_MAX + 1,
        |s| s.dump.clear(),
        |s| s.dump[0] = Extent::new(1 << 31, 1),
    ];
    for (n, edit) in edits.into_iter().enumerate() {
        let mut s = sample_of(Role::Fast);
        edit(&mut s);
        assert!(Superblock::decode(&s.encode(0), 0).unwrap_err().is_corruption(), "edit {n} of two");
    }
}

#[test]
fn superblock_slots_identify_their_device() {
    for role in Role::ALL {
        let s = sample_of(role);
        assert_eq!(Superblock::decode(&s.encode(1), 1).unwrap(), s);
        assert_eq!((s.blocks(), s.blocks_of(Role::Capacity)), (1500, 500));
    }
    let leads = Superblock { dump: sample().dump, ..sample_of(Role::Capacity) };
    assert!(
        Superblock::decode(&leads.encode(0), 0).unwrap_err().is_corruption(),
        "a capacity device leads nowhere"
    );
}

#[test]
fn the_newer_slot_is_used_and_either_suffices() {
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
fn a_volume_is_upgraded_to_a_version_with_dumps() {
    let old = Superblock { version: 1, ..sample() };
    let runs = [Extent::new(200, 4), Extent::new(300, 4)];
    let next = old.leading_to(50, &runs, &runs);
    assert_eq!((next.version, next.checkpoint, &next.dump[..]), (1, 50, &runs[..]));
    let chained = old.leading_to(50, &runs[..1], &runs);
    assert_eq!((chained.version, &chained.dump[..]), (VERSION_WITH_CHAINS, &runs[..1]));
}

/// Returns slot 0 with a changed field under a correct checksum.
fn resealed(of: &Superblock, at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = of.encode(0);
    bytes[at..at + field.len()].copy_from_slice(field);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let sum = checksum::stored(&bytes, sample().uid, slot_offset(0));
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn invalid_superblock_fields_are_refused() {
    let cases = [
        (8, 99u32, "the volume has format 99, but this release reads formats up to "),
        (56, 8192, "the volume has blocks of 8192 bytes, but this release reads 4096: use another release"),
        (76, 9, "the superblock names 9 devices instead of 1 to 2"),
        (144, 9999, "the superblock has 9999 extents of the metadata dump, over the limit of 64"),
    ];
    let one = cases.map(|(at, field, told)| (sample(), at, field, told));
    let two = [
        (76, 1u32, "the superblock has format 3, which does not fit its 1 devices"),
        (704, 2, "the superblock has the unknown device role 2"),
    ]
    .map(|(at, field, told)| (sample_of(Role::Fast), at, field, told));
    for (of, at, field, told) in one.into_iter().chain(two) {
        let e = Superblock::decode(&resealed(&of, at, &field.to_le_bytes()), 0).unwrap_err();
        assert!(e.message().starts_with(told), "{told}: {e}");
        let unsupported = told.contains("this release");
        assert_eq!(e.kind() == ErrorKind::Unsupported, unsupported, "{e}");
        assert!(unsupported || e.is_corruption(), "{e}");
    }
    let short = &sample().encode(0)[..100];
    assert_eq!(
        Superblock::decode(short, 0).unwrap_err().message(),
        "the superblock has 100 bytes instead of 4096"
    );
}
