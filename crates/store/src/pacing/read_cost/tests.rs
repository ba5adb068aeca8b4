use super::*;
use io::Rng;

/// A disk: what a read takes that is alone, without its bytes, how many it works on at once, and what a byte takes of all of them together.
#[derive(Clone, Copy)]
struct Disk {
    latency_ns: u64,
    ways: u64,
    byte_ps: u64,
}

/// One arm, which is moved for each read; 200 MB/s.
const ARM: Disk = Disk { latency_ns: 8_000_000, ways: 1, byte_ps: 5000 };
/// Flash: 600,000 reads a second, 3.2 GB/s.
const FLASH: Disk = Disk { latency_ns: 77_000, ways: 48, byte_ps: 312 };
/// A volume in a network: 50,000 a second, 1 GB/s.
const NETWORK: Disk = Disk { latency_ns: 1_000_000, ways: 50, byte_ps: 1000 };

impl Disk {
    /// What so many reads take that begin together.
    fn takes_ns(self, reads: u64, bytes: u64) -> u64 {
        self.latency_ns + self.latency_ns * (reads - 1) / self.ways + bytes * self.byte_ps / 1000
    }

    /// What a request costs, in bytes.
    fn gap(self) -> u64 {
        self.latency_ns * 1000 / self.ways / self.byte_ps
    }
}

/// Of what is learnt from reads of these lengths, each alone and many together, with up to a tenth more or less.
fn learnt(disk: Disk, alone: &[u64], many: &[u64]) -> ReadCost {
    let (cost, mut rng, mut now_ns) = (ReadCost::new(), Rng::new(5), 1000);
    let mut burst = |reads: u64, len: u64| {
        let ns = disk.takes_ns(reads, reads * len) * (90 + rng.below(21)) / 100;
        cost.begins(now_ns, reads, reads * len);
        now_ns += ns;
        cost.ends(now_ns, reads);
        now_ns += 7;
    };
    for round in 0..500 {
        alone.iter().for_each(|len| burst(1, *len));
        many.iter().for_each(|len| burst(4 + round % 60, *len));
    }
    cost
}

#[test]
fn the_gap_is_what_a_request_costs_beside_others() {
    for (disk, name) in [(FLASH, "flash"), (NETWORK, "network")] {
        let cost = learnt(disk, &[4096, 100_000], &[1000, 3000, 60_000]);
        let report = cost.report();
        let (gap, request_ns) = (disk.gap(), disk.latency_ns / disk.ways);
        assert!((gap * 7 / 10..gap * 13 / 10).contains(&report.gap_bytes), "{name}: {gap}, {report:?}");
        let near = request_ns * 7 / 10..request_ns * 13 / 10;
        assert!(near.contains(&report.request_ns), "{name}: {request_ns}, {report:?}");
        let mib_ns = disk.byte_ps * MIB as u64 / 1000;
        assert!((mib_ns * 8 / 10..mib_ns * 12 / 10).contains(&report.mib_ns), "{name}: {report:?}");
        let window = disk.latency_ns * 1000 / disk.byte_ps;
        assert!((window * 8 / 10..window * 13 / 10).contains(&report.window_bytes), "{name}: {report:?}");
        let told = ReadCosts { gap_bytes: Some(report.gap_bytes), window_bytes: Some(report.window_bytes) };
        assert_eq!(cost.get(), told);
    }
    assert!(FLASH.gap() < 6000 && NETWORK.gap() >= 20_000, "where one record of 16 KiB more is worth it");
}

#[test]
fn bounds_hold_whatever_is_measured() {
    assert_eq!(learnt(ARM, &[4096, 100_000], &[1000, 60_000]).report().gap_bytes, GAP_MAX);
    let free_requests = Disk { latency_ns: 100, ways: 100, byte_ps: 1000 };
    assert_eq!(learnt(free_requests, &[4096], &[1000, 60_000]).report().gap_bytes, GAP_MIN);
    // Bytes that cost nothing, and reads that take no time.
    let free_bytes = Disk { byte_ps: 0, ..FLASH };
    let report = learnt(free_bytes, &[4096], &[1000, 60_000]).report();
    assert!(report.gap_bytes == GAP_MAX && report.mib_ns * 100 < report.request_ns * 1000, "{report:?}");
    let nothing = Disk { latency_ns: 0, ways: 1, byte_ps: 0 };
    assert_eq!(learnt(nothing, &[4096], &[1000, 60_000]).report().gap_bytes, GAP_MAX);
}

#[test]
fn nothing_is_told_before_enough_is_known() {
    let unknown = ReadCostReport::default();
    for (alone, many) in [
        (&[][..], &[][..]),
        (&[], &[1000, 60_000]),
        (&[4096, 100_000], &[]),
        (&[4096], &[4096]),
        (&[4096], &[1000, 2900]),
    ] {
        let cost = learnt(FLASH, alone, many);
        assert_eq!((cost.report(), cost.get()), (unknown, ReadCosts::default()), "{alone:?} {many:?}");
    }
    // How steep it is those say that are alone: as steep as it is with others, or steeper.
    let report = learnt(FLASH, &[4096, 100_000], &[1000]).report();
    assert!((GAP_MIN..=FLASH.gap() * 2).contains(&report.gap_bytes), "{report:?}");
}

