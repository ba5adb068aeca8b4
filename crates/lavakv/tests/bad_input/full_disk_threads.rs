//! Group commits of the manifest on a full disk.

use crate::common::around_syncs;
use crate::full_disk::on_tmpfs;
use lavastore_lavakv::ErrorKind;
use version::{Edit, InitialState, Manifest, Record};

/// Threads commit edits concurrently without free space: no edit is left in an unknown state.
#[test]
fn concurrent_manifest_edits_on_a_full_tmpfs_are_consistent() {
    on_tmpfs("tmpfs-edits", |dir| {
        // As slow as on a device, so that commits queue up.
        let env = around_syncs(|_, sync| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            sync()
        });
        let manifest = Manifest::create(&env, &dir.join("m"), InitialState::default()).unwrap();
        let make = |id| {
            let name = format!("{id:0>900}");
            manifest.commit_with(
                |state| {
                    let id = state.next_family;
                    Ok(Edit(vec![Record::CreateFamily { id, name: format!("{id}/{name}"), options: vec![] }]))
                },
                |_| {},
            )
        };
        let mut made = 0;
        for round in 0..20 {
            // Fills the volume, and fails.
            let _ = std::fs::write(dir.join("ballast"), vec![1; 4 << 20]);
            made += std::thread::scope(|s| {
                let threads: Vec<_> = (0..4)
                    .map(|t| {
                        let make = &make;
                        s.spawn(move || {
                            (0..20)
                                .map(|n| match make(t * 20 + n) {
                                    Ok(_) => 1,
                                    Err(e) if e.kind() == ErrorKind::NoSpace => 0,
                                    Err(e) => panic!("round {round}: {e}"),
                                })
                                .sum::<usize>()
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum::<usize>()
            });
            let reopened = Manifest::recover(&env, &dir.join("m"), true).unwrap();
            assert_eq!(reopened.state().families.len(), made, "round {round}");
            std::fs::remove_file(dir.join("ballast")).unwrap();
            make(round).unwrap();
            made += 1;
        }
    });
}
