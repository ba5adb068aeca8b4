//! A slot of the superblock of a LavaFS.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::superblock(data));
