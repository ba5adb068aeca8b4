use super::*;
use crate::kernel::device::{DeviceOptions, ImageRoom, create_image, open};
use crate::kernel::tests::Temp;
use crate::kernel::{IoEngine, KernelOptions};
use base::ErrorKind;
use std::collections::BTreeMap;

const BLOCKS: u64 = 400;
const LEN: u64 = BLOCKS * BLOCK as u64;

/// Runs a test with a device and its queue, for both engines and both ways of completion.
fn each(test: impl Fn(&Arc<dyn BlockDevice>, &mut dyn DeviceQueue)) {
    for engine in [IoEngine::Portable, IoEngine::Auto] {
        for wanted in [Completions::Interrupts, Completions::Polled] {
            let dir = Temp::new();
            let path = dir.0.join("image");
            create_image(&path, LEN, ImageRoom::Sparse).unwrap();
            let options = DeviceOptions { kernel: KernelOptions { engine }, ..Default::default() };
            let device = open(&path, &options).unwrap();
            let mut queue = device.clone().queue(wanted).unwrap();
            let told = queue.completions();
            assert!(engine != IoEngine::Portable || told == Completions::Caller, "{told:?}");
            assert!(told != Completions::Polled || wanted == Completions::Polled, "{told:?}");
            test(&device, &mut *queue);
        }
    }
}

fn block(byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    buf.as_mut_slice().fill(byte);
    buf
}

fn all(queue: &mut dyn DeviceQueue) -> BTreeMap<u64, DeviceDone> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done);
    }
    done.into_iter().map(|done| (done.token, done)).collect()
}

#[test]
fn hundreds_of_requests_in_flight_complete_once_each() {
    each(|device, queue| {
        for n in 0..BLOCKS {
            queue.submit(DeviceRequest::write(n, n * BLOCK as u64, block(n as u8)));
        }
        assert_eq!(queue.in_flight(), BLOCKS as usize);
        let done = all(queue);
        assert!(done.len() == BLOCKS as usize && done.values().all(|d| d.result.is_ok()), "{done:?}");
        device.sync().unwrap();
        for n in 0..BLOCKS / 2 {
            queue.submit(DeviceRequest::read(n, 2 * n * BLOCK as u64, 2 * BLOCK));
        }
        let mut polls = Vec::new();
        while queue.in_flight() > 0 {
            queue.poll(&mut polls);
        }
        assert_eq!(polls.len() as u64, BLOCKS / 2);
        for done in polls {
            let (one, two) = done.buf.as_slice().split_at(BLOCK);
            let n = done.token;
            assert!(
                one.iter().all(|&b| b == (2 * n) as u8) && two.iter().all(|&b| b == (2 * n + 1) as u8),
                "{n}"
            );
        }
        queue.wait(&mut Vec::new());
        queue.poll(&mut Vec::new());
    });
}

#[test]
fn dropping_a_queue_completes_submitted_requests() {
    each(|device, queue| {
        queue.submit(DeviceRequest::write(1, 0, block(9)));
        drop(all(queue));
        let mut other = device.clone().queue(Completions::Interrupts).unwrap();
        other.submit(DeviceRequest::write(1, BLOCK as u64, block(8)));
        drop(other);
        let mut found = [0; 2];
        device.read_at(&mut found, BLOCK as u64 - 1).unwrap();
        assert_eq!(found, [9, 8]);
    });
}

#[test]
fn queue_errors_equal_those_of_blocking_calls() {
    let dir = Temp::new();
    let path = dir.0.join("image");
    create_image(&path, LEN, ImageRoom::Sparse).unwrap();
    let device = open(&path, &DeviceOptions { read_only: true, ..Default::default() }).unwrap();
    for wanted in [Completions::Interrupts, Completions::Polled, Completions::Caller] {
        let mut queue = device.clone().queue(wanted).unwrap();
        queue.submit(DeviceRequest::write(1, 0, block(9)));
        queue.submit(DeviceRequest::read(2, 0, BLOCK));
        let done = all(&mut *queue);
        let refused = done[&1].result.as_ref().unwrap_err();
        assert_eq!((refused.kind(), done[&2].result.is_ok()), (ErrorKind::ReadOnly, true));
    }
}

#[test]
#[should_panic(expected = "whole, aligned blocks")]
fn a_request_of_half_a_block_is_a_bug_of_the_caller() {
    each(|_, queue| queue.submit(DeviceRequest::read(1, 0, 512)));
}

