//! The address of the metrics: of this machine only.

use std::net::{SocketAddr, TcpListener};

use api::Problem;

/// # Errors
/// When other machines reach the address of the metrics.
pub fn refuse_open(address: SocketAddr) -> Result<(), Problem> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let (what, why) = (format!("metrics at {address}"), "other machines reach it, and it has no authentication");
    Err(Problem::usage(what, why, "give an address of loopback, such as 127.0.0.1:9450"))
}

/// Listens for whoever reads `/metrics`.
///
/// # Errors
/// When the address is not on loopback, or cannot be had.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Problem> {
    refuse_open(address)?;
    let what = format!("metrics at {address}");
    let listener = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
    listener.map_err(|e| Problem::failed(what, e, "give another address (--metrics)"))
}
