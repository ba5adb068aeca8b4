//! A reference block.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::reference_block(data));
