use super::*;

/// The stand-in for a missing group holds nothing.
#[test]
fn a_missing_group_can_be_neither_read_nor_written() {
    let group = MissingGroup(PathBuf::from("/store/000000000001.log"));
    let buf = AlignedBuf::zeroed(io::PAGE);
    let tries = [
        group.read_at(&mut [0; 1], 0),
        group.write_at(&buf, 0),
        group.write_durable(&buf, 0),
        group.sync_data(),
    ];
    assert_eq!(group.len(), 0);
    for e in tries.map(Result::unwrap_err) {
        assert_eq!((e.kind(), e.file()), (ErrorKind::NotFound, Some(group.path())));
        assert_eq!(
            e.message(),
            "the file of a log group is missing: restore it from a backup, or run `lava repair`"
        );
    }
}
