use super::*;
use crate::{FormatOptions, MountOptions, format, mount};
use io::CreateOptions;
use io::sim::SimEnv;

/// Another thread has put a claim in line and not committed it yet. A hole in the same transaction could free the bytes that
/// the claim speaks of: whoever replays it must be able to ask for them.
#[test]
fn a_hole_is_made_when_no_claim_is_in_line() {
    let sim = SimEnv::new(1);
    let device = sim.device("/device", 4_000 * BLOCK).unwrap();
    format(&sim.env(), &*device, &FormatOptions::default()).unwrap();
    let fs = mount(&sim.env(), device, MountOptions::default()).unwrap();
    let path = Path::new("/a");
    let mut file = fs.create(path, &CreateOptions::default()).unwrap();
    file.append(&[7; 4 * BLOCK as usize]).unwrap();
    file.sync(io::SyncKind::Full).unwrap();
    drop(file);
    {
        let mut core = lock(&fs.volume.core);
        let ino = find(&core, path).unwrap();
        let size = 4 * BLOCK;
        let hash = base::hash::key_hash(&[7]);
        fs.volume.queue(&mut core, &Op::Claim { ino, size, from: size - 1, hash }).unwrap();
        assert!(core.claims);
    }
    fs.punch_hole(path, 0, 2 * BLOCK).unwrap();
    let core = lock(&fs.volume.core);
    assert!(!core.claims, "the claim was committed before the hole came in line");
    assert!(!core.pending.is_empty(), "the hole is in line");
}

/// Lengths are looked up in parts, each name once: also where the last part is whole.
#[test]
fn a_long_directory_is_listed_whole() {
    let sim = SimEnv::new(2);
    let device = sim.device("/device", 4_000 * BLOCK).unwrap();
    format(&sim.env(), &*device, &FormatOptions::default()).unwrap();
    let fs = mount(&sim.env(), device, MountOptions::default()).unwrap();
    let dir = Path::new("/db");
    fs.create_dir_all(dir).unwrap();
    let name = |i: usize| format!("{i:06}");
    for i in 0..=2 * LIST_AT_ONCE {
        if [0, LIST_AT_ONCE - 1, LIST_AT_ONCE, LIST_AT_ONCE + 1, 2 * LIST_AT_ONCE].contains(&i) {
            let names: Vec<String> = fs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, (0..i).map(name).collect::<Vec<_>>());
        }
        drop(fs.create(&dir.join(name(i)), &CreateOptions::default()).unwrap());
    }
}
