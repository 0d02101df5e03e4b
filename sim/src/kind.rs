//! The kinds of faults, and how often each happened.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident,)+ of parts: $($(#[doc = $other_doc:literal])+ $other:ident,)+) => {
        /// What can happen to an array.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Kind {
            $($(#[doc = $doc])+ $name,)+
            $($(#[doc = $other_doc])+ $other,)+
        }

        impl Kind {
            /// What happens to arrays in one piece: plans draw from these.
            pub const ALL: &[Kind] = &[$(Kind::$name,)+];
        }
    };
}

kinds! {
    /// The power fails: unflushed writes are kept, dropped or torn, each by itself.
    PowerCut,
    /// The process dies.
    Kill,
    /// Handed over in order.
    Close,
    /// A drive is pulled under load.
    DrivePulled,
    /// A drive that was out is there again, with what it has.
    StaleReturn,
    /// A fresh drive takes a lost one's place.
    DriveReplaced,
    /// A drive is taken out by command.
    DriveFailed,
    /// A drive of a whole array is not there when it is opened.
    MissingAtOpen,
    /// The process dies, or the power fails, while the array is being opened.
    EndInOpen,
    /// A volume is made, grown or deleted under load.
    VolumeChanged,
    /// A spare is added.
    SpareAdded,
    /// A drive of another array is among those given.
    ForeignDrive,
    /// A drive was used without the others and they without it.
    Diverged,
    /// A second process opens the array.
    SecondProcess,
    /// A drive serves everything many times as slowly.
    SlowDrive,
    /// An operation takes a second longer.
    Stall,
    /// More operations than the drive takes at once.
    FullQueue,
    /// A hung drive lands a dead process's writes under the next one.
    LateWrite,
    /// A read fails, another time it does not.
    ReadError,
    /// A block cannot be read until it is written.
    BadBlock,
    /// A read comes back with a flipped bit.
    CorruptRead,
    /// A write fails, and lands wholly, in part or not.
    WriteError,
    /// A write is answered and does not land.
    LostWrite,
    /// A write lands at another place.
    MisdirectedWrite,
    /// A flush is answered and does nothing.
    LyingFlush,
    /// Silent rot of a block that is live.
    RotData,
    /// Silent rot of a block that was overwritten since.
    RotDead,
    /// Silent rot of redundancy.
    RotParity,
    /// Silent rot of a record header.
    RotHeader,
    /// Silent rot of a map node.
    RotMap,
    /// Silent rot of a generation.
    RotSlot,
    /// Silent rot of a label.
    RotLabel,
    /// Rot on any drives: more than the redundancy covers, in places.
    RotBeyond,
    /// More drives are pulled than the redundancy covers.
    LossBeyond,
    /// More drives are missing at an open than the redundancy covers.
    TooFew,
    /// Every copy of a durable record header rots.
    DurableHeaderLost,
    /// Every copy of the newest generation rots.
    GenerationLost,
    /// Blocks rot under a rebuild that has no redundancy left.
    RotInRebuild,
    /// A drive goes while another is being replaced.
    LossInReplace,
    /// Lives of a few moments, one after the other.
    ManyLives,
    /// Drives go, the power fails, and then others are missing.
    CutAfterLoss,
    /// One drive has a generation that never took effect, is missing, and comes back.
    HalfAGeneration,
    /// Hosts work on without the drives that may go.
    WorkAfterLoss,
    /// Readers take long while zones are used again.
    SlowReaders,
    /// Every volume is deleted under load, and a new one made.
    VolumesAnew,
    /// A volume that is written in parts of blocks is deleted, and the end comes before a generation says so.
    DeletionCut,
    /// A live block rots on one drive and is read.
    RotHeals,
    /// The process dies, and then the power fails while the array is being opened.
    CutAfterKill,
    /// The array is closed, or freezes, in the middle of a rebuild.
    CloseInRebuild,
    /// A drive goes, and after new writes another, without a rebuild.
    LossAfterLoss,
    /// The array is opened for reading only.
    ReadOnlyOpen,
    /// The newest generation is given up for the one before.
    WentBack,
    /// A volume's hosts are limited.
    VolumeLimited,
    /// Many requests to one volume beside few to others.
    LoudNeighbour,
    /// A rebuild is told to wait, to go on, and how fast.
    RebuildPaced,
    /// A drive goes, is rebuilt elsewhere, and then another goes, while reads take long.
    PlacesGo,
    /// The process dies in the middle of cleaning, several times.
    CleanedLives,
    /// A full array loses two drives, and has a place for one.
    FullAndShort,
    /// Segments are given back while a scrub looks closer at what rots there.
    GivenBack,
    /// A thin volume is written here and there until there is no space.
    ThinFilled,
    /// A map node is lost for good.
    NodeLost,
    /// A drive without redundancy reads nothing for seconds.
    ReadsPause,
    /// Look-ups take long while all of the map is written anew.
    SlowLookUps,
    /// A record header is lost, and a block behind it cannot be read.
    GapAndBadBlock,
    /// The last drive that was in cannot tell its generation any more.
    LastSilent,
    /// Another drive goes while one is being rebuilt.
    LossInRebuild,
    /// The process dies or the power fails in a rebuild, several times.
    EndInRebuild,
    /// A drive that is in is replaced by copying, with ends in the middle.
    DriveCopied,
    /// The drive that is copied, the new one or another goes in the middle.
    OldDies,
    /// What is copied rots, and reads wrong.
    RotInCopy,
    /// A drive goes for good, with ends in the middle.
    DriveRetired,
    /// A drive joins, with ends in the middle.
    DriveGrown,
    /// As many drives hang as may go.
    Hung,
    /// Every drive is late, for seconds.
    AllLate,
    /// Writes fail once or twice on every drive, and more often on some.
    WriteErrorsPass,
    /// A drive is to come back while requests of its former life are in flight.
    ComesBackBusy,
    /// A drive is slow for a while, and hosts read.
    ReadAround,
    /// A scrub is started under load, whatever else happens.
    Scrubbed,
    /// Blocks of every kind rot on the drives that may go, and a scrub finds each.
    ScrubFinds,
    /// A row rots beyond the redundancy, and a scrub comes to it.
    ScrubLoses,
    /// The process dies in the middle of a scrub.
    ScrubResumes,
    /// Scrubs under load, where nothing rots.
    ScrubUnderLoad,
    /// A generation of a process that has ended lands on a drive under the next one, and after it.
    LateGeneration,
    /// Drives are set back in time: as many as may go.
    SetBack,
    /// More drives are set back than the redundancy covers, but not all.
    SetBackBeyond,
    /// Older copies of drives are there beside them.
    OlderCopies,
    /// A drive is set back while the array is in use.
    SetBackInUse,
    /// Both ends of drives are overwritten.
    EndsOverwritten,
    /// As many drives as may fail do, whichever they are.
    AnyMayFail,
    /// There is no room where drives lie.
    NoRoom,
    /// The process stands still, and goes on.
    Standstill,
    /// Two servers on machines of their own, with pauses, resets, and one that takes over.
    TwoServers,
    /// Events are noted in the array, in lives that end at any moment.
    Noted,
of parts:
    /// A request reaches several parts.
    AcrossParts,
    /// The parts behind the first are reached by submissions.
    PartsSubmitted,
    /// The process dies or the power fails in the middle of a verb on volumes.
    EndInVerb,
    /// The array is closed in the middle of a verb on volumes.
    CloseInVerb,
    /// The process dies or the power fails in the middle of a verb on drives.
    EndInJoin,
    /// The same, at once after a flush.
    EndInFlush,
    /// A part has more of a volume than the first when the array is opened again.
    LeftInParts,
    /// A volume has another name.
    VolumeRenamed,
    /// A drive fails the writes of one part, and is out there only.
    SliceErrs,
    /// What went out in one part is taken out of the others.
    LossShared,
    /// A drive that had joined some parts joins the others by the same command.
    JoinFinished,
    /// A drive is known by the label of a part in its middle only.
    EndsWiped,
    /// A part is asked for a checkpoint.
    Checkpoint,
}

impl Kind {
    /// What happens to arrays in parts.
    pub const IN_PARTS: &[Kind] = &[
        Kind::PowerCut,
        Kind::Kill,
        Kind::Close,
        Kind::EndInOpen,
        Kind::EndInVerb,
        Kind::CloseInVerb,
        Kind::EndInJoin,
        Kind::EndInFlush,
        Kind::LeftInParts,
        Kind::AcrossParts,
        Kind::PartsSubmitted,
        Kind::VolumeChanged,
        Kind::VolumeRenamed,
        Kind::DrivePulled,
        Kind::StaleReturn,
        Kind::MissingAtOpen,
        Kind::SliceErrs,
        Kind::LossShared,
        Kind::DriveFailed,
        Kind::DriveReplaced,
        Kind::DriveCopied,
        Kind::DriveGrown,
        Kind::DriveRetired,
        Kind::SpareAdded,
        Kind::JoinFinished,
        Kind::EndsWiped,
        Kind::Scrubbed,
        Kind::Checkpoint,
        Kind::SetBack,
        Kind::OlderCopies,
        Kind::EndsOverwritten,
    ];

    /// Those of them that are tried on copies, between two lives.
    pub const TRIED_IN_PARTS: &[Kind] = &[Kind::SetBack, Kind::OlderCopies, Kind::EndsOverwritten];

    /// Whether it damages what lies on a drive: only on those whose loss the redundancy covers.
    pub fn spoils(self) -> bool {
        use Kind::{
            BadBlock, CorruptRead, LateWrite, LostWrite, LyingFlush, MisdirectedWrite, ReadError, RotData, RotDead,
            RotHeader, RotLabel, RotMap, RotParity, RotSlot, WriteError,
        };
        matches!(
            self,
            LateWrite | ReadError | BadBlock | CorruptRead | WriteError | LostWrite | MisdirectedWrite | LyingFlush
        ) || matches!(self, RotData | RotDead | RotParity | RotHeader | RotMap | RotSlot | RotLabel)
    }
}

/// Occurrences by kind.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<Kind, u64>);

impl Counts {
    /// Counts `n` more.
    pub fn add(&mut self, kind: Kind, n: u64) {
        *self.0.entry(kind).or_default() += n;
    }

    /// How often it happened.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0.get(&kind).copied().unwrap_or(0)
    }

    /// Takes in another's.
    pub fn add_all(&mut self, other: &Counts) {
        other.0.iter().for_each(|(kind, n)| self.add(*kind, *n));
    }
}
