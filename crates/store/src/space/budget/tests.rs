use super::*;
use crate::space::{ASK_NS, EDITS_BYTES, Grant};
use crate::volumes::Location;
use datadriven::TestCase;
use io::sim::SimEnv;
use io::{AppendFile, CreateOptions};
use std::error::Error;
use std::path::Path;

const KIB: u64 = 1 << 10;

fn sizes() -> super::super::Sizes {
    super::super::Sizes {
        memtable_bytes: 64 << 10,
        memory_bytes: 128 << 10,
        log_group_bytes: 32 << 10,
        reserved_bytes: 16 << 10,
        wal_bytes_max: 64 << 10,
    }
}

/// A store of one file, and its budget.
struct Script {
    sim: SimEnv,
    space: Arc<SpaceBudget>,
    limit: u64,
    /// Grants of running jobs.
    grants: Vec<Grant>,
}

fn create(context: &Context, number: u64, bytes: u64) -> base::Result<Box<dyn AppendFile>> {
    let path = context.path(&crate::names::ksst(number));
    let mut file = context.env.fs.create(&path, &CreateOptions::default())?;
    file.append(&vec![7; bytes as usize])?;
    Ok(file)
}

impl Script {
    fn new(used: u64, limit: Option<u64>, capacity: Option<u64>) -> Script {
        let sim = SimEnv::new(1);
        sim.set_capacity(capacity);
        let env = sim.env();
        env.fs.create_dir_all(Path::new("/store")).unwrap();
        let context = Arc::new(Context::new(&env, Location::metered(&env, Path::new("/store"))));
        let terms = Terms { limit: limit.map(SpaceLimit::Bytes), ..Terms::unlimited(sizes()) };
        drop(create(&context, 1, used).unwrap());
        let space = Arc::new(SpaceBudget::new(&context, terms));
        assert_eq!(space.used_bytes(), used);
        space.gauges.set_serves();
        Script { sim, space, limit: limit.unwrap_or(u64::MAX), grants: Vec::new() }
    }

    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let space = &self.space;
        let kib =
            |case: &mut TestCase, name: &str| case.try_take_arg::<u64>(name).map(|n| n.map(|n| n * KIB));
        let bytes = |case: &mut TestCase| kib(case, "kib").map(Option::unwrap_or_default);
        let out = match &*case.directive {
            "store" => {
                let (used, limit) = (kib(case, "used-kib")?.unwrap_or(0), kib(case, "limit-kib")?);
                *self = Script::new(used, limit, kib(case, "volume-kib")?);
                String::new()
            }
            "refresh" => {
                // Jobs request 200,000 bytes.
                let demands = Demands { pool_bytes: 200_000, fixed_bytes: 20_000, ..Demands::default() };
                space.refresh(|_| demands);
                String::new()
            }
            "bound-files" => {
                space.ceiling.bound_files();
                String::new()
            }
            "take-ceiling" => {
                space.ceiling.take(bytes(case)?);
                String::new()
            }
            "state" => self.state(),
            "tells" => {
                let told = |told: u64| match space.ceiling.to_tell(told) {
                    None => format!("{}: nothing to tell\n", shown(told)),
                    Some(ceiling) => format!("{}: {}\n", shown(told), shown(ceiling)),
                };
                case.try_take_args("kib")?.map_or_else(
                    || told(u64::MAX),
                    |all| all.into_iter().map(|n: u64| told(n * KIB)).collect(),
                )
            }
            "volume" => {
                self.sim.set_capacity(Some(bytes(case)?));
                self.sim.advance_ns(2 * ASK_NS);
                format!("changed: {}\n", space.look_again())
            }
            "write-file" => {
                // Writes all bytes below the limit that are not reserved for the manifest, and
                // `more` bytes.
                let left = self.limit - EDITS_BYTES - space.used_bytes();
                let more: u64 = case.take_arg("more-than-fits")?;
                create(&space.context, 2, left + more)
                    .map_or_else(|e| format!("{}\n", e.kind().name()), |_| "written\n".into())
            }
            "grant" => {
                let grant = space.grants.grant(bytes(case)?).ok_or("there is no room for it")?;
                grant.wrote(|| vec![(1, space.context.path(&crate::names::ksst(1)))]);
                self.grants.push(grant);
                self.job_room()
            }
            "give-up-jobs" => {
                self.grants.clear();
                self.job_room()
            }
            "job-room" => self.job_room(),
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn state(&self) -> String {
        let space = &self.space;
        let ceiling = space.bounds.ceiling_bytes();
        let grants = |bytes| space.grants.would_grant(bytes);
        format!(
            "used {}, limit {}, needed {}, ceiling {}; above the limit: {}, grants 180000 B: {}\n",
            shown(space.used_bytes()),
            shown(space.limit_bytes()),
            shown(space.needed_bytes()),
            shown(ceiling),
            space.ceiling.is_above_limit(),
            grants(180_000),
        )
    }

    fn job_room(&self) -> String {
        format!("jobs may write {}\n", shown(self.space.grants.job_bytes_max()))
    }
}

fn shown(bytes: u64) -> String {
    match bytes {
        u64::MAX => "unlimited".into(),
        bytes if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        bytes => format!("{bytes} B"),
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/space/budget/scripts", |file| {
        let mut script = Script::new(0, None, None);
        file.run(|case| script.run(case));
    });
}

/// The limit changes during a refresh with the old one: the new limit holds after both.
#[test]
fn a_concurrent_refresh_does_not_restore_the_old_limit() {
    let Script { sim: _sim, space, .. } = Script::new(64 * KIB, None, None);
    space.set_own_limit(Some(SpaceLimit::Ratio(2.0)));
    space.refresh(|_| {
        if space.own.get() == Some(SpaceLimit::Ratio(2.0)) {
            space.set_own_limit(Some(SpaceLimit::Bytes(2 << 20)));
            space.refresh(|_| Demands::default());
        }
        Demands::default()
    });
    assert_eq!(space.limit_bytes(), 2 << 20);
}
