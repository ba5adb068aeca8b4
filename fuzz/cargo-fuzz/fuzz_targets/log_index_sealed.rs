//! Damage to an index file of logs, under valid checksums.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log_index_sealed(data));
