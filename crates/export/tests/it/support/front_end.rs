//! A front end of vhost-user with a guest's driver, as simple as they can be: for what QEMU and Linux do, and for what they never do.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use futures::FutureExt;
use rt::guest::{Event, Foreign, GuestMemory, Region, sealed_memory};
use rt::{Addr, Rt, Stream};

pub const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
pub const MEMORY: u64 = 16 << 20;
pub const SIZE: u16 = 64;
/// Where data may be.
pub const DATA: u64 = GUEST + (4 << 20);

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 1 << 14 | 1 << 13 | 1 << 9;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD.
const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12;

/// What a machine keeps when its connection is lost.
pub struct Machine {
    pub rt: Rt,
    pub file: OwnedFd,
    pub memory: GuestMemory,
    pub queues: Vec<GuestQueue>,
    pub inflight: RefCell<Option<(OwnedFd, Vec<u8>)>>,
}

/// A ring as the driver sees it.
pub struct GuestQueue {
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    offered: RefCell<u16>,
    seen: RefCell<u16>,
    pub kick: Event,
    pub call: Event,
}

/// A connection.
pub struct FrontEnd<'a> {
    pub machine: &'a Machine,
    pub stream: Stream,
}

impl Machine {
    pub fn new(rt: &Rt, queues: u64) -> Machine {
        let file = sealed_memory(MEMORY).unwrap();
        let memory = GuestMemory::map(vec![(region(), file.try_clone().unwrap())]).unwrap();
        let queue = |number: u64| GuestQueue {
            descriptors: GUEST + number * 0x1_0000,
            available: GUEST + number * 0x1_0000 + 0x4000,
            used: GUEST + number * 0x1_0000 + 0x8000,
            offered: RefCell::default(),
            seen: RefCell::default(),
            kick: Event::new(rt).unwrap(),
            call: Event::new(rt).unwrap(),
        };
        Machine { rt: rt.clone(), file, memory, queues: (0..queues).map(queue).collect(), inflight: RefCell::default() }
    }

    pub fn descriptor(&self, table: u64, index: u16, at: u64, bytes: u32, flags: u16, next: u16) {
        let mut raw = at.to_le_bytes().to_vec();
        raw.extend(bytes.to_le_bytes());
        raw.extend(flags.to_le_bytes());
        raw.extend(next.to_le_bytes());
        self.memory.write(table + u64::from(index) * 16, &raw).unwrap();
    }

    /// Makes a head available, and tells of it.
    pub async fn offer(&self, queue: usize, head: u16) {
        let q = &self.queues[queue];
        let index = *q.offered.borrow();
        self.memory.store(q.available + 4 + u64::from(index % SIZE) * 2, head).unwrap();
        *q.offered.borrow_mut() = index.wrapping_add(1);
        self.memory.store(q.available + 2, index.wrapping_add(1)).unwrap();
        q.kick.tell().await;
    }

    /// The next that is given back: its head and what was written. It is looked for, and told of by the event, too.
    pub async fn given_back(&self, queue: usize) -> (u16, u32) {
        let q = &self.queues[queue];
        loop {
            let seen = *q.seen.borrow();
            // From now on the event is wanted.
            self.memory.store(q.available + 4 + u64::from(SIZE) * 2, seen).unwrap();
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if self.memory.load(q.used + 2).unwrap() != seen {
                let mut element = [0; 8];
                self.memory.read(q.used + 4 + u64::from(seen % SIZE) * 8, &mut element).unwrap();
                *q.seen.borrow_mut() = seen.wrapping_add(1);
                let number = |at: usize| u32::from_le_bytes(element[at..at + 4].try_into().unwrap());
                return (number(0) as u16, number(4));
            }
            let patience = self.rt.sleep(Duration::from_secs(10));
            futures::select! {
                heard = std::pin::pin!(q.call.heard().fuse()) => heard.unwrap(),
                () = std::pin::pin!(patience.fuse()) => panic!("nothing is given back, or it is not told"),
            }
        }
    }

