use super::*;

#[test]
fn a_long_lane_keeps_more_free_groups_up_to_a_bound() {
    // Short or few groups: bounded by number.
    let by_number = [(0, 64 << 20), (3, 64 << 20), (4, 64 << 20), (40, 64 << 20), (16, 256 << 20)];
    assert_eq!(by_number.map(|(retained, len)| free_of_retained(retained, len)), [0, 0, 1, 10, 4]);
    // Bounded by bytes: a lane of a terabyte must not keep a quarter of it idle.
    let by_bytes = [(4096, 256 << 20), (65, 64 << 20), (1 << 20, 64 << 20), (4096, 4 << 30)];
    assert_eq!(by_bytes.map(|(retained, len)| free_of_retained(retained, len)), [4, 16, 16, 0]);
}
