//! Damage to a checkpoint of logs, under valid checksums.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log_checkpoint_sealed(data));
