//! Lengths of the tail buffer.

use store::commit::{Aging, tail_buffer_len};

#[test]
fn the_tail_buffer_holds_a_memtable_and_two_groups() {
    const MB: u64 = 1 << 20;
    let aging = Aging { age_ms_max: 1000, memtable_bytes: 16 * MB, ..Aging::default() };
    assert_eq!(aging.tail_buffer_len(16 * MB, 16 * MB), 48 << 20);
    assert_eq!(aging.tail_buffer_len(4 * MB, 16 * MB), 12 << 20);
    assert_eq!(aging.tail_buffer_len(64 << 10, 16 * MB), 192 << 10);
    assert_eq!(Aging { memtable_bytes: 1 << 40, ..aging }.tail_buffer_len(16 * MB, 16 * MB), 64 << 20);
    assert_eq!(Aging { memtable_bytes: 16 << 10, ..aging }.tail_buffer_len(64 << 10, 64 << 10), 144 << 10);
    for len in [64 << 10, MB, 16 * MB, 1 << 32] {
        assert_eq!(Aging::default().tail_buffer_len(len, 1 << 32), tail_buffer_len(len), "as ever");
        assert!(aging.tail_buffer_len(len, 1 << 32) >= tail_buffer_len(len));
    }
}
