//! Volumes of a store by their numbers.

use base::ErrorKind;
use io::sim::SimEnv;
use std::path::Path;
use store::volumes::{Location, Volume, Volumes};

#[test]
fn an_unknown_volume_is_refused_by_number() {
    let env = SimEnv::new(1).env();
    let volumes = Volumes::new(Location::metered(&env, Path::new("/store")));
    assert_eq!(volumes.at(Volume::DIRECTORY).unwrap().path("x"), Path::new("/store/x"));
    assert_eq!(volumes.log_dir(), Path::new("/store"));
    let refusal = volumes.at(Volume(1)).unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::Unsupported);
    assert!(refusal.to_string().contains("volume 1"), "{refusal}");
    let both = store::fast_tier::joined(&env, Path::new("/store"), &env, Path::new("/fast"));
    let volumes = Volumes::new(Location::metered(&both, Path::new("/store")));
    assert_eq!(volumes.at(Volume::FAST).unwrap().path("x"), Path::new("/store/x"), "one name space");
    assert_eq!(volumes.log_dir(), Path::new("/fast"));
    assert!(volumes.at(Volume(2)).unwrap_err().to_string().contains("volume 2"));
}