    /// Whether nothing is given back for a while.
    pub async fn is_quiet(&self, queue: usize) -> bool {
        self.rt.sleep(Duration::from_millis(30)).await;
        self.memory.load(self.queues[queue].used + 2).unwrap() == *self.queues[queue].seen.borrow()
    }

    /// Puts a request at three descriptors from `first` on; its data at `slot` MiB of the data.
    pub fn put(&self, queue: usize, first: u16, kind: u32, sector: u64, data: &[u8], room: u32) {
        let table = self.queues[queue].descriptors;
        let at = self.place(queue, first);
        let mut head = kind.to_le_bytes().to_vec();
        head.extend([0; 4]);
        head.extend(sector.to_le_bytes());
        self.memory.write(at, &head).unwrap();
        self.memory.write(at + 16, &[0xee]).unwrap();
        self.descriptor(table, first, at, 16, NEXT, first + 1);
        self.descriptor(table, first + 2, at + 16, 1, WRITE, 0);
        if !data.is_empty() {
            self.memory.write(at + 4096, data).unwrap();
            self.descriptor(table, first + 1, at + 4096, data.len() as u32, NEXT, first + 2);
        } else if room > 0 {
            self.descriptor(table, first + 1, at + 4096, room, NEXT | WRITE, first + 2);
        } else {
            self.descriptor(table, first, at, 16, NEXT, first + 2);
        }
    }

    pub fn place(&self, queue: usize, first: u16) -> u64 {
        DATA + queue as u64 * (6 << 20) + u64::from(first) * 0x1_0000
    }

    pub fn status(&self, queue: usize, first: u16) -> u8 {
        let mut status = [0];
        self.memory.read(self.place(queue, first) + 16, &mut status).unwrap();
        status[0]
    }

    /// What was read by the request at `first`.
    pub fn data(&self, queue: usize, first: u16, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read(self.place(queue, first) + 4096, &mut data).unwrap();
        data
    }

    /// Asks for something and waits for it: its status, and what it has read.
    pub async fn ask(&self, queue: usize, kind: u32, sector: u64, data: &[u8], room: u32) -> (u8, Vec<u8>) {
        self.put(queue, 0, kind, sector, data, room);
        self.offer(queue, 0).await;
        let (head, written) = self.given_back(queue).await;
        let status = self.status(queue, 0);
        assert_eq!(head, 0);
        assert!(written == 1 || status == 0, "{written} bytes of a request that failed");
        (status, self.data(queue, 0, written as usize - 1))
    }

    /// The driver begins anew: its rings are empty.
    pub fn reset(&self, queue: usize) {
        let q = &self.queues[queue];
        self.memory.write(q.descriptors, &[0; 0x1_0000]).unwrap();
        *q.offered.borrow_mut() = 0;
        *q.seen.borrow_mut() = 0;
    }
}

