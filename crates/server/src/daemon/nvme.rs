//! The NVMe/TCP export of all volumes of all served arrays, a subsystem for each array, and of direct drives, one
//! for each. Off unless asked for.

use std::cell::RefCell;
use std::fmt::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use api::Problem;
use export::nvme::entry::is_nqn;
use export::nvme::{self, Server};
use futures::future::{Either, select};
use rt::Rt;
use rt::net::Addr;

use super::Data;
use super::exports::patiently;
use crate::config::Deal;
use crate::cores::{Core, Cores};
use crate::subsystem::{AccessRules, ExportedSubsystems, Rule};

/// What is wished for.
#[derive(Clone, Debug, Default)]
pub struct NvmeSettings {
    /// Where to listen, "tcp:ADDRESS:PORT"; nowhere when there is none.
    pub addresses: Vec<String>,
    /// What the discovery log says instead, "ADDRESS:PORT".
    pub advertise: Vec<String>,
    /// Who may use what.
    pub access: AccessRules,
    /// Which core serves I/O queues, where there are several.
    pub deal: Deal,
}

/// The wishes, looked at before anything is opened.
pub struct Wishes {
    addresses: Vec<Addr>,
    advertise: Vec<SocketAddr>,
    access: Rc<RefCell<AccessRules>>,
    deal: Deal,
}

impl Wishes {
    /// Who may use what: to be changed while the server lives.
    pub fn access(&self) -> Rc<RefCell<AccessRules>> {
        self.access.clone()
    }
}

/// Looks at the wishes as far as their form tells.
///
/// # Errors
/// When an address or a host's name is none, or hosts could not reach what they would be told.
pub fn parse(settings: &NvmeSettings) -> Result<Wishes, Problem> {
    let addresses = settings.addresses.iter().map(|text| address(text)).collect::<Result<Vec<_>, _>>()?;
    let advertise = settings.advertise.iter().map(|text| advertised(text)).collect::<Result<Vec<_>, _>>()?;
    let everywhere = |addr: &&Addr| matches!(addr, Addr::Tcp(a) if a.ip().is_unspecified());
    if let (Some(addr), true) = (addresses.iter().find(everywhere), advertise.is_empty()) {
        return Err(Problem::usage(
            format!("NVMe/TCP address \"{addr}\""),
            "hosts cannot connect to the address that the discovery log would name",
            "give the address where they reach it, such as --nvme-advertise 10.0.0.5:4420",
        ));
    }
    super::exports::refuse_impossible(&addresses, "NVMe/TCP export", "--nvme")?;
    let access = &settings.access;
    [&access.all].into_iter().chain(access.arrays.values()).try_for_each(check_rule)?;
    Ok(Wishes { addresses, advertise, access: Rc::new(RefCell::new(access.clone())), deal: settings.deal })
}

fn address(text: &str) -> Result<Addr, Problem> {
    match text.parse() {
        Ok(addr @ Addr::Tcp(_)) => Ok(addr),
        Ok(Addr::Unix(_)) => Err(not_tcp(text, "it is not a TCP address")),
        Err(_) => Err(not_tcp(text, super::exports::not_an_address(text))),
    }
}

fn not_tcp(text: &str, why: &str) -> Problem {
    Problem::usage(format!("NVMe/TCP address \"{text}\""), why, "write for instance tcp:127.0.0.1:4420")
}

fn advertised(text: &str) -> Result<SocketAddr, Problem> {
    let wrong = |_| {
        Problem::usage(
            format!("advertised address \"{text}\""),
            "it is not an address with a port",
            "write for instance 10.0.0.5:4420",
        )
    };
    text.strip_prefix("tcp:").unwrap_or(text).parse().map_err(wrong)
}

fn check_rule(rule: &Rule) -> Result<(), Problem> {
    match rule.hosts.iter().find(|host| !is_nqn(host)) {
        None => Ok(()),
        Some(host) => Err(Problem::usage(
            format!("host \"{host}\""),
            "it is not an NVMe qualified name",
            "copy the name from /etc/nvme/hostnqn of the host; it begins with nqn.",
        )),
    }
}

