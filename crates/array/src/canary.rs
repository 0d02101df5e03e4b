//! Planted bugs: each takes out one rule of the engine, so that the rule's test can show that it would notice.
//!
//! Only with the feature `canary`, which tests and the simulator switch on; without it [`planted`] is `false`, and the
//! compiler leaves nothing of it.

#[cfg(feature = "canary")]
use std::cell::Cell;

macro_rules! canaries {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Canary {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Canary {
            /// All of them.
            pub const ALL: &[Canary] = &[$(Canary::$name,)+];
        }
    };
}

canaries! {
    /// A member counts as in whatever generation of the array's history it holds last.
    OldStateCurrent,
    /// All columns of a member that comes back count as current.
    ChangedKept,
    /// Members are not asked whether they still hold the generation in effect.
    SetBackUnnoticed,
    /// An open answers hosts once its first generation is in effect.
    OneGenerationAtOpen,
    /// Any state may lose as many drives as the level tolerates.
    ExposureOverstated,
    /// What the generation in effect lists does not count for what may fail.
    ListedUncounted,
    /// A label is looked for at the drive's ends alone.
    EndsOnly,
    /// Of two drives that say they are the same member, the first is taken.
    FirstCopyTaken,
    /// Records are acknowledged when they are complete, whatever lies before them.
    AckOutOfOrder,
    /// A record that a member failed is acknowledged all the same.
    AckIncomplete,
    /// A flush does not wait for the generation that marks a failed member out.
    FlushBeforeMemberOut,
    /// Flushes of members are left out.
    MembersNotFlushed,
    /// A generation with a feature that this program does not know is as one that cannot be read.
    FeatureIgnored,
    /// What is noted in the notebook is not durable when that is said.
    NotebookUnflushed,
    /// A FUA write is not flushed.
    FuaForgotten,
    /// What a process before this one left in the drives' caches counts as flushed.
    OldWritesForgotten,
    /// A loss beyond the redundancy is written down like any other.
    LossNotCounted,
    /// Records that could not complete are answered and not written again.
    RewriteForgotten,
    /// The cleaner moves a block whatever the map says of it by now.
    MoveUnconditional,
    /// The cleaner does not ask again, under a block's lock, whether it is still where it was read.
    MoveAskedOnce,
    /// A move says where its block is also when a host's write was acknowledged before it.
    OvertakenMoved,
    /// A move of a record that is given up is written again, though its lock was given back.
    MovedAgain,
    /// Readers do not keep the zones that they read.
    PinsForgotten,
    /// Reads do not see the memtable that is being merged.
    FrozenTableForgotten,
    /// Blocks are believed without their checksum.
    ChecksumIgnored,
    /// What was made from the rest of a row is not written back.
    RepairForgotten,
    /// A block that is lost becomes a hole.
    BadForgotten,
    /// Host and map entries share records.
    MixedRecords,
    /// A generation is written before what it relies on is flushed.
    CommitBeforeFlush,
    /// A generation counts before it is flushed.
    SlotNotFlushed,
    /// Every generation goes to the same slot.
    OneSlot,
    /// Records of a newer generation are taken for what they are not.
    NewerGenerationIgnored,
    /// Segments are written that no generation lists.
    UnlistedWritten,
    /// The last spare is taken before the next generation begins.
    SparesLate,
    /// Recovery goes on with the epoch it found.
    EpochForgotten,
    /// Recovery forgets where it cut.
    CutForgotten,
    /// The array serves before recovery has committed.
    ServesUncommitted,
    /// A record header of an older life is believed.
    OlderHeaderBelieved,
    /// A record header is looked for in one other copy only.
    HeaderFromOneCopy,
    /// A lost header is a torn tail, wherever it lies.
    CutAtDamage,
    /// Record headers do not carry the durable row.
    DurableRowForgotten,
    /// Records that are torn are taken for whole.
    TornAccepted,
    /// Recovery leaves torn rows as they are.
    MendForgotten,
    /// An open for reading only puts right what it finds.
    ReadOnlyWrites,
    /// A frozen open says what the map says, old or not.
    OldReadsAllowed,
    /// A member with a history of its own is let in.
    DivergedBelieved,
    /// A member that is marked out is let in.
    StaleBelieved,
    /// Half of the members are enough.
    HalfBelieved,
    /// Another's generation is written over.
    ForeignIgnored,
    /// A generation that lands when its process is gone is another's.
    LateSlotForeign,
    /// An open that ended before its first generation took effect shares its epoch with the next.
    EpochsMeet,
    /// Zones are freed before the generation that does not need them is in effect.
    ReusedEarly,
    /// Overwritten blocks stay counted.
    CountsForgotten,
    /// Replay begins behind what was in flight when the memtable was frozen.
    ReplayLate,
    /// An acknowledged record is not listed for replay.
    ReplayForgotten,
    /// The map of an array without redundancy is written once.
    MapNotMirrored,
    /// There is always room for another cut.
    CutsUnbounded,
    /// Volume numbers are given out again.
    VolumeIdReused,
    /// A deleted volume is forgotten with all its leaves.
    DropForgotten,
    /// A new volume is seen before its generation is in effect.
    VolumeSeenEarly,
    /// Hosts may take the last room.
    FloorForgotten,
    /// Short of members, new segments leave columns out.
    NarrowForgotten,
    /// A rebuilt column holds nothing.
    RebuildEmpty,
    /// One bad block costs its column for a whole batch of a rebuild.
    RebuildByBatch,
    /// The most exposed segments are rebuilt last.
    ExposedLast,
    /// A rebuild takes no room that the cleaner has to make.
    RebuildLeftShort,
    /// A rebuild waits for no checkpoint that counts what the cleaner emptied on its own.
    OthersCleaned,
    /// A rebuild goes on however it was told to wait.
    PauseForgotten,
    /// What a member that leaves has is copied without a look at its checksums.
    CopyUnverified,
    /// New segments lie on a member that leaves.
    LeavingUsed,
    /// A member leaves while its columns are still being moved.
    LeavesEarly,
    /// The old place of a column is free before a generation names the new one.
    MovedFreedEarly,
    /// A zone that is being deallocated is given to a new segment.
    DeallocatedInUse,
    /// A member may leave whatever is stored.
    RetireUnasked,
    /// Drives are written after the array froze or was handed over.
    DoorsForgotten,
    /// A generation that never took effect is a history of its own.
    OvertakenBelieved,
    /// A zone of a mirror is worth a part of a pair, however many of the pair are left.
    PairsReckonedWhole,
    /// A drive that is not asked any more is taken for one that is gone.
    DoorsBlameDrives,
    /// A drive whose first generation was cut short is out for ever.
    NewcomerNotBelieved,
    /// A member without a generation that can be read says nothing.
    SilentNotAsked,
    /// Numbers of a generation that was given up are given out again.
    NumbersTwice,
    /// The generation that was given up stays on the drives.
    GivenUpStays,
    /// A volume's hosts take what they like.
    LimitsForgotten,
    /// Whose turn it is among volumes is never looked at again.
    TurnKept,
    /// Rows in flight are counted from the acknowledged row.
    WindowFromAcked,
    /// The first failed write puts its member out.
    OneErrorPutsOut,
    /// Members go out for errors that may pass, whatever the redundancy says.
    ErrorsBeyondRedundancy,
    /// Members that do not answer are waited for.
    LateStays,
    /// Members that do not answer go out, whatever the redundancy says.
    LateBeyondRedundancy,
    /// A drive comes back as new while something is still in flight to it.
    BusyReturns,
    /// Reads wait for a slow drive.
    HedgeForgotten,
    /// A read of several runs waits for the drives that are late.
    LateRunsWaitedFor,
    /// A drive that was slow is not asked while the way around it takes long.
    SlowNotAsked,
    /// What was made from the rest of a row is believed without its checksum.
    HedgeUnverified,
    /// A long read for the cleaner waits for a drive that does not answer.
    RunWaitedFor,
    /// What the cleaner reads in one run is believed without its checksums.
    RunUnverified,
    /// An array is closed while the cleaner is still at it.
    ClosedWhileCleaning,
    /// A scrub reads rows that are still being written.
    ScrubBeyondAcked,
    /// A scrub leaves blocks of volumes out.
    ScrubBlocksSkipped,
    /// A parity scrub does not look at redundancy.
    ScrubParitySkipped,
    /// A scrub does not read again what it wrote back.
    ScrubBelievesWrites,
    /// A scrub leaves labels and generations out.
    ScrubSystemSkipped,
    /// What cannot be read where it lay is lost, whatever a rebuild has done meanwhile.
    OldPlacesBelieved,
    /// What a scrub finds lost is not written down.
    ScrubLossForgotten,
    /// A scrub begins anew after a restart.
    ScrubForgetsPosition,
    /// A full array does not try its last room.
    LastRoomForgotten,
    /// Parts of blocks are laid over what is left of a volume that is being deleted, or of an array that is being closed.
    LaidOverHoles,
    /// The first part of an array has a new volume before the others do.
    FirstPartFirst,
    /// What a crash has left in the other parts of an array stays there.
    LeftInParts,
    /// A volume that the first part of an array could not make is taken from the others, whatever came of it.
    TakenBackUnasked,
    /// A drive that goes out in one part of an array stays in the others.
    LossKeptToPart,
    /// What a crash has left half done to a drive in the other parts of an array stays so.
    PartsUnfinished,
    /// A label that reads wrong once keeps the array from opening.
    LabelReadOnce,
    /// A segment is given back when the cleaner has been through it, without a last look at the map.
    VacatedUnasked,
    /// Segments whose zones are free stay in the generation that freed them.
    FreedListed,
    /// A look-up that began with trees that are gone ends where they do.
    OldTreesBelieved,
    /// What is deallocated below a lost map node stays bad.
    BelowLostForgotten,
    /// Who was used apart, and then left alone for long, is merely old.
    OldRivalBelieved,
    /// What a scrub finds in a segment that is given back meanwhile did not stay.
    GivenBackNotHeld,
    /// What lies behind a gap is looked for in whole batches of rows.
    SearchByBatch,
    /// What cannot be read once is lost for good.
    GivenUpAtOnce,
    /// The cleaner gives up a segment when a map leaf that names its blocks is lost.
    LostLeafStops,
    /// A drive that has no room where it lies counts as one that fails.
    NoRoomBlamed,
    /// A record counts as complete when one of its members has no room for it.
    NoRoomAcked,
    /// Blocks that a request holds are passed by where they are absent.
    LockedPassedBy,
    /// Hosts wait for room for as long as it takes.
    HostsWaitForRoom,
    /// Requests are late by what the process stood still.
    StandstillBlamed,
    /// Who is late is out while others are late, too, but read.
    LateApart,
    /// A scrub whose last start lies in the future waits for it.
    ScrubAwaitsWrongDate,
    /// Map nodes take no room from volumes.
    NodesUncounted,
    /// A long request is done in one piece, however many others wait.
    TurnTakenWhole,
    /// What is absent in the map is looked at leaf by leaf.
    AbsentWalked,
    /// Only the first part of a long request counts in the limits of its volume.
    PartsUncharged,
    /// A reservation conflict is an error of the drive.
    ConflictCounted,
    /// A drive that is gone when it is flushed counts as one that failed.
    GoneFailed,
    /// A member is failed by command before the others were asked whether they are still there.
    OthersUnasked,
    /// A lost column that no seat is left for stays lost.
    TooFewSeats,
    /// What was asked before a standstill is acknowledged after it, whoever has the drives by then.
    StaleAcked,
    /// A label away from the ends counts although what lies before it is something else by now.
    ForgottenLabelBelieved,
    /// A close that gave up waiting for a member says that nobody has the array.
    LateWriteReleased,
    /// What is given back to a full array counts only when somebody writes again.
    FullForGood,
    /// Where one part of an array finds only its last label on a drive, the others take the drive all the same.
    OtherPartsBelieved,
    /// Of a drive that has left a part, the first label is wiped before the last.
    FirstLabelWipedFirst,
    /// Wiping leaves the label away from the ends, and the generations.
    InnerLabelLeft,
    /// Opens, closes and verbs wait for room without an end.
    EndWaitsForRoom,
    /// A drive that holds nothing of the array but its last label is taken for what it was.
    ForeignTakenBack,
    /// Who opens does not wait for a drive that shows its mark slowly.
    SlowMarkSkipped,
    /// A mark that was there before the claim, and could not be overwritten, counts as an owner's.
    OldMarkLives,
    /// Who had a drive by the same host identity counts as shut out.
    SameHostFenced,
    /// Who takes over drives that can be reserved goes on before the other has looked at the marks: that one answers reads with what
    /// was there before.
    ReadsOutlast,
    /// A missing drive that is failed by command stays missing.
    MissingNotFailed,
    /// An owner looks at two of its marks, whoever may see others.
    TwoMarks,
    /// A strange mark on one member ends the right to write, though all others carry the own one.
    StrangeMarkObeyed,
    /// A process that is known to live is waited for as one that may be dead.
    LivingWatched,
    /// A mark on a drive that was out is waited for, though others say that its owner is gone.
    ReleasedWatched,
    /// An array that holds nothing goes on without a single member.
    NoneLeftSurvives,
    /// An open waits for a spare that does not answer.
    SpareWaitedFor,
    /// A label that cannot be written is the drive's failure.
    LabelBlamed,
    /// The first label that is found counts, whatever the others say.
    FirstLabelCounts,
    /// The log goes on in segments that another server may still write to.
    LateWritesForgotten,
    /// What a reset took of the own reservations is not taken again.
    ReservationLost,
    /// The marks of other owners are not looked at.
    MarkIgnored,
    /// A large drive gets all the zones that fit on it, whatever the slots can list.
    SlotsOutgrown,
    /// A smaller drive joins without a look at what is stored.
    SmallerUnasked,
    /// Who looks at a drive waits for its answer for as long as it takes.
    LabelsWaitedFor,
    /// Nobody looks at requests in flight before an array is open.
    RecoveryUnwatched,
    /// Opens and closes wait without an end for a drive that the array cannot do without.
    EndWaitsForSilent,
    /// A member that fails every read stays in.
    DeadStays,
    /// A member whose file was cut short is not taken for one that was emptied.
    CutShortBelieved,
    /// Drives that have left stay open.
    FormerKept,
    /// A label that a power cut left on a drive which had left stays there.
    LeftLabelStays,
    /// A drive that was replaced is listed until something else asks for a generation.
    ReplacedListed,
    /// A drive that joins waits in its seat, as a spare, for the generation that marks others out.
    JoinsAsSpare,
    /// What is not merged yet is not shown as stored.
    UnmergedNotShown,
    /// Small segments that were open at a crash stay open, and nobody appends to them.
    SmallForgotten,
    /// Small segments tolerate one drive less.
    SmallLessRedundant,
    /// A part that lets go of a drive ends its reservation, which is the other parts', too.
    PartEndsReservation,
    /// All labels of a drive get an array's new name before a flush.
    LabelsRenamedAtOnce,
    /// A part that a power cut kept from the array's new name keeps the old one.
    PartKeepsName,
}

