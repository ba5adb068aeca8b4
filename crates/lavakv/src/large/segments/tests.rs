use super::*;
use crate::{Db, Options};
use io::sim::SimEnv;

#[test]
fn a_segment_of_another_key_is_refused() {
    let sim = SimEnv::new(1);
    let options =
        Options { memtable_bytes: 32 << 10, memory_bytes: 96 << 10, ..Options::default() }.expert(|expert| {
            expert.log_group_bytes = 128 << 10;
            expert.wal_bytes_max = 512 << 10;
        });
    let db = Db::open_in(sim.env(), "/store", options).unwrap();
    db.put(b"a", &[7; 100_000]).unwrap();
    db.flush().unwrap();
    let files = &db.engine().files;
    let version = db.default_column_family().0.read_state().version.clone();
    let meta = version.vssts.values().find(|meta| meta.segment).unwrap();
    assert_eq!(open_listed(files, b"a", meta).unwrap().raw_len(), 100_000);
    let longer = VsstMeta { raw_bytes: meta.raw_bytes + 1, ..VsstMeta::clone(meta) };
    for (key, meta) in [(&b"b"[..], &**meta), (b"a", &longer)] {
        let e = open_listed(files, key, meta).unwrap_err();
        assert!(e.is_corruption() && e.file().is_some(), "{e}");
        assert!(e.message().starts_with("the large value file does not hold the value of key"), "{e}");
    }
    db.close().unwrap();
}
