use super::*;
use io::Rng;

fn store() -> Uid {
    Uid::from_words(1, 2)
}

fn owner() -> Owner {
    Owner { store: store(), group: Some(Uid::from_words(5, 6)) }
}

fn header(lpn: u64) -> PageHeader {
    PageHeader {
        form: Form::Open,
        used: 0,
        prev_used: 100,
        owner: owner(),
        ltn: 3,
        lpn,
        first_lpn: lpn - 1,
        durable_end: lpn,
        prev_ltn: 2,
        prev_end: lpn - 5,
        witness_edit: 9,
        stream: None,
    }
}

/// Returns an open page with fragments of these payloads, and the end of each.
fn open_page(lpn: u64, payloads: &[&[u8]]) -> ([u8; PAGE], Vec<usize>) {
    let mut page = [0xee; PAGE];
    header(lpn).encode_open(&mut page);
    let mut pos = HEADER_LEN;
    let mut ends = Vec::new();
    for (i, payload) in payloads.iter().enumerate() {
        let batch = BatchHeader {
            tenant: TenantId::FIRST,
            first_seq: i as u64,
            seq_span: 2,
            len: payload.len() as u32,
        };
        let end = pos + FIRST_FRAGMENT_HEADER_LEN + payload.len();
        page[pos + FIRST_FRAGMENT_HEADER_LEN..end].copy_from_slice(payload);
        encode_fragment(&mut page[pos..end], FragmentKind::Full, batch, owner(), lpn, pos);
        pos = end;
        ends.push(end);
    }
    (page, ends)
}

fn payloads(page: &[u8], lpn: u64) -> Vec<&[u8]> {
    Fragments::new(page, owner(), lpn).map(|f| f.payload).collect()
}

#[test]
fn open_and_closed_pages_round_trip() {
    let (mut page, ends) = open_page(70, &[b"one", b"two"]);
    assert_eq!(read_open(&page, store()), Verdict::Valid(header(70)));
    assert_eq!(read_closed(&page, owner(), 3), Verdict::Invalid, "not closed yet");
    assert_eq!(payloads(&page, 70), [b"one", b"two"]);

    let used = ends[1] as u16;
    close(&mut page, used, 66, owner(), 70);
    let closed = PageHeader { form: Form::Closed, used, durable_end: 66, ..header(70) };
    assert_eq!(read_closed(&page, owner(), 3), Verdict::Valid(closed));
    assert_eq!(read_open(&page, store()), Verdict::Invalid);
    assert_eq!(payloads(&page, 70), [b"one", b"two"]);
    assert!(page[ends[1]..].iter().all(|&b| b == 0));
}

#[test]
fn a_page_is_bound_to_its_store_group_and_position() {
    let (mut page, ends) = open_page(70, &[b"one"]);
    assert_eq!(read_open(&page, Uid::from_words(2, 1)), Verdict::Invalid);
    assert_eq!(payloads(&page, 71).len(), 0, "fragments of another page do not parse");
    close(&mut page, ends[0] as u16, 70, owner(), 70);
    assert_eq!(read_closed(&page, owner(), 4), Verdict::Invalid);
    assert_eq!(read_closed(&page[1..], owner(), 3), Verdict::Invalid);
    assert_eq!(read_closed(&[], owner(), 3), Verdict::Invalid);
}

/// A copy of a store has its numbers, and its uid too if it was copied by hand: the group's
/// identity distinguishes its pages.
#[test]
fn a_page_matches_only_its_own_group_identity() {
    let (mut page, ends) = open_page(70, &[b"one"]);
    let others = [Some(Uid::from_words(6, 5)), None].map(|group| Owner { group, ..owner() });
    for other in others {
        assert_eq!(Fragments::new(&page, other, 70).count(), 0);
    }
    close(&mut page, ends[0] as u16, 70, owner(), 70);
    for other in others {
        assert_eq!(read_closed(&page, other, 3), Verdict::Invalid);
    }
    assert_eq!((group_of(&page, store()), group_of(&page, Uid::from_words(2, 1))), (Some(3), None));
    // Not by the field alone: changing it does not change the checksums.
    page[HEADER_LEN_V1..][..16].copy_from_slice(&Uid::from_words(6, 5).0);
    assert_eq!(read_closed(&page, others[0], 3), Verdict::Invalid);
}

