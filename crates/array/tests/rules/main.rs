//! The rules of the log, the generations and recovery, one by one.
//!
//! Each rule has a scenario on modelled drives in virtual time, and names the planted bugs that take it out: the
//! scenario must pass as things are, and must fail with each of them.

#![allow(clippy::unwrap_used)]

mod closed;
mod copies;
mod drives;
mod exposure;
mod generations;
mod health;
mod log;
mod long;
mod loss;
mod map;
mod moves;
mod notebook;
mod owner;
mod parts;
mod recovery;
mod returning;
mod room_below;
mod scrub;
mod service;
mod silent;
mod sizes;
mod small;
mod space;
mod taken;
mod whole;
mod whole_drives;
mod whole_finish;
mod world;

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use array::canary::{Canary, plant};

/// A scenario, and what it must notice.
fn rule(scenario: fn(), canaries: &[Canary]) {
    scenario();
    for &canary in canaries {
        plant(Some(canary));
        let noticed = catch_unwind(scenario).is_err();
        plant(None);
        assert!(noticed, "nothing was wrong with {canary:?} planted");
    }
}

macro_rules! rules {
    ($($room:ident :: $name:ident [$($canary:ident),*])+) => {
        mod rules {
            $(
                #[test]
                fn $name() {
                    super::rule(super::$room::$name, &[$(super::Canary::$canary),*]);
                }
            )+
        }

        /// Every planted bug that a rule names.
        const NOTICED: &[Canary] = &[$($(Canary::$canary,)*)+];
    };
}

