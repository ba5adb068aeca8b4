//! Every target over its corpus, its seeds and some thousand mutations; and that each has its nightly twin.

use fuzz::TARGETS;
use fuzz::runner::{self, Budget};
use io::Env;

#[test]
fn no_input_panics() {
    runner::keep_panics();
    let env = Env::kernel();
    let mut failures = Vec::new();
    for target in TARGETS {
        let outcome = runner::run(&env, target, 1, Budget::Runs(target.test_runs)).unwrap();
        let line = |f: &runner::Failure| format!("{} {}: {}", target.name, runner::name_of(&f.input), f.why);
        failures.extend(outcome.failures.iter().map(line));
        for failure in &outcome.failures {
            runner::save(&env, target, &failure.input).unwrap();
        }
    }
    let _ = std::panic::take_hook();
    assert!(failures.is_empty(), "inputs that fail are in fuzz/crashes:\n{}", failures.join("\n"));
}

#[test]
fn each_target_has_a_program_for_libfuzzer() {
    let fs = Env::kernel().fs;
    let dir = runner::home().join("cargo-fuzz");
    let manifest = fs.read_all(&dir.join("Cargo.toml"), 1 << 20).unwrap();
    let manifest = String::from_utf8(manifest).unwrap();
    for target in TARGETS {
        let name = target.name;
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in cargo-fuzz/Cargo.toml");
        let program = fs.read_all(&dir.join(format!("fuzz_targets/{name}.rs")), 1 << 16).unwrap();
        assert!(String::from_utf8(program).unwrap().contains(&format!("fuzz::{name}(data)")));
    }
}
