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