/// Groups listed by an older release have no identity.
#[test]
fn a_page_of_version_1_is_read() {
    let owner = Owner { group: None, ..owner() };
    let old = PageHeader { owner, ..header(70) };
    let mut page = [0; PAGE];
    old.encode_open(&mut page);
    assert_eq!((page[8], owner.header_len()), (1, HEADER_LEN_V1));
    let batch = BatchHeader { tenant: TenantId::FIRST, first_seq: 1, seq_span: 0, len: 3 };
    let (pos, end) = (HEADER_LEN_V1, HEADER_LEN_V1 + FIRST_FRAGMENT_HEADER_LEN + 3);
    encode_fragment(&mut page[pos..end], FragmentKind::Full, batch, owner, 70, pos);
    assert_eq!(read_open(&page, store()), Verdict::Valid(old));
    close(&mut page, end as u16, 66, owner, 70);
    let closed = PageHeader { form: Form::Closed, used: end as u16, durable_end: 66, ..old };
    assert_eq!((read_closed(&page, owner, 3), group_of(&page, store())), (Verdict::Valid(closed), Some(3)));
}

#[test]
fn a_fragment_is_bound_to_its_position() {
    let (mut page, ends) = open_page(70, &[b"one", b"two"]);
    page.copy_within(ends[0]..ends[1], HEADER_LEN);
    assert_eq!(payloads(&page, 70).len(), 0);
}

#[test]
fn a_page_of_a_later_format_is_named() {
    let newer = Verdict::Newer(Unknown::Version(FORMAT_VERSION + 1));
    let (mut page, ends) = open_page(70, &[b"one"]);
    page[8] = FORMAT_VERSION + 1;
    close(&mut page, ends[0] as u16, 70, owner(), 70);
    assert_eq!(read_closed(&page, owner(), 3), newer);
    // A page that uses bytes which this release leaves 0.
    page[8] = 2;
    page[STREAM_AT] = 1;
    close(&mut page, ends[0] as u16, 70, owner(), 70);
    assert_eq!(read_closed(&page, owner(), 3), newer);
    // Version 3 has the stream there: only the first lane, since the other needs version 4.
    page[8] = 3;
    close(&mut page, ends[0] as u16, 70, owner(), 70);
    assert_eq!(read_closed(&page, owner(), 3), Verdict::Newer(Unknown::Unreleased(Lane::LOG)));
    page[STREAM_AT] = 2;
    close(&mut page, ends[0] as u16, 70, owner(), 70);
    let second = Stream { lane: Lane(2), ..Stream::default() };
    assert_eq!(read_closed(&page, owner(), 3), Verdict::Newer(Unknown::Stream(second)));
    page[STREAM_AT] = 0;
    page[HEADER_LEN - 1] = 1;
    close(&mut page, ends[0] as u16, 70, owner(), 70);
    assert_eq!(read_closed(&page, owner(), 3), newer);
}

/// A page of another lane is as long as its contents, in blocks, and all of it is covered by its
/// checksum.
#[test]
fn page_length_follows_the_contents() {
    for (block, used) in [512, 1024, 2048, 4096].into_iter().flat_map(|block| {
        [HEADER_LEN, 500, 512, 513, 1024, 2049, 3584, 3585, 4040, 4095, 4096].map(|used| (block, used))
    }) {
        let stream = Some(Stream::of(Lane::LOG, block));
        let (mut bytes, len) = ([7; 2 * PAGE], used.next_multiple_of(block));
        PageHeader { stream, ..header(70) }.encode_open(&mut bytes);
        assert_eq!((bytes[8], usize::from(bytes[106])), (4, block.ilog2() as usize));
        if used > HEADER_LEN {
            let (kind, payload_len) = (FragmentKind::Full, used - HEADER_LEN - FIRST_FRAGMENT_HEADER_LEN);
            let batch =
                BatchHeader { tenant: TenantId(2), first_seq: 1, seq_span: 0, len: payload_len as u32 };
            encode_fragment(&mut bytes[HEADER_LEN..used], kind, batch, owner(), 70, HEADER_LEN);
        }
        close(&mut bytes[..len], used as u16, 66, owner(), 70);
        let Verdict::Valid(found) = read_closed(&bytes, owner(), 3) else { panic!("{block} {used}") };
        assert_eq!((found.page_len(), found.numbers(), found.stream), (len, len as u64 / 512, stream));
        assert_eq!((found.end_lpn(), found.lane()), (70 + len as u64 / 512, Lane::LOG));
        assert_eq!(
            read_closed(&bytes[..len], owner(), 3),
            Verdict::Valid(found),
            "what is behind it is nothing to it"
        );
        assert_eq!(read_closed(&bytes[..len - 1], owner(), 3), Verdict::Invalid);
        for bit in (0..len * 8).step_by(7).chain(10 * 8..12 * 8).chain(106 * 8..107 * 8) {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                read_closed(&flipped, owner(), 3),
                Verdict::Invalid,
                "block {block} used {used} bit {bit}"
            );
        }
    }
}

