use super::*;
use datadriven::TestCase;

const MB: u64 = 1 << 20;

fn with_excess(excess_bytes: u64) -> CompactionDebt {
    CompactionDebt { excess_bytes, ..CompactionDebt::default() }
}

fn run(case: &mut TestCase) -> Result<String, String> {
    match &*case.directive {
        "versions" => versions(case),
        // The debt of a family without a policy.
        "without-policy" => {
            let (version, options) = (Version::new(1), FamilyOptions::default());
            let (ledger, set_aside) = (Ledger::default(), SetAside::default());
            let chain = CompactionDebt::of(&version, &ledger, None, &set_aside, &options, 16 << 20);
            Ok(format!("limits nothing: {}\n", chain == CompactionDebt::default()))
        }
        other => Err(format!("no command is called {other}")),
    }
}

/// Versions of a tree: `at 1.5 flushed 30 MiB, 110 MiB over target`. Prints the absorption rate
/// after each.
fn versions(case: &TestCase) -> Result<String, String> {
    let (mut chain, mut out) = (with_excess(0), String::new());
    for line in case.input.lines() {
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [spans, flushed, excess] = numbers[..] else { return Err(format!("{line} is no version")) };
        let at_ns = (spans * SPAN_NS as f64) as u64;
        let bytes = |mib: f64| (mib * MB as f64) as u64;
        let next = with_excess(bytes(excess)).after(&chain, bytes(flushed), at_ns);
        // Changed options keep the measurement.
        let known = next.absorbed_bytes_per_s;
        assert_eq!(with_excess(10 * MB).with_what_is_known(&next).absorbed_bytes_per_s, known);
        let known = known.map_or("unknown".into(), |bytes| format!("{} MiB/s", bytes / MB));
        out += &format!("after {spans} s: {known}\n");
        chain = next;
    }
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/compaction_debt/scripts", |file| file.run(run));
}
