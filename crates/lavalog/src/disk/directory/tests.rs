use super::*;
use crate::limits::LSN_MAX;
use datadriven::TestCase;
use io::Rng;

/// A directory of records whose LSNs have gaps now and then, with made-up lengths of blocks from offset 100 on; and where the blocks end.
fn some_directory(rng: &mut Rng, logs: u64, records: u64) -> (Directory, u64) {
    let (mut directory, mut log, mut end) = (Directory::default(), 0, 100);
    for _ in 0..logs {
        log += 1 + rng.below(3);
        let (mut lsn, mut lsns, mut blocks) = (rng.below(50), Builder::default(), Vec::new());
        for i in 0..1 + rng.below(records) {
            if i % 256 == 0 {
                let len = 9 + rng.below(1000) as u32;
                blocks.push(Block { first: lsn, offset: end, len });
                end += u64::from(len);
            }
            lsns.push(lsn, rng.below(2000) as u32).unwrap();
            lsn += if rng.one_in(20) { 2 + rng.below(1 << 40) } else { 1 };
        }
        let low = rng.below(1 << 30);
        directory.logs.push(LogRows { log, seqs: (low, low + rng.below(99)), lsns: lsns.build(), blocks });
    }
    (directory, end)
}

#[test]
fn it_comes_back() {
    let mut rng = Rng::new(411);
    for logs in 0..30 {
        let (directory, end) = some_directory(&mut rng, logs, 1500);
        let bytes = directory.encode(b"head", 100);
        let (head, decoded) = Directory::decode(&bytes, end).unwrap();
        assert_eq!((head, &decoded), (&b"head"[..], &directory));
        assert_eq!(decoded.size(), directory.logs.iter().map(|log| log.lsns.size()).sum());
        for log in &directory.logs {
            assert_eq!(decoded.log(log.log), Some(log));
        }
        assert_eq!(decoded.log(u64::MAX), None);
    }
}

#[test]
fn the_block_of_an_lsn_follows_from_those_before_it() {
    let (directory, _) = some_directory(&mut Rng::new(412), 10, 1500);
    for log in &directory.logs {
        let lsns: Vec<u64> = log.lsns.runs().flat_map(|run| run.first..=run.last()).collect();
        assert_eq!(log.blocks.len(), lsns.len().div_ceil(256));
        for (i, lsn) in lsns.iter().enumerate() {
            assert_eq!(log.block_of(*lsn), Some(log.blocks[i / 256]));
            let has_next = lsns.binary_search(&(lsn + 1)).is_ok();
            assert_eq!(log.block_of(lsn + 1).is_some(), has_next);
        }
        assert_eq!(log.block_of(lsns[0].wrapping_sub(1)), None);
    }
}

#[test]
fn the_largest_numbers_come_back() {
    let log = |log, lsns: &[Lsn], offset| {
        let mut builder = Builder::default();
        lsns.iter().for_each(|lsn| builder.push(*lsn, crate::limits::RECORD_LEN_MAX as u32).unwrap());
        let blocks = vec![Block { first: lsns[0], offset, len: 30 }];
        LogRows { log, seqs: (0, MAX_SEQ), lsns: builder.build(), blocks }
    };
    let logs = vec![log(0, &[0, LSN_MAX], 0), log(u64::MAX - 1, &[LSN_MAX], 30), log(u64::MAX, &[0], 60)];
    let directory = Directory { logs };
    let bytes = directory.encode(b"", 0);
    assert_eq!(Directory::decode(&bytes, 90).unwrap().1, directory);
}

#[test]
fn what_cannot_be_a_directory_is_refused() {
    let (directory, end) = some_directory(&mut Rng::new(413), 3, 300);
    let good = directory.encode(b"head", 100);
    for len in 0..good.len() {
        assert!(Directory::decode(&good[..len], end).unwrap_err().is_corruption(), "cut to {len}");
    }
    for (bytes, end) in [(good.clone(), end - 1), (good.clone(), end + 1), ([&good[..], &[0]].concat(), end)]
    {
        assert!(Directory::decode(&bytes, end).unwrap_err().is_corruption());
    }
}

/// A directory without a head, with blocks from the offset 0 on: the numbers of each log on a line of its own.
fn run(case: &mut TestCase) -> std::result::Result<String, Box<dyn std::error::Error>> {
    if case.directive != "decode" {
        return Err(format!("no command is called {}", case.directive).into());
    }
    let logs: Vec<&str> = case.input.lines().collect();
    let mut out = vec![0, logs.len() as u8, 0];
    logs.iter().flat_map(|log| log.split_whitespace()).for_each(|n| put_varint(&mut out, n.parse().unwrap()));
    let end = case.take_arg("blocks-end")?;
    case.expect_empty()?;
    let decoded = Directory::decode(&out, end).map(|(_, directory)| {
        let log = |log: &LogRows| {
            let runs: Vec<String> = log.lsns.runs().map(|run| format!("{run:?}")).collect();
            format!("log {}, sequences {:?}: {}\n", log.log, log.seqs, runs.join(", "))
        };
        directory.logs.iter().map(log).collect::<String>()
    });
    Ok(decoded.unwrap_or_else(|e| format!("{e}\n")))
}

#[test]
fn scripts() {
    datadriven::walk("src/disk/directory/scripts", |file| file.run(run));
}