/// Blocks that no device has, and a first lane with blocks, are from a later release.
#[test]
fn unknown_block_lengths_are_named() {
    for (lane, block_log2) in [(1, 0), (1, 3), (1, 8), (1, 13), (1, 40), (1, 255), (0, 0), (0, 9), (2, 9)] {
        let mut bytes = [0; PAGE];
        let stream = Stream { lane: Lane(lane), logger: 0, shape: Shape { block_log2 } };
        PageHeader { stream: Some(stream), ..header(70) }.encode_open(&mut bytes);
        bytes[8] = 4;
        let len = stream.shape.page_len(HEADER_LEN);
        close(&mut bytes[..len], HEADER_LEN as u16, 66, owner(), 70);
        assert_eq!(read_closed(&bytes, owner(), 3), Verdict::Newer(Unknown::Stream(stream)), "{stream:?}");
    }
}

/// The room reserved for a batch equals the room that its pages take.
#[test]
fn reserved_space_equals_the_space_taken() {
    let mut rng = io::Rng::new(5);
    for _ in 0..3000 {
        let shape = match rng.below(5) {
            0 => Shape::default(),
            log2 => Shape::of(Lane::LOG, 256 << log2),
        };
        let open = rng.one_in(2);
        let used =
            if open { rng.range(HEADER_LEN as u64 + 25, (PAGE - ROOM_LEN_MIN) as u64) as usize } else { 0 };
        let longest = [60, 5000, 40_000][rng.below(3) as usize];
        let len = rng.range(1, longest) as usize;
        // Page by page, as fragments are added.
        let (mut pos, mut left, mut numbers) = (used.max(HEADER_LEN), len, 0);
        let mut header_len = FIRST_FRAGMENT_HEADER_LEN;
        loop {
            let n = left.min(PAGE - pos - header_len);
            (left, pos) = (left - n, pos + header_len + n);
            numbers += shape.numbers(pos);
            if left == 0 {
                break;
            }
            assert_eq!(pos, PAGE, "a batch fills every page that it does not end in");
            (pos, header_len) = (HEADER_LEN, NEXT_FRAGMENT_HEADER_LEN);
        }
        assert_eq!(shape.numbers_for(used, len), numbers, "{shape:?} {used} {len}");
    }
}

/// A page with batches of two tenants has a version that older releases refuse, so that they do not
/// mix up the tenants.
#[test]
fn a_page_of_several_tenants_is_of_version_3() {
    let shared = PageHeader { stream: Some(Stream::default()), ..header(70) };
    for (of, expected) in [(shared, 3), (header(70), 2)] {
        let mut page = [0; PAGE];
        of.encode_open(&mut page);
        assert_eq!(page[8], expected);
        let batch = BatchHeader { tenant: TenantId(7), first_seq: 1, seq_span: 0, len: 3 };
        let end = HEADER_LEN + FIRST_FRAGMENT_HEADER_LEN + 3;
        encode_fragment(&mut page[HEADER_LEN..end], FragmentKind::Full, batch, owner(), 70, HEADER_LEN);
        let found: Vec<_> = Fragments::new(&page, owner(), 70).map(|f| (f.tenant, f.batch)).collect();
        assert_eq!(found, [(TenantId(7), Some(batch))]);
        close(&mut page, end as u16, 66, owner(), 70);
        let verdict = read_closed(&page, owner(), 3);
        match expected {
            3 => assert!(matches!(verdict, Verdict::Valid(header) if header.stream == shared.stream)),
            _ => assert!(matches!(verdict, Verdict::Newer(_)), "{verdict:?}"),
        }
    }
}

