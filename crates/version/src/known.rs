//! Statistics of the entries of a table beyond the manifest's data.
//!
//! A process has them for the tables that it wrote. For older tables, reports and surveys read the
//! notes. All copies of a description share them: they are set once, completely, and never change.
//! The estimate is set before the table enters a version, so data derived from a version stays
//! valid.

use base::TableNotes;
use base::sync::OnceLock;
use std::sync::Arc;

/// Statistics of a table: see the module. Two descriptions of one table are equal whatever their
/// statistics.
#[derive(Clone, Debug, Default)]
pub struct TableStats {
    /// Shared by all copies of the description, because the notes of a table from an earlier
    /// process are read later.
    notes: Arc<OnceLock<TableNotes>>,
    hides: Option<Hides>,
}

/// Estimate of older versions that the point entries of a table hide, made when the table was
/// written, or by a survey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hides {
    /// Keys with an older version in tables with references, in parts per million.
    pub keys_ppm: u64,
    /// Bytes of the records of these versions.
    pub record_bytes: u64,
}

impl PartialEq for TableStats {
    fn eq(&self, _: &TableStats) -> bool {
        true
    }
}

impl Eq for TableStats {}

impl From<TableNotes> for TableStats {
    fn from(notes: TableNotes) -> TableStats {
        let known = TableStats::default();
        known.note(notes);
        known
    }
}

impl TableStats {
    /// Returns the statistics of its entries, if they are known.
    pub fn notes(&self) -> Option<&TableNotes> {
        self.notes.get()
    }

    /// Sets the statistics, unless they are already set.
    pub fn note(&self, notes: TableNotes) {
        self.notes.get_or_init(|| notes);
    }

    /// Returns the estimate, if there is one.
    pub fn hides(&self) -> Option<Hides> {
        self.hides
    }

    /// Sets the estimate.
    #[must_use]
    pub fn with_hides(self, hides: Option<Hides>) -> TableStats {
        TableStats { hides, ..self }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use io::Priority;
    use io::sim::SimEnv;
    use io::sim::threads::Plan;

    /// Several reports read a table at the same time, while other threads read copies of its
    /// description.
    #[test]
    fn table_notes_are_published_atomically_and_never_change() {
        for seed in 0..200 {
            let ran = SimEnv::new(seed).run_threads(&Plan::new(seed), move |env| {
                let known = TableStats::default();
                let spawn = |name, work: Box<dyn FnOnce() + Send>| {
                    env.spawner.as_ref().unwrap().spawn(name, Priority::Foreground, work).unwrap()
                };
                let mut threads = Vec::new();
                for keys in [1, 2] {
                    let copy = known.clone();
                    threads.push(spawn(
                        "notes",
                        Box::new(move || {
                            let mut notes = TableNotes { keys, ..TableNotes::default() };
                            notes.values.add(keys);
                            copy.note(notes);
                            assert!(copy.notes().is_some());
                        }),
                    ));
                }
                for _ in 0..2 {
                    let copy = known.clone();
                    threads.push(spawn(
                        "looks",
                        Box::new(move || {
                            let first = copy.notes().cloned();
                            let second = copy.notes().cloned();
                            let of = |notes: &TableNotes| (notes.keys, notes.values.bytes());
                            assert!(first.is_none() || first == second, "it has changed");
                            assert!(
                                second.as_ref().is_none_or(|n| matches!(of(n), (1, 1) | (2, 2))),
                                "{second:?}"
                            );
                        }),
                    ));
                }
                threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
                assert!(known.notes().is_some(), "all copies share them");
            });
            if let Err(stuck) = ran {
                panic!("seed {seed}: {}", stuck.0);
            }
        }
    }
}