#[cfg(feature = "canary")]
thread_local! {
    static PLANTED: Cell<Option<Canary>> = const { Cell::new(None) };
    /// By number, whether this thread asked for it.
    static REACHED: [Cell<bool>; Canary::ALL.len()] = const { [const { Cell::new(false) }; Canary::ALL.len()] };
}

/// Whether `canary` is planted in this thread.
#[cfg(feature = "canary")]
#[must_use]
pub fn planted(canary: Canary) -> bool {
    REACHED.with(|reached| reached[canary as usize].set(true));
    PLANTED.get() == Some(canary)
}

/// Whether `canary` is planted: never, without the feature.
#[cfg(not(feature = "canary"))]
#[must_use]
pub const fn planted(_: Canary) -> bool {
    false
}

/// Plants a canary in this thread, or none; the one before is gone.
#[cfg(feature = "canary")]
pub fn plant(canary: Option<Canary>) {
    PLANTED.set(canary);
}

/// The canaries whose place in the engine this thread came to since it asked last: a run that comes to none of a canary's
/// places is the same with it.
#[cfg(feature = "canary")]
#[must_use]
pub fn take_reached() -> Vec<Canary> {
    REACHED.with(|reached| Canary::ALL.iter().copied().filter(|c| reached[*c as usize].take()).collect())
}
