//! Names of drives that a user gives: new ones, and which member is meant (by seat number, path, stable name, serial
//! number, or the end of one of these).

use api::{MemberView, Problem, SeatState};

use crate::drives::Source;

/// New drives by their names.
///
/// # Errors
/// When there is none, or a name cannot be one.
pub fn sources(names: &[String]) -> Result<Vec<Source>, Problem> {
    if names.is_empty() {
        return Err(Problem::usage("drives", "none is named", "name at least one: a block device, a file or mem:SIZE"));
    }
    names
        .iter()
        .map(|n| n.parse().map_err(|e: String| Problem::usage(format!("drive \"{n}\""), e, "name a path or mem:SIZE")))
        .collect()
}

/// The member that `name` means. A number names a seat or nothing: of two drives of a seat (one takes over from the other) the
/// one that stays, where only one of them takes part.
///
/// # Errors
/// When it means none, or more than one.
pub fn member_of(members: &[MemberView], name: &str) -> Result<MemberView, Problem> {
    let known = || members.iter().map(|m| format!("{} ({})", m.seat, name_of(m))).collect::<Vec<_>>().join(", ");
    let name = name.trim();
    if name.is_empty() {
        let todo = format!("name one by seat, path or serial number: {}", known());
        return Err(Problem::usage("the drive", "its name is empty", todo));
    }
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    let found = match name.parse::<u16>() {
        Ok(seat) if is_number => in_seat(members, seat),
        Ok(_) | Err(_) => called(members, name, is_number),
    };
    match found[..] {
        [m] => Ok(m.clone()),
        [] => {
            let why = if is_number { "this array has no such seat" } else { "no member of this array has this name" };
            let path = if is_number { format!("; a path begins with ./ or /, as ./{name}") } else { String::new() };
            Err(Problem::new(
                api::Kind::NotFound,
                "drive_not_a_member",
                format!("drive \"{name}\""),
                why,
                format!("name one by seat, path or serial number: {}{path}", known()),
            ))
        }
        _ => {
            let all = found.iter().map(|m| name_of(m)).collect::<Vec<_>>().join(", ");
            Err(Problem::refused(
                "drive_ambiguous",
                format!("drive \"{name}\""),
                format!("it matches more than one member: {all}"),
                format!("name one by its path or serial number: {}", known()),
            ))
        }
    }
}

/// The drives of a seat: both while one takes over from the other, else the one that is not out.
fn in_seat(members: &[MemberView], seat: u16) -> Vec<&MemberView> {
    let all: Vec<&MemberView> = members.iter().filter(|m| m.seat == seat).collect();
    let here: Vec<&MemberView> = all.iter().copied().filter(|m| is_at_work(m.state)).collect();
    if here.is_empty() { all } else { here }
}

/// Whether a drive takes part, or is a spare.
fn is_at_work(state: SeatState) -> bool {
    match state {
        SeatState::In | SeatState::Leaving | SeatState::Spare => true,
        SeatState::Failed | SeatState::Missing | SeatState::Replaced => false,
    }
}

/// By path, stable name, serial number, or the end of one of these; what is a number only by the whole serial number.
fn called<'a>(members: &'a [MemberView], name: &str, is_number: bool) -> Vec<&'a MemberView> {
    let canonical = std::fs::canonicalize(name).ok().map(|p| p.display().to_string());
    let exact = |m: &&MemberView| {
        let path = !is_number && (m.drive == name || Some(&m.drive) == canonical.as_ref());
        path || m.drive_name == name || (!is_number && Some(&m.drive_name) == canonical.as_ref())
    };
    let ending = |m: &&MemberView| ends_with_component(&m.drive, name) || ends_with_component(&m.drive_name, name);
    let found: Vec<&MemberView> = members.iter().filter(exact).collect();
    if found.is_empty() && !is_number { members.iter().filter(ending).collect() } else { found }
}

/// What a person calls a member: the path of its drive, or what that was called when it was here.
#[must_use]
pub fn name_of(member: &MemberView) -> &str {
    if member.drive.is_empty() { &member.drive_name } else { &member.drive }
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
            assert_eq!(member_of(&members, name).unwrap().seat, seat, "{name}");
        }
        assert_eq!(member_of(&members, "d").unwrap_err().code, "drive_ambiguous");
        for (name, code) in
            [("vme0n1", "drive_not_a_member"), ("", "usage"), (" ", "usage"), ("9", "drive_not_a_member")]
        {
            assert_eq!(member_of(&members, name).unwrap_err().code, code, "{name}");
        }
    }

    fn of(seat: u16, state: SeatState, drive: &str, name: &str) -> MemberView {
        MemberView { seat, state, drive: drive.into(), drive_name: name.into(), ..MemberView::default() }
    }

    #[test]
    fn a_number_names_a_seat_or_nothing() {
        // Drives whose names are numbers, as in a directory of files.
        let members = [
            of(0, SeatState::In, "/n/5", "/n/5"),
            of(1, SeatState::In, "/n/3", "/n/3"),
            of(4, SeatState::In, "/dev/nvme0n1", "190432765812"),
        ];
        assert_eq!(member_of(&members, "3").unwrap_err().code, "drive_not_a_member");
        assert_eq!(member_of(&members, "n/3").unwrap().seat, 1);
        assert_eq!(member_of(&members, "/n/3").unwrap().seat, 1);
        assert_eq!(member_of(&members, "190432765812").unwrap().seat, 4, "a serial number is longer than a seat's");
    }

    #[test]
    fn a_drive_that_is_not_here_is_listed_by_its_name() {
        let members = [of(0, SeatState::In, "/n/0", "/n/0"), of(3, SeatState::Missing, "", "/n/3")];
        let problem = member_of(&members, "nothing").unwrap_err();
        assert!(problem.todo.contains("0 (/n/0), 3 (/n/3)"), "{problem}");
        assert_eq!(member_of(&members, "/n/3").unwrap().seat, 3);
        assert_eq!(member_of(&members, "3").unwrap().seat, 3);
    }

    #[test]
    fn of_two_drives_of_a_seat_the_one_that_takes_part_is_meant() {
        let taken = [of(3, SeatState::Replaced, "/n/8", "/n/8"), of(3, SeatState::In, "/n/20", "/n/20")];
        assert_eq!(member_of(&taken, "3").unwrap().drive, "/n/20");
        let both = [of(3, SeatState::Leaving, "/n/8", "/n/8"), of(3, SeatState::In, "/n/20", "/n/20")];
        let problem = member_of(&both, "3").unwrap_err();
        assert!(problem.code == "drive_ambiguous" && problem.why.contains("/n/8, /n/20"), "{problem}");
    }
}
