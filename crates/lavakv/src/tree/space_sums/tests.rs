use super::*;
use crate::context::family_options::FamilyOptions;
use crate::context::options::Options;
use crate::{ColumnFamily, Db, SpaceLimit};
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{Priority, Rng};
use std::sync::Arc;

fn options() -> Options {
    Options {
        memtable_bytes: 16 << 10,
        memory_bytes: 48 << 10,
        background_threads: 1,
        space_limit: Some(SpaceLimit::Bytes(256 << 20)),
        ..Options::default()
    }
    .expert(|expert| expert.log_group_bytes = 64 << 10)
}

fn family(min_blob_size: usize) -> FamilyOptions {
    FamilyOptions { min_blob_size, ..FamilyOptions::default() }.expert(|expert| expert.file_bytes = 8 << 10)
}

/// Compares the sums with those of a walk over all families.
fn check(db: &Db) {
    let tree = &db.engine().tree;
    let walked = SpaceSums::default();
    for family in tree.families.all() {
        let (seen, policy) = (family.read_state(), family.policy());
        let of = (&*seen.version, &*seen.ledger, &seen.summary);
        let set_aside = family.settings.tables_set_aside();
        walked.join(family.id, SpaceDemand::of(of, &family.options(), policy.as_deref(), &set_aside));
    }
    let told = |sums: &SpaceSums| format!("{:?}", sums.demands(1, 1));
    assert_eq!(told(&tree.space_sums), told(&walked));
}

/// The sums match the existing families after any change.
#[test]
fn space_sums_agree_with_a_full_walk() {
    for seed in 0..30 {
        let (sim, mut rng) = (SimEnv::new(seed), Rng::new(seed));
        let mut db = Db::open_in(sim.env(), "/store", options()).unwrap();
        let mut families: Vec<ColumnFamily> = Vec::new();
        check(&db);
        for step in 0..80 {
            let nth = rng.below(families.len().max(1) as u64) as usize;
            match (rng.below(12), families.get(nth)) {
                (0 | 1, _) | (_, None) => {
                    let options = family(64 * rng.below(3) as usize);
                    families.push(db.create_column_family(&format!("{step}"), options).unwrap());
                }
                (2, Some(_)) if families.len() > 2 => {
                    db.drop_column_family(&families.swap_remove(nth)).unwrap();
                }
                (3, Some(of)) => {
                    db.set_family_options(of, family(64 * rng.below(3) as usize)).unwrap();
                }
                (4, Some(of)) => db.compact_range(of, None, None).unwrap(),
                (5, Some(_)) => db.flush().unwrap(),
                (6, Some(_)) if rng.one_in(3) => {
                    let names: Vec<String> = families.iter().map(|family| family.name().to_owned()).collect();
                    families.clear();
                    drop(db);
                    db = Db::open_in(sim.env(), "/store", options()).unwrap();
                    families.extend(names.iter().map(|name| db.column_family(name).unwrap()));
                }
                (_, Some(of)) => {
                    for _ in 0..40 {
                        let value = vec![step as u8; rng.below(400) as usize];
                        db.put_cf(of, &rng.below(200).to_be_bytes(), &value).unwrap();
                    }
                }
            }
            check(&db);
        }
    }
}

/// The sums match the families after concurrent changes.
#[test]
fn space_sums_agree_after_concurrent_changes() {
    for seed in 0..60 {
        let sim = SimEnv::new(seed);
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let db = Arc::new(Db::open_in(env.clone(), "/store", options()).unwrap());
            let of = Arc::new(db.create_column_family("of", family(0)).unwrap());
            let spawn = |name, work: Box<dyn FnOnce() + Send>| {
                env.spawner.as_ref().unwrap().spawn(name, Priority::Foreground, work).unwrap()
            };
            let (writer, written) = (db.clone(), of.clone());
            let write = move || {
                for nth in 0..6_u64 {
                    writer.put_cf(&written, &nth.to_be_bytes(), &[1; 3000]).unwrap();
                    writer.flush().unwrap();
                }
            };
            let (setter, set) = (db.clone(), of.clone());
            let set = move || {
                for nth in 0..6 {
                    setter.set_family_options(&set, family(64 * (nth % 3))).unwrap();
                }
            };
            let maker = db.clone();
            let make = move || {
                for nth in 0..4 {
                    let made = maker.create_column_family(&format!("{nth}"), family(64)).unwrap();
                    maker.put_cf(&made, b"k", &[1; 100]).unwrap();
                    if nth % 2 == 0 {
                        maker.drop_column_family(&made).unwrap();
                    }
                }
            };
            let threads =
                [spawn("write", Box::new(write)), spawn("set", Box::new(set)), spawn("make", Box::new(make))];
            threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
            db.wait_idle(std::time::Duration::from_secs(60));
            check(&db);
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
    }
}
