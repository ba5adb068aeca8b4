use super::*;
use io::sim::SimEnv;

fn listed(fs: &dyn FileSystem) -> u64 {
    fs.list(Path::new("/store")).unwrap().iter().map(|e| e.allocated).sum()
}

fn metered() -> (SimEnv, MeteredFs) {
    let sim = SimEnv::new(1);
    let inner = sim.env().fs;
    inner.create_dir_all(Path::new("/store")).unwrap();
    inner.create_dir_all(Path::new("/other")).unwrap();
    (sim, MeteredFs { inner, meter: Arc::new(Meter::new(Path::new("/store"))) })
}

#[test]
fn every_change_of_the_directory_is_counted() {
    let (_sim, fs) = metered();
    let path = |name: &str| Path::new("/store").join(name);
    let options = CreateOptions { expected_len: 20_000, ..CreateOptions::default() };
    let mut file = fs.create(&path("000001.ksst"), &options).unwrap();
    assert_eq!(fs.meter.used_bytes(), 20_480, "what is reserved counts");
    file.append(&[1; 30_000]).unwrap();
    assert_eq!(fs.meter.used_bytes(), 32_768);
    drop(fs.create(&path("000002.ksst"), &options).unwrap());
    file.sync(SyncKind::Full).unwrap();
    drop(file);
    assert_eq!(fs.meter.used_bytes(), 32_768, "a reservation ends with the handle");
    assert_eq!(fs.meter.used_bytes(), listed(&fs));
    fs.create_in_place(&path("000003.log"), 16_384, Access::Direct).unwrap();
    fs.create_scratch(&path("staging"), 8_192).unwrap();
    fs.create_scratch(&path("staging"), 12_288).unwrap();
    assert_eq!(fs.meter.used_bytes(), listed(&fs));
    fs.rename(&path("staging"), &path("000002.ksst")).unwrap();
    assert_eq!(fs.meter.used_bytes(), listed(&fs));
    let mut elsewhere = fs.create(Path::new("/other/000001.ksst"), &options).unwrap();
    elsewhere.append(&[1; 30_000]).unwrap();
    fs.remove(&path("000001.ksst")).unwrap();
    assert!(fs.remove(&path("000001.ksst")).is_err());
    assert_eq!(fs.meter.used_bytes(), listed(&fs));
    // Failures change nothing.
    assert!(fs.create(&path("000002.ksst"), &options).is_err());
    assert!(fs.create_in_place(&path("000003.log"), 4096, Access::Direct).is_err());
    assert_eq!(fs.meter.used_bytes(), listed(&fs));
}

#[test]
fn a_handle_of_a_removed_file_counts_nothing() {
    let (_sim, fs) = metered();
    let path = Path::new("/store/000001.ksst");
    let mut late = fs.create(path, &CreateOptions::default()).unwrap();
    late.append(&[1; 5000]).unwrap();
    fs.remove(path).unwrap();
    late.append(&[1; 5000]).unwrap();
    assert_eq!(fs.meter.used_bytes(), 0);
    let mut next = fs.create(path, &CreateOptions::default()).unwrap();
    next.append(&[1; 100]).unwrap();
    late.append(&[1; 9000]).unwrap();
    drop(late);
    assert_eq!(fs.meter.used_bytes(), 4096);
}

#[test]
fn the_ceiling_refuses_data_log_and_strangers_and_nothing_else() {
    let (sim, fs) = metered();
    let path = |name: &str| Path::new("/store").join(name);
    fs.meter.set_ceiling(40_960);
    let mut table = fs.create(&path(&names::vsst(1)), &CreateOptions::default()).unwrap();
    table.append(&[1; 32_768]).unwrap();
    let before = sim.used();
    let e = table.append(&[1; 8_193]).unwrap_err();
    assert_eq!((e.kind(), sim.used()), (ErrorKind::NoSpace, before), "{e}");
    table.append(&[1; 8_192]).unwrap();
    for refused in [
        fs.create_in_place(&path(&names::log(2)), 4096, Access::Direct).err(),
        fs.create(&path(&names::ksst(3)), &CreateOptions { expected_len: 1, ..CreateOptions::default() })
            .err(),
        fs.create(&path("METRICS.tmp"), &CreateOptions::default())
            .and_then(|mut page| page.append(&[1]))
            .err(),
    ] {
        assert_eq!(refused.unwrap().kind(), ErrorKind::NoSpace);
    }
    let mut manifest = fs.create(&path(&names::manifest(4)), &CreateOptions::default()).unwrap();
    manifest.append(&[1; 100]).unwrap();
    assert_eq!((fs.meter.used_bytes(), fs.meter.refusals()), (45_056, 4));
    fs.remove(&path(&names::vsst(1))).unwrap();
    fs.create_in_place(&path(&names::log(2)), 4096, Access::Direct).unwrap();
}

/// The sum of the files of values on the second disk is what their names say, whatever becomes of them.
#[test]
fn values_on_the_second_disk_have_a_sum_of_their_own() {
    let (_sim, fs) = metered();
    let path = |kind: FileKind| Path::new("/store").join(kind.to_string());
    let listed = || -> u64 {
        let all = fs.list(Path::new("/store")).unwrap().into_iter();
        all.filter(|e| e.name.ends_with(".vsst-1")).map(|e| e.allocated).sum()
    };
    let options = CreateOptions { expected_len: 20_000, ..CreateOptions::default() };
    let mut file = fs.create(&path(FileKind::SpeedVsst(1)), &options).unwrap();
    assert_eq!(fs.meter.speed_value_bytes(), 20_480, "what is reserved counts");
    file.append(&[1; 30_000]).unwrap();
    assert_eq!(fs.meter.speed_value_bytes(), 32_768);
    file.reserve(50_000).unwrap();
    assert_eq!(fs.meter.speed_value_bytes(), 53_248);
    file.sync(SyncKind::Full).unwrap();
    drop(file);
    assert_eq!(fs.meter.speed_value_bytes(), listed());
    for other in [FileKind::Vsst(2), FileKind::SpeedKsst(3), FileKind::Ksst(4), FileKind::Log(5)] {
        let mut file = fs.create(&path(other), &options).unwrap();
        file.append(&[1; 9000]).unwrap();
        file.sync(SyncKind::Full).unwrap();
    }
    assert_eq!(fs.meter.speed_value_bytes(), listed());
    fs.rename(&path(FileKind::Vsst(2)), &path(FileKind::SpeedVsst(2))).unwrap();
    assert!(listed() > 32_768);
    assert_eq!(fs.meter.speed_value_bytes(), listed());
    fs.rename(&path(FileKind::SpeedVsst(1)), &path(FileKind::Vsst(1))).unwrap();
    assert_eq!(fs.meter.speed_value_bytes(), listed());
    fs.rename(&path(FileKind::SpeedKsst(3)), &path(FileKind::SpeedVsst(2))).unwrap();
    assert_eq!(fs.meter.speed_value_bytes(), listed());
    // Whoever opens the store begins with what is there.
    let meter = Meter::new(Path::new("/store"));
    meter.take_over(&fs.list(Path::new("/store")).unwrap());
    assert_eq!(meter.speed_value_bytes(), listed());
    fs.remove(&path(FileKind::SpeedVsst(2))).unwrap();
    assert_eq!((fs.meter.speed_value_bytes(), listed()), (0, 0));
    assert_eq!(
        fs.meter.used_bytes(),
        fs.list(Path::new("/store")).unwrap().iter().map(|e| e.allocated).sum()
    );
}
