//! A real Kubernetes: the chart is installed, pods are injected and run, and what they tell is looked at.
//!
//! One node serves all tests, which run one after another, each on what the ones before it left. So this target has its own
//! `main`, which prints what libtest would.

mod control;
mod harness;
mod injection;
mod installed;
mod isolation;
mod privileges;
mod story;
mod termination;

use std::process::ExitCode;

use harness::{Chosen, Group};
use installed::Installed;

fn main() -> ExitCode {
    let chosen = Chosen::from_arguments(std::env::args().skip(1));
    let pods = Group {
        name: "pods",
        tests: &[
            ("pods_come_out_as_the_command_makes_them", injection::pods_come_out_as_the_command_makes_them),
            ("events_are_on_the_owner", injection::events_are_on_the_owner),
            (
                "kubelet_gives_the_rendered_security_context_and_no_more",
                privileges::kubelet_gives_the_rendered_security_context_and_no_more,
            ),
            ("kills_of_slow_readers_are_told_as_false", story::kills_of_slow_readers_are_told_as_false),
            ("a_false_kill_is_an_event_on_the_pod", story::a_false_kill_is_an_event_on_the_pod),
            (
                "kill_of_a_client_that_was_cut_off_is_justified",
                story::kill_of_a_client_that_was_cut_off_is_justified,
            ),
            ("traffic_of_the_application_is_untouched", story::traffic_of_the_application_is_untouched),
            (
                "a_restart_of_the_api_server_changes_nothing",
                control::a_restart_of_the_api_server_changes_nothing,
            ),
            ("two_pods_never_see_each_others_sockets", isolation::two_pods_never_see_each_others_sockets),
            ("a_missing_capability_is_named", privileges::a_missing_capability_is_named),
            ("sock_diag_needs_no_privilege", privileges::sock_diag_needs_no_privilege),
            (
                "closes_of_a_deleted_pod_are_marked_and_told_in_time",
                termination::closes_of_a_deleted_pod_are_marked_and_told_in_time,
            ),
            (
                "certificates_rotate_without_a_failed_admission",
                control::certificates_rotate_without_a_failed_admission,
            ),
            ("each_right_of_the_injector_is_needed", control::each_right_of_the_injector_is_needed),
        ],
    };
    harness::run(&chosen, &pods, Installed::start)
}
