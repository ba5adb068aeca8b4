//! Runs the thread of an operation one machine instruction at a time.

use crate::Result;
use crate::operation::Operation;
use crate::symbols::{Function, Symbols};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::sys::{ptrace, signal::Signal};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Command;

/// An entry into a function.
#[derive(Debug)]
pub struct Entry {
    /// What was entered.
    pub function: Function,
    /// Functions of this project that had not returned.
    pub depth: usize,
}

/// The entries of an operation, in their order.
pub fn entries(program: &Path, operation: Operation, symbols: &Symbols) -> Result<Vec<Entry>> {
    let mut child = Command::new(program).args([operation.name(), "--traced"]).spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let entries = follow(pid, program, symbols);
    if entries.is_err() {
        child.kill().ok();
    }
    let ended = child.wait()?;
    match entries {
        Ok(_) if !ended.success() => Err(format!("the traced process ended with {ended}").into()),
        entries => entries,
    }
}

/// Follows a process from its first stop to its second one, and lets it go.
fn follow(pid: Pid, program: &Path, symbols: &Symbols) -> Result<Vec<Entry>> {
    expect_stop(waitpid(pid, None)?)?;
    let begin = begin_of(pid, program)?;
    let (mut entries, mut callers) = (Vec::new(), Vec::new());
    loop {
        ptrace::step(pid, None)?;
        if is_end(pid, waitpid(pid, None)?)? {
            break;
        }
        let (at, stack) = registers(pid)?;
        let Some(function) = symbols.at(at.wrapping_sub(begin)) else { continue };
        // The stack grows downward: a function that has returned had its frame below this one's.
        while callers.last().is_some_and(|frame| *frame <= stack) {
            callers.pop();
        }
        entries.push(Entry { function: function.clone(), depth: callers.len() });
        callers.push(stack);
    }
    ptrace::detach(pid, None)?;
    Ok(entries)
}

/// True at the second stop, which the process asks for with a signal. A step ends with the same signal, sent by the kernel.
fn is_end(pid: Pid, status: WaitStatus) -> Result<bool> {
    expect_stop(status)?;
    let sent_by = ptrace::getsiginfo(pid)?.si_code;
    Ok(sent_by == nix::libc::SI_TKILL || sent_by == nix::libc::SI_USER)
}

fn expect_stop(status: WaitStatus) -> Result<()> {
    match status {
        WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(()),
        other => Err(format!("the traced process did not stop as expected: {other:?}").into()),
    }
}

/// Where the program begins in the memory of the process.
fn begin_of(pid: Pid, program: &Path) -> Result<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let program = program.canonicalize()?.display().to_string();
    let first =
        maps.lines().find(|line| line.ends_with(&program)).ok_or("the program is not in its own memory")?;
    let (begin, _) = first.split_once('-').ok_or("a line of /proc/PID/maps has no range")?;
    Ok(u64::from_str_radix(begin, 16)?)
}

/// The address of the next instruction, and that of the top of the stack.
#[cfg(target_arch = "x86_64")]
fn registers(pid: Pid) -> Result<(u64, u64)> {
    let registers = ptrace::getregs(pid)?;
    Ok((registers.rip, registers.rsp))
}

/// The address of the next instruction, and that of the top of the stack.
#[cfg(target_arch = "aarch64")]
fn registers(pid: Pid) -> Result<(u64, u64)> {
    let registers = ptrace::getregset::<ptrace::regset::NT_PRSTATUS>(pid)?;
    Ok((registers.pc, registers.sp))
}
