use super::*;
use crate::LogStore;
use crate::beside::Beside;
use base::ErrorKind;
use io::sim::SimEnv;
use std::path::Path;
use store::guest::Guest;
use store::names::{self, FileKind};

fn below(limit: u64) -> Options {
    Options { space_limit: Some(limit), ..Options::default() }
}

#[test]
fn groups_are_a_small_part_of_any_limit_that_has_room_for_some() {
    for limit in [11 << 20, 16 << 20, 100_000_000, 1 << 30, 2_000_000_000, 4 << 30, u64::MAX] {
        let options = below(limit);
        options.check().unwrap_or_else(|e| panic!("{limit}: {e}"));
        let group = options.longest_group();
        assert!(group <= limit / LIMIT_PART && group.is_power_of_two(), "{group} of {limit}");
        // No smaller than they have to be, since each costs a file, its index and a commit.
        assert!(group == GROUP_BYTES_DEFAULT || 2 * group > limit / LIMIT_PART, "{group} of {limit}");
        let reserve = options.overhead_bytes() - below(11 << 20).overhead_bytes();
        assert!(reserve <= limit / 4, "{reserve} of {limit} are kept free");
    }
}

/// The lengths of the groups that a fast writer gets.
fn longest_written(options: &Options) -> u64 {
    let sim = SimEnv::new(1);
    let dir = Path::new("/logs");
    let store = LogStore::open(&sim.env(), dir, options).unwrap();
    let log = store.create_log("log").unwrap();
    let mut longest = 0;
    for lsn in 1..=400 {
        log.append(lsn, &[7; 60_000], Durability::Buffered).unwrap();
        log.trim(lsn).unwrap();
        let files = sim.env().fs.list(dir).unwrap().into_iter();
        let groups = files.filter(|file| matches!(names::parse(&file.name), Some(FileKind::Log(_))));
        longest = groups.map(|file| file.len).max().unwrap_or(0).max(longest);
    }
    longest
}

#[test]
fn a_store_has_no_longer_ones_than_suit_its_limit_unless_it_is_told_so() {
    let limited = below(32 << 20);
    assert_eq!(longest_written(&limited), 1 << 20);
    assert_eq!(longest_written(&Options { group_bytes: Some(4 << 20), ..limited }), 4 << 20);
}

#[test]
fn what_is_asked_for_stays_and_is_refused_where_it_does_not_fit() {
    let asked = Options { group_bytes: Some(256 << 20), ..below(2_000_000_000) };
    asked.check().unwrap();
    assert_eq!(asked.longest_group(), 256 << 20);
    let refused = Options { space_limit: Some(1_000_000_000), ..asked }.check().unwrap_err();
    assert!(refused.kind() == ErrorKind::InvalidArgument && refused.message().contains("space_limit"));
}

#[test]
fn beside_keys_it_is_the_limit_of_the_store_that_counts() {
    let group = |options: &Options, limit| Beside::new(options).unwrap().below(limit).terms().group_bytes;
    assert_eq!(group(&Options::default(), Some(1 << 30)), 32 << 20);
    assert_eq!(group(&Options::default(), None), 256 << 20);
    assert_eq!(group(&Options { group_bytes: Some(1 << 20), ..Options::default() }, Some(1 << 30)), 1 << 20);
}
