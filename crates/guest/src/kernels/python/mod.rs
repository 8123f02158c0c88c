//! Python: as a program, a driver of a few lines reads the code from a descriptor and runs it as `__main__`; as a kernel,
//! the larger one beside it runs cells; as a zygote, that one waits in an interpreter that has loaded what its environment
//! has, to be forked into sandboxes, or to be copied with a machine.
//!
//! `-c` with the code itself would need no driver, but then a traceback has no source lines before Python 3.13.

use super::{Driver, Invocation};

const ONCE: &str = include_str!("once.py");

/// Handed to the driver as text, and compiled only when it is needed.
const FAILED: &str = include_str!("failed.py");

/// The same: the names that call tools.
const CALLED: &str = include_str!("called.py");

/// As zygote.py reads it.
const COPIED: &str = "copied";

const BOOT: &str = include_str!("boot.py");

/// The parts of the kernel's driver, by the names that they call each other by.
const PARTS: [(&str, &str); 19] = [
    ("core", include_str!("core.py")),
    ("kernel", include_str!("kernel.py")),
    ("live", include_str!("live.py")),
    ("packages", include_str!("packages.py")),
    ("errors", include_str!("errors.py")),
    ("values", include_str!("values.py")),
    ("source", include_str!("source.py")),
    ("last", include_str!("last.py")),
    ("loop", include_str!("loop.py")),
    ("settings", include_str!("settings.py")),
    ("streams", include_str!("streams.py")),
    ("insist", include_str!("insist.py")),
    ("tables", include_str!("tables.py")),
    ("pictures", include_str!("pictures.py")),
    ("figures", include_str!("figures.py")),
    ("charts", include_str!("charts.py")),
    ("magics", include_str!("magics.py")),
    ("ipython", include_str!("ipython.py")),
    ("called", CALLED),
];

/// What a zygote has besides. The first is here since a fork may have to be started after all.
const ZYGOTE_PARTS: [(&str, &str); 8] = [
    ("boot", BOOT),
    ("zygote", include_str!("zygote.py")),
    ("watch", include_str!("watch.py")),
    ("preload", include_str!("preload.py")),
    ("warm", include_str!("warm.py")),
    ("forked", include_str!("forked.py")),
    ("resident", include_str!("resident.py")),
    ("copied", include_str!("copied.py")),
];

pub(super) fn driver() -> Driver {
    assembled(&PARTS)
}

/// The same, with one more argument to come: the path of the native module that forks.
pub(super) fn zygote() -> Driver {
    assembled(&[PARTS.as_slice(), &ZYGOTE_PARTS].concat())
}

/// A zygote that nothing is forked from: instead of such a module it is given a word, and becomes the kernel itself.
pub(super) fn copied() -> Driver {
    let mut driver = zygote();
    driver.arguments.push(COPIED);
    driver
}

/// Each part after a NUL and its name on a line of its own. Only the first is compiled at every start.
fn assembled(parts: &[(&str, &str)]) -> Driver {
    let library = parts.iter().map(|(name, text)| format!("\0{name}\n{text}")).collect();
    // Not `-u`: the driver has its streams written line by line. `-s`: it also sees to the packages, which are where users
    // have theirs, since Python itself does not for virtual environments.
    Driver { arguments: vec!["-s", "-X", "utf8", "-c", BOOT], library }
}

pub(super) fn invocation(code: String) -> Invocation {
    // `-u`, since what was printed before a kill must not be lost in a buffer; it costs a system call for each part of a
    // line.
    let arguments = ["-u", "-X", "utf8", "-c", ONCE, FAILED, CALLED];
    Invocation { name: None, arguments: arguments.map(String::from).to_vec(), code: Some(code) }
}

#[cfg(test)]
mod tests {
    use belljar_core::PackageKind;

    use super::{COPIED, ONCE, PARTS, ZYGOTE_PARTS};

    #[test]
    fn the_zygote_knows_the_word_of_one_that_is_copied() {
        let (_, zygote) = ZYGOTE_PARTS[1];
        assert!(zygote.contains(&format!("sys.argv[1] == \"{COPIED}\"")));
    }

    #[test]
    fn packages_are_looked_for_where_a_layer_is_put() {
        let place = format!("\"{}", PackageKind::Python.inside());
        let (_, core) = PARTS[0];
        for text in [core, ONCE, include_str!("../../ask/sitecustomize.py")] {
            assert!(text.contains(&place));
        }
    }

    #[test]
    fn no_part_of_the_driver_is_left_out() {
        let alone = ["once", "failed"];
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernels/python")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(name) = name.strip_suffix(".py") {
                let known = PARTS.iter().chain(&ZYGOTE_PARTS).any(|(part, _)| *part == name);
                assert!(known || alone.contains(&name), "{name}.py");
            }
        }
    }
}
