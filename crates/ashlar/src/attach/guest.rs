//! What virtual machines of this host need to have volumes as disks (vhost-user).

use api::{Arrays, Problem, VolumeView};
use serde::Serialize;
use uuid::Uuid;

use crate::exit::{Finding, Outcome};
use crate::text;

/// A volume and its socket.
#[derive(Serialize)]
struct Offered<'a> {
    volume: String,
    uuid: Uuid,
    socket: &'a str,
}

/// Prints how QEMU and libvirt use these volumes of an array.
///
/// # Errors
/// When the server has no sockets for guests, or none for one of them.
pub fn tell<'a>(array: &str, all: &Arrays, wanted: &[&'a VolumeView], json: bool) -> Outcome {
    if all.guests.is_none() {
        return Err(Problem::refused(
            "not_exported",
            format!("array {array}"),
            "its server has no sockets for guests",
            "serve it with --guests DIR (guests = \"DIR\" in the configuration)",
        ));
    }
    let one = |volume: &&'a VolumeView| {
        let name = format!("{array}/{}", volume.name);
        let socket = volume.guest_socket.as_deref().ok_or_else(|| {
            let todo = "`ashlar status` says why; it is tried again every second";
            Problem::failed(format!("volume {name}"), "its socket for guests is not open", todo)
        })?;
        Ok(Offered { volume: name, uuid: volume.uuid, socket })
    };
    let offered = wanted.iter().map(one).collect::<Result<Vec<_>, Problem>>()?;
    if json {
        text::print_json(&offered);
    } else {
        text::print(&offered.iter().enumerate().map(|(n, offered)| lines(n, offered)).collect::<Vec<_>>().join("\n\n"));
    }
    Ok(Finding::Good)
}

/// Guest memory must be shared, and of a kind that cannot shrink. With `reconnect` QEMU waits for a server that is started again.
fn lines(n: usize, Offered { volume, socket, .. }: &Offered<'_>) -> String {
    let target = char::from(b'b' + (n % 25) as u8);
    // QEMU takes a comma in a value as its end unless there are two.
    let path = socket.replace(',', ",,");
    let escaped = socket.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;");
    format!(
        "{volume} is at {socket}

  QEMU; size is that of the machine's memory (before QEMU 9.2 write reconnect=1):
    -object memory-backend-memfd,id=memory,size=4G,share=on -machine memory-backend=memory
    -chardev socket,id=volume{n},path={path},reconnect-ms=1000
    -device vhost-user-blk-pci,chardev=volume{n},num-queues=2

  libvirt, in <domain>:
    <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
  and in <devices>:
    <disk type='vhostuser' device='disk'>
      <driver name='qemu' type='raw' queues='2'/>
      <source type='unix' path='{escaped}'><reconnect enabled='yes' timeout='1'/></source>
      <target dev='vd{target}' bus='virtio'/>
    </disk>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_qemu_and_xml_read_them() {
        let offered = Offered { volume: "fast/db".into(), uuid: Uuid::nil(), socket: "/run/a,b/<'&>.sock" };
        let text = lines(1, &offered);
        assert!(text.contains("path=/run/a,,b/<'&>.sock,reconnect-ms=1000"), "{text}");
        assert!(text.contains("path='/run/a,b/&lt;&apos;&amp;>.sock'") && text.contains("dev='vdc'"), "{text}");
    }
}
