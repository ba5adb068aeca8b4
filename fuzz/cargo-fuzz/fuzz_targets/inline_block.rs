//! An inline block.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::inline_block(data));
