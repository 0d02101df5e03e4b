//! Ways in for people that are not open: the server goes on without them, since the storage is what it is for.
//!
//! Invariant: what is not open has a standing alarm until it is.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{AlarmView, Problem, Severity};

use crate::listen::Listening;

/// A way in over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The API.
    Api,
    /// The metrics.
    Metrics,
}

impl Way {
    /// Of its alarm.
    fn code(self) -> &'static str {
        match self {
            Way::Api => "api_closed",
            Way::Metrics => "metrics_closed",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Api => "The API over TCP",
            Way::Metrics => "The metrics' address",
        })
    }
}

/// Addresses that could not be had yet.
#[derive(Clone, Default)]
pub struct Closed(Arc<Mutex<BTreeMap<(Way, SocketAddr), Problem>>>);

impl Closed {
    /// Listens at `at`, now or once that can be done.
    pub fn open(&self, way: Way, at: SocketAddr, listen: fn(SocketAddr) -> Result<TcpListener, Problem>) -> Listening {
        match listen(at) {
            Ok(listener) => Listening::Now(listener),
            Err(problem) => {
                tracing::error!("{}", problem.line());
                self.all().insert((way, at), problem);
                let closed = self.clone();
                Listening::Later(Box::new(move || {
                    let listener = listen(at).ok()?;
                    closed.all().remove(&(way, at));
                    tracing::info!("{way} at {at}: open now");
                    Some(listener)
                }))
            }
        }
    }

    /// One for each way in, with what is wrong with the certificate of the API.
    pub fn alarms(&self, certificate: Option<Problem>) -> Vec<AlarmView> {
        let mut alarms: Vec<AlarmView> = certificate.into_iter().map(of_certificate).collect();
        for ((way, _), problem) in &*self.all() {
            if alarms.iter().all(|alarm| alarm.code != way.code()) {
                let todo = "Free the address, or see that the machine has it: it is tried again every few seconds";
                alarms.push(alarm(*way, problem, todo));
            }
        }
        alarms
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<(Way, SocketAddr), Problem>> {
        // No step in it can panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_certificate(problem: Problem) -> AlarmView {
    let todo = "Fix it, and reload the server (SIGHUP)";
    alarm(Way::Api, &problem, todo)
}

fn alarm(way: Way, problem: &Problem, todo: &str) -> AlarmView {
    AlarmView {
        code: way.code().to_owned(),
        severity: Severity::Warning,
        seat: None,
        what: format!("{way} is closed: {}: {}", problem.what, problem.why),
        todo: todo.to_owned(),
        acknowledged: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_stands_until_the_address_is_had() {
        let others = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = others.local_addr().unwrap();
        let closed = Closed::default();
        let Listening::Later(listen) = closed.open(Way::Api, at, crate::front::listen) else { panic!("it is taken") };
        let raised = closed.alarms(None);
        assert_eq!(raised.iter().map(|alarm| alarm.code.as_str()).collect::<Vec<_>>(), ["api_closed"]);
        assert!(raised[0].what.contains(&at.to_string()) && listen().is_none());
        let certificate = Problem::usage("certificate", "it is none", "");
        assert_eq!(closed.alarms(Some(certificate)).len(), 1, "one of a kind");
        drop(others);
        assert!(listen().is_some() && closed.alarms(None).is_empty());
    }
}
