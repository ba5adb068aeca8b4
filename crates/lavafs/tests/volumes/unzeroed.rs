//! In-place files without initial zeros.

use io::sim::{CrashKind, SimEnv};
use io::{Access, AlignedBuf, CreateOptions, FileSystem, PAGE, SyncKind};
use lavastore_lavafs::{FormatOptions, MountOptions, format, mount};
use std::path::Path;

const LEN: u64 = 64 * PAGE as u64;

#[test]
fn unzeroed_files_are_written_once_and_keep_their_bytes() {
    let sim = SimEnv::new(5);
    let device = sim.device("/device", 4000 * PAGE as u64).unwrap();
    format(&sim.env(), &*device, &FormatOptions::default()).unwrap();
    let fs = mount(&sim.env(), device, MountOptions::default()).unwrap();
    let (old, path) = (Path::new("/old"), Path::new("/log"));
    let mut file = fs.create(old, &CreateOptions { expected_len: LEN, ..CreateOptions::default() }).unwrap();
    file.append(&vec![7; LEN as usize]).unwrap();
    file.sync(SyncKind::Full).unwrap();
    drop(file);
    fs.remove(old).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();

    let before = fs.statistics();
    let file = fs.create_in_place_unzeroed(path, LEN, Access::Direct).unwrap();
    let after = fs.statistics();
    assert_eq!(after.data_bytes_written, before.data_bytes_written);
    assert_eq!(file.len(), LEN);
    let mut page = AlignedBuf::zeroed(PAGE);
    page.as_mut_slice().fill(9);
    file.write_durable(&page, 3 * PAGE as u64).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();

    let again = sim.crash(CrashKind::PowerLoss, 1);
    let fs = mount(&again.env(), again.device("/device", 0).unwrap(), MountOptions::default()).unwrap();
    let file = fs.open_in_place(path, Access::Direct).unwrap();
    let mut bytes = vec![0; LEN as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let pages: Vec<u8> = bytes.chunks(PAGE).map(|page| page[0]).collect();
    assert_eq!((file.len(), &pages[..5]), (LEN, &[0, 7, 7, 9, 7][..]), "the first page is nobody else's");

    let wrong = fs.create_in_place_unzeroed(Path::new("/odd"), 5000, Access::Direct).unwrap_err();
    assert_eq!(wrong.kind(), base::ErrorKind::InvalidArgument);
    let file = fs.create_in_place(Path::new("/zeros"), LEN, Access::Direct).unwrap();
    let mut bytes = vec![1; LEN as usize];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, vec![0; LEN as usize], "whoever does not say so gets zeros");
}