rules! {
    log::flushed_and_fua_writes_survive_a_power_cut [MembersNotFlushed, FuaForgotten]
    log::a_record_waits_for_the_one_before_it [AckOutOfOrder]
    log::a_record_without_a_member_is_not_acknowledged [AckIncomplete]
    log::what_cannot_complete_is_written_elsewhere [RewriteForgotten]
    log::a_failed_member_is_out_durably_before_a_flush_is_answered [FlushBeforeMemberOut]
    log::host_and_map_entries_never_share_a_record [MixedRecords]
    log::rows_that_are_not_durable_stay_within_the_window [WindowFromAcked]

    generations::what_a_generation_relies_on_is_flushed_first [CommitBeforeFlush, OldWritesForgotten]
    generations::a_generation_is_durable_when_it_counts [SlotNotFlushed]
    generations::a_torn_generation_leaves_the_one_before [OneSlot]
    generations::a_failed_flush_in_a_commit_costs_no_generation []
    generations::only_listed_segments_are_written [UnlistedWritten]
    generations::the_last_but_one_spare_starts_a_generation [SparesLate]
    generations::a_second_writer_stops_the_first [ForeignIgnored]
    generations::a_generation_that_lands_late_is_nobodys [LateSlotForeign]
    generations::a_generation_that_lands_late_is_no_history [LateSlotForeign]
    generations::a_first_generation_that_lands_late_is_nobodys [EpochsMeet]
    generations::a_freed_zone_waits_for_its_generation [ReusedEarly]
    generations::a_zone_being_read_is_not_freed [PinsForgotten]
    generations::a_new_volume_is_seen_once_it_is_durable [VolumeSeenEarly]
    generations::what_hosts_see_of_volumes_is_numbered []
    generations::an_array_gets_another_name [LabelsRenamedAtOnce]
    generations::volume_numbers_are_never_given_out_again [VolumeIdReused]

    recovery::acknowledged_entries_are_replayed [ReplayForgotten, ReplayLate]
    recovery::a_record_of_a_newer_generation_stops_it [NewerGenerationIgnored]
    recovery::records_of_a_lost_generation_stop_it [NewerGenerationIgnored]
    recovery::a_lost_durable_header_stops_it_and_a_torn_tail_does_not [CutAtDamage, DurableRowForgotten]
    recovery::one_bad_block_hides_no_record_beside_it [SearchByBatch]
    recovery::what_was_void_stays_void [EpochForgotten, CutForgotten]
    recovery::a_late_header_of_an_older_life_is_not_believed [OlderHeaderBelieved]
    recovery::a_header_is_looked_for_in_every_copy [HeaderFromOneCopy]
    recovery::it_commits_before_it_serves [ServesUncommitted]
    recovery::torn_records_are_not_taken [TornAccepted]
    recovery::it_completes_torn_rows [MendForgotten]
    recovery::read_only_and_frozen_opens_write_nothing [ReadOnlyWrites]
    recovery::a_frozen_open_says_nothing_old [OldReadsAllowed]
    recovery::the_fifth_cut_seals [CutsUnbounded]
    recovery::two_histories_are_refused_together [DivergedBelieved, OldRivalBelieved]
    recovery::stale_members_are_not_believed [StaleBelieved]
    recovery::half_of_the_members_asks_for_degraded [HalfBelieved]
    recovery::who_was_in_alone_is_asked_by_its_records [SilentNotAsked]
    recovery::a_newcomer_is_in_when_its_first_generation_was_cut_short [NewcomerNotBelieved]
    recovery::a_label_that_cannot_be_read_costs_its_drive_at_most [LabelReadOnce]
    recovery::going_back_one_generation [NumbersTwice]
    recovery::what_is_given_up_is_on_no_spare [GivenUpStays]

    exposure::each_loss_of_a_declustered_array_is_told_apart [ExposureOverstated]
    exposure::what_may_fail_counts_down [ExposureOverstated]
    exposure::what_no_generation_names_may_not_fail [ListedUncounted]
    returning::an_old_state_is_not_current [OldStateCurrent, ChangedKept]
    returning::an_old_state_of_opens_ago_is_not_current [OldStateCurrent]
    returning::only_what_changed_is_made_anew [ChangedKept]
    returning::a_missing_member_comes_back []
    returning::one_that_failed_stays_out []
    returning::too_many_old_members_freeze_or_refuse []
    returning::what_an_open_wrote_before_a_kill_is_not_taken_back [OneGenerationAtOpen]
    returning::a_drive_that_is_back_under_load_takes_its_seat []
    returning::a_drive_that_is_gone_is_missing_whatever_it_was_asked [GoneFailed]
    returning::the_others_are_asked_before_one_is_failed [OthersUnasked]
    returning::a_column_without_a_seat_is_written_elsewhere [TooFewSeats]
    returning::a_member_that_is_blank_in_use_goes_out [SetBackUnnoticed]
    returning::a_member_that_was_cut_short_in_use_goes_out [CutShortBelieved]
    returning::a_missing_drive_that_is_failed_stays_out [MissingNotFailed]

    copies::an_older_copy_is_left_out [FirstCopyTaken]
    copies::several_older_copies_are_left_out [FirstCopyTaken]
    copies::copies_that_may_be_either_are_refused [FirstCopyTaken]
    copies::ends_that_were_overwritten_are_mended [EndsOnly]
    copies::a_forgotten_label_says_nothing [ForgottenLabelBelieved]
    copies::a_wiped_drive_is_not_known [InnerLabelLeft]
    copies::what_was_reused_is_left_alone [ForeignTakenBack]
    copies::a_file_system_is_no_member [ForgottenLabelBelieved]
    exposure::what_is_given_back_ends_the_alarm [FullForGood]
    copies::a_file_system_in_front_is_left_alone [ForgottenLabelBelieved]
    copies::what_covers_one_part_is_left_alone_by_all [OtherPartsBelieved]
    copies::a_label_that_cannot_be_written_is_done_without [LabelBlamed]
    copies::a_strange_first_label_is_outvoted [FirstLabelCounts]
    copies::a_label_of_a_spare_is_mended []
    copies::a_drive_of_another_size_is_used []

    returning::a_member_that_is_set_back_in_use_goes_out [SetBackUnnoticed]

    map::reads_see_the_table_that_is_being_merged [FrozenTableForgotten]
    map::counts_are_exact [CountsForgotten]
    map::what_is_stored_is_shown_at_once [UnmergedNotShown]
    map::growing_during_a_checkpoint_keeps_it []
    map::checkpoints_are_told []
    map::a_full_array_is_overwritten_and_emptied [MoveUnconditional, MoveAskedOnce, FloorForgotten]
    map::what_is_being_moved_is_overwritten [OvertakenMoved]
    map::a_move_that_is_given_up_overtakes_nothing [MovedAgain]
    moves::a_run_that_does_not_come_is_read_around [RunWaitedFor]
    moves::what_is_moved_is_verified [RunUnverified]
    moves::a_close_waits_for_the_cleaner [ClosedWhileCleaning]
    map::a_full_array_short_of_drives_is_overwritten []
    map::a_full_thin_array_short_of_a_drive_is_overwritten [LastRoomForgotten]
    map::emptied_segments_come_back_with_a_generation [VacatedUnasked, FreedListed]
    map::what_is_deallocated_below_a_lost_node_is_a_hole [BelowLostForgotten]
    map::a_look_up_outlives_its_trees [OldTreesBelieved]
    map::memory_holds_what_the_trees_have []
    map::a_small_memtable_is_merged_sooner []
    map::nothing_dead_is_moved [MoveUnconditional]
    map::deleting_survives_kills [DropForgotten]
    map::that_of_raid_0_is_mirrored [MapNotMirrored]
    map::a_deletion_that_comes_to_nothing_takes_nothing [LaidOverHoles]

    loss::rot_is_repaired_or_reported_never_returned [ChecksumIgnored, RepairForgotten]
    loss::a_lost_block_is_bad_for_good [BadForgotten]
    loss::what_cannot_be_read_for_a_while_is_not_lost [GivenUpAtOnce]
    loss::a_lost_leaf_keeps_no_segment [LostLeafStops]
    loss::beyond_the_redundancy_it_freezes_and_comes_back_whole [LossNotCounted]
    loss::new_writes_keep_full_redundancy [NarrowForgotten]
    loss::after_a_rebuild_another_member_may_go [RebuildEmpty]
    loss::nothing_is_written_once_it_is_closed_or_frozen [DoorsForgotten]
    recovery::a_generation_that_never_took_effect_is_no_history [OvertakenBelieved]
    map::a_mirror_with_one_drive_left_is_cleaned [PairsReckonedWhole]
    loss::a_shut_door_says_nothing_of_a_drive [DoorsBlameDrives]
    loss::one_bad_block_costs_a_rebuild_one_row [RebuildByBatch]

    small::a_lone_block_takes_a_small_row [SmallForgotten, SmallLessRedundant]

    space::thin_volumes_are_refused_when_their_map_fills_the_drives [NodesUncounted]
    space::freed_zones_are_deallocated_when_nobody_needs_them [DeallocatedInUse]

    service::a_volume_gets_what_its_limits_say [LimitsForgotten]
    service::a_quiet_volume_is_served_beside_a_loud_one [TurnKept]

    long::a_long_request_takes_no_turn_whole [TurnTakenWhole]
    long::what_is_absent_is_one_step [AbsentWalked]
    long::parts_of_a_long_request_count_in_limits [PartsUncharged]
    long::a_short_request_is_not_behind_long_ones []
    long::extents_say_what_is_there [FrozenTableForgotten]

    drives::the_most_exposed_come_first [ExposedLast]
    drives::a_drive_put_in_while_the_old_one_goes_out_takes_its_place [JoinsAsSpare]
    drives::a_rebuild_that_waits_waits_over_restarts [PauseForgotten]
    drives::what_holds_nothing_is_not_rebuilt []
    drives::a_member_leaves_when_nothing_lies_on_it [LeavesEarly]
    drives::who_has_left_is_let_go_of [FormerKept]
    drives::a_drive_that_was_replaced_is_forgotten [ReplacedListed]
    drives::a_label_that_was_left_is_wiped_at_the_next_open [LeftLabelStays]
    drives::the_old_place_stays_until_a_generation_names_the_new_one [MovedFreedEarly]
    drives::what_is_copied_is_verified [CopyUnverified]
    drives::a_member_whose_replacement_fails_stays []
    drives::nothing_new_lies_on_a_member_that_leaves [LeavingUsed]
    drives::a_member_retires_when_the_others_have_room [RetireUnasked]
    drives::a_member_that_joins_is_used []
    drives::a_map_node_is_read_where_its_column_went [OldPlacesBelieved]
    sizes::a_larger_drive_is_used_as_far_as_slots_list [SlotsOutgrown]
    sizes::an_array_grows_drive_by_drive []
    sizes::a_smaller_drive_is_asked_about [SmallerUnasked]
    sizes::what_is_reserved_is_never_read []
    drives::an_array_that_was_overwritten_makes_room_for_its_rebuild [RebuildLeftShort]
    drives::a_rebuild_without_room_is_told []
    drives::what_the_cleaner_emptied_beside_a_rebuild_is_not_forgotten [OthersCleaned]

    health::three_write_errors_put_a_member_out [OneErrorPutsOut]
    health::errors_are_forgotten []
    health::a_member_that_does_not_answer_goes_out [LateStays]
    health::nobody_goes_out_beyond_the_redundancy [LateBeyondRedundancy, ErrorsBeyondRedundancy]
    health::when_all_are_late_it_goes_on []
    health::read_errors_make_suspect []
    health::a_member_that_reads_nothing_goes_out [DeadStays]
    health::a_drive_comes_back_idle [BusyReturns]
    health::a_slow_drive_does_not_set_the_tail [HedgeForgotten]
    health::a_slow_drive_does_not_set_the_tail_of_long_reads [LateRunsWaitedFor]
    health::who_was_slow_is_asked_again [SlowNotAsked]
    health::what_is_read_around_is_verified [HedgeUnverified]

    health::a_standstill_blames_nobody [StandstillBlamed]
    health::who_is_late_beside_others_is_waited_for [LateApart]

    silent::a_drive_that_hangs_holds_up_no_open [LabelsWaitedFor]
    silent::a_drive_that_hangs_in_recovery_goes_out [RecoveryUnwatched]
    silent::a_spare_that_hangs_holds_up_no_open [SpareWaitedFor]
    silent::it_goes_out_where_nothing_is_written_too [RecoveryUnwatched]
    silent::an_open_that_cannot_do_without_them_is_refused [EndWaitsForSilent]
    silent::a_close_does_not_wait_for_ever [EndWaitsForSilent]
    silent::a_close_that_gave_up_releases_nothing [LateWriteReleased]
    silent::an_open_that_gave_up_releases_nothing [LateWriteReleased]
    silent::what_waits_while_it_closes_is_refused [LaidOverHoles]

    room_below::writes_wait_for_room [NoRoomBlamed, HostsWaitForRoom]
    room_below::what_waits_for_room_is_not_acknowledged [NoRoomAcked]
    room_below::what_is_refused_comes_before_what_is_given_back [LockedPassedBy]
    room_below::what_lands_while_the_map_is_asked_comes_before [LockedPassedBy]
    room_below::no_room_holds_up_no_end [EndWaitsForRoom]
    room_below::who_has_no_room_can_be_failed []
    room_below::verbs_are_answered_without_room [EndWaitsForRoom]
    owner::a_conflict_is_no_error_of_a_drive [ConflictCounted]
    owner::a_drive_that_forgets_is_reserved_again [ReservationLost]
    owner::what_is_in_use_is_refused [MarkIgnored]
    owner::what_nobody_has_is_opened_at_once []
    owner::who_is_taken_over_stops [MarkIgnored]
    owner::who_stood_still_looks_before_it_writes [MarkIgnored]
    owner::what_was_asked_before_a_standstill_is_not_acknowledged [StaleAcked]
    taken::what_landed_before_a_preemption_is_there []
    taken::who_is_taken_over_reads_nothing_old [ReadsOutlast]
    owner::whoever_sees_fewer_drives_finds_a_mark [TwoMarks]
    owner::a_drive_that_cannot_be_marked_keeps_nobody_out [OldMarkLives]
    owner::a_drive_that_is_back_carries_the_owners_mark []
    owner::the_same_host_identity_is_not_shut_out [SameHostFenced]
    owner::slow_marks_are_waited_for [SlowMarkSkipped]
    owner::an_older_image_of_a_member_is_no_server [StrangeMarkObeyed]
    owner::a_process_that_lives_is_not_waited_for [LivingWatched]
    closed::what_was_released_is_not_waited_for [ReleasedWatched]
    closed::an_empty_array_needs_a_member [NoneLeftSurvives]
    owner::what_was_sent_before_may_land_late [LateWritesForgotten]
    owner::of_two_that_open_at_once_one_has_it [MarkIgnored]
    owner::marks_of_all_parts_are_released []
    owner::a_drive_that_leaves_a_part_stays_reserved_for_the_others [PartEndsReservation]
    owner::marks_that_cannot_be_kept_stop_nobody []

    scrub::it_finds_and_repairs_what_rots [ScrubBlocksSkipped, ScrubParitySkipped, ScrubSystemSkipped]
    scrub::it_leaves_rows_in_flight_alone [ScrubBeyondAcked]
    scrub::a_place_that_does_not_hold_is_emptied [ScrubBelievesWrites]
    scrub::what_is_given_back_meanwhile_is_no_finding [GivenBackNotHeld]
    scrub::it_goes_on_after_a_restart [ScrubForgetsPosition]
    scrub::what_it_cannot_repair_is_bad_for_good [ScrubLossForgotten]
    scrub::it_runs_when_it_is_due []
    scrub::a_start_in_the_future_is_none [ScrubAwaitsWrongDate]
    scrub::one_that_is_overdue_is_told []
    scrub::a_rate_that_is_too_low_is_told []

    notebook::what_is_noted_survives_a_power_cut [NotebookUnflushed]
    notebook::a_hundred_thousand_records_are_kept []
    notebook::an_upgrade_is_all_or_nothing []
    notebook::a_notebook_is_no_volume_of_hosts []
    notebook::what_could_not_be_noted_comes_first []
    notebook::an_array_of_a_newer_program_is_refused_as_such [FeatureIgnored]
    notebook::a_generation_of_a_newer_program_is_not_overwritten [FeatureIgnored]

    whole::volumes_are_in_all_parts_or_none [FirstPartFirst, LeftInParts]
    whole::what_is_missing_in_a_part_is_missing_in_all [GoneFailed]
    whole::parts_are_one_array []
    whole::a_volume_that_a_close_overtakes_is_in_all_parts_or_none [TakenBackUnasked]
    whole::a_part_that_lacks_a_volume_is_refused []
    whole::the_first_part_names_an_array [PartKeepsName]
    whole_drives::drives_are_the_same_in_all_parts []
    whole_drives::a_join_that_stopped_half_way_is_finished_by_the_same_command []
    whole_drives::a_replacement_stands_by_where_its_place_is_taken []
    whole_drives::a_spare_that_went_out_in_a_part_is_replaced []
    whole_drives::a_seat_is_one_drive []
    whole_drives::who_has_left_the_first_part_leaves []
    whole_drives::a_wipe_that_ends_half_way_costs_no_other_part [FirstLabelWipedFirst]
    whole_finish::what_a_crash_stopped_between_parts_is_finished [PartsUnfinished]
    whole_drives::a_loss_is_shared_by_all_parts [LossKeptToPart]
    whole_drives::drives_join_parts_on_other_threads []
    parts::every_part_comes_back []
    parts::a_check_is_of_every_part []
    parts::damaged_labels_hide_nothing []
    parts::a_wipe_is_interrupted_anywhere []
    parts::a_part_is_no_whole_array []
    parts::a_part_that_is_refused_is_named []
    parts::a_drive_takes_part_where_it_has_joined []
    parts::what_cannot_be_made_writes_nothing []
    parts::a_create_is_interrupted_anywhere []
}

#[test]
fn every_canary_is_noticed_by_a_rule() {
    let noticed: BTreeSet<Canary> = NOTICED.iter().copied().collect();
    let missing: Vec<&Canary> = Canary::ALL.iter().filter(|c| !noticed.contains(c)).collect();
    assert!(missing.is_empty(), "no rule names {missing:?}");
}
