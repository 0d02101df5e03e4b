//! A guest of vhost-user and its front end that do anything, step by step, as an input of bytes says: for fuzzing and for the storm.

use std::path::Path;

use rt::guest::sealed_memory;
use rustix::fs::FallocateFlags;

use super::front_end::{DATA, FEATURES, FrontEnd, GUEST, MEMORY, Machine, SIZE};

/// The rest of an input.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let bytes = N.min(self.0.len());
        taken[..bytes].copy_from_slice(&self.0[..bytes]);
        self.0 = &self.0[bytes..];
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn two(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn run(&mut self) -> Vec<u8> {
        let bytes = usize::from(self.byte()).min(self.0.len());
        let (run, rest) = self.0.split_at(bytes);
        self.0 = rest;
        run.to_vec()
    }

    /// An address: one of those at which something is, a little off.
    fn address(&mut self, machine: &Machine) -> u64 {
        let queue = &machine.queues[0];
        let places = [
            DATA,
            queue.descriptors,
            queue.available,
            queue.used,
            GUEST,
            GUEST + MEMORY - 8,
            u64::MAX - 7,
            0,
            GUEST + MEMORY,
            DATA + 4096,
        ];
        let place = places[usize::from(self.byte()) % places.len()];
        place.wrapping_add(u64::from(self.two()))
    }
}

/// One step: what it is, and what is done, the next bytes of the input say. `gone` resolves when the server has let go of a
/// connection that has ended.
pub async fn step<'a>(
    machine: &'a Machine,
    front: FrontEnd<'a>,
    input: &mut Input<'_>,
    path: &Path,
    gone: impl AsyncFn(),
) -> FrontEnd<'a> {
    match input.byte() % 11 {
        // Anything, anywhere.
        0 => {
            let at = input.address(machine);
            let _beyond = machine.memory.write(at, &input.run());
        }
        1 => {
            let (table, index) = (machine.queues[usize::from(input.byte() & 1)].descriptors, input.two() % SIZE);
            let at = input.address(machine);
            let bytes = u32::from_le_bytes(input.take());
            machine.descriptor(table, index, at, bytes, input.two() & 7, input.two());
        }
        // A head, and an index that may jump.
        2 => {
            let queue = &machine.queues[usize::from(input.byte() & 1)];
            let (head, by) = (input.two(), input.byte());
            let index = machine.memory.load(queue.available + 2).unwrap_or(0);
            let place = queue.available + 4 + u64::from(index % SIZE) * 2;
            let _beyond = machine.memory.store(place, head);
            let _beyond = machine.memory.store(queue.available + 2, index.wrapping_add(u16::from(by)));
            queue.kick.tell().await;
        }
        // A message, with descriptors or without.
        3 => {
            let (request, flags) = (u32::from(input.byte() % 45), 1 | u32::from(input.byte() & 12));
            let payload = input.run();
            let passed = (0..input.byte() % 3).filter_map(|n| sealed_memory(u64::from(n) * 8192).ok());
            let mut message: Vec<u8> =
                [request, flags, payload.len() as u32].iter().flat_map(|number| number.to_ne_bytes()).collect();
            message.extend(payload);
            let _ended = front.stream.send_passing(&message, &passed.collect::<Vec<_>>());
        }
        // A request as it should be.
        4 => {
            let (queue, first) = (usize::from(input.byte() & 1), input.two() % (SIZE - 3));
            let (kind, sector, room) = (u32::from(input.byte() % 16), u64::from(input.two()), u32::from(input.two()));
            machine.put(queue, first, kind, sector, &input.run(), room);
            machine.offer(queue, first).await;
        }
        5 => {
            for _ in 0..input.byte() {
                machine.rt.yield_now().await;
            }
        }
        // Memory that goes under the server: it cannot be cut, and what is punched out is zeroes.
        6 => {
            let cut = rustix::fs::ftruncate(&machine.file, u64::from(input.two()) << 8);
            assert!(cut.is_err(), "sealed memory was cut");
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let (from, pages) = (u64::from(input.two()) << 12, u64::from(input.byte()) + 1);
            let _beyond = rustix::fs::fallocate(&machine.file, flags, from % MEMORY, pages << 12);
        }
        // The notes of what is in flight.
        7 => {
            if let Some((file, _)) = &*machine.inflight.borrow() {
                let _short = rustix::io::pwrite(file, &input.run(), u64::from(input.two()) % 2048);
            }
        }
        // The connection breaks and another one comes, with the same memory and notes.
        8 => {
            drop(front);
            for queue in &machine.queues {
                let _within = machine.memory.store(queue.used + 2, 0);
            }
            gone().await;
            return begun_anew(machine, path).await;
        }
        9 => machine.queues[usize::from(input.byte() & 1)].kick.tell().await,
        _ => machine.reset(usize::from(input.byte() & 1)),
    }
    front
}

/// Whatever is in memory, queues are begun: a ring that breaks the rules ends when it is looked at.
async fn begun_anew<'a>(machine: &'a Machine, path: &Path) -> FrontEnd<'a> {
    let front = FrontEnd::connect(machine, path).await;
    front.begin(FEATURES).await;
    for queue in 0..machine.queues.len() {
        front.start(queue, 0).await;
    }
    front
}
