//! A guest, played: a front end of vhost-user and the driver of one queue, in memory that it shares with the server.
//!
//! It does as Linux's virtio-blk in QEMU does: a ring of 128, an indirect table for each request with its head, its data in parts of
//! 64 KiB at most and its status; the server is kicked only when it wants to be (EVENT_IDX), and this side sleeps until it is called.
//!
//! What is not as in a guest: no processor enters or leaves a virtual machine, so an event is a write of an eventfd on both sides.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use bench::load::Order;
use bench::{Load, Until};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rt::guest::{Event, GuestMemory, Region, sealed_memory};
use rt::{Addr, Rt, Stream};

use crate::served::Outcome;

const SIZE: u16 = 128;
/// Where the guest's memory begins, for it and for the front end.
const GUEST: u64 = 1 << 20;
const USER: u64 = 0x7f00_0000_0000;
const MEMORY: u64 = 32 << 20;
/// The ring's three parts.
const DESCRIPTORS: u64 = GUEST;
const AVAILABLE: u64 = GUEST + 0x4000;
const USED: u64 = GUEST + 0x8000;
/// What each request has: its table, head and status in a page, and its data.
const SLOTS: u64 = GUEST + 0x1_0000;
const SLOT: u64 = 4096 + DATA_MAX as u64;
const HEAD: u64 = 2048;
const STATUS: u64 = 2064;
const DATA_MAX: u32 = 128 << 10;
/// The longest part of a request's data that the device takes.
const PART_MAX: u32 = 64 << 10;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// VERSION_1, PROTOCOL_FEATURES, EVENT_IDX, INDIRECT_DESC, FLUSH.
const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 1 << 9;
/// REPLY_ACK, INFLIGHT_SHMFD.
const PROTOCOL: u64 = 1 << 3 | 1 << 12;

/// A guest whose disk is a volume.
pub struct Guest {
    memory: GuestMemory,
    stream: Stream,
    kick: Event,
    call: Event,
}

/// What a load came to.
pub struct Ran {
    pub requests: u64,
    pub elapsed: Duration,
    pub p50: Duration,
}

/// One run: where both sides of the ring stand is the guest's from run to run.
struct Loop<'a> {
    guest: &'a Guest,
    load: &'a Load,
    bytes: u64,
    random: Xoshiro256PlusPlus,
    next: u64,
    offered: u16,
    begun: Vec<Instant>,
    latencies: Vec<Duration>,
}

impl Guest {
    /// Starts as a machine does: features, memory, requests in flight, one queue.
    ///
    /// # Errors
    /// When the server refuses any of it.
    pub async fn start(rt: &Rt, socket: &Path) -> Outcome<Guest> {
        let file = sealed_memory(MEMORY)?;
        let region = Region { guest: GUEST, bytes: MEMORY, user: USER, offset: 0 };
        let memory = GuestMemory::map(vec![(region, file.try_clone()?)])?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let noise: Vec<u8> = (0..SLOT).map(|_| random.random()).collect();
        for slot in 0..u64::from(SIZE) {
            memory.write(SLOTS + slot * SLOT, &noise)?;
        }
        let stream = Stream::connect(rt, &Addr::Unix(socket.to_owned())).await?;
        let guest = Guest { memory, stream, kick: Event::new(rt)?, call: Event::new(rt)? };
        guest.ask(1, &[], vec![]).await?;
        guest.send(16, 1, &PROTOCOL.to_ne_bytes(), vec![])?;
        guest.say(3, &[], vec![]).await?;
        guest.say(2, &FEATURES.to_ne_bytes(), vec![]).await?;
        guest.say(5, &longs(&[1, GUEST, MEMORY, USER, 0]), vec![file]).await?;
        let mut in_flight = vec![0; 24];
        in_flight[16..18].copy_from_slice(&1_u16.to_ne_bytes());
        in_flight[18..20].copy_from_slice(&SIZE.to_ne_bytes());
        let (in_flight, mut passed) = guest.ask(31, &in_flight, vec![]).await?;
        guest.say(32, &in_flight, vec![passed.pop().ok_or("no memory of requests in flight")?]).await?;
        guest.say(8, &words(&[0, u32::from(SIZE)]), vec![]).await?;
        guest.say(10, &words(&[0, 0]), vec![]).await?;
        let user = |at: u64| at - GUEST + USER;
        let places = [words(&[0, 0]), longs(&[user(DESCRIPTORS), user(USED), user(AVAILABLE), USED])].concat();
        guest.say(9, &places, vec![]).await?;
        guest.say(12, &longs(&[0]), vec![guest.kick.to_pass()?]).await?;
        guest.say(13, &longs(&[0]), vec![guest.call.to_pass()?]).await?;
        guest.say(18, &words(&[0, 1]), vec![]).await?;
        Ok(guest)
    }

