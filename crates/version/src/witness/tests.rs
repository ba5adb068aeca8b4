use super::*;
use crate::manifest::Manifest;
use io::sim::SimEnv;
use store::manifest::InitialState;
use store::manifest::format::HEADER_LEN;

const DIR: &str = "/db";

fn family(id: FamilyId) -> Record {
    Record::CreateFamily { id, name: format!("family {id}"), options: vec![id as u8] }
}

/// Returns a store whose every edit has records, and its last state.
fn store() -> (SimEnv, State) {
    let sim = SimEnv::new(5);
    let manifest = Manifest::create(&sim.env(), Path::new(DIR), InitialState::default()).unwrap();
    for id in 0..6 {
        manifest.commit(Edit(vec![family(id)])).unwrap();
        manifest.commit(Edit(vec![Record::LogFloor { family: id, seq: 10 + u64::from(id) }])).unwrap();
    }
    manifest.commit(Edit(vec![Record::DropFamily { id: 4 }])).unwrap();
    (sim, manifest.state())
}

fn manifest_path(sim: &SimEnv) -> String {
    let files = sim.env().fs.list(Path::new(DIR)).unwrap();
    let name = files.into_iter().map(|e| e.name).find(|name| name.starts_with("MANIFEST")).unwrap();
    format!("{DIR}/{name}")
}

#[test]
fn without_current_the_newest_manifest_is_the_state() {
    let (sim, state) = store();
    let whole = look_through(&sim.env(), Path::new(DIR)).unwrap();
    assert!(whole.state.as_ref() == Some(&state) && whole.damage.is_empty());
    sim.env().fs.remove(Path::new("/db/CURRENT")).unwrap();
    let found = look_through(&sim.env(), Path::new(DIR)).unwrap();
    assert!(found.state.as_ref() == Some(&state) && found.damage.len() == 1);
}

#[test]
fn every_intact_record_of_a_damaged_manifest_is_a_witness() {
    let (sim, state) = store();
    let path = manifest_path(&sim);
    let len = sim.read_file(&path).unwrap().len() as u64;
    let mut whole_but_one = 0;
    for at in HEADER_LEN as u64..len - 60 {
        let damaged = sim.fork(at);
        damaged.flip_bit(&path, at, 3).unwrap();
        let hash = damaged.state_hash();
        let found = look_through(&damaged.env(), Path::new(DIR)).unwrap();
        assert_eq!(damaged.state_hash(), hash, "nothing is written");
        assert!(found.state.is_none() && !found.damage.is_empty(), "offset {at}");
        assert!(found.damage.iter().all(|e| e.file().is_some()));
        assert_eq!((found.edit, found.store), (state.store.edit_number, Some(state.store.uid)));
        let names = found.families.values().filter(|f| f.name.is_some()).count();
        let floors = found.families.values().filter(|f| f.log_floor > 0).count();
        assert!(names + floors >= 11, "offset {at}: {:?}", found.families);
        whole_but_one += usize::from(names + floors == 11);
        for (id, family) in &found.families {
            assert!(family.name.as_ref().is_none_or(|name| *name == format!("family {id}")));
            assert!(family.options.as_ref().is_none_or(|o| *o == [*id as u8]));
        }
    }
    assert!(whole_but_one > 100, "{whole_but_one}");
}

#[test]
fn a_damaged_header_is_tolerated_if_current_exists() {
    let (sim, state) = store();
    let path = manifest_path(&sim);
    sim.overwrite(&path, 0, &[0; HEADER_LEN]).unwrap();
    let found = look_through(&sim.env(), Path::new(DIR)).unwrap();
    assert_eq!((found.edit, found.families.len()), (state.store.edit_number, 6));
    assert!(found.families[&4].is_dropped);
    sim.env().fs.remove(Path::new("/db/CURRENT")).unwrap();
    let found = look_through(&sim.env(), Path::new(DIR)).unwrap();
    assert_eq!((found.edit, found.families.len(), found.damage.len()), (0, 0, 3));
}
