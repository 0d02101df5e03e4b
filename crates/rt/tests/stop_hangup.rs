//! SIGHUP resolves `stop_signal`, as SIGTERM does. Alone in its binary: the wish to stop is the whole process's.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rt::Rt;

#[test]
fn sighup_is_heard_now_and_later() {
    let rt = Rt::real().unwrap();
    // A thread that was there before and blocks nothing.
    let bystander = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(300)));
    rt.block_on(async {
        let waiter = rt.clone();
        let waiting = rt.spawn(async move { waiter.stop_signal().await });
        rt.sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
        waiting.await;
        rt.stop_signal().await;
    });
    bystander.join().unwrap();
}
