//! A command to the ublk driver, sent by a process of its own: what waits in the kernel, waits there and nowhere else.
//!
//! ```text
//!   server                                            this program, with VERB
//!   send -- operation, device, number, data, stdin --> /dev/ublk-control; the device's queue in sysfs
//!        <-- result, data, stdout                   --
//! ```
//!
//! Invariants:
//! - it has no drive, no lock and no socket of the server's: who waits in the kernel cannot be killed and keeps its descriptors;
//! - it sends nothing for a server that is gone. END_USER_RECOVERY would make a device live that nobody serves, and Linux 6.12 never looks at
//!   it again.
//!
//! START_DEV reads the partitions of a device, and STOP_DEV writes what is left of it in the page cache: both wait for requests that the
//! server answers, uninterruptibly and with a lock of the device. Linux before 6.19 goes on waiting where the server dies meanwhile, and so
//! does every later command for that device. A change of its queue in sysfs waits for all requests under way, in the same way.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::process::Signal;

use super::DEPTH;
use super::error::ControlError;
use super::wire::{self, ControlCommand};

/// The verb by which the program is this process.
pub const VERB: &str = "ublk-control";

/// A ring of wide entries.
type Wide = IoUring<squeue::Entry128, cqueue::Entry>;

/// A command that the kernel interrupts is sent again, so often.
const TRIES: u32 = 100;
/// Bytes of a message before the data.
const HEAD_BYTES: usize = 20;
/// No command points to more.
const DATA_BYTES_MAX: usize = 4096;

/// What is asked of the process.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    /// The process number of the server that asks.
    server: u32,
    operation: u32,
    device: u32,
    /// The number that goes with the operation.
    number: u64,
    /// What the command points to.
    data: Vec<u8>,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.data.len());
        bytes.extend(self.server.to_ne_bytes());
        bytes.extend(self.operation.to_ne_bytes());
        bytes.extend(self.device.to_ne_bytes());
        bytes.extend(self.number.to_ne_bytes());
        bytes.extend(&self.data);
        bytes
    }

    fn of(bytes: &[u8]) -> Option<Message> {
        let (head, data) = bytes.split_at_checked(HEAD_BYTES)?;
        if data.len() > DATA_BYTES_MAX {
            return None;
        }
        let u32_at = |at: usize| Some(u32::from_ne_bytes(head[at..at + 4].try_into().ok()?));
        let number = u64::from_ne_bytes(head[12..].try_into().ok()?);
        Some(Message { server: u32_at(0)?, operation: u32_at(4)?, device: u32_at(8)?, number, data: data.to_vec() })
    }
}

/// Sends a command and waits for its end. `data`: what it points to, and then what the kernel made of it.
pub(super) fn send(
    name: &'static str,
    operation: u32,
    (device, number): (u32, u64),
    data: &mut [u8],
) -> Result<i32, ControlError> {
    // Whether there is a driver is known without a process.
    drop(open()?);
    let message = Message { server: process::id(), operation, device, number, data: data.to_vec() };
    let failed = |e: io::Error| ControlError::Kernel {
        command: "a process for a command to /dev/ublk-control",
        errno: e.raw_os_error().unwrap_or(libc::EIO),
    };
    let output = run(&message.bytes()).map_err(failed)?;
    let (result, told) = output.split_at_checked(4).ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
    if told.len() != data.len() {
        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
    }
    data.copy_from_slice(told);
    match i32::from_ne_bytes(result.try_into().expect("four bytes")) {
        result if result >= 0 => Ok(result),
        result => Err(ControlError::of(name, -result)),
    }
}

/// Runs the process to its end. Where that does not come, this thread alone waits for it.
fn run(message: &[u8]) -> io::Result<Vec<u8>> {
    let mut process = Command::new("/proc/self/exe")
        .arg(VERB)
        .current_dir("/")
        // A terminal's Ctrl-C is for the server.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let wrote = process.stdin.take().map_or(Ok(()), |mut input| input.write_all(message));
    let output = process.wait_with_output()?;
    wrote?;
    Ok(output.stdout)
}

/// This process: a command from `input`, and what became of it to `output`.
pub fn serve(input: impl Read, output: impl Write) {
    // What waits for the server to begin is over with it. Where the kernel lacks this, it waits.
    let _kept = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned());
    answer(parent, input, output);
}

