//! A LavaFS volume.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::volume(data));
