use super::*;
use crate::args::Distribution;
use crate::args::tests::args;

fn drain(space: &KeySpace, role: Role, ops: u64, thread: u64, threads: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut stream = Stream::new(space, role, Kind::Put, ops, thread, threads);
    let mut all = Vec::new();
    while stream.advance() {
        all.push((stream.key.clone(), stream.value.clone()));
    }
    all
}

#[test]
fn a_stream_is_a_function_of_the_seed() {
    for distribution in [Distribution::Uniform, Distribution::Zipf, Distribution::Pareto] {
        let mut args = args("overwrite --num 1000 --value-size 50");
        args.distribution = distribution;
        let first = drain(&KeySpace::new(&args), Role::Client, 100, 0, 1);
        assert_eq!(first, drain(&KeySpace::new(&args), Role::Client, 100, 0, 1));
        args.seed = 2;
        assert_ne!(first, drain(&KeySpace::new(&args), Role::Client, 100, 0, 1));
    }
}

/// The policy determines unset sizes; an older report without a policy used `leveled`.
#[test]
fn sizes_follow_the_policy() {
    let sizes = |line: &str| {
        let args = args(line).resolved();
        (args.memtable_len() >> 20, args.file_len() >> 20, args.blob_file_len() >> 20, args.policy().name)
    };
    assert_eq!(sizes("load"), (16, 16, 16, "leveled".into()));
    assert_eq!(sizes("load --policy vlsm"), (8, 8, 16, "vlsm".into()));
    assert_eq!(sizes("load --policy vlsm --file-bytes 33554432"), (32, 32, 32, "vlsm".into()));
    assert_eq!(sizes("load --policy vlsm --memtable-bytes 1048576"), (1, 8, 16, "vlsm".into()));
    let (plain, told) = (args("load --policy vlsm"), args("load --policy vlsm --growth-max 8"));
    assert_ne!(plain.policy(), told.policy());
    let mut report = serde_json::to_value(args("load")).unwrap();
    report.as_object_mut().unwrap().remove("policy");
    let old: BenchArgs = serde_json::from_value(report).unwrap();
    assert_eq!(old.policy().name, "leveled");
}

#[test]
fn loading_writes_every_key_once_over_all_threads() {
    let space = KeySpace::new(&args("load --num 1003 --value-size 10"));
    let mut keys: Vec<_> = (0..3).flat_map(|t| drain(&space, Role::Load, 1003, t, 3)).map(|e| e.0).collect();
    assert_eq!(keys.len(), 1003);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 1003);
}

#[test]
fn threads_and_roles_have_streams_of_their_own() {
    let space = KeySpace::new(&args("overwrite --num 100000 --value-size 10"));
    let client = drain(&space, Role::Client, 100, 0, 2);
    assert_ne!(client, drain(&space, Role::Client, 100, 1, 2));
    assert_ne!(client, drain(&space, Role::Writer, 100, 0, 2));
}

#[test]
fn families_together_have_every_key_once_and_each_its_own() {
    let space = KeySpace::new(&args("load --num 1003 --value-size 10"));
    let mut all = Vec::new();
    for family in 0..4 {
        let mut stream = Stream::of_family(&space, family, 4);
        while stream.advance() {
            assert_eq!(stream.index % 4, family);
            all.push(stream.index);
        }
    }
    all.sort();
    assert_eq!(all, (0..1003).collect::<Vec<_>>());
}

#[test]
fn a_numbered_operation_depends_on_no_other() {
    let space = KeySpace::new(&args("tail --num 1000 --value-size 20"));
    let stream = |role| Stream::new(&space, role, Kind::Put, 0, 0, 1);
    let seen = |stream: &mut Stream, number| {
        stream.prepare(number, 0.25);
        (stream.kind(), stream.index, stream.key.clone(), stream.value.clone())
    };
    let (mut forward, mut backward) = (stream(Role::Client), stream(Role::Client));
    let there: Vec<_> = (0..4000).map(|n| seen(&mut forward, n)).collect();
    let mut back: Vec<_> = (0..4000).rev().map(|n| seen(&mut backward, n)).collect();
    back.reverse();
    let puts = |all: &[(Kind, u64, Vec<u8>, Vec<u8>)]| -> Vec<_> {
        all.iter().filter(|op| op.0 == Kind::Put).cloned().collect()
    };
    assert_eq!(puts(&there), puts(&back));
    let place = |all: &[(Kind, u64, Vec<u8>, Vec<u8>)]| all.iter().map(|op| (op.0, op.1)).collect::<Vec<_>>();
    assert_eq!(place(&there), place(&back));
    let gets = there.iter().filter(|op| op.0 == Kind::Get).count();
    assert!((900..1100).contains(&gets), "{gets} gets of 4000");
    let mut other = stream(Role::Warmup);
    assert_ne!(
        place(&there),
        (0..4000).map(|n| seen(&mut other, n)).map(|op| (op.0, op.1)).collect::<Vec<_>>()
    );
}
