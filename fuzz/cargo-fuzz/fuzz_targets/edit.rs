//! An edit of the manifest.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::edit(data));