fn answer(parent: u32, mut input: impl Read, mut output: impl Write) {
    let mut bytes = vec![];
    let read = input.read_to_end(&mut bytes).ok().and_then(|_| Message::of(&bytes));
    // A server that died before the signal was asked for sends none.
    let Some(mut message) = read.filter(|message| message.server == parent) else { return };
    let result = match carry_out(&mut message) {
        Ok(result) => result,
        Err(e) => -e.raw_os_error().unwrap_or(libc::EIO),
    };
    let mut told = result.to_ne_bytes().to_vec();
    told.extend(message.data);
    // A server that is gone reads nothing.
    let _gone = output.write_all(&told).and_then(|()| output.flush());
}

fn open() -> Result<File, ControlError> {
    File::options().read(true).write(true).open(wire::CONTROL).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => ControlError::NoModule,
        Some(libc::EACCES | libc::EPERM) => ControlError::NotPermitted,
        errno => ControlError::Kernel { command: wire::CONTROL, errno: errno.unwrap_or(libc::EIO) },
    })
}

/// The kernel's answer to a command: an error number of Linux, negative, or not.
fn carry_out(message: &mut Message) -> io::Result<i32> {
    let control = open().map_err(|e| io::Error::from_raw_os_error(e.errno().unwrap_or(libc::EIO)))?;
    let mut io: Wide = IoUring::builder().build(4)?;
    let command = ControlCommand {
        device: message.device,
        // Every command is for a device, not for a queue.
        queue: !0,
        bytes: message.data.len() as u16,
        addr: if message.data.is_empty() { 0 } else { message.data.as_mut_ptr() as u64 },
        data: message.number,
        ..ControlCommand::default()
    };
    for _ in 0..TRIES {
        let entry = opcode::UringCmd80::new(types::Fd(control.as_raw_fd()), message.operation).cmd(command.bytes());
        // SAFETY: the command points to the message's data, which is as long as it says, and this function does not return before the
        // kernel has answered.
        let pushed = unsafe { io.submission().push(&entry.build()) };
        pushed.expect("the queue was empty");
        let answer = loop {
            match io.submit_and_wait(1) {
                Err(e) if e.raw_os_error() != Some(libc::EINTR) => return Err(e),
                _ => {}
            }
            if let Some(answer) = io.completion().next() {
                break answer.result();
            }
        };
        if answer != -libc::EINTR {
            if answer >= 0 && matches!(message.operation, wire::START_DEV | wire::END_USER_RECOVERY) {
                leave_one_tag(message.device);
            }
            return Ok(answer);
        }
    }
    Ok(-libc::EINTR)
}

/// Sees to it that the kernel never asks of all tags at once: one fetch always waits, and by its cancelling the kernel learns that a
/// server is gone. Without it Linux 6.12 notices after 30 s only. A kernel that refuses is as slow as that.
fn leave_one_tag(device: u32) {
    let requests_max = format!("/sys/block/ublkb{device}/queue/nr_requests");
    let _noticed_late = fs::write(requests_max, (DEPTH - 1).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_as_it_was_sent() {
        let (server, number) = (1 << 21, 0x1234_5678_9abc_def0);
        let message = Message { server, operation: wire::START_DEV, device: 7, number, data: vec![1, 2, 3] };
        assert_eq!(Message::of(&message.bytes()), Some(message));
        let empty = Message { server, operation: wire::STOP_DEV, device: !0, number: 0, data: vec![] };
        assert_eq!(Message::of(&empty.bytes()), Some(empty));
    }

    #[test]
    fn nothing_is_sent_for_a_server_that_is_gone() {
        // What a kernel without the driver, or with it, answers: there is no such operation.
        let message = Message { server: 7, operation: !0, device: 0, number: 0, data: vec![] };
        let told = |parent: u32| {
            let mut told = vec![];
            answer(parent, &message.bytes()[..], &mut told);
            told.len()
        };
        assert_eq!((told(7), told(1)), (4, 0));
    }

    #[test]
    fn what_is_no_message_gets_no_answer() {
        for bytes in [vec![], vec![0; HEAD_BYTES - 1], vec![0; HEAD_BYTES + DATA_BYTES_MAX + 1]] {
            let mut told = vec![];
            answer(0, &bytes[..], &mut told);
            assert_eq!((Message::of(&bytes), told), (None, vec![]));
        }
    }
}
