//! The offsets of a block's records.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::crit_bit_offsets(data));
