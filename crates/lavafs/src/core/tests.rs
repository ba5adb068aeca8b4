use super::*;
use crate::op::FileRecord;

/// Returns a volume of 1,000 blocks with one file `a` of eight blocks, at block 40.
fn core() -> Core {
    let mut meta = Meta::new(1_000);
    let extents = vec![Extent::new(40, 8)];
    meta.apply(&Op::File(FileRecord { ino: 1, size: 8 * BLOCK, closed: true, extents })).unwrap();
    meta.apply(&Op::Link { dir: String::new(), name: "a".into(), ino: 1 }).unwrap();
    Core::new(meta, FreeSpace::default(), (8, 2, 4), None)
}

fn unlink() -> Op {
    Op::Unlink { dir: String::new(), name: "a".into() }
}

#[test]
fn freed_blocks_are_reusable_only_after_the_free_is_durable() {
    let mut core = core();
    let before = core.queue(&Op::MakeDir { dir: "d".into() }).unwrap();
    let freed = core.queue(&unlink()).unwrap();
    core.reap(before).unwrap();
    assert_eq!((core.free.blocks(), core.freeing_blocks()), (0, 8), "a crash would bring the file back");
    core.reap(freed).unwrap();
    assert_eq!((core.free.blocks(), core.freeing_blocks()), (8, 0));
}

#[test]
fn punched_blocks_wait_for_reads_in_flight() {
    let mut core = core();
    let live = core.open(1).unwrap();
    let view = live.view();
    let position = core.queue(&Op::Punch { ino: 1, block: 2, blocks: 4 }).unwrap();
    let later = live.view();
    core.reap(position).unwrap();
    assert_eq!(core.free.blocks(), 0, "a read is under way");
    drop(view);
    core.reap(position).unwrap();
    assert_eq!(core.free.blocks(), 4, "the read that came after the hole does not hold them");
    drop(later);
}

#[test]
fn removed_file_blocks_wait_for_open_handles() {
    let mut core = core();
    let live = core.open(1).unwrap();
    let position = core.queue(&unlink()).unwrap();
    core.reap(position).unwrap();
    assert_eq!(core.free.blocks(), 0, "a handle is open");
    drop(live);
    core.reap(position).unwrap();
    assert_eq!(core.free.blocks(), 8);
}

#[test]
fn invalid_frees_and_allocations_are_named() {
    let mut core = core();
    core.release(&[Extent::new(60, 4)]).unwrap();
    let twice = core.release(&[Extent::new(62, 4)]).unwrap_err();
    assert!(
        twice.is_corruption() && twice.message().ends_with("are freed twice: two files share them"),
        "{twice}"
    );
    let full = core.allocate_journal(5).unwrap_err();
    assert_eq!(full.kind(), base::ErrorKind::NoSpace);
    assert_eq!(
        full.message(),
        "the journal of the volume needs 5 blocks of 4096 bytes, but 4 are free; remove files, or grow the volume (`lava fs grow`)"
    );
    assert_eq!(core.allocate_journal(4).unwrap(), [Extent::new(60, 4)]);
    let unknown = core.open(9).map(drop).unwrap_err();
    let told = "the volume has no file with the number (inode) 9: open the file again by its path";
    assert_eq!((unknown.kind(), unknown.message()), (base::ErrorKind::NotFound, told));
}
