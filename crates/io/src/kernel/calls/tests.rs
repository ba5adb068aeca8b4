use super::*;
use crate::kernel::tests::Temp;
use rustix::fs::MemfdFlags;

/// The log of calls is true only if each function makes its call. A pipe refuses each in the
/// kernel's own way.
#[test]
fn every_function_reaches_the_kernel() {
    let (_reader, pipe) = std::io::pipe().unwrap();
    assert_eq!(fdatasync(&pipe), Err(Errno::INVAL));
    assert_eq!(fsync(&pipe), Err(Errno::INVAL));
    assert_eq!(ftruncate(&pipe, 0), Err(Errno::INVAL));
    assert_eq!(fallocate(&pipe, FallocateFlags::KEEP_SIZE, 0, 1), Err(Errno::SPIPE));
    assert_eq!(pwrite(&pipe, b"x", 0), Err(Errno::SPIPE));
    assert_eq!(pwrite_durable(&pipe, b"x", 0), Err(Errno::SPIPE));
    assert_eq!(pread(&pipe, &mut [0], 0), Err(Errno::SPIPE));
    assert_eq!(seek(&pipe, SeekFrom::End(0)), Err(Errno::SPIPE));
    assert_eq!(statx_direct(&pipe).map(|told| told.stx_mode & 0o170_000), Ok(0o010_000));
    assert!(start_writeback(&pipe, 0, 1).is_err() && wait_writeback(&pipe, 0, 1).is_err());
    assert!(map_shared(&pipe, 4096).is_err());
    // SAFETY: the call refuses an address without a mapping.
    assert!(unsafe { msync(std::ptr::null_mut(), 4096) }.is_err());
}

/// Only a log of system calls (`strace`) can show the flag; this test shows that the bytes are
/// written.
#[test]
fn a_durable_write_writes() {
    let memory = rustix::fs::memfd_create("durable", MemfdFlags::empty()).unwrap();
    assert_eq!(pwrite_durable(&memory, b"abc", 5), Ok(3));
    let mut found = [9; 3];
    assert_eq!((pread(&memory, &mut found, 5), &found), (Ok(3), b"abc"));
}

#[test]
fn the_limit_of_open_files_is_that_of_the_process() {
    let told = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let soft = line.split_whitespace().next().unwrap();
    assert_eq!(open_files_limit(), soft.parse().ok());
}

#[test]
fn an_event_stays_signalled_until_it_is_read() {
    let event = event().unwrap();
    signal(&event).unwrap();
    signal(&event).unwrap();
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&event, &mut count), Ok(8));
    assert_eq!(u64::from_ne_bytes(count), 2);
}

#[test]
fn names_are_made_and_removed() {
    let dir = Temp::new();
    let (a, b, c) = (dir.0.join("a"), dir.0.join("b"), dir.0.join("c"));
    drop(open(&a, OFlags::CREATE | OFlags::RDWR, Mode::from_raw_mode(0o600)).unwrap());
    link(&a, &b).unwrap();
    rename(&a, &c).unwrap();
    assert_eq!((stat(&a).map(drop), stat(&c).unwrap().st_nlink), (Err(Errno::NOENT), 2));
    unlink(&b).unwrap();
    unlink(&c).unwrap();
    mkdir(&a).unwrap();
    rmdir(&a).unwrap();
    assert_eq!(stat(&a).map(drop), Err(Errno::NOENT));
}
