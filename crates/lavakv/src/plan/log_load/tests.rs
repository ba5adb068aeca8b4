use super::*;
use datadriven::TestCase;
use std::error::Error;

/// Simulates windows with these shares of durable writes, sampled more often than the window
/// length.
fn run(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let (mut load, mut now_ns, mut taken_ns, mut out) = (LogLoad::default(), 0, 0, String::new());
    for percent in case.take_args::<u64>("percent")? {
        for _ in 0..10 {
            now_ns += WINDOW_NS / 10;
            taken_ns += WINDOW_NS / 1000 * percent;
            load = load.seen(now_ns, taken_ns);
        }
        let jobs = [1, 2, 4].map(|threads| load.jobs_max(threads).unwrap_or(threads));
        out += &format!("{percent} %: jobs of 1, 2 and 4 threads: {jobs:?}\n");
    }
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/plan/log_load/scripts", |file| file.run(run));
}
