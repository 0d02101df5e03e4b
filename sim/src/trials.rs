//! The trials: what is tried on copies of the drives before a round, so that the world itself goes on unharmed.

use crate::kind::Kind;
use crate::model::Mode;
use crate::report::Report;
use crate::volumes::Volumes;
use crate::world::World;
use crate::{
    back, below, beyond, drives, exposed, full, health, late, lives, lone, noted, older, own, probes, scrubs, service,
    two,
};

/// What a trial starts from.
struct Scene<'a> {
    world: &'a mut World,
    volumes: &'a Volumes,
    mode: Mode,
    report: &'a mut Report,
}

/// What the array must have for a trial to mean something.
enum Needs {
    Nothing,
    /// No rotten drive: beside one, what is lost could not be told from what must be there.
    Sound,
    /// A level with redundancy, and no rotten drive.
    Redundancy,
    /// A level that survives two losses, and no rotten drive.
    TwoLosses,
    /// A level with redundancy; rotten drives are no hindrance.
    RedundancyDespiteRot,
}

impl Needs {
    fn are_met(&self, world: &World) -> bool {
        let (sound, tolerates) = (world.plan.rotten == 0, world.plan.tolerates());
        match self {
            Needs::Nothing => true,
            Needs::Sound => sound,
            Needs::Redundancy => sound && tolerates > 0,
            Needs::TwoLosses => sound && tolerates > 1,
            Needs::RedundancyDespiteRot => tolerates > 0,
        }
    }
}

