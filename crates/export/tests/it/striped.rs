//! Namespaces that consist of others.

use crate::support::Puppet;
use export::{Extent, ExtentState, Fault, Memory, Namespace, Null, Striped, conformance};
use rt::{Buf, Bytes, Rt};

const MIB: u64 = 1 << 20;

fn memories(parts: usize, bytes: u64) -> Vec<Memory> {
    (0..parts).map(|part| Memory::new(&format!("part {part}"), bytes)).collect()
}

#[test]
fn it_conforms() {
    for parts in [1, 2, 3, 16] {
        let rt = Rt::modelled(parts);
        rt.block_on(conformance::run(&Striped::new(memories(parts as usize, 48 * MIB / parts), MIB)));
    }
}

#[test]
fn its_size_is_that_of_whole_stripes() {
    let parts = vec![Memory::new("first", 5 * MIB + 4096), Memory::new("second", 9 * MIB)];
    let striped = Striped::new(parts, MIB);
    assert_eq!((striped.info().bytes, striped.info().name.as_str()), (10 * MIB, "first"));
    Rt::modelled(1).block_on(async {
        let beyond = striped.write(9 * MIB, Bytes::zeroed(2 << 20), false).await;
        assert_eq!(beyond, Err(Fault::OutOfRange), "the second part is large enough");
    });
}

/// All of a range.
async fn read(namespace: &impl Namespace, offset: u64, bytes: u64) -> Vec<u8> {
    namespace.read(offset, bytes as u32).await.unwrap().iter().flat_map(|part| part.to_vec()).collect()
}

/// What is written is where the picture says, and read back by ranges of any kind; beside a plain namespace.
#[test]
fn it_is_like_one_in_one_piece() {
    for seed in 0..12 {
        let rt = Rt::modelled(seed);
        rt.block_on(async {
            let n = 1 + rt.random() % 5;
            let parts = memories(n as usize, 8 * MIB);
            let (striped, plain) = (Striped::new(parts.clone(), MIB), Memory::new("plain", n * 8 * MIB));
            let range = || {
                let bytes = 512 * (1 + rt.random() % [8, 256, 12_000][(rt.random() % 3) as usize]);
                let bytes = bytes.min(plain.info().bytes);
                (rt.random() % ((plain.info().bytes - bytes) / 512 + 1) * 512, bytes)
            };
            for round in 0..60 {
                let (offset, bytes) = range();
                match rt.random() % 4 {
                    0 => {
                        striped.deallocate(offset, bytes, false).await.unwrap();
                        plain.deallocate(offset, bytes, false).await.unwrap();
                    }
                    1 => {
                        striped.write_zeroes(offset, bytes, true, false).await.unwrap();
                        plain.write_zeroes(offset, bytes, true, false).await.unwrap();
                    }
                    _ => {
                        let data: Vec<u8> = (0..bytes).map(|at| (at / 512 + round * 7) as u8 | 1).collect();
                        let data = Buf::from_slice(&data).freeze();
                        striped.write(offset, data.clone(), false).await.unwrap();
                        plain.write(offset, data, false).await.unwrap();
                    }
                }
                let (offset, bytes) = range();
                let [a, b] = [read(&striped, offset, bytes).await, read(&plain, offset, bytes).await];
                assert!(a == b, "seed {seed}: {bytes} at {offset}");
                for at_most in [1, 2, 7, 1000] {
                    let a = striped.extents(offset, bytes, at_most).await.unwrap();
                    let b = plain.extents(offset, bytes, at_most).await.unwrap();
                    assert_eq!(a, b, "seed {seed}: {bytes} at {offset}, at most {at_most}");
                }
            }
            for stripe in 0..8 * n {
                let here = read(&parts[(stripe % n) as usize], stripe / n * MIB, MIB).await;
                let there = read(&plain, stripe * MIB, MIB).await;
                assert!(here == there, "seed {seed}: stripe {stripe}");
            }
        });
    }
}

/// Each part is asked once, whatever the range; a write goes stripe by stripe.
#[test]
fn each_part_is_asked_once() {
    Rt::modelled(1).block_on(async {
        let parts: Vec<Puppet> = memories(2, 8 * MIB).into_iter().map(Puppet::from).collect();
        let striped = Striped::new(parts.clone(), MIB);
        let calls = || parts.iter().map(Puppet::calls).collect::<Vec<_>>();
        striped.read(MIB - 4096, 6 << 20).await.unwrap();
        assert_eq!(calls(), [["read 1044480 3145728"], ["read 0 3145728"]]);
        striped.deallocate(MIB + 4096, 2 * MIB, true).await.unwrap();
        assert_eq!(calls(), [["deallocate 1048576 1048576 true"], ["deallocate 4096 1048576 true"]]);
        striped.write(2 * MIB - 512, Bytes::zeroed(1024), true).await.unwrap();
        assert_eq!(calls(), [["write 1048576 512 true"], ["write 1048064 512 true"]]);
        striped.flush().await.unwrap();
        assert_eq!(calls(), [["flush"], ["flush"]]);
        parts[1].fail(Fault::NoSpace);
        assert_eq!(striped.write(0, Bytes::zeroed(2 << 20), false).await, Err(Fault::NoSpace));
        parts[1].fail(Fault::Medium);
        assert_eq!(striped.flush().await, Err(Fault::Medium));
    });
}

/// Where nothing is stored the size costs nothing: this would take hours stripe by stripe.
#[test]
fn extents_of_a_large_one() {
    Rt::modelled(1).block_on(async {
        let striped = Striped::new((0..4).map(|_| Null::new("part", 1 << 54)).collect(), MIB);
        let bytes = striped.info().bytes;
        let whole = striped.extents(0, bytes, 2).await.unwrap();
        assert_eq!(whole, [Extent { bytes, state: whole[0].state }]);
        assert_ne!(whole[0].state, ExtentState::Allocated);
    });
}
