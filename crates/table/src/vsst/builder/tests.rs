//! vSSTs with parts that contradict each other, each under a valid checksum, as a faulty writer
//! would leave them.

use super::*;
use crate::Vsst;
use base::Uid;
use io::sim::SimEnv;
use io::{Access, CreateOptions, Env};

const PATH: &str = "000000000007.vsst";

fn begin(env: &Env) -> VsstBuilder {
    let file = env.fs.create(Path::new(PATH), &CreateOptions::default()).unwrap();
    let uid = Uid::from_words(3, 4);
    let identity = TableIdentity { number: 7, uid, ..TableIdentity::default() };
    let options = VsstOptions { compression: Compression::None, alignment: 8 };
    VsstBuilder::new(file, Path::new(PATH), identity, &options, None)
}

/// Returns the verification error of a file that can be opened.
fn told(env: &Env, builder: VsstBuilder) -> String {
    builder.finish(Vec::new()).unwrap();
    let file = env.fs.open(Path::new(PATH), Access::Buffered).unwrap();
    let vsst = Vsst::open(file, 7, Uid::from_words(3, 4), Arc::new(Cache::new(0))).unwrap();
    let e = Arc::new(vsst).verify().unwrap_err();
    assert!(e.is_corruption() && e.offset().is_some() && e.file().is_some_and(|f| f.ends_with(PATH)), "{e}");
    e.message().to_owned()
}

#[test]
fn an_index_without_the_last_key_is_refused() {
    let env = SimEnv::new(1).env();
    let mut builder = begin(&env);
    for n in 0..10_u8 {
        builder.add(&[b'a' + n], 5, &[n; 40]).unwrap();
    }
    let index = std::mem::take(&mut builder.index);
    builder.add(b"z", 5, &[1; 40]).unwrap();
    builder.index = index;
    let expected = "the index of the value file (vSST) ends before the last key: it lacks \"z\" (sequence 5)";
    assert_eq!(told(&env, builder), expected);
}

#[test]
fn a_record_without_a_key_is_refused() {
    let env = SimEnv::new(1).env();
    let mut builder = begin(&env).in_order_of_arrival();
    for (n, key) in [b"c", b"a", b"b"].into_iter().enumerate() {
        builder.append(key, n as u64, &[1; 40]).unwrap();
    }
    let gone = builder.arrived.as_mut().unwrap().remove(1);
    builder.properties.record_bytes += gone.lens.stored_len;
    let told = told(&env, builder);
    assert!(told.starts_with("the value records leave a gap or overlap: one begins at byte "), "{told}");
}

/// Readers allocate by this length.
#[test]
fn an_overlong_record_is_refused() {
    let env = SimEnv::new(1).env();
    let mut builder = begin(&env);
    builder.add(b"a", 5, &[1; 40]).unwrap();
    let units = record::RECORD_LEN_MAX as u64 / 8 + 1;
    builder.dense.push(b"b", 0, DenseRow { seq: 5, raw_len: 40, units, offset_units: 0 });
    let (len, limit) = (units * 8, record::RECORD_LEN_MAX);
    let expected =
        format!("the key list (dense keys) has a record of {len} bytes, over the limit of {limit} bytes");
    assert_eq!(told(&env, builder), expected);
}

#[test]
fn malformed_records_are_not_copied() {
    let env = SimEnv::new(1).env();
    let mut builder = begin(&env);
    builder.add(b"a", 5, &[1; 40]).unwrap();
    let record = Record {
        user_key: b"b",
        seq: 5,
        raw_len: 0,
        codec: Compression::None,
        stored: b"abc",
        alignment: 8,
        mask: 0,
    };
    let e = builder.copy(&record).unwrap_err();
    let told = "adding to a value file (vSST): the copied record has 3 bytes, but its checksum has 4";
    assert_eq!((e.kind(), e.message()), (ErrorKind::InvalidArgument, told));
}
