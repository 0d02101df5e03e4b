//! QEMU's block tools: qemu-img and qemu-io.

use e2e::failure::require;
use e2e::{OrFail, Result, tools};
use serde_json::Value;

use super::{Case, files};
use crate::fixture::Lab;

/// The cases.
pub const CASES: &[Case] = &[
    Case { name: "qemu-img", about: "info, convert in and out, compare, map", run: img },
    Case { name: "qemu-io", about: "patterns, zeroes, discard, flush, many in flight", run: io },
];

fn img(lab: &Lab) -> Result<()> {
    let served = lab.served("a", "5", 5, "96M")?;
    let dir = served.dir();
    for (n, uri) in served.uris()?.iter().enumerate() {
        files::make(&dir.join("in"), 96, lab.seed + 10 + n as u64)?;
        let out = tools::run(dir, "qemu-img", &["info", "--output=json", uri])?;
        let info: Value = serde_json::from_str(&out).or_fail("qemu-img info")?;
        require(info["virtual-size"] == 96 << 20, "qemu-img info", || out.clone())?;
        tools::run(dir, "qemu-img", &["convert", "-n", "-W", "-m", "16", "-f", "raw", "-O", "raw", "in", uri])?;
        tools::run(dir, "qemu-img", &["compare", "-f", "raw", "-F", "raw", "in", uri])?;
        tools::run(dir, "qemu-img", &["convert", "-f", "raw", "-O", "raw", uri, "out"])?;
        files::same_beginning(&dir.join("in"), &dir.join("out"))?;
    }
    map(&served)
}

/// What qemu-img makes of the block status: a file of zeroes, with 4 MiB of data at 8 MiB.
fn map(served: &crate::fixture::Served) -> Result<()> {
    let uri = served.uri();
    tools::run(served.dir(), "qemu-io", &["-f", "raw", "-c", "discard 0 96M", "-c", "write -P 7 8M 4M", &uri])?;
    let out = tools::run(served.dir(), "qemu-img", &["map", "--output=json", "-f", "raw", &uri])?;
    let map: Value = serde_json::from_str(&out).or_fail("qemu-img map")?;
    let data: Vec<_> = map
        .as_array()
        .into_iter()
        .flatten()
        .filter(|e| e["data"] == true)
        .map(|e| (e["start"].as_u64(), e["length"].as_u64()))
        .collect();
    require(data == [(Some(8 << 20), Some(4 << 20))], "qemu-img map", || {
        format!("expected data at 8 MiB, 4 MiB: {out}")
    })
}

/// A pattern that was written must come back; `verify` fails the command when it does not.
const STEPS: &[&str] = &[
    "write -P 0xa5 0 1M",
    "write -P 0x11 512 512",
    "write -P 0x22 1M 32M",
    "write -f -P 0x33 4k 4k",
    "read -P 0xa5 0 512",
    "read -P 0x11 512 512",
    "read -P 0xa5 1k 3k",
    "read -P 0x33 4k 4k",
    "read -P 0x22 1M 32M",
    "write -z 2M 1M",
    "read -P 0 2M 1M",
    "write -z -u 4M 1M",
    "read -P 0 4M 1M",
    "discard 6M 1M",
    "read -P 0 6M 1M",
    "write -z 7169k 1k",
    "read -P 0x22 7M 1k",
    "read -P 0 7169k 1k",
    "read -P 0x22 7170k 1k",
    "flush",
    "aio_write -P 0x44 16M 1M",
    "aio_write -P 0x55 17M 1M",
    "aio_write -P 0x66 18M 64k",
    "aio_flush",
    "read -P 0x44 16M 1M",
    "read -P 0x55 17M 1M",
    "read -P 0x66 18M 64k",
];

fn io(lab: &Lab) -> Result<()> {
    let mut served = lab.served("a", "6", 6, "64M")?;
    for uri in served.uris()? {
        let mut args = vec!["-f", "raw"];
        STEPS.iter().for_each(|step| args.extend(["-c", step]));
        args.push(&uri);
        let out = tools::run(served.dir(), "qemu-io", &args)?;
        require(!out.contains("verification failed"), "qemu-io", || out.clone())?;
    }
    served.crash()?;
    let uri = served.uri();
    let out = tools::run(
        served.dir(),
        "qemu-io",
        &["-r", "-f", "raw", "-c", "read -P 0x44 16M 1M", "-c", "read -P 0 6M 1M", "-c", "read -P 0x11 512 512", &uri],
    )?;
    require(!out.contains("verification failed"), "qemu-io after SIGKILL", || out.clone())
}
