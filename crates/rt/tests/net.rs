//! Sockets: echo of large transfers, ends, socket files.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::time::Duration;

use rt::{Addr, Buf, Bytes, Listener, Rt, Stream};

const BYTES: usize = 32 << 20;

fn pattern() -> Bytes {
    let data: Vec<u8> = (0..BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    Bytes::from_slice(&data)
}

/// One end echoes what it reads; the other sends with one task and receives with another.
fn echo(addr: &Addr) {
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let listener = Listener::bind(&rt, addr).unwrap();
        let there = listener.local_addr();
        drop(rt.spawn(async move {
            let stream = listener.accept().await.unwrap();
            let mut buf = Buf::zeroed(1 << 20);
            loop {
                let (got, back) = stream.recv(buf).await;
                match got.unwrap() {
                    0 => break,
                    n => stream.send_all(vec![Bytes::from_slice(&back[..n])]).await.unwrap(),
                }
                buf = back;
            }
        }));
        let stream = Stream::connect(&rt, &there).await.unwrap();
        let data = pattern();
        let (sender, outgoing) = (stream.clone(), data.clone());
        let sending = rt.spawn(async move {
            // More parts than one sendmsg takes, of odd sizes, and one large rest.
            let mut parts: Vec<_> = (0..3000).map(|i| outgoing.slice(i * 701..(i + 1) * 701)).collect();
            parts.push(outgoing.slice(3000 * 701..3000 * 701));
            parts.push(outgoing.slice(3000 * 701..BYTES));
            sender.send_all(parts).await
        });
        let (answer, back) = stream.recv_exact(Buf::zeroed(BYTES)).await;
        answer.unwrap();
        assert!(back[..] == data[..]);
        sending.await.unwrap();
        let scheme = there.to_string();
        assert_eq!(stream.peer().split(':').next(), scheme.split(':').next());
    });
}

/// Sends that are short enough to be tried at once, until the socket is full and takes a part, then the rest.
#[test]
fn short_sends_into_a_full_socket() {
    let dir = tempfile::tempdir().unwrap();
    let rt = Rt::real().unwrap();
    for addr in [Addr::Unix(dir.path().join("s")), "tcp:127.0.0.1:0".parse().unwrap()] {
        rt.block_on(async {
            let listener = Listener::bind(&rt, &addr).unwrap();
            let there = listener.local_addr();
            let (client, server) = futures::future::join(Stream::connect(&rt, &there), listener.accept()).await;
            let (sender, receiver, data) = (client.unwrap(), server.unwrap(), pattern());
            let sent = data.clone();
            let sending = rt.spawn(async move {
                for at in (0..BYTES).step_by(16 << 10) {
                    let (middle, end) = (at + 5001, at + (16 << 10));
                    sender.send_all(vec![sent.slice(at..middle), sent.slice(middle..end)]).await.unwrap();
                }
            });
            rt.sleep(Duration::from_millis(50)).await;
            assert!(!sending.is_finished(), "nobody has received anything");
            let (answer, got) = receiver.recv_exact(Buf::zeroed(BYTES)).await;
            answer.unwrap();
            assert!(got[..] == data[..]);
            sending.await;
        });
    }
}

#[test]
fn echo_over_tcp() {
    echo(&"tcp:127.0.0.1:0".parse().unwrap());
}

#[test]
fn echo_over_unix() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    echo(&Addr::Unix(path.clone()));
    assert!(!path.exists(), "the socket file goes with the listener");
}

#[test]
fn ends() {
    let dir = tempfile::tempdir().unwrap();
    let addr = Addr::Unix(dir.path().join("s"));
    let rt = Rt::real().unwrap();
    rt.block_on(async {
        let listener = Listener::bind(&rt, &addr).unwrap();
        let (client, server) = futures::future::join(Stream::connect(&rt, &addr), listener.accept()).await;
        let (client, server) = (client.unwrap(), server.unwrap());
        // Shutdown ends a pending receive on both sides.
        let own = client.clone();
        let pending = rt.spawn(async move { own.recv(Buf::zeroed(10)).await.0.unwrap() });
        rt.sleep(Duration::from_millis(5)).await;
        client.shutdown();
        assert_eq!(pending.await, 0);
        assert_eq!(server.recv_exact(Buf::zeroed(1)).await.0.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let error = server.send_all(vec![Bytes::zeroed(100)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        // A dropped accept does not swallow the next connection.
        let mut accept = Box::pin(listener.accept());
        assert!(futures::poll!(&mut accept).is_pending());
        rt.sleep(Duration::from_millis(5)).await;
        drop(accept);
        rt.sleep(Duration::from_millis(5)).await;
        let (client, server) = futures::future::join(Stream::connect(&rt, &addr), listener.accept()).await;
        client.unwrap().send_all(vec![Bytes::from_slice(b"hello")]).await.unwrap();
        let (answer, buf) = server.unwrap().recv_exact(Buf::zeroed(5)).await;
        answer.unwrap();
        assert_eq!(&buf[..], b"hello");
        // Pending receives do not hold up the end of the runtime, nor do they keep a dropped stream open.
        let (client, server) = futures::future::join(Stream::connect(&rt, &addr), listener.accept()).await;
        let (client, server) = (client.unwrap(), server.unwrap());
        let mut receive = Box::pin(client.recv(Buf::zeroed(10)));
        assert!(futures::poll!(&mut receive).is_pending());
        drop(receive);
        drop(client);
        assert_eq!(server.recv(Buf::zeroed(1)).await.0.unwrap(), 0);
        drop(rt.spawn(async move { listener.accept().await.map(drop) }));
        rt.yield_now().await;
    });
    drop(rt);
}

#[test]
fn socket_files_of_the_living_the_dead_and_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let addr = Addr::Unix(path.clone());
    let rt = Rt::real().unwrap();
    let live = Listener::bind(&rt, &addr).unwrap();
    assert_eq!(Listener::bind(&rt, &addr).err().unwrap().kind(), ErrorKind::AddrInUse);
    drop(live);
    // A dead server's file: bound, then closed without removal.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let second = Listener::bind(&rt, &addr).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    drop(second);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert_eq!(Listener::bind(&rt, &addr).err().unwrap().kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let none = rt.block_on(Stream::connect(&rt, &Addr::Unix(dir.path().join("none"))));
    assert_eq!(none.err().unwrap().kind(), ErrorKind::NotFound);
    let refused = rt.block_on(Stream::connect(&rt, &"tcp:127.0.0.1:1".parse().unwrap()));
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::ConnectionRefused);
}
