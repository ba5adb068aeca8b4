//! The harness for stable Rust: inputs from seeds, a corpus and mutation; deterministic by seed.

use crate::memory;
use crate::mutate::mutate;
use crate::{TARGETS, Target};
use base::{Error, ErrorKind, Result};
use io::{CreateOptions, Env, Rng};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// An input that takes longer has failed.
const SECONDS_MAX: u64 = 10;
/// An input that takes more memory has failed. Above what a block of the largest size costs a few times over.
const MEMORY_BYTES_MAX: usize = 768 << 20;
/// The longest input that is read.
const INPUT_LEN_MAX: usize = 1 << 20;

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// Until so much time has passed.
    Nanoseconds(u64),
    /// So many mutations.
    Runs(u64),
}

/// An input that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// What happened.
    pub why: String,
}

/// What a run of one target has found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Inputs run.
    pub runs: u64,
    /// The first few that failed, each in another way.
    pub failures: Vec<Failure>,
}

thread_local! {
    /// Where the last panic of this thread was, and its message.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are expected: they are kept, not printed.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        LAST_PANIC.with(|last| *last.borrow_mut() = text);
    }));
}

/// Runs one input.
///
/// # Errors
/// Why it failed.
pub fn check(env: &Env, target: &Target, input: &[u8]) -> std::result::Result<(), String> {
    let live = memory::reset_peak();
    let start = env.clock.now_ns();
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        return Err(LAST_PANIC.with(|last| last.borrow().replace('\n', " ")));
    }
    let seconds = env.clock.now_ns().saturating_sub(start) / 1_000_000_000;
    if seconds >= SECONDS_MAX {
        return Err(format!("it took {seconds} s"));
    }
    let bytes = memory::peak_bytes().saturating_sub(live);
    if bytes > MEMORY_BYTES_MAX {
        return Err(format!("it took {bytes} bytes of memory"));
    }
    Ok(())
}

/// Where checked-in inputs and crashes are: the directory of this crate.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The checked-in inputs of a target, sorted by name.
///
/// # Errors
/// Those of reading them.
pub fn corpus(env: &Env, target: &Target) -> Result<Vec<Vec<u8>>> {
    let dir = home().join("corpus").join(target.name);
    match env.fs.list(&dir) {
        Ok(files) => files.iter().map(|f| env.fs.read_all(&dir.join(&f.name), INPUT_LEN_MAX)).collect(),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Runs the corpus and the seeds of a target, then mutations of them.
///
/// # Errors
/// Those of reading the corpus.
pub fn run(env: &Env, target: &Target, seed: u64, budget: Budget) -> Result<Outcome> {
    let mut inputs = corpus(env, target)?;
    inputs.extend((target.seeds)());
    let mut outcome = Outcome::default();
    inputs.iter().for_each(|input| outcome.note(env, target, input));
    let mut rng = Rng::new(seed ^ base::hash::key_hash(target.name.as_bytes()));
    let start = env.clock.now_ns();
    let mut runs = 0;
    loop {
        match budget {
            Budget::Runs(max) if runs >= max => break,
            Budget::Nanoseconds(max) if env.clock.now_ns().saturating_sub(start) >= max => break,
            _ => runs += 1,
        }
        let mut input = inputs[rng.below(inputs.len() as u64) as usize].clone();
        mutate(&mut rng, &mut input, &inputs, target.len_max);
        outcome.note(env, target, &input);
    }
    Ok(outcome)
}

impl Outcome {
    fn note(&mut self, env: &Env, target: &Target, input: &[u8]) {
        self.runs += 1;
        if let Err(why) = check(env, target, input) {
            // Most inputs that fail fail in the same way.
            let place = |why: &str| why.chars().filter(|c| !c.is_ascii_digit()).take(100).collect::<String>();
            match self.failures.iter().position(|f| place(&f.why) == place(&why)) {
                Some(i) if self.failures[i].input.len() <= input.len() => {}
                Some(i) => self.failures[i].input = input.to_vec(),
                None if self.failures.len() < 20 => {
                    self.failures.push(Failure { input: input.to_vec(), why })
                }
                None => {}
            }
        }
    }
}

/// Writes a failing input to `crashes/`, and returns its path.
///
/// # Errors
/// Those of the file system.
pub fn save(env: &Env, target: &Target, input: &[u8]) -> Result<PathBuf> {
    let dir = home().join("crashes").join(target.name);
    env.fs.create_dir_all(&dir)?;
    let path = dir.join(name_of(input));
    if !env.fs.exists(&path)? {
        let mut file = env.fs.create(&path, &CreateOptions::default())?;
        file.append(input)?;
        file.flush()?;
    }
    Ok(path)
}

/// The name of an input: its hash.
pub fn name_of(input: &[u8]) -> String {
    format!("{:016x}", base::hash::key_hash(input))
}

/// The targets of this name; all for `all`.
///
/// # Errors
/// `NotFound`.
pub fn targets_named(name: &str) -> Result<Vec<Target>> {
    let found: Vec<Target> = TARGETS.iter().filter(|t| name == "all" || t.name == name).copied().collect();
    if found.is_empty() {
        return Err(Error::not_found(format!("there is no target `{name}`: see `fuzz list`")));
    }
    Ok(found)
}
