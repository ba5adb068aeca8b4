use super::*;
use crate::descriptors::open_max;
use base::Error;
use datadriven::TestCase;
use io::sim::SimEnv;
use io::sim::threads::Plan;
use std::cell::Cell;

fn no_descriptor() -> Error {
    Error::from_io("cannot open a file", "file", std::io::Error::from_raw_os_error(24))
}

/// Opens a store with a cache full of files.
fn full(env: &io::Env) -> (Arc<Descriptors>, OpenFiles<Arc<u64>>) {
    let (descriptors, files) = (Descriptors::join(env), OpenFiles::new(open_max(&*env.fs, 1000, 1)));
    files.share(&descriptors, 1);
    (0..600).for_each(|n| drop(files.find(n, || Ok::<_, Error>(Arc::new(n))).unwrap()));
    (descriptors, files)
}

fn count<F>(files: &OpenFiles<F>) -> usize {
    read(&files.cached.open).len()
}

/// A store: its descriptors, its cache, and how often it opened a file.
struct Store {
    descriptors: Arc<Descriptors>,
    files: OpenFiles<u64>,
    opened: u64,
}

/// A process with stores of one letter each.
struct Script {
    sim: SimEnv,
    stores: std::collections::BTreeMap<String, Store>,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Numbers of files: `5`, or first and last.
fn numbers(case: &mut TestCase) -> Outcome<std::ops::RangeInclusive<u64>> {
    let ends: Vec<u64> = case.take_args("files")?;
    Ok(ends[0]..=*ends.last().unwrap_or(&ends[0]))
}

impl Script {
    fn new() -> Script {
        Script { sim: SimEnv::new(1), stores: Default::default() }
    }

    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let out = match &*case.directive {
            "process" => {
                *self = Script::new();
                self.sim.set_open_max(case.try_take_arg("descriptors")?);
                String::new()
            }
            "open-store" => self.open_store(case)?,
            "close-store" => {
                self.stores.remove(&case.take_arg::<String>("store")?);
                String::new()
            }
            "open-max" => {
                let env = self.sim.env();
                let asked = case.take_arg("asked")?;
                let max = |parts: u64| format!("{} for one of {parts}\n", open_max(&*env.fs, asked, parts));
                case.take_args("parts")?.into_iter().map(max).collect()
            }
            "parts" => {
                let parts: Vec<u64> = case.take_args("of")?;
                let part = |(name, store): (&String, &Store)| {
                    let all =
                        parts.iter().map(|n| format!(" {}", store.descriptors.part(*n))).collect::<String>();
                    format!("{name}:{all}\n")
                };
                self.stores.iter().map(part).collect()
            }
            "open-files" => {
                let open = |(name, store): (&String, &Store)| format!("{name}: {}\n", count(&store.files));
                self.stores.iter().map(open).collect()
            }
            _ => self.files(case)?,
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn open_store(&mut self, case: &mut TestCase) -> Outcome<String> {
        let env = self.sim.env();
        let max = open_max(&*env.fs, case.take_arg("asked")?, 1);
        let store = Store { descriptors: Descriptors::join(&env), files: OpenFiles::new(max), opened: 0 };
        store.files.share(&store.descriptors, 1);
        self.stores.insert(case.take_arg("store")?, store);
        Ok(String::new())
    }

    /// Runs a command on the files of a store.
    fn files(&mut self, case: &mut TestCase) -> Outcome<String> {
        let name: String = case.take_arg("store")?;
        if case.directive == "call" {
            return self.call(&name, case);
        }
        let store = self.stores.get_mut(&name).ok_or("there is no such store")?;
        let numbers = numbers(case)?;
        let is = |is_true: bool, yes: &str, no: &str| format!("{}\n", if is_true { yes } else { no });
        Ok(match &*case.directive {
            "find" => {
                let before = store.opened;
                for number in numbers {
                    let opened = &mut store.opened;
                    let make = || {
                        *opened += 1;
                        Ok::<_, Error>(number)
                    };
                    assert_eq!(store.files.find(number, make)?, number);
                }
                format!("opened {}\n", store.opened - before)
            }
            "fail-to-open" => {
                let e = store.files.find(*numbers.start(), || Err(Error::not_found("gone"))).unwrap_err();
                format!("{e}\n")
            }
            "forget" => {
                store.files.forget(*numbers.start());
                String::new()
            }
            "take" => is(store.files.take(*numbers.start()).is_some(), "it was open", "it was not open"),
            "is-open" => is(store.files.is_open(*numbers.start()), "yes", "no"),
            other => return Err(format!("no command is called {other}").into()),
        })
    }

    /// Makes a call that fails for want of descriptors until a store has at most `until-open` open
    /// files.
    fn call(&mut self, name: &str, case: &mut TestCase) -> Outcome<String> {
        let until: Option<usize> = case.try_take_arg("until-open")?;
        let of: String = case.try_take_arg("files-of")?.unwrap_or_else(|| name.to_owned());
        let fails = case.take_flag("other-error")?;
        let (calls, files) = (Cell::new(0), &self.stores[&of].files);
        let called = self.stores[name].descriptors.with_one(|| {
            calls.set(calls.get() + 1);
            match until {
                _ if fails => Err(Error::invalid("another error")),
                Some(most) if count(files) <= most => Ok(()),
                _ => Err(no_descriptor()),
            }
        });
        let told = called.map_or_else(|e| e.to_string(), |()| "succeeds".into());
        Ok(format!("{told}; calls: {}\n", calls.get()))
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/files/open_files/scripts", |file| {
        let mut script = Script::new();
        file.run(|case| script.run(case));
    });
}

/// Threads of two stores look up files and take descriptors, and one of the stores is closed.
#[test]
fn stores_share_descriptors_under_any_schedule() {
    for seed in 0..300 {
        let sim = SimEnv::new(seed);
        sim.set_open_max(Some(68));
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let spawn = |work: Box<dyn FnOnce() + Send>| {
                env.spawner.as_ref().unwrap().spawn("store", io::Priority::Foreground, work).unwrap()
            };
            let one = Arc::new(full(env));
            let mut threads = Vec::new();
            for _ in 0..2 {
                let env = env.clone();
                threads.push(spawn(Box::new(move || {
                    let (descriptors, files) = full(&env);
                    assert!(files.cached.max() <= 18);
                    drop((files, descriptors));
                })));
                let one = one.clone();
                threads.push(spawn(Box::new(move || {
                    let (descriptors, files) = &*one;
                    let left = Cell::new(3);
                    let call = || match left.replace(left.get() - 1) {
                        0 => Ok(()),
                        _ => Err(no_descriptor()),
                    };
                    // The call may find no file to close; it still ends.
                    let _ = descriptors.with_one(call);
                    let found = (0..20).map(|n| files.find(n, || Ok::<_, Error>(Arc::new(n))).unwrap());
                    assert!(found.enumerate().all(|(nth, file)| nth as u64 == *file));
                })));
            }
            threads.into_iter().for_each(|thread| assert!(thread.join(), "a thread panicked"));
            assert_eq!((env.descriptors.stores(), one.1.cached.max()), (1, 18), "the others have left");
            assert!(count(&one.1) <= 18);
        });
        if let Err(stuck) = ran {
            panic!("seed {seed}: {}", stuck.0);
        }
    }
}
