//! The wish to stop: SIGINT, SIGTERM or SIGHUP (a terminal that is closed), unless the parent ignores it (nohup). SIGHUP may
//! be the wish to read a configuration again instead.
//!
//! A signal's handler counts up an eventfd that nobody ever reads, so every runtime of the process that waits for it
//! wakes, and who asks later hears it at once. A handler serves whichever thread the kernel picks; a signalfd would
//! ask every thread of the process to block the signals first.
//!
//! Invariant: the second wish to stop of a kind ends the process as if nobody had asked (the handler is for one).
//!
//! SIGXFSZ is ignored: a file that may not grow any more (`ulimit -f`) is an answer to its write, not the end of all.
//!
//! Not here: other signals. SIGPIPE does not arise: sends ask for no signal.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::Rt;
use crate::ring::{Operation, Request};

/// The eventfd's number for the handler; it is never closed.
static WISH: AtomicI32 = AtomicI32::new(-1);
/// The same of the eventfd that counts SIGHUP, where that is no wish to stop; none when it is negative.
static HANGUP: AtomicI32 = AtomicI32::new(-1);

/// The signals SIGHUP of this process, which ask for something else than its end.
pub struct Hangups {
    rt: Rt,
    count: Rc<OwnedFd>,
}

impl Hangups {
    /// Resolves when SIGHUP has come since the last time, however often.
    pub async fn next(&self) {
        loop {
            let request = Request::Readable { fd: self.count.clone() };
            let (answer, _) = Operation::new(&self.rt.inner, request, None).await;
            let mut count = [0; 8];
            if answer > 0 && rustix::io::read(&*self.count, &mut count).is_ok() {
                return;
            }
        }
    }
}

impl Rt {
    /// From now on SIGHUP does not ask the process to stop; what is returned hears it. It is called before
    /// [`Rt::stop_signal`], once.
    ///
    /// # Errors
    /// When the kernel refuses; SIGHUP stops the process then.
    pub fn hangups(&self) -> std::io::Result<Hangups> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let count = rustix::event::eventfd(0, flags)?;
        let kept = count.try_clone()?;
        assert!(HANGUP.swap(kept.into_raw_fd(), Ordering::SeqCst) < 0, "one place hears SIGHUP");
        install(libc::SIGHUP, 0)?;
        Ok(Hangups { rt: self.clone(), count: Rc::new(count) })
    }

    /// Resolves when the process was asked to stop by SIGINT, SIGTERM or SIGHUP, after the first call of this. In the
    /// modelled world never.
    pub async fn stop_signal(&self) {
        if self.is_modelled() {
            return std::future::pending().await;
        }
        let wish = match listen() {
            Ok(wish) => Rc::new(wish),
            Err(error) => {
                // Without it signals keep their default effect, which stops the process too.
                tracing::warn!("signals are not handled: {error}");
                return std::future::pending().await;
            }
        };
        loop {
            let request = Request::Readable { fd: wish.clone() };
            let (answer, _) = Operation::new(&self.inner, request, None).await;
            if answer > 0 {
                return;
            }
            assert!([libc::EINTR, libc::EAGAIN].contains(&-answer), "polling an eventfd: {answer}");
        }
    }
}

/// Installs the handlers once; gives a descriptor of one's own.
fn listen() -> std::io::Result<OwnedFd> {
    static INSTALLED: Mutex<Option<OwnedFd>> = Mutex::new(None);
    let mut installed = INSTALLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(wish) = &*installed {
        return wish.try_clone();
    }
    let wish = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
    WISH.store(wish.as_raw_fd(), Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        install(signal, libc::SA_RESETHAND)?;
    }
    if HANGUP.load(Ordering::SeqCst) < 0 && !is_ignored(libc::SIGHUP)? {
        install(libc::SIGHUP, libc::SA_RESETHAND)?;
    }
    let own = wish.try_clone()?;
    *installed = Some(wish);
    Ok(own)
}

/// From now on a write beyond the size that a file may have gets EFBIG, and no signal.
pub(crate) fn no_size_signal() {
    // SAFETY: SIG_IGN is no handler of ours, and nothing else here changes what this signal does.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether a signal has no effect on this process.
fn is_ignored(signal: libc::c_int) -> std::io::Result<bool> {
    // SAFETY: all zeros is a valid sigaction.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action this only writes the present one, to a place that is large enough.
    match unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) } {
        0 => Ok(now.sa_sigaction == libc::SIG_IGN),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn install(signal: libc::c_int, flags: libc::c_int) -> std::io::Result<()> {
    // SAFETY: all zeros is a valid sigaction: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART | flags;
    // SAFETY: the action is complete, and its handler does only what a handler may (see there).
    match unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    let hangup = HANGUP.load(Ordering::SeqCst);
    let told = if signal == libc::SIGHUP && hangup >= 0 { hangup } else { WISH.load(Ordering::SeqCst) };
    let one = 1u64.to_ne_bytes();
    // SAFETY: write is async-signal-safe, the buffer is 8 bytes as an eventfd asks, errno is put back for the code
    // that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(told, one.as_ptr().cast(), one.len());
        *libc::__errno_location() = errno;
    }
}
