//! A closed loop of one thread with many requests in flight: each finished request is replaced by
//! the next.

use crate::drive::{Pace, wrong};
use crate::engine::{Answer, Asked, Engine, Flight};
use crate::host::{now_ns, thread_read_calls};
use crate::record::{Kind, Recorder};
use crate::workload::Stream;
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Pending {
    kind: Kind,
    begin_ns: u64,
    index: u64,
    /// Bytes written by a put.
    written: u64,
}

/// Runs a stream to its end, to its end time, or until `stop`, with up to `depth` requests in
/// flight. Waits for the rest at the end.
pub fn drive(
    engine: &dyn Engine,
    mut stream: Stream,
    pace: Pace,
    depth: u64,
    stop: &AtomicBool,
) -> Result<Recorder> {
    let Some(mut flight) = engine.flight(depth)? else {
        return Err("the engine has no asynchronous requests: pass --blocking".into());
    };
    let mut record = Recorder::new(pace.start_ns);
    let read_calls = thread_read_calls();
    let mut free: Vec<u64> = (0..depth).rev().collect();
    let mut pending: Vec<Option<Pending>> = vec![None; depth as usize];
    loop {
        let goes_on = now_ns() < pace.end_ns && !stop.load(Ordering::Relaxed);
        if let Some(token) = free.pop_if(|_| goes_on && stream.advance()) {
            let kind = stream.kind();
            record.plan(kind, &stream.key, stream.value_len());
            let asked = match kind {
                Kind::Put => Asked::Put(&stream.value),
                Kind::Scan => Asked::Scan(stream.scan_length.unwrap_or(pace.scan_length)),
                _ => Asked::Get,
            };
            let written = if kind.puts() { (stream.key.len() + stream.value.len()) as u64 } else { 0 };
            pending[token as usize] =
                Some(Pending { kind, begin_ns: now_ns(), index: stream.index, written });
            flight.submit(asked, &stream.key, token)?;
            continue;
        }
        if free.len() as u64 == depth {
            record.read_calls = thread_read_calls() - read_calls;
            return Ok(record);
        }
        free.push(land(flight.as_mut(), &mut pending, &stream, &mut record)?);
    }
}

/// Waits for a finished request, checks its result, and frees its token.
fn land(
    flight: &mut dyn Flight,
    pending: &mut [Option<Pending>],
    stream: &Stream,
    record: &mut Recorder,
) -> Result<u64> {
    let (token, answer) = flight.wait()?;
    let known = pending.get_mut(token as usize).and_then(Option::take);
    let over =
        known.ok_or("a request completed twice; the run has no result: report this bug of the engine")?;
    let end_ns = now_ns();
    let bytes = bytes_of(&over, &answer, stream)?;
    record.complete_of(over.kind, over.begin_ns, end_ns, 1, bytes);
    Ok(token)
}

/// Returns the bytes written or read by a request; fails on a wrong value.
fn bytes_of(over: &Pending, answer: &Answer, stream: &Stream) -> Result<u64> {
    let refused = |what: &str| -> Error { wrong(stream, &format!("or another in flight {what}")) };
    match (over.kind, answer) {
        (Kind::Put, Answer::Written) => Ok(over.written),
        (Kind::Get, Answer::Value(None)) => Err(refused("is missing")),
        (Kind::Get, Answer::Value(Some(value))) if stream.check_of(over.index, value) => {
            Ok((stream.key.len() + value.len()) as u64)
        }
        (Kind::Get, Answer::Value(Some(_))) => Err(refused("has a value that was never written for it")),
        (Kind::Scan, Answer::Entries(entries)) => {
            let (key, value) = entries.first().ok_or_else(|| refused("was not found by a scan from it"))?;
            if !stream.is_key_of(over.index, key) || !stream.check_of(over.index, value) {
                return Err(refused("was not the first entry of a scan from it"));
            }
            Ok(entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum())
        }
        _ => Err("a request got the answer of another kind of request; the run has no result: report this bug of the engine".into()),
    }
}

#[cfg(test)]
mod tests;