    /// Runs a load on the first `bytes` of the disk.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn run(&self, load: &Load, bytes: u64, until: Until, seed: u64) -> Outcome<Ran> {
        let Until::Elapsed { time, .. } = until else { return Err("a guest's load has a time".into()) };
        assert!(load.depth <= usize::from(SIZE) && load.block_bytes <= DATA_MAX, "{load:?}");
        // All that was offered came back.
        let seen = self.memory.load(AVAILABLE + 2)?;
        let begun = Instant::now();
        let mut run = Loop {
            guest: self,
            load,
            bytes,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            next: 0,
            offered: seen,
            begun: vec![begun; load.depth],
            latencies: Vec::with_capacity(1 << 20),
        };
        for slot in 0..load.depth {
            run.put(slot as u16)?;
        }
        self.offer(seen, run.offered).await?;
        run.finish(seen, begun + time).await?;
        let elapsed = begun.elapsed();
        let mut latencies = run.latencies;
        latencies.sort_unstable();
        Ok(Ran { requests: latencies.len() as u64, elapsed, p50: latencies[latencies.len() / 2] })
    }

    /// Makes what was put available, and tells the server if it wants to be told.
    async fn offer(&self, before: u16, now: u16) -> Outcome<()> {
        if before == now {
            return Ok(());
        }
        fence(Ordering::SeqCst);
        self.memory.store(AVAILABLE + 2, now)?;
        fence(Ordering::SeqCst);
        // Virtio 1.2, 2.7.10.
        let event = self.memory.load(USED + 4 + u64::from(SIZE) * 8)?;
        if now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before) {
            self.kick.tell().await;
        }
        Ok(())
    }

    fn send(&self, request: u32, flags: u32, payload: &[u8], passed: Vec<OwnedFd>) -> Outcome<()> {
        let mut message = words(&[request, flags, payload.len() as u32]);
        message.extend(payload);
        Ok(self.stream.send_passing(&message, &passed)?)
    }

    /// Asks for an answer.
    async fn ask(&self, request: u32, payload: &[u8], passed: Vec<OwnedFd>) -> Outcome<(Vec<u8>, Vec<OwnedFd>)> {
        self.send(request, 1, payload, passed)?;
        self.answer().await
    }

    /// Says something, and is told that it was done.
    async fn say(&self, request: u32, payload: &[u8], passed: Vec<OwnedFd>) -> Outcome<()> {
        self.send(request, 9, payload, passed)?;
        let (answer, _) = self.answer().await?;
        if answer == longs(&[0]) { Ok(()) } else { Err(format!("the server refuses request {request}").into()) }
    }

    async fn answer(&self) -> Outcome<(Vec<u8>, Vec<OwnedFd>)> {
        let (mut head, mut passed) = ([0; 12], Vec::new());
        self.stream.recv_passed(&mut head, &mut passed).await?;
        let mut payload = vec![0; u32::from_ne_bytes(head[8..].try_into()?) as usize];
        self.stream.recv_passed(&mut payload, &mut passed).await?;
        Ok((payload, passed.into_iter().map(|foreign| foreign.into_owned()).collect()))
    }
}

impl Loop<'_> {
    /// Until `end` each request that comes back is followed by another.
    async fn finish(&mut self, mut seen: u16, end: Instant) -> Outcome<()> {
        let memory = &self.guest.memory;
        while seen != self.offered {
            let before = self.offered;
            while memory.load(USED + 2)? != seen {
                fence(Ordering::SeqCst);
                let mut head = [0; 4];
                memory.read(USED + 4 + u64::from(seen % SIZE) * 8, &mut head)?;
                seen = seen.wrapping_add(1);
                let slot = u32::from_le_bytes(head) as u16;
                let mut status = [0xff];
                memory.read(SLOTS + u64::from(slot) * SLOT + STATUS, &mut status)?;
                if status != [0] {
                    return Err(format!("a request failed with status {status:?}").into());
                }
                let now = Instant::now();
                self.latencies.push(now - self.begun[usize::from(slot)]);
                if now < end {
                    self.put(slot)?;
                }
            }
            self.guest.offer(before, self.offered).await?;
            // From now on a call is wanted, if nothing came meanwhile.
            memory.store(AVAILABLE + 4 + u64::from(SIZE) * 2, seen)?;
            fence(Ordering::SeqCst);
            if seen != self.offered && memory.load(USED + 2)? == seen {
                self.guest.call.heard().await?;
            }
        }
        Ok(())
    }

    /// Puts the next request at a slot into the ring; it is not available yet.
    fn put(&mut self, slot: u16) -> Outcome<()> {
        let (memory, at) = (&self.guest.memory, SLOTS + u64::from(slot) * SLOT);
        let reads = self.load.pattern.only_reads();
        let block = u64::from(self.load.block_bytes);
        let blocks = self.bytes / block;
        let number = match self.load.pattern.order {
            Order::Sequential => {
                self.next += 1;
                (self.next - 1) % blocks
            }
            Order::Random | Order::Skewed => self.random.random_range(0..blocks),
        };
        let mut head = u32::from(!reads).to_le_bytes().to_vec();
        head.extend([0; 4]);
        head.extend((number * block / 512).to_le_bytes());
        memory.write(at + HEAD, &head)?;
        memory.write(at + STATUS, &[0xff])?;
        let mut table = descriptor(at + HEAD, 16, NEXT, 1);
        let (mut done, mut next) = (0, 1);
        while done < self.load.block_bytes {
            let part = (self.load.block_bytes - done).min(PART_MAX);
            next += 1;
            let flags = if reads { NEXT | WRITE } else { NEXT };
            table.extend(descriptor(at + 4096 + u64::from(done), part, flags, next));
            done += part;
        }
        table.extend(descriptor(at + STATUS, 1, WRITE, 0));
        memory.write(at, &table)?;
        memory.write(DESCRIPTORS + u64::from(slot) * 16, &descriptor(at, table.len() as u32, INDIRECT, 0))?;
        memory.store(AVAILABLE + 4 + u64::from(self.offered % SIZE) * 2, slot)?;
        self.offered = self.offered.wrapping_add(1);
        self.begun[usize::from(slot)] = Instant::now();
        Ok(())
    }
}

fn descriptor(at: u64, bytes: u32, flags: u16, next: u16) -> Vec<u8> {
    let mut raw = at.to_le_bytes().to_vec();
    raw.extend(bytes.to_le_bytes());
    raw.extend(flags.to_le_bytes());
    raw.extend(next.to_le_bytes());
    raw
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}
