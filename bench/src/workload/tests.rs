use super::*;
use crate::args::Distribution;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: BenchArgs,
}

fn args(line: &str) -> BenchArgs {
    Cli::parse_from(std::iter::once("bench").chain(line.split(' '))).args
}

fn drain(space: &Space, role: Role, ops: u64, thread: u64, threads: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut stream = Stream::new(space, role, Kind::Put, ops, thread, threads);
    let mut all = Vec::new();
    while stream.advance() {
        all.push((stream.key.clone(), stream.value.clone()));
    }
    all
}

#[test]
fn a_stream_is_a_function_of_the_seed() {
    for distribution in [Distribution::Uniform, Distribution::Zipf] {
        let mut args = args("overwrite --num 1000 --value-size 50");
        args.distribution = distribution;
        let first = drain(&Space::new(&args), Role::Client, 100, 0, 1);
        assert_eq!(first, drain(&Space::new(&args), Role::Client, 100, 0, 1));
        args.seed = 2;
        assert_ne!(first, drain(&Space::new(&args), Role::Client, 100, 0, 1));
    }
}

#[test]
fn loading_writes_every_key_once_over_all_threads() {
    let space = Space::new(&args("load --num 1003 --value-size 10"));
    let mut keys: Vec<_> = (0..3).flat_map(|t| drain(&space, Role::Load, 1003, t, 3)).map(|e| e.0).collect();
    assert_eq!(keys.len(), 1003);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 1003);
}

#[test]
fn threads_and_roles_have_streams_of_their_own() {
    let space = Space::new(&args("overwrite --num 100000 --value-size 10"));
    let client = drain(&space, Role::Client, 100, 0, 2);
    assert_ne!(client, drain(&space, Role::Client, 100, 1, 2));
    assert_ne!(client, drain(&space, Role::Writer, 100, 0, 2));
}
