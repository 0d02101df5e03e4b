//! Cores beside the data core: threads that serve NBD connections and nothing else.
//!
//! Not here: what they serve (`export::nbd::Hand`). They may run where the data core may when they begin.

use std::io;
use std::thread::{Builder, JoinHandle};

use export::nbd::Hand;
use export::nbd::limits::HANDS_MAX;
use rt::{MailSender, Rt};

use crate::Problem;
use crate::memory::Memory;

/// One with the arrays, and as many as connections may be dealt to.
const CORES_MAX: usize = 1 + HANDS_MAX;

/// How many cores work for a server: one with the arrays, the others with NBD connections.
///
/// # Errors
/// When it is no number of cores.
pub fn checked(cores: usize) -> Result<usize, Problem> {
    match cores {
        1..=CORES_MAX => Ok(cores),
        _ => {
            let todo = format!("give 1 to {CORES_MAX}; what is not said is 1");
            Err(Problem::usage("--cores", format!("{cores} is no number of cores to work on"), todo))
        }
    }
}

/// Has each hand served by a thread of its own.
///
/// # Errors
/// When a thread cannot be had, or the kernel gives it no ring.
pub async fn serve(rt: &Rt, hands: Vec<Hand>, memory: Memory) -> io::Result<Vec<JoinHandle<()>>> {
    let (begun, mut beginnings) = rt.mailbox();
    let one = |(number, hand): (usize, Hand)| {
        let begun: MailSender<io::Result<()>> = begun.clone();
        Builder::new().name(format!("connections {}", number + 1)).spawn(move || {
            let rt = match Rt::real() {
                Ok(rt) => rt,
                Err(error) => {
                    begun.send(Err(error));
                    return;
                }
            };
            memory.settle();
            begun.send(Ok(()));
            drop(begun);
            rt.block_on(hand.serve(&rt));
        })
    };
    let threads = hands.into_iter().enumerate().map(one).collect::<io::Result<Vec<_>>>()?;
    drop(begun);
    while let Some(beginning) = beginnings.recv().await {
        beginning?;
    }
    Ok(threads)
}
