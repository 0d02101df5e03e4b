//! One line of a generation's table of members: a seat, its drive, and whether it takes part.

use base::{Generation as Number, MemberUuid};
use uuid::Uuid;

use crate::FormatError;
use crate::bytes::{Reader, Writer};

const MEMBER_BYTES: usize = 256;
const DRIVE_NAME_BYTES: usize = 160;

/// Whether a seat's drive takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Takes part.
    In,
    /// Does not, and is not believed when it comes back.
    Out,
    /// In reserve: empty, takes the place of one that goes out.
    Spare,
    /// No drive; its number may be given anew.
    Vacant,
}

/// Why a member is out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhyOut {
    /// It is not out; or a program of before has not said why.
    #[default]
    Unsaid,
    /// It was not there, or its state was old: nothing is wrong with the drive.
    Missing,
    /// It failed requests, or was failed by command.
    Failed,
}

/// One seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The drive's identity.
    pub uuid: MemberUuid,
    /// Whether it takes part.
    pub state: MemberState,
    /// The order among members that pairs are made by; a replacement inherits it.
    pub bay: u16,
    /// The drive's whole blocks.
    pub drive_blocks: u64,
    /// Its zones.
    pub zones: u32,
    /// Its columns are being moved away; nothing new goes there.
    pub leaving: bool,
    /// The first generation that marks it out or vacant; 0: it is neither, or nobody knows.
    pub gone_since: Number,
    /// Why it is out, if it is.
    pub why_out: WhyOut,
    /// Serial number or stable name when it joined, for people.
    pub drive_name: String,
}

impl Member {
    pub(crate) fn encode(&self, w: &mut Writer) {
        let start = w.len();
        w.raw(self.uuid.0.as_bytes());
        w.u64(self.drive_blocks);
        w.u32(self.zones);
        w.u16(self.bay);
        w.u8(match self.state {
            MemberState::In => 1,
            MemberState::Out => 2,
            MemberState::Spare => 3,
            MemberState::Vacant => 4,
        });
        w.u8(u8::from(self.leaving));
        w.text(&self.drive_name, DRIVE_NAME_BYTES);
        w.u64(self.gone_since.0);
        w.u8(match self.why_out {
            WhyOut::Unsaid => 0,
            WhyOut::Missing => 1,
            WhyOut::Failed => 2,
        });
        w.zeros(MEMBER_BYTES - (w.len() - start));
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Member, FormatError> {
        let before = r.remaining();
        let uuid = MemberUuid(Uuid::from_bytes(r.array()?));
        let (drive_blocks, zones, bay) = (r.u64()?, r.u32()?, r.u16()?);
        let state = match r.u8()? {
            1 => MemberState::In,
            2 => MemberState::Out,
            3 => MemberState::Spare,
            4 => MemberState::Vacant,
            _ => return Err(r.field("member state")),
        };
        let leaving = match (r.u8()?, state) {
            (0, _) => false,
            (1, MemberState::In) => true,
            _ => return Err(r.field("member flags")),
        };
        let drive_name = r.text(DRIVE_NAME_BYTES, "drive name")?;
        let gone_since = match (r.u64()?, state) {
            (since, MemberState::Out | MemberState::Vacant) => Number(since),
            (0, MemberState::In | MemberState::Spare) => Number(0),
            _ => return Err(r.field("gone since")),
        };
        let why_out = match (r.u8()?, state) {
            (0, _) => WhyOut::Unsaid,
            (1, MemberState::Out) => WhyOut::Missing,
            (2, MemberState::Out) => WhyOut::Failed,
            _ => return Err(r.field("why out")),
        };
        r.zeros(MEMBER_BYTES - (before - r.remaining()), "member reserved")?;
        if u64::from(zones) > drive_blocks {
            return Err(r.field("zones"));
        }
        Ok(Member { uuid, state, bay, drive_blocks, zones, leaving, gone_since, why_out, drive_name })
    }

    /// `name` cut to what the field holds, at a character's edge.
    #[must_use]
    pub fn drive_name_from(name: &str) -> String {
        let mut end = name.len().min(DRIVE_NAME_BYTES - 2);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name[..end].to_owned()
    }
}
