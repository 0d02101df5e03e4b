//! Names of drives that a user gives: new ones, and which member is meant (by seat number, path, stable name, serial
//! number, or the end of one of these).

use base::MemberId;

use crate::Problem;
use crate::drives::Source;
use crate::view::MemberView;

/// New drives by their names.
///
/// # Errors
/// When there is none, or a name cannot be one.
pub fn sources(names: &[String]) -> Result<Vec<Source>, Problem> {
    if names.is_empty() {
        return Err(Problem::usage(
            "drives",
            "none are named",
            "name at least one: a block device, a file or mem:SIZE",
        ));
    }
    names
        .iter()
        .map(|n| n.parse().map_err(|e: String| Problem::usage(format!("drive \"{n}\""), e, "name a path or mem:SIZE")))
        .collect()
}

/// The seat of the member that `name` means.
///
/// # Errors
/// When it means none, or more than one.
pub fn seat_of(members: &[MemberView], name: &str) -> Result<MemberId, Problem> {
    let list = || members.iter().map(|m| format!("{} ({})", m.seat, m.drive)).collect::<Vec<_>>().join(", ");
    if let Ok(seat) = name.parse::<u16>()
        && let Some(m) = members.iter().find(|m| m.seat == seat)
    {
        return Ok(MemberId(m.seat));
    }
    let canonical = std::fs::canonicalize(name).ok().map(|p| p.display().to_string());
    let exact = |m: &&MemberView| m.drive == name || m.drive_name == name || Some(&m.drive) == canonical.as_ref();
    let ending = |m: &&MemberView| ends_with_component(&m.drive, name) || ends_with_component(&m.drive_name, name);
    let mut found: Vec<&MemberView> = members.iter().filter(exact).collect();
    if found.is_empty() {
        found = members.iter().filter(ending).collect();
    }
    match found[..] {
        [m] => Ok(MemberId(m.seat)),
        [] => Err(Problem::new(
            crate::Kind::NotFound,
            "drive_not_a_member",
            format!("drive \"{name}\""),
            "no member of this array has this name",
            format!("name one by seat, path or serial number: {}", list()),
        )),
        _ => Err(Problem::refused(
            "drive_ambiguous",
            format!("drive \"{name}\""),
            "more than one member ends like this",
            format!("name one by its seat: {}", list()),
        )),
    }
}

fn ends_with_component(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|head| head.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_many_names() {
        let m = |seat: u16, drive: &str, name: &str| MemberView {
            seat,
            drive: drive.into(),
            drive_name: name.into(),
            ..MemberView::default()
        };
        let members = [
            m(0, "/dev/nvme0n1", "S1"),
            m(1, "/dev/nvme1n1", "S2"),
            m(2, "/x/0/d", "/x/0/d"),
            m(3, "/y/0/d", "/y/0/d"),
        ];
        for (name, seat) in [("0", 0), ("nvme1n1", 1), ("/dev/nvme0n1", 0), ("S2", 1), ("/y/0/d", 3)] {
            assert_eq!(seat_of(&members, name).unwrap().0, seat, "{name}");
        }
        assert_eq!(seat_of(&members, "d").unwrap_err().code, "drive_ambiguous");
        assert_eq!(seat_of(&members, "vme0n1").unwrap_err().code, "drive_not_a_member");
    }
}
