//! The suite that every Standpipe transport passes, over the engine's node.
//!
//! A transport's author implements [`Cluster`] and writes one line in a test file:
//!
//! ```text
//! conformance::conformance_tests!(|size| MyCluster::new(size));
//! ```
//!
//! which makes one `#[test]` a case. [`cases()`] serves those who want the cases at run time, for many seeds
//! say. What a transport does not offer (one-sided copies, atomics, ranks that return) and what the platform
//! does not have (inaccessible pages) is skipped aloud; everything else must hold.
//!
//! The simulator runs it for many seeds, and over transports that leave out all that one may
//! (`sim/tests/conformance.rs`).
#![forbid(unsafe_code)]

mod bench;
pub mod cluster;

mod cases {
    pub(crate) mod atomics;
    pub(crate) mod barriers;
    pub(crate) mod collectives;
    pub(crate) mod copies;
    pub(crate) mod counting;
    pub(crate) mod endings;
    pub(crate) mod exposures;
    pub(crate) mod faults;
    pub(crate) mod grant_atomics;
    pub(crate) mod grants;
    pub(crate) mod losses;
    pub(crate) mod messages;
    pub(crate) mod pins;
    pub(crate) mod returns;
    pub(crate) mod signals;
    pub(crate) mod stages;
    pub(crate) mod teams;
}

pub use bench::Make;
pub use cluster::Cluster;

/// One case: it panics when the transport does not behave.
pub type Case<C> = fn(Make<'_, C>);

/// Declares every case once: as a function of this crate, in [`cases()`], and in [`conformance_tests`].
macro_rules! declare {
    ($d:tt $($module:ident: $($case:ident)*;)*) => {
        $($(
            #[doc = concat!("The case `", stringify!($case), "`.")]
            pub fn $case<C: Cluster>(make: Make<'_, C>) {
                cases::$module::$case(make)
            }
        )*)*

        /// Every case with its name.
        pub fn cases<C: Cluster>() -> Vec<(&'static str, Case<C>)> {
            vec![$($((stringify!($case), $case::<C> as Case<C>)),*),*]
        }

        /// Makes one `#[test]` a case, over clusters from an expression that is a function of their size.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d make:expr) => {
                $($(
                    #[test]
                    fn $case() {
                        $d crate::$case(&mut $d make);
                    }
                )*)*
            };
        }
    };
}

declare! { $
    copies:
        transfers_of_every_size_between_all_kinds_of_memory
        scatter_lists_of_mixed_pieces
        an_empty_list_is_a_transfer
        many_transfers_at_once
        bulk_in_both_directions_at_once
        transfers_to_oneself
        a_locally_done_put_has_left_its_buffer;
    faults:
        a_remote_fault_is_named_and_survived
        an_offset_beyond_the_heap_is_a_fault
        a_fault_amid_a_list_is_named
        read_only_memory_is_got_but_not_put
        a_local_fault_is_named_and_survived
        an_atomic_outside_memory_is_a_fault;
    stages:
        long_transfers_go_through_stages
        a_fault_amid_a_long_transfer_is_named
        long_transfers_that_are_cut_short_give_their_stages_back
        the_stages_of_one_that_is_lost_are_others
        many_long_transfers_share_the_stages;
    exposures:
        only_what_is_exposed_is_reached
        a_transfer_ends_where_the_exposed_range_does
        a_put_that_is_refused_signals_nothing
        collectives_need_no_exposure;
    grants:
        what_is_granted_is_reached_by_name
        a_name_that_is_revoked_reaches_nothing
        memory_that_is_idle_is_reached_by_newer_names_alone
        grants_are_for_those_who_are_named
        lists_mix_grants_with_other_memory
        puts_into_grants_signal_and_tell
        a_grant_that_is_repointed_names_other_memory
        granted_memory_that_is_not_there_is_a_fault_of_its_owners;
    grant_atomics:
        words_of_grants_become_what_their_types_make_of_them
        each_atomic_on_a_granted_word_is_done_once
        atomics_need_the_rights_to_what_they_do
        no_word_changes_that_is_not_wholly_in_a_grant_that_stands
        an_operation_that_a_type_lacks_is_refused_in_grants
        an_atomic_changes_what_the_name_stands_for_when_it_is_done
        an_atomic_in_a_grant_that_is_given_up_settles
        signals_in_grants_follow_the_bytes
        a_granted_word_that_is_not_there_is_a_fault_of_its_owners;
    pins:
        what_is_pinned_stays_registered_until_it_is_not_pinned
        what_finds_no_room_beside_pins_goes_by_message
        changed_memory_is_pinned_no_more;
    atomics:
        additions_add_up
        one_swap_wins
        loads_and_stores_are_whole_and_in_one_order
        atomics_answer_the_old_word
        every_atomic_on_every_type_of_word
        atomics_of_several_ranks_are_each_applied_once
        floats_of_several_ranks_add_up
        an_operation_that_a_type_lacks_is_refused_here;
    signals:
        a_counter_changes_after_the_bytes
        signals_of_several_ranks_add_up
        a_put_that_fails_signals_nothing
        a_signal_to_one_that_is_lost_ends;
    messages:
        messages_of_every_kind_arrive_whole
        long_messages_find_their_payload_in_place
        requests_are_replied_to
        messages_to_oneself
        a_flood_of_requests_is_replied_to
        messages_stay_in_order
        a_full_lane_waits_for_its_receiver
        floods_and_bulk_share_the_lanes
        a_message_to_no_handler_is_refused_and_its_sender_told
        handlers_come_and_go_and_are_asked_for
        failures_are_told_to_those_whose_they_are;
    barriers:
        nobody_passes_a_barrier_early
        a_barrier_without_a_rank_times_out_and_goes_on
        a_barrier_that_all_reached_opens_despite_a_loss
        a_barrier_with_a_lost_rank_ends_everywhere;
    collectives:
        rooted_collectives_do_what_they_say
        everyone_gets_from_all
        reductions_combine_in_the_order_of_members
        the_same_memory_is_gathered_again
        many_collectives_under_way_at_once;
    teams:
        teams_split_and_nest
        named_teams_are_made_by_whoever_comes_first
        near_ranks_have_a_team_of_their_own
        whoever_is_ahead_waits_for_the_others
        members_that_call_differently_are_told
        a_collective_that_is_given_up_ends_its_team
        what_one_that_gives_up_took_away_is_no_fault
        a_lost_member_ends_its_teams_and_no_others
        a_member_is_lost_amid_a_collective
        a_member_that_is_lost_after_its_part_harms_nobody
        whoever_waits_for_one_without_the_team_is_told;
    endings:
        a_late_answer_touches_no_buffer
        a_cancelled_operation_touches_no_buffer
        what_was_given_up_settles_before_the_node_is_quiet
        deadlines_are_told_in_turn
        a_deadline_that_was_met_ends_nothing
        detached_operations_report_their_failure
        watched_operations_are_told_of_once
        outcomes_are_taken_once
        peers_are_told_apart;
    losses:
        a_loss_amid_transfers_ends_those_with_the_lost
        nothing_starts_with_the_lost
        the_others_go_on;
    returns:
        nothing_of_the_old_process_reaches_or_leaves_the_new
        a_rank_that_returns_is_a_peer_like_any_other;
    counting:
        everything_is_counted;
}
