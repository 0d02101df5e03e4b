//! How often a token may be wrong. A secret cannot be guessed; whoever tries is slowed, and is told of.
//!
//! Invariants: an address that was wrong too often is not looked at; when all addresses together were, tokens that are right
//! are taken, so that nobody keeps others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Wrong ones in a minute from one address.
const ADDRESS_MAX: u32 = 5;

/// Wrong ones in a minute from all.
const ALL_MAX: u32 = 60;

const MINUTE: Duration = Duration::from_secs(60);

/// Why a token was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody has it.
    Unknown,
    /// The secret is not that of the token of this name.
    Wrong(String),
    /// The token of this name has ended.
    Ended(String),
}

/// What is to be done about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// Too many were wrong: when it may be tried again. Else it is wrong.
    pub wait: Option<Duration>,
    /// So many were refused since that was told last: it is time to tell.
    pub tell: Option<u32>,
    /// Why.
    pub why: Why,
}

/// Wrong ones within the minute that began then.
#[derive(Clone, Copy)]
struct Minute {
    begun: Instant,
    wrong: u32,
}

impl Minute {
    /// This one, or a new one when it is over.
    fn at(self, now: Instant) -> Minute {
        if now.saturating_duration_since(self.begun) < MINUTE { self } else { Minute { begun: now, wrong: 0 } }
    }

    fn left(self, now: Instant) -> Duration {
        MINUTE.saturating_sub(now.saturating_duration_since(self.begun))
    }
}

/// Who was wrong lately.
#[derive(Default)]
pub struct Tries {
    /// As many as the limit of all allows, and no more.
    addresses: BTreeMap<IpAddr, Minute>,
    all: Option<Minute>,
    told: Option<Instant>,
    untold: u32,
}

/// The network of an address, as far as one subscriber has it: /64 of IPv6.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & (u128::MAX << 64)).into()),
    }
}

impl Tries {
    /// Whether a token of this address is looked at.
    ///
    /// # Errors
    /// When it was wrong too often.
    pub fn may_try(&mut self, from: IpAddr, now: Instant) -> Result<(), Refused> {
        let minute = self.addresses.get(&network(from)).map(|minute| minute.at(now));
        match minute.filter(|minute| minute.wrong >= ADDRESS_MAX) {
            Some(minute) => Err(self.refused(Some(minute.left(now)), Why::Unknown, now)),
            None => Ok(()),
        }
    }

    /// One was wrong.
    pub fn was_wrong(&mut self, from: IpAddr, why: Why, now: Instant) -> Refused {
        self.addresses.retain(|_, minute| minute.left(now) > Duration::ZERO);
        let mut all = self.all.unwrap_or(Minute { begun: now, wrong: 0 }).at(now);
        let wait = (all.wrong >= ALL_MAX).then(|| all.left(now));
        all.wrong += u32::from(wait.is_none());
        self.all = Some(all);
        if wait.is_none() {
            let minute = self.addresses.entry(network(from)).or_insert(Minute { begun: now, wrong: 0 });
            *minute = minute.at(now);
            minute.wrong += 1;
        }
        self.refused(wait, why, now)
    }

    fn refused(&mut self, wait: Option<Duration>, why: Why, now: Instant) -> Refused {
        self.untold = self.untold.saturating_add(1);
        let is_time = self.told.is_none_or(|told| now.saturating_duration_since(told) >= MINUTE);
        let tell = is_time.then(|| {
            self.told = Some(now);
            std::mem::take(&mut self.untold)
        });
        Refused { wait, tell, why }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n))
    }

    #[test]
    fn an_address_waits_for_a_minute_and_others_do_not() {
        let (mut tries, begun) = (Tries::default(), Instant::now());
        for _ in 0..ADDRESS_MAX {
            tries.may_try(address(1), begun).unwrap();
            assert_eq!(tries.was_wrong(address(1), Why::Unknown, begun).wait, None);
        }
        let refused = tries.may_try(address(1), begun + MINUTE / 2).unwrap_err();
        assert_eq!(refused.wait, Some(MINUTE / 2));
        tries.may_try(address(2), begun).unwrap();
        tries.may_try(address(1), begun + MINUTE).unwrap();
        assert_eq!(tries.was_wrong(address(1), Why::Unknown, begun + MINUTE).wait, None, "a new minute");
    }

    #[test]
    fn all_together_are_limited_and_what_is_right_is_still_looked_at() {
        let (mut tries, now) = (Tries::default(), Instant::now());
        for n in 0..ALL_MAX {
            assert_eq!(tries.was_wrong(address(n), Why::Unknown, now).wait, None);
        }
        for n in 0..1000 {
            assert!(tries.may_try(address(n), now).is_ok(), "it may be right");
            assert_eq!(tries.was_wrong(address(n), Why::Unknown, now).wait, Some(MINUTE));
        }
        assert_eq!(tries.addresses.len(), ALL_MAX as usize, "no more is remembered");
        assert_eq!(tries.was_wrong(address(1), Why::Unknown, now + MINUTE).wait, None);
    }

    #[test]
    fn it_is_told_once_a_minute_with_the_number() {
        let (mut tries, now) = (Tries::default(), Instant::now());
        let tells: Vec<_> = (0..5).map(|n| tries.was_wrong(address(n), Why::Unknown, now).tell).collect();
        assert_eq!(tells, [Some(1), None, None, None, None]);
        assert_eq!(tries.was_wrong(address(9), Why::Unknown, now + MINUTE).tell, Some(5));
    }

    #[test]
    fn a_subscriber_of_ipv6_is_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
