//! Serves memory over NBD until it is interrupted, then shows what was done.
//!
//! `cargo run --release -p export --example nbd_serve -- unix:/tmp/nbd.sock 1073741824`

use std::error::Error;

use export::{Exports, Memory, nbd::Server};
use rt::Rt;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "tcp:127.0.0.1:10809".to_owned()).parse()?;
    let bytes = arguments.next().unwrap_or_else(|| "1073741824".to_owned()).parse()?;
    let rt = Rt::real()?;
    let server = Server::start(&rt, Exports::new([Memory::new("memory", bytes)]), &[address])?;
    println!("serving \"memory\", {bytes} bytes, at {}", server.local_addrs()[0]);
    rt.block_on(async {
        rt.stop_signal().await;
        server.stop().await;
    });
    for (name, counters) in server.counters() {
        println!("{name}: {counters:?}");
    }
    Ok(())
}