fn region() -> Region {
    Region { guest: GUEST, bytes: MEMORY, user: USER, offset: 0 }
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

impl<'a> FrontEnd<'a> {
    pub async fn connect(machine: &'a Machine, path: &Path) -> FrontEnd<'a> {
        let stream = Stream::connect(&machine.rt, &Addr::Unix(path.to_owned())).await.unwrap();
        FrontEnd { machine, stream }
    }

    pub fn send(&self, request: u32, flags: u32, payload: &[u8], passed: &[OwnedFd]) {
        let mut message = numbers(&[request, flags, payload.len() as u32]);
        message.extend(payload);
        self.stream.send_passing(&message, passed).unwrap();
    }

    /// An answer: its payload and what is passed with it; none when the connection has ended.
    pub async fn answer(&self) -> Option<(Vec<u8>, Vec<Foreign>)> {
        let (mut head, mut passed) = ([0; 12], Vec::new());
        self.stream.recv_passed(&mut head, &mut passed).await.ok()?;
        let bytes = u32::from_ne_bytes(head[8..].try_into().unwrap());
        let mut payload = vec![0; bytes as usize];
        self.stream.recv_passed(&mut payload, &mut passed).await.ok()?;
        Some((payload, passed))
    }

    /// A question and its answer.
    pub async fn question(&self, request: u32, payload: &[u8]) -> Vec<u8> {
        self.send(request, 1, payload, &[]);
        self.answer().await.expect("an answer").0
    }

    pub async fn number(&self, request: u32) -> u64 {
        u64::from_ne_bytes(self.question(request, &[]).await.try_into().unwrap())
    }

    /// Says something and is told that it was done; false when it was not.
    pub async fn say(&self, request: u32, payload: &[u8], passed: &[OwnedFd]) -> bool {
        self.send(request, 9, payload, passed);
        self.answer().await.is_some_and(|(answer, _)| answer == 0_u64.to_ne_bytes())
    }

    /// All that comes before queues: features, memory, requests in flight.
    pub async fn begin(&self, features: u64) {
        assert_eq!(self.number(1).await & features, features);
        self.send(16, 1, &PROTOCOL.to_ne_bytes(), &[]);
        assert!(self.say(3, &[], &[]).await);
        assert_eq!(self.number(15).await & PROTOCOL, PROTOCOL);
        assert!(self.say(2, &features.to_ne_bytes(), &[]).await);
        let file = self.machine.file.try_clone().unwrap();
        assert!(self.say(5, &table(), &[file]).await);
        let mut asked = vec![0; 24];
        asked[16..18].copy_from_slice(&(self.machine.queues.len() as u16).to_ne_bytes());
        asked[18..20].copy_from_slice(&SIZE.to_ne_bytes());
        if self.machine.inflight.borrow().is_none() {
            self.send(31, 1, &asked, &[]);
            let (payload, mut passed) = self.answer().await.unwrap();
            assert_eq!((payload.len(), passed.len()), (24, 1));
            self.machine.inflight.replace(Some((passed.remove(0).into_owned(), payload)));
        }
        let (file, payload) = {
            let kept = self.machine.inflight.borrow();
            let (file, payload) = kept.as_ref().unwrap();
            (file.try_clone().unwrap(), payload.clone())
        };
        assert!(self.say(32, &payload, &[file]).await);
    }

    /// Sets up a queue and enables it.
    pub async fn start(&self, queue: usize, next: u16) -> bool {
        let q = &self.machine.queues[queue];
        let number = queue as u32;
        let word = u64::from(number).to_ne_bytes();
        self.say(8, &numbers(&[number, u32::from(SIZE)]), &[]).await
            && self.say(10, &numbers(&[number, u32::from(next)]), &[]).await
            && self.say(9, &self.places(queue, 0), &[]).await
            && self.say(12, &word, &[q.kick.to_pass().unwrap()]).await
            && self.say(13, &word, &[q.call.to_pass().unwrap()]).await
            && self.say(18, &numbers(&[number, 1]), &[]).await
    }

    /// Says of a queue where it is, and that what is written there is noted.
    pub async fn note_writes(&self, queue: usize) -> bool {
        self.say(9, &self.places(queue, 1), &[]).await
    }

    fn places(&self, queue: usize, flags: u32) -> Vec<u8> {
        let q = &self.machine.queues[queue];
        let user = |guest: u64| guest - GUEST + USER;
        let mut places = numbers(&[queue as u32, flags]);
        for at in [user(q.descriptors), user(q.used), user(q.available), q.used] {
            places.extend(at.to_ne_bytes());
        }
        places
    }

    /// Stops a queue; where it stands.
    pub async fn stop(&self, queue: usize) -> u32 {
        let answer = self.question(11, &numbers(&[queue as u32, 0])).await;
        u32::from_ne_bytes(answer[4..].try_into().unwrap())
    }

    /// Begins, and starts all queues.
    pub async fn run(machine: &'a Machine, path: &Path) -> FrontEnd<'a> {
        let front = FrontEnd::connect(machine, path).await;
        front.begin(FEATURES).await;
        for queue in 0..machine.queues.len() {
            let seen = *machine.queues[queue].seen.borrow();
            assert!(front.start(queue, seen).await);
        }
        front
    }
}

/// The memory table of the machine.
pub fn table() -> Vec<u8> {
    let Region { guest, bytes, user, offset } = region();
    let words = VecDeque::from([1, guest, bytes, user, offset]);
    words.into_iter().flat_map(u64::to_ne_bytes).collect()
}