/// The NVMe/TCP server, if there is one.
pub struct Nvme {
    server: Option<Rc<Server<ExportedSubsystems>>>,
}

impl Nvme {
    /// Listens on every address.
    ///
    /// # Errors
    /// When one is taken.
    pub async fn listen(data: &Rc<Data>, wishes: Wishes, cores: &Cores) -> Result<(Nvme, String), Problem> {
        if wishes.addresses.is_empty() {
            return Ok((Nvme { server: None }, "off".to_owned()));
        }
        let rt = &data.world.rt;
        let deal = match wishes.deal {
            Deal::Connect => nvme::Deal::ToOthers,
            Deal::Load => nvme::Deal::ByLoad,
        };
        let start = || {
            let subsystems = ExportedSubsystems { all: data.exported(), access: wishes.access.clone() };
            Server::dealing(rt, subsystems, &wishes.addresses, &wishes.advertise, (cores.count(), deal))
        };
        let (server, workers) = patiently(rt, start).await.map_err(|e| cannot_listen(&wishes.addresses, &e))?;
        let names: Vec<String> = server.local_addrs().iter().map(ToString::to_string).collect();
        let mut detail = names.join(", ");
        if !workers.is_empty() {
            let own = usize::from(wishes.deal == Deal::Load);
            let _infallible = write!(detail, ", I/O queues by {} cores", own + workers.len());
        }
        cores.begin(workers.into_iter().map(|worker| async move |core: Core| worker.serve(&core.rt).await).collect());
        let server = Rc::new(server);
        if wishes.access.borrow().is_empty() {
            detail.push_str("; no host may connect (--allow-host, --allow-any)");
        }
        *data.nvme.borrow_mut() = names;
        *data.queues.borrow_mut() = Some(server.clone());
        Ok((Nvme { server: Some(server) }, detail))
    }

    /// Ends all connections, after the commands in flight; whether all have ended. One that hangs ends with its array.
    pub async fn stop(self, rt: &Rt, patience: Duration) -> bool {
        let Some(server) = self.server else { return true };
        let in_time = matches!(select(pin!(server.stop()), pin!(rt.sleep(patience))).await, Either::Left(_));
        if !in_time {
            tracing::warn!("commands still run after {} s; the arrays are closed nevertheless", patience.as_secs());
        }
        in_time
    }
}

fn cannot_listen(addresses: &[Addr], error: &std::io::Error) -> Problem {
    let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let what = format!("NVMe/TCP export at {}", all.join(", "));
    super::exports::cannot_listen(what, error, "--nvme")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: &str, advertise: &str, host: &str) -> NvmeSettings {
        let some = |text: &str| if text.is_empty() { vec![] } else { vec![text.to_owned()] };
        let all = Rule { hosts: some(host), any: false };
        let access = AccessRules { all, ..AccessRules::default() };
        NvmeSettings { addresses: some(address), advertise: some(advertise), access, ..NvmeSettings::default() }
    }

    #[test]
    fn wishes_that_cannot_be_are_refused() {
        for (address, advertise, host) in [
            ("unix:/run/x", "", ""),
            ("127.0.0.1:4420", "", ""),
            ("tcp:0.0.0.0:4420", "", ""),
            ("tcp:[::]:4420", "", ""),
            ("tcp:127.0.0.1:4420", "example.org:1", ""),
            ("tcp:127.0.0.1:4420", "", "myhost"),
        ] {
            assert!(parse(&settings(address, advertise, host)).is_err(), "{address} {advertise} {host}");
        }
        for (address, advertise, host) in [
            ("", "", ""),
            ("tcp:127.0.0.1:4420", "", "nqn.2014-08.org.nvmexpress:uuid:x"),
            ("tcp:0.0.0.0:4420", "10.0.2.2:4420", ""),
            ("tcp:[::]:4420", "tcp:[fd00::1]:4420", ""),
        ] {
            assert!(parse(&settings(address, advertise, host)).is_ok(), "{address} {advertise} {host}");
        }
    }
}
