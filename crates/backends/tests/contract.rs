//! The contract suite on each backend of the registry.

use std::sync::Arc;

use belljar_backends::{Choice, Host, choose};
use belljar_core::Backend;
use belljar_testkit::contract;

fn native() -> Arc<dyn Backend> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    choose(Choice::Native, &Host { path, home: std::env::var_os("HOME").map(Into::into) })
}

macro_rules! contract {
    ($($check:ident)*) => {
        mod native {
            $(
                #[tokio::test]
                async fn $check() {
                    super::contract::$check(&*super::native()).await;
                }
            )*
        }
    };
}

contract! {
    languages_run
    streams_are_kept_apart
    a_signal_is_told
    files_stay_in_their_sandbox
    nothing_outlives_its_program
    a_stopped_program_is_gone
    a_dropped_program_is_gone
    memory_is_held
    the_disk_is_held
    programs_overlap
    a_missing_directory_is_told
    a_kernel_remembers
    an_interrupt_keeps_the_kernel
    a_dead_kernel_is_told
    changed_files_are_told
}