/// Reserved fragment kinds are distinguished from damage.
#[test]
fn a_fragment_of_a_later_release_is_named() {
    for role in [role::PREPARE, role::COMMIT, role::ABORT, 15] {
        for kind in 1..=4 {
            let (mut page, ends) = open_page(70, &[b"one", b"two"]);
            let (start, end) = (ends[0], ends[1]);
            page[start + 6] = role << 4 | kind;
            let len = if kind > 2 { end - start - NEXT_FRAGMENT_HEADER_LEN } else { 3 };
            page[start + 4..start + 6].copy_from_slice(&(len as u16).to_le_bytes());
            let sum = checksum(&page[start + 4..end]) ^ fragment_mask(owner(), 70, start);
            page[start..start + 4].copy_from_slice(&sum.to_le_bytes());
            let unknown = Unknown::Kind(role << 4 | kind);
            assert_eq!(extent(&page, &header(70)), Err(unknown));
            let mut damaged = page;
            close(&mut page, end as u16, 66, owner(), 70);
            assert_eq!(read_closed(&page, owner(), 3), Verdict::Newer(unknown));
            damaged[start] ^= 1;
            assert_eq!(extent(&damaged, &header(70)), Ok(start), "damage is damage");
        }
    }
}

#[test]
fn every_flip_in_a_closed_page_is_caught() {
    let (mut page, ends) = open_page(70, &[&[7; 900], b"two", &[0; 2000]]);
    close(&mut page, ends[2] as u16, 70, owner(), 70);
    for bit in 0..PAGE * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read_closed(&page, owner(), 3), Verdict::Invalid, "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(matches!(read_closed(&page, owner(), 3), Verdict::Valid(_)));
}

/// While a fragment is being added, over any former contents of the slot, the page parses up to the
/// last complete one.
#[test]
fn a_half_written_fragment_hides_nothing() {
    let (stale, _) = open_page(65, &[&[1; 700], &[2; 700], &[3; 700], &[4; 700]]);
    let (full, ends) = open_page(70, &[&[1; 700], &[9; 700]]);
    let (start, end) = (ends[0], ends[1]);
    let mut page = stale;
    page[..start].copy_from_slice(&full[..start]);
    let order: Vec<usize> = (start + 4..end).chain(start..start + 4).collect();
    for at in order {
        assert_eq!(payloads(&page, 70), [&[1; 700]], "before byte {at}");
        page[at] = full[at];
    }
    assert_eq!(payloads(&page, 70).len(), 2);
}

#[test]
fn random_bytes_are_no_pages() {
    let mut rng = Rng::new(5);
    for _ in 0..2000 {
        let (mut page, _) = open_page(70, &[b"one", b"two"]);
        let at = rng.below(PAGE as u64) as usize;
        let n = rng.below(64) as usize;
        rng.fill(&mut page[at..(at + n).min(PAGE)]);
        let len = rng.below(PAGE as u64 + 1) as usize;
        read_closed(&page[..len], owner(), 3);
        read_open(&page[..len], store());
        Fragments::new(&page[..len], owner(), 70).for_each(drop);
        peek(&page[..len]);
    }
}

#[test]
fn pages_are_counted_before_they_are_opened() {
    let first = PAGE - HEADER_LEN - FIRST_FRAGMENT_HEADER_LEN;
    let next = PAGE - HEADER_LEN - NEXT_FRAGMENT_HEADER_LEN;
    assert_eq!(pages_to_open(0, 1), 1);
    assert_eq!(pages_to_open(0, first), 1);
    assert_eq!(pages_to_open(0, first + 1), 2);
    assert_eq!(pages_to_open(0, first + next), 2);
    assert_eq!(pages_to_open(0, first + next + 1), 3);
    assert_eq!(pages_to_open(PAGE - ROOM_LEN_MIN, 32), 0);
    assert_eq!(pages_to_open(PAGE - ROOM_LEN_MIN, 33), 1);
    assert_eq!(group_len_needed(200), 2 * PAGE as u64);
}
