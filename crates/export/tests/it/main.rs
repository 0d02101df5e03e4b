//! Tests of NBD, NVMe/TCP, vhost-user and what namespaces promise. One program: each program of tests is linked with all that it uses.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod conformance;
mod nbd_client;
mod nbd_handshake;
mod nbd_limits;
mod nbd_transmission;
mod nvme_admin;
mod nvme_connect;
mod nvme_hostile;
mod nvme_idle;
mod nvme_io;
mod nvme_reconnect;
mod nvme_refused;
mod nvme_workers;
mod remote;
mod strangers;
mod striped;
mod support;
mod vhost_user;
mod vhost_user_hostile;
