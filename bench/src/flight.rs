//! A closed loop of one thread with many requests in flight: as one is over, the next is submitted.

use crate::Result;
use crate::drive::{Pace, wrong};
use crate::engine::{Engine, Flight};
use crate::host::{now_ns, thread_read_calls};
use crate::record::{Kind, Recorder};
use crate::workload::Stream;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Pending {
    begin_ns: u64,
    index: u64,
    /// Bytes that it wrote; `None`: it reads.
    written: Option<u64>,
}

/// Runs a stream to its end, to the end of time, or until `stop`, with up to `depth` requests in flight. What is in flight then is waited for.
pub fn drive(
    engine: &dyn Engine,
    mut stream: Stream,
    pace: Pace,
    depth: u64,
    stop: &AtomicBool,
) -> Result<Recorder> {
    let Some(mut flight) = engine.flight(depth)? else {
        return Err("the engine has no asynchronous requests: use --blocking".into());
    };
    let mut record = Recorder::new(pace.start_ns);
    let read_calls = thread_read_calls();
    let mut free: Vec<u64> = (0..depth).rev().collect();
    let mut pending: Vec<Option<Pending>> = vec![None; depth as usize];
    loop {
        let goes_on = now_ns() < pace.end_ns && !stop.load(Ordering::Relaxed);
        if let Some(token) = free.pop_if(|_| goes_on && stream.advance()) {
            let written =
                (stream.kind() == Kind::Put).then_some((stream.key.len() + stream.value.len()) as u64);
            record.plan(stream.kind(), &stream.key, stream.value_len());
            pending[token as usize] = Some(Pending { begin_ns: now_ns(), index: stream.index, written });
            flight.submit(written.map(|_| &stream.value[..]), &stream.key, token)?;
            continue;
        }
        if free.len() as u64 == depth {
            record.read_calls = thread_read_calls() - read_calls;
            return Ok(record);
        }
        free.push(land(flight.as_mut(), &mut pending, &stream, &mut record)?);
    }
}

/// Waits for one that is over, and checks what it came to. Its token is free then.
fn land(
    flight: &mut dyn Flight,
    pending: &mut [Option<Pending>],
    stream: &Stream,
    record: &mut Recorder,
) -> Result<u64> {
    let (token, value) = flight.wait()?;
    let known = pending.get_mut(token as usize).and_then(Option::take);
    let Pending { begin_ns, index, written } = known.ok_or("a request was over twice")?;
    let end_ns = now_ns();
    let bytes = match (written, value) {
        (Some(bytes), _) => bytes,
        (None, None) => return Err(wrong(stream, "or another in flight is missing")),
        (None, Some(value)) if stream.check_of(index, &value) => (stream.key.len() + value.len()) as u64,
        (None, Some(_)) => {
            return Err(wrong(stream, "or another in flight has a value that was never written for it"));
        }
    };
    let kind = if written.is_some() { Kind::Put } else { Kind::Get };
    record.complete_of(kind, begin_ns, end_ns, 1, bytes);
    Ok(token)
}