#[test]
fn what_overlaps_is_no_burst() {
    let cost = ReadCost::new();
    let bursts = |cost: &ReadCost| {
        let learnt = lock(&cost.learnt);
        learnt
            .alone
            .iter()
            .chain(&learnt.many)
            .map(|sums| (sums.bursts, sums.reads))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    // Begun one after another before any has ended.
    (0..5).for_each(|i| cost.begins(10 + i, 1, 100));
    (0..5).for_each(|i| cost.ends(100 + i, 1));
    assert_eq!(bursts(&cost), (1, 5));
    assert_eq!(lock(&cost.learnt).many[0].ns, 94);
    // One comes when another has ended.
    (0..2).for_each(|i| cost.begins(200 + i, 2, 100));
    cost.ends(210, 2);
    cost.begins(220, 1, 100);
    cost.ends(230, 2);
    cost.begins(231, 1, 100);
    cost.ends(232, 2);
    assert_eq!(bursts(&cost), (1, 5));
    // Some are of another disk as well.
    cost.begins_beside(250, 4);
    cost.ends_beside(4);
    cost.begins(270, 1, 100);
    cost.begins_beside(275, 2);
    cost.ends(280, 1);
    cost.ends_beside(2);
    assert_eq!(bursts(&cost), (1, 5));
    // The next one is one again; few are neither alone nor many.
    cost.begins(300, 1, 100);
    cost.ends(310, 1);
    cost.begins(320, 3, 100);
    cost.ends(330, 3);
    assert_eq!(bursts(&cost), (2, 6));
}

#[test]
fn what_nobody_waits_for_says_nothing_nor_what_is_made_beside_it() {
    let cost = learnt(FLASH, &[4096, 100_000], &[1000, 60_000]);
    let before = cost.report();
    let burst = |now_ns: u64| {
        // As long as a disk takes that others keep busy.
        cost.begins(now_ns, 1, 4096);
        cost.ends(now_ns + 10_000_000, 1);
        cost.begins(now_ns + 10_000_000, 8, 8000);
        cost.ends(now_ns + 16_000_000, 8);
    };
    let mut now_ns = 1 << 50;
    for round in 0..1000 {
        cost.begins_beside(now_ns, 2);
        burst(now_ns);
        // Two more are on their way before the ones are noticed to have ended.
        cost.ends_beside(if round == 0 { 1 } else { 2 });
        now_ns += 20_000_000;
    }
    assert_eq!(cost.report(), before);
    // The last one has ended, and nobody notices: its job waits for its turn.
    for _ in 0..1000 {
        burst(now_ns);
        now_ns += 20_000_000;
    }
    let slow = cost.report();
    assert_ne!(slow, before, "after a while it goes on");
    cost.ends_beside(1);
    for _ in 0..1000 {
        cost.begins(now_ns, 1, 4096);
        cost.ends(now_ns + 80_000, 1);
        now_ns += 100_000;
    }
    assert_ne!(cost.report(), slow, "when all have ended it goes on");
}

#[test]
fn what_stands_still_once_changes_little_and_what_becomes_slow_is_learnt() {
    let cost = learnt(FLASH, &[4096, 100_000], &[1000, 60_000]);
    let before = cost.report();
    let mut now_ns = 1 << 50;
    let mut burst = |reads: u64, len: u64, ns: u64| {
        cost.begins(now_ns, reads, reads * len);
        now_ns += ns;
        cost.ends(now_ns, reads);
    };
    [(1, 4096), (32, 1000), (32, 60_000)].iter().for_each(|(reads, len)| burst(*reads, *len, 60_000_000_000));
    let after = cost.report();
    assert!(
        after.gap_bytes * 10 > before.gap_bytes * 7 && after.gap_bytes * 7 < before.gap_bytes * 10,
        "{before:?} {after:?}"
    );
    for _ in 0..2000 {
        let slow = |reads, len| NETWORK.takes_ns(reads, reads * len);
        burst(1, 4096, slow(1, 4096));
        [1000, 60_000].iter().for_each(|len| burst(32, *len, slow(32, *len)));
    }
    let gap = NETWORK.gap();
    assert!((gap * 7 / 10..gap * 13 / 10).contains(&cost.report().gap_bytes), "{:?}", cost.report());
}

#[test]
fn what_is_given_goes_before_what_is_measured() {
    let cost = learnt(FLASH, &[4096], &[1000, 60_000]);
    let measured = cost.get();
    assert!(measured.gap_bytes.is_some() && measured.window_bytes.is_some());
    cost.give_gap(0);
    assert_eq!(cost.get(), ReadCosts { gap_bytes: Some(0), ..measured });
    cost.switch_off();
    assert_eq!(cost.get(), ReadCosts { gap_bytes: Some(0), window_bytes: None });
}

/// A burst adds to sums; what follows from them is told after every sixteenth.
#[test]
fn what_is_told_is_derived_once_in_sixteen_bursts() {
    let cost = learnt(FLASH, &[4096], &[1000, 60_000]);
    let mut now_ns = 1 << 50;
    let mut told = vec![cost.get()];
    for _ in 0..64 {
        cost.begins(now_ns, 1, 4096);
        now_ns += 300_000;
        cost.ends(now_ns, 1);
        told.push(cost.get());
    }
    let changes: Vec<usize> = (1..told.len()).filter(|i| told[*i] != told[i - 1]).collect();
    assert_eq!(changes.len(), 4, "{changes:?}");
    assert!(changes.windows(2).all(|two| two[1] - two[0] == 16), "{changes:?}");
}

#[test]
fn nothing_is_counted_where_nobody_is_to_go_by_it() {
    let cost = ReadCost::new();
    cost.switch_off();
    for i in 0..1000 {
        cost.begins(i * 10, 1 + i % 9, 4096);
        cost.ends(i * 10 + 5, 1 + i % 9);
    }
    let counted = |of: &AtomicU64| of.load(Relaxed);
    assert_eq!((counted(&cost.begun), counted(&cost.ended), counted(&cost.bytes)), (0, 0, 0));
    let learnt = lock(&cost.learnt);
    assert!(learnt.alone.iter().chain(&learnt.many).all(|sums| sums.reads == 0));
}
