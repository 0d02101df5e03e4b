//! Who is connected, in words; and the refusal of what would cut them off.

use api::ClientView;
use api::Problem;

/// More of them are counted, not named.
const NAMED_MAX: usize = 8;

/// One of them on a line: `now` is in seconds since 1970.
#[must_use]
pub fn line(client: &ClientView, now: u64) -> String {
    let what = match &client.volume {
        Some(volume) => format!("{}/{volume}", client.array),
        None => format!("all volumes of {}", client.array),
    };
    let who = match &client.host {
        Some(host) => format!("{host} at {}", client.peer),
        None => client.peer.clone(),
    };
    format!("{} {who}, {what}, for {}", protocol(client), age(now.saturating_sub(client.since_unix_seconds)))
}

/// The protocol as people write it.
#[must_use]
pub fn protocol(client: &ClientView) -> &'static str {
    match client.protocol.as_str() {
        "nbd" => "NBD",
        "ublk" => "ublk",
        "vhost_user" => "vhost-user",
        _ => "NVMe/TCP",
    }
}

/// A time that has passed, in one unit.
#[must_use]
pub fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// "1 client is connected", "3 clients are connected".
#[must_use]
pub fn counted(clients: &[ClientView]) -> String {
    match clients.len() {
        1 => "1 client is connected".to_owned(),
        n => format!("{n} clients are connected"),
    }
}

/// All of them as a list for people, one a line.
#[must_use]
pub fn lines(clients: &[ClientView], now: u64) -> Vec<String> {
    let mut lines: Vec<String> = clients.iter().take(NAMED_MAX).map(|client| line(client, now)).collect();
    if let Some(more) = clients.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// The refusal of a verb that would cut these off.
#[must_use]
pub fn connected(what: &str, clients: &[ClientView], now: u64) -> Problem {
    Problem::refused(
        "clients_connected",
        what,
        format!("{}: {}", counted(clients), lines(clients, now).join("; ")),
        "disconnect them first (`ashlar clients` lists them); --force disconnects them",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u64) -> ClientView {
        ClientView {
            array: "fast".into(),
            volume: Some("db".into()),
            protocol: "nbd".into(),
            peer: format!("tcp:10.0.0.{n}:4711"),
            host: None,
            since_unix_seconds: 1000 - n,
            connections: 1,
        }
    }

    #[test]
    fn they_are_named_and_counted() {
        let one = connected("volume fast/db", &[client(7)], 1000);
        assert_eq!((one.code.as_str(), one.kind.exit_code()), ("clients_connected", 3));
        assert_eq!(one.why, "1 client is connected: NBD tcp:10.0.0.7:4711, fast/db, for 7 s");
        let nvme = ClientView {
            volume: None,
            protocol: "nvme_tcp".into(),
            host: Some("nqn.2014-08.org.nvmexpress:uuid:x".into()),
            ..client(5)
        };
        let words = "NVMe/TCP nqn.2014-08.org.nvmexpress:uuid:x at tcp:10.0.0.5:4711, all volumes of fast, for 5 s";
        assert_eq!(line(&nvme, 1000), words);
        let many: Vec<_> = (1..=10).map(client).collect();
        let all = connected("array fast", &many, 1000);
        assert!(all.why.starts_with("10 clients are connected: ") && all.why.ends_with("; and 2 more"), "{all}");
    }

    #[test]
    fn ages_have_one_unit() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 days")] {
            assert_eq!(age(seconds), text);
        }
    }
}
