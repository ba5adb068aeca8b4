//! A whole manifest, forged under valid checksums.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::manifest_sealed(data));
