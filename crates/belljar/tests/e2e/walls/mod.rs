//! The built program behind each wall: the same tools, the same answers.
//!
//! `scripts/walls start NAME` brings up what a wall needs and writes down how the program is told of it. A wall that is not up is
//! left out with a word on stderr; with CI=true in the environment that is a failure.

mod doctor;
mod limits;
mod outward;
mod packages;
mod runs;
mod templates;
mod wall;

use wall::Wall;

/// The tests of one wall. A new one is a line below.
macro_rules! at_the_walls {
    ($($wall:ident)*) => {
        $(mod $wall {
            use super::*;

            at_the_walls! { @ stringify!($wall),
                runs::every_language_runs
                runs::what_it_lacks_is_said
                runs::variables_and_files_stay
                runs::commands_run
                limits::a_timeout_is_told
                limits::memory_is_held
                limits::a_client_that_hangs_up_leaves_nothing
                packages::packages_are_there
                outward::a_granted_host_is_reached_and_no_other
                outward::programs_call_tools
                templates::a_template_has_this_wall_beside_another
                templates::an_image_is_a_template
                doctor::doctor_tells_of_it
                doctor::the_command_line_runs_a_program
            }
        })*

        /// Each wall that a server can be started with is here, by its own name.
        #[test]
        fn no_wall_is_left_out() {
            let here = [$(stringify!($wall)),*];
            for choice in belljar_backends::Choice::ALL {
                assert!(here.contains(&choice.name()), "{choice} has no tests through the built program");
            }
        }
    };
    (@ $name:expr, $($file:ident::$test:ident)*) => {
        $(#[test]
        fn $test() {
            if let Some(wall) = Wall::find($name) {
                super::$file::$test(&wall);
            }
        })*
    };
}

at_the_walls! { native docker podman gvisor microvm wasm }