struct Trial {
    kind: Kind,
    needs: Needs,
    /// It is tried before one round in so many.
    one_in: u32,
    run: fn(&mut Scene<'_>) -> Result<(), String>,
}

const fn trial(kind: Kind, needs: Needs, one_in: u32, run: fn(&mut Scene<'_>) -> Result<(), String>) -> Trial {
    Trial { kind, needs, one_in, run }
}

/// All of them, in the order in which they are tried.
const TRIALS: &[Trial] = &[
    trial(Kind::RotBeyond, Needs::Sound, 3, |s| beyond::rot(s.world, s.volumes, s.report, false)),
    trial(Kind::RotInRebuild, Needs::Redundancy, 3, |s| beyond::rot(s.world, s.volumes, s.report, true)),
    trial(Kind::ManyLives, Needs::Nothing, 8, |s| lives::many(s.world, s.volumes, s.mode)),
    trial(Kind::CutAfterLoss, Needs::Redundancy, 3, |s| lives::cut_after_loss(s.world, s.volumes, s.mode)),
    trial(Kind::HalfAGeneration, Needs::Sound, 2, |s| {
        lives::half_a_generation(s.world, s.volumes, s.mode)?;
        lives::newcomer(s.world, s.volumes, s.mode)
    }),
    trial(Kind::LateGeneration, Needs::Sound, 4, |s| late::generation(s.world)),
    trial(Kind::WorkAfterLoss, Needs::Redundancy, 3, |s| lives::work_after_loss(s.world, s.volumes, s.mode)),
    trial(Kind::SlowReaders, Needs::Sound, 4, |s| lives::slow_readers(s.world, s.volumes, s.mode)),
    trial(Kind::RotHeals, Needs::Redundancy, 2, |s| lives::rot_heals(s.world, s.volumes, s.mode)),
    trial(Kind::VolumesAnew, Needs::Nothing, 4, |s| lives::volumes_anew(s.world, s.volumes, s.mode)),
    trial(Kind::DeletionCut, Needs::Redundancy, 3, |s| lives::deletion_cut(s.world, s.volumes, s.mode)),
    trial(Kind::CutAfterKill, Needs::Sound, 3, |s| probes::cut_after_kill(s.world, s.volumes, s.mode)),
    trial(Kind::LossBeyond, Needs::Sound, 4, |s| beyond::loss(s.world, s.volumes, s.mode)),
    trial(Kind::TooFew, Needs::Sound, 3, |s| probes::too_few(s.world, s.volumes, s.mode)),
    trial(Kind::DurableHeaderLost, Needs::Sound, 2, |s| beyond::durable_header(s.world, s.volumes)),
    trial(Kind::GenerationLost, Needs::Sound, 3, |s| beyond::generation(s.world, s.volumes, s.mode, s.report)),
    trial(Kind::LossInReplace, Needs::Redundancy, 2, |s| probes::loss_in_replace(s.world, s.volumes, s.mode)),
    trial(Kind::CloseInRebuild, Needs::Redundancy, 3, |s| probes::close_in_rebuild(s.world, s.volumes, s.mode)),
    trial(Kind::LossAfterLoss, Needs::Redundancy, 2, |s| probes::loss_after_loss(s.world, s.volumes)),
    trial(Kind::ReadOnlyOpen, Needs::Nothing, 5, |s| probes::read_only(s.world, s.volumes, s.mode)),
    trial(Kind::ForeignDrive, Needs::Nothing, 4, |s| probes::foreign_drive(s.world)),
    trial(Kind::Diverged, Needs::Redundancy, 2, |s| probes::diverged(s.world)),
    trial(Kind::SecondProcess, Needs::Nothing, 4, |s| probes::second_process(s.world, s.volumes, s.mode)),
    trial(Kind::VolumeLimited, Needs::Nothing, 6, |s| service::limits(s.world, s.volumes, s.mode)),
    trial(Kind::WentBack, Needs::Sound, 3, |s| back::one_generation(s.world, s.volumes, s.report)),
    trial(Kind::LoudNeighbour, Needs::Nothing, 12, |s| service::neighbours(s.world, s.volumes, s.mode)),
    trial(Kind::RebuildPaced, Needs::Redundancy, 7, |s| drives::change(s.world, s.volumes, s.mode, Kind::RebuildPaced)),
    trial(Kind::LossInRebuild, Needs::TwoLosses, 2, |s| {
        drives::change(s.world, s.volumes, s.mode, Kind::LossInRebuild)
    }),
    trial(Kind::EndInRebuild, Needs::Redundancy, 4, |s| drives::change(s.world, s.volumes, s.mode, Kind::EndInRebuild)),
    trial(Kind::DriveCopied, Needs::Sound, 5, |s| drives::change(s.world, s.volumes, s.mode, Kind::DriveCopied)),
    trial(Kind::OldDies, Needs::Redundancy, 4, |s| drives::change(s.world, s.volumes, s.mode, Kind::OldDies)),
    trial(Kind::RotInCopy, Needs::Redundancy, 4, |s| drives::change(s.world, s.volumes, s.mode, Kind::RotInCopy)),
    trial(Kind::DriveRetired, Needs::Sound, 3, |s| drives::change(s.world, s.volumes, s.mode, Kind::DriveRetired)),
    trial(Kind::DriveGrown, Needs::Sound, 10, |s| drives::change(s.world, s.volumes, s.mode, Kind::DriveGrown)),
    trial(Kind::PlacesGo, Needs::Redundancy, 4, |s| own::places_go(s.world)),
    trial(Kind::LastSilent, Needs::Redundancy, 5, |s| own::last_one_silent(s.world, s.report)),
    trial(Kind::CleanedLives, Needs::Nothing, 30, |s| full::cleaned_lives(s.world)),
    trial(Kind::FullAndShort, Needs::Nothing, 40, |s| full::full_and_short(s.world)),
    trial(Kind::GivenBack, Needs::Nothing, 12, |s| own::given_back(s.world)),
    trial(Kind::ThinFilled, Needs::Nothing, 30, |s| full::thin_filled(s.world)),
    trial(Kind::NodeLost, Needs::Nothing, 24, |s| lone::lost_node(s.world)),
    trial(Kind::ReadsPause, Needs::Nothing, 12, |s| lone::reads_fail(s.world)),
    trial(Kind::SlowLookUps, Needs::Nothing, 12, |s| lone::slow_look_ups(s.world)),
    trial(Kind::GapAndBadBlock, Needs::Nothing, 8, |s| lone::bad_block_behind_a_gap(s.world)),
    trial(Kind::Hung, Needs::Redundancy, 7, |s| health::hung(s.world, s.volumes, s.mode)),
    trial(Kind::AllLate, Needs::Sound, 4, |s| health::all_late(s.world, s.volumes, s.mode)),
    trial(Kind::WriteErrorsPass, Needs::Redundancy, 3, |s| health::errors(s.world, s.volumes, s.mode)),
    trial(Kind::ComesBackBusy, Needs::Redundancy, 3, |s| health::comes_back_idle(s.world, s.volumes, s.mode)),
    trial(Kind::ReadAround, Needs::Redundancy, 2, |s| health::read_around(s.world, s.volumes, s.mode)),
    trial(Kind::ScrubFinds, Needs::RedundancyDespiteRot, 5, |s| scrubs::finds(s.world, s.volumes, s.mode)),
    trial(Kind::ScrubUnderLoad, Needs::Sound, 8, |s| scrubs::under_load(s.world, s.volumes, s.mode)),
    trial(Kind::ScrubLoses, Needs::Sound, 2, |s| scrubs::loses(s.world, s.volumes)),
    trial(Kind::ScrubResumes, Needs::Nothing, 3, |s| scrubs::resumes(s.world)),
    trial(Kind::SetBack, Needs::Redundancy, 2, |s| older::set_back(s.world, s.volumes, s.mode)),
    trial(Kind::SetBackBeyond, Needs::Sound, 4, |s| older::beyond(s.world, s.volumes, s.mode)),
    trial(Kind::OlderCopies, Needs::Sound, 3, |s| older::copies(s.world, s.volumes, s.mode)),
    trial(Kind::SetBackInUse, Needs::Redundancy, 3, |s| older::in_use(s.world, s.volumes, s.mode)),
    trial(Kind::EndsOverwritten, Needs::Sound, 4, |s| older::ends(s.world, s.volumes, s.mode)),
    trial(Kind::AnyMayFail, Needs::Sound, 3, |s| exposed::any_may_fail(s.world, s.volumes, s.mode)),
    trial(Kind::NoRoom, Needs::Sound, 3, |s| below::no_room(s.world, s.volumes, s.mode)),
    trial(Kind::Standstill, Needs::Sound, 3, |s| below::standstill(s.world, s.volumes, s.mode)),
    trial(Kind::TwoServers, Needs::Nothing, 6, |s| two::servers(s.world, s.report)),
    trial(Kind::Noted, Needs::Sound, 4, |s| noted::lives(s.world, s.volumes, s.mode)),
];

/// Perhaps some of them.
pub fn try_some(world: &mut World, volumes: &Volumes, mode: Mode, report: &mut Report) -> Result<(), String> {
    for trial in TRIALS {
        if !trial.needs.are_met(world) || !world.chance(trial.kind, trial.one_in) {
            continue;
        }
        let mut scene = Scene { world, volumes, mode, report };
        (trial.run)(&mut scene).map_err(|e| format!("{:?}: {e}", trial.kind))?;
    }
    older::remember(world);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_trial_is_there_twice() {
        let mut kinds: Vec<Kind> = TRIALS.iter().map(|t| t.kind).collect();
        kinds.sort_unstable();
        let all = kinds.len();
        kinds.dedup();
        assert_eq!(kinds.len(), all);
    }
}
