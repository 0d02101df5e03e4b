//! Background tasks beside others, in the real world.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rt::Rt;

/// What a task does that does not yield.
fn compute(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn others_have_as_long_as_the_background_had() {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let polls = Rc::new(Cell::new(0u32));
        let (here, counted) = (rt.clone(), polls.clone());
        let others = rt.spawn(async move {
            loop {
                counted.set(counted.get() + 1);
                here.yield_now().await;
            }
        });
        // More of them do not have more.
        let background = [(); 3].map(|()| {
            let (here, polls) = (rt.clone(), polls.clone());
            rt.spawn_background(async move {
                let mut between = vec![];
                for _ in 0..10 {
                    compute(Duration::from_millis(1));
                    let before = polls.get();
                    here.yield_now().await;
                    between.push(polls.get() - before);
                }
                between
            })
        });
        let mut between = vec![];
        for task in background {
            between.extend(task.await);
        }
        others.cancel();
        between.sort_unstable();
        // Of some hundred nanoseconds each: one millisecond has thousands, on the slowest machine some hundred.
        assert!(between[between.len() / 2] > 30, "{between:?}");
    });
}

#[test]
fn alone_the_background_runs_to_its_end() {
    let rt = Rt::real().unwrap();
    let here = rt.clone();
    let background = async move {
        for _ in 0..1000 {
            here.yield_now().await;
        }
        7
    };
    assert_eq!(rt.block_on(rt.spawn_background(background)), 7);
}
