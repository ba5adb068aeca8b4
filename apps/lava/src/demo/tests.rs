use super::data::{DataSet, DataSource};
use super::ledger::{Ledger, VERSIONS, value};
use super::*;

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("lava-demo-test-{name}-{}", std::process::id()));
    let _ = output::remove_directory(&dir);
    dir
}

#[test]
fn the_ledger_takes_versions_in_order_only() {
    let data = DataSet::load(DataSource::Generated(3)).unwrap();
    let mut ledger = Ledger::new(&data);
    ledger.acknowledge(1, 0, 5).unwrap();
    assert!(ledger.acknowledge(1, 2, 5).is_err());
    ledger.acknowledge(1, 1, 5).unwrap();
    assert!(ledger.acknowledge(3, 0, 5).is_err());
    assert!(ledger.enter(&[0; 11]).is_err());
    ledger.enter(&[0; 12]).unwrap();
    assert_eq!(ledger.acknowledged(), 3);
    assert_eq!(ledger.next_version(1), 2);
}

#[test]
fn demo_verify_accepts_a_sound_store_and_finds_damage() {
    let dir = scratch("verify");
    let data = DataSet::load(DataSource::Generated(200)).unwrap();
    let mut ledger = Ledger::new(&data);
    let store = Db::open(&dir).unwrap();
    writer::overwrite(&store, &data, &mut ledger).unwrap();
    assert_eq!(ledger.acknowledged(), 200 * u64::from(VERSIONS));
    let mut latency = new_histogram().unwrap();
    ledger.verify(&store, &data, true, &mut latency).unwrap();
    assert_eq!(ledger.lost(), 0);

    store.delete(&data.records[7].0).unwrap();
    store.put(&data.records[9].0, b"something else").unwrap();
    let mut old = Vec::new();
    value(&data.records[11].1, 1, &mut old);
    store.put(&data.records[11].0, &old).unwrap();
    ledger.verify(&store, &data, false, &mut latency).unwrap();
    assert_eq!(ledger.lost(), 3);
    store.close().unwrap();
    output::remove_directory(&dir).unwrap();
}

#[test]
fn an_unacknowledged_write_may_be_present_or_absent() {
    let dir = scratch("newer");
    let data = DataSet::load(DataSource::Generated(10)).unwrap();
    let mut ledger = Ledger::new(&data);
    let store = Db::open(&dir).unwrap();
    let mut bytes = Vec::new();
    for (index, (key, stanza)) in data.records.iter().enumerate().take(5) {
        store.put(key, stanza).unwrap();
        ledger.acknowledge(index, 0, 1).unwrap();
    }
    value(&data.records[2].1, 1, &mut bytes);
    store.put(&data.records[2].0, &bytes).unwrap();
    store.put(&data.records[6].0, &data.records[6].1).unwrap();
    let mut latency = new_histogram().unwrap();
    ledger.verify(&store, &data, false, &mut latency).unwrap();
    assert_eq!(ledger.lost(), 0);
    assert_eq!((ledger.next_version(2), ledger.next_version(6), ledger.next_version(7)), (2, 1, 0));
    store.close().unwrap();
    output::remove_directory(&dir).unwrap();
}

#[test]
fn a_foreign_directory_is_refused() {
    let dir = scratch("other");
    std::fs::create_dir_all(dir.join("holiday")).unwrap();
    assert!(prepare(&dir).is_err());
    output::remove_directory(&dir).unwrap();
    assert!(prepare(&dir).is_ok());
}
