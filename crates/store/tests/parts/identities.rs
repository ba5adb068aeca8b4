//! The identity of a fast tier, on the disk and in the manifest.

use base::Uid;
use base::codec::Reader;
use store::volumes::FastTier;
use store::volumes::identity::Identity;

const SLOT_LEN: usize = 96;

fn identity() -> Identity {
    let [store, disk, session, previous] = [1, 2, 3, 4].map(|byte| Uid([byte; 16]));
    Identity { store, disk, epoch: 1 << 40, session, previous, moving: true }
}

#[test]
fn identity_slots_round_trip_and_detect_every_bit_flip() {
    let bytes = identity().encode();
    assert_eq!(bytes.len(), SLOT_LEN);
    assert_eq!(Identity::decode(&bytes).unwrap(), identity());
    for bit in 0..8 * SLOT_LEN {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Identity::decode(&damaged).unwrap_err().is_corruption(), "bit {bit}");
    }
    for len in 0..SLOT_LEN {
        assert!(Identity::decode(&bytes[..len]).unwrap_err().is_corruption(), "{len} bytes");
    }
}

#[test]
fn the_record_of_a_disk_names_a_place_in_text() {
    let disk = FastTier { disk: Uid([5; 16]), epoch: 300, session: Uid([6; 16]), place: "/dïsk".into() };
    let mut bytes = Vec::new();
    disk.encode_into(&mut bytes);
    assert_eq!(FastTier::decode(&mut Reader::new(&bytes)).unwrap(), disk);
    *bytes.last_mut().unwrap() = 0xff;
    let e = FastTier::decode(&mut Reader::new(&bytes)).unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains("is not UTF-8"), "{e}");
}
