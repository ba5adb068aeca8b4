//! Batches in the log.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::write_batch(data));
