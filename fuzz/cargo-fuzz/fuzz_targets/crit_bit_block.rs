//! A crit-bit block.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::crit_bit_block(data));
