//! Alternating runs of several engines, each in a process of its own, and the ratios of the first over the others.

use bench::args::Workload;
use bench::host::WorkDir;
use bench::{BenchArgs, Result};
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// From so many pairs on a figure may be called a claim.
pub const CLAIM_PAIRS: usize = 3;

/// How often, where, and what becomes of it.
#[derive(Args)]
pub struct PairArgs {
    /// Runs of each engine
    #[arg(long, default_value_t = CLAIM_PAIRS)]
    pub pairs: usize,
    /// Where the stores are made, one at a time, and removed again
    #[arg(long, default_value = "bench-data")]
    pub dir: PathBuf,
    /// Write all reports and the ratios to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// The same of a comparison that takes the options of the benchmark: how often is `--pairs` of these.
#[derive(Args)]
pub struct BenchPairArgs {
    /// Where the stores are made, one at a time, and removed again
    #[arg(long, default_value = "bench-data")]
    pub dir: PathBuf,
    /// Write all reports and the ratios to this file
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// The options of the benchmark.
    #[command(flatten)]
    pub bench: BenchArgs,
}

impl BenchPairArgs {
    /// How often, where, and what becomes of it.
    ///
    /// # Errors
    /// The options contradict each other, or are of another workload.
    pub fn pairs_of(&self, workload: Workload) -> Result<PairArgs> {
        self.bench.check()?;
        if self.bench.workload != workload {
            let name = bench::args::name(workload);
            return Err(format!("this compares the workload {name}: see peers compare for others").into());
        }
        let pairs = self.bench.pairs.map_or(CLAIM_PAIRS, |pairs| pairs as usize);
        Ok(PairArgs { pairs, dir: self.dir.clone(), json: self.json.clone() })
    }
}

/// A figure of a report that everybody has: its name, how to get it.
pub type NamedFigure<R> = (&'static str, fn(&R) -> Option<f64>);

/// How to get a figure of a report.
type Get<R> = dyn Fn(&R) -> Option<f64>;

/// A figure of a comparison.
pub struct Figure<R> {
    /// What it is called.
    pub name: String,
    /// How to get it.
    pub of: Box<Get<R>>,
}

/// These figures, as they are.
pub fn figures<R: 'static>(all: &[NamedFigure<R>]) -> Vec<Figure<R>> {
    all.iter().map(|(name, of)| Figure { name: (*name).to_owned(), of: Box::new(*of) }).collect()
}

/// What is compared.
pub struct Comparison<R> {
    /// The hidden command that makes one run: `CHILD ENGINE STORE REPORT OPTIONS`.
    pub child: &'static str,
    /// The engines as that command names them, in order.
    pub engines: Vec<String>,
    /// Of which figures there are ratios.
    pub figures: Vec<Figure<R>>,
    /// The engine of a report.
    pub engine_of: fn(&R) -> &str,
    /// A report in the output.
    pub text: fn(&R) -> String,
}

impl<R: Serialize + DeserializeOwned> Comparison<R> {
    /// Makes the runs, prints and records them.
    pub fn run(&self, args: &PairArgs, options: &impl Serialize) -> Result<()> {
        println!("options: {}", serde_json::to_string(options)?);
        println!("machine: {}", bench::host::machine());
        let mut all: Vec<Vec<R>> = self.engines.iter().map(|_| Vec::new()).collect();
        for pair in 1..=args.pairs {
            for (engine, reports) in self.engines.iter().zip(&mut all) {
                let report = self.one_run(args, engine, options)?;
                println!("pair {pair}  {}", (self.text)(&report));
                reports.push(report);
            }
        }
        println!();
        let summary = self.summarize(&all);
        if args.pairs < CLAIM_PAIRS {
            println!("smoke run: fewer than {CLAIM_PAIRS} pairs are not a claim");
        }
        let Some(file) = &args.json else { return Ok(()) };
        let found = json!({ "options": options, "pairs": args.pairs, "summary": summary, "runs": all });
        Ok(std::fs::write(file, serde_json::to_string_pretty(&found)? + "\n")?)
    }

    /// One run in a child process. What earlier runs left dirty is written back first.
    pub fn one_run(&self, args: &PairArgs, engine: &str, options: &impl Serialize) -> Result<R> {
        let dir = WorkDir::fresh(&args.dir)?;
        let (store, out) = (dir.path().join("store"), dir.path().join("report.json"));
        std::fs::create_dir_all(&store).map_err(|e| format!("cannot create {}: {e}", store.display()))?;
        rustix::fs::sync();
        let status = Command::new(std::env::current_exe()?)
            .args([self.child, engine])
            .args([&store, &out])
            .arg(serde_json::to_string(options)?)
            .status()?;
        if !status.success() {
            return Err(format!("the run of {engine} failed ({status})").into());
        }
        Ok(serde_json::from_str(&std::fs::read_to_string(out)?)?)
    }

    /// The ratios of the first engine over each other one, pair by pair: median, min and max.
    fn summarize(&self, all: &[Vec<R>]) -> Value {
        let Some((ours, others)) = all.split_first() else { return json!([]) };
        let mut rows = Vec::new();
        for other in others {
            for Figure { name, of } in &self.figures {
                let pairs = ours.iter().zip(other);
                let ratios = pairs.filter_map(|(a, b)| Some(of(a)? / of(b)?));
                let mut ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
                ratios.sort_by(f64::total_cmp);
                let (Some(min), Some(max)) = (ratios.first(), ratios.last()) else { continue };
                let median = ratios[ratios.len() / 2];
                let (one, two) = ((self.engine_of)(&ours[0]), (self.engine_of)(&other[0]));
                println!("{one} over {two}: {name} {median:.2} ({min:.2} to {max:.2})");
                rows.push(json!({ "over": two, "figure": name, "median": median, "min": min, "max": max }));
            }
        }
        rows.into()
    }
}
