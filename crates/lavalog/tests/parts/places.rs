//! Encoding of positions in a group.

use lavalog::entry::{at, page_of};

#[test]
fn page_positions_round_trip_as_numbers() {
    for (page, pos) in [(0, 0), (1, 4095), (u32::MAX, 112)] {
        assert_eq!(page_of(at(page, pos)), Some((page, pos)));
    }
    assert_eq!(page_of(u64::MAX), None);
}