#[test]
fn a_queue_that_cannot_be_polled_says_so() {
    assert!(is_polled("1\n") && !is_polled("0\n") && !is_polled(""));
    // An image on a disk without poll queues uses interrupts, whatever was requested.
    each(|_, queue| {
        let polls = queue.completions() == Completions::Polled;
        println!("{queue:?}: {}", if polls { "polled" } else { "not polled" });
        queue.submit(DeviceRequest::read(1, 0, BLOCK));
        assert!(all(queue)[&1].result.is_ok());
    });
}

/// A polling ring is set up and used where the kernel allows it, even if the disk does not support
/// it: transfers that cannot be polled are finished by plain calls.
#[test]
fn a_ring_that_polls_loses_nothing() {
    let dir = Temp::new();
    let path = dir.0.join("image");
    create_image(&path, LEN, ImageRoom::Written).unwrap();
    let Ok(ring) = RingTransfers::new(Kind::Polled) else { return println!("skipped: no ring that polls") };
    let options = DeviceOptions::default();
    let device = super::super::open_kernel(&path, &options).unwrap();
    let (ring, completions) = (Some(ring), Completions::Polled);
    let mut queue =
        KernelQueue { device: device.clone(), ring, completions, waiting: VecDeque::new(), in_flight: 0 };
    for n in 0..BLOCKS {
        queue.submit(DeviceRequest::write(n, n * BLOCK as u64, block(n as u8)));
    }
    let done = all(&mut queue);
    assert!(done.len() == BLOCKS as usize && done.values().all(|d| d.result.is_ok()), "{done:?}");
    for n in 0..BLOCKS {
        queue.submit(DeviceRequest::read(n, n * BLOCK as u64, BLOCK));
    }
    let done = all(&mut queue);
    assert!(done.iter().all(|(n, d)| d.result.is_ok() && d.buf.as_slice().iter().all(|&b| b == *n as u8)));
}

/// Each ring call in the table fails, comes back short or is interrupted, once or permanently.
#[cfg(feature = "faults")]
#[test]
fn ring_faults_change_nothing_except_permanent_errors() {
    use crate::kernel::calls::Call;
    use crate::kernel::calls::watch::{Fault, Form, Watch};
    let mut struck = 0;
    let mut failed = 0;
    for only in [Call::RingSubmit, Call::RingRead, Call::RingWrite, Call::Read, Call::Write] {
        for form in Form::ALL {
            for (nth, sticky) in [(0, false), (3, false), (0, true), (3, true)] {
                let dir = Temp::new();
                let path = dir.0.join("image");
                create_image(&path, LEN, ImageRoom::Sparse).unwrap();
                let device = open(&path, &DeviceOptions::default()).unwrap();
                let mut queue = device.clone().queue(Completions::Interrupts).unwrap();
                let watch = Watch::new(&dir.0, Some(Fault { nth, form, sticky, only: Some(only) }), false);
                let mut errors = 0;
                for round in 0..2 {
                    for n in 0..20 {
                        let offset = 2 * n * BLOCK as u64;
                        let mut two = AlignedBuf::zeroed(2 * BLOCK);
                        two.as_mut_slice().fill(n as u8 + 1);
                        queue.submit(match round {
                            0 => DeviceRequest::write(n, offset, two),
                            _ => DeviceRequest::read(n, offset, 2 * BLOCK),
                        });
                    }
                    let done = all(&mut *queue);
                    assert_eq!(done.len(), 20, "{only:?} {form:?} {nth} {sticky}");
                    for (n, d) in done {
                        match d.result {
                            Ok(()) if round == 0 || errors > 0 => {}
                            Ok(()) => assert!(d.buf.as_slice().iter().all(|&b| b == n as u8 + 1)),
                            Err(e) => {
                                assert!(!form.is_transient() && e.file().is_some(), "{only:?} {form:?}: {e}");
                                errors += 1;
                            }
                        }
                    }
                }
                struck += u64::from(watch.fired() > 0);
                failed += u64::from(errors > 0);
                let ring = matches!(only, Call::RingSubmit | Call::RingRead | Call::RingWrite);
                assert!(!ring || errors == 0, "a plain call finishes it: {only:?} {form:?} {nth} {sticky}");
            }
        }
    }
    assert!(struck > 30, "{struck} struck, {failed} with errors");
}
