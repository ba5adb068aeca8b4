//! A LavaFS volume whose journal ends in any operations.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::volume_sealed(data));
