//! Operations of the journal of a LavaFS.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::operations(data));
