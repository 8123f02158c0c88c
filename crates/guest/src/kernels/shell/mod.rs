//! Shell: `bash -c`, or `sh -c` where there is no bash.

use super::{Driver, Invocation, fits_an_argument};

/// Code too large for an argument. The words are expanded before the redirection closes the descriptor, so that the
/// code itself runs without it. `cat`, since `$(<file)` is bash's alone.
const LARGE: &str = r#"eval "$(cat <&3)" 3<&-"#;

/// For bash, and where there is none a simpler one for any POSIX shell. The last argument is the name that messages of the
/// shell's own begin with.
pub(super) fn driver(interpreter: &str) -> Driver {
    if interpreter == "bash" {
        let library = concat!(include_str!("bash.sh"), "\x01", include_str!("bash-live.sh"));
        return Driver { arguments: vec!["-c", include_str!("bash-boot.sh"), "bash"], library: library.to_owned() };
    }
    let library = include_str!("sh.sh").to_owned();
    Driver { arguments: vec!["-c", include_str!("sh-boot.sh"), "sh"], library }
}

pub(super) fn invocation(interpreter: &'static str, code: String) -> Invocation {
    let (line, code) = if fits_an_argument(&code) { (code, None) } else { (LARGE.to_owned(), Some(code)) };
    // `--`: code that begins with a dash would be taken for an option. The bare name is what error messages begin with.
    let arguments = vec!["-c".to_owned(), "--".to_owned(), line];
    Invocation { name: Some(interpreter), arguments, code }
}
