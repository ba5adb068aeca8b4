//! An index block.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::index_block(data));
