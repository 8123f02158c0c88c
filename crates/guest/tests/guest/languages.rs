//! What code of each language sees, and what is seen of it.

use belljar_core::Exit;
use belljar_core::wire::ToGuest;

use crate::harness::{Guest, Place, Told, guest, guest_with_python, javascript, python, shell};

#[test]
fn hello_in_every_language_with_input() {
    let Some(mut guest) = guest() else { return };
    for source in [
        python("print('hello', input())"),
        javascript("console.log('hello', require('fs').readFileSync(0, 'utf8').trim())"),
        shell("read name; echo hello $name"),
    ] {
        let run = guest.run(source.clone(), b"world\n");
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("hello world\n", ""), "{source:?}");
        assert_eq!(run.exit, Exit::Code(0));
        assert!(run.finish.usage.memory_peak_bytes > 100_000, "{:?}", run.finish.usage);
    }
}

#[test]
fn a_python_traceback_shows_the_code_and_nothing_of_ours() {
    let Some(mut guest) = guest() else { return };
    let run = guest.python("import os\ndef f(x):\n    return 1 // x\nprint('before')\nf(0)\n");
    assert_eq!((run.stdout.as_str(), run.exit), ("before\n", Exit::Code(1)));
    let lines: Vec<&str> = run.stderr.lines().filter(|line| !line.trim_matches(['^', '~', ' ']).is_empty()).collect();
    let expected = [
        "Traceback (most recent call last):",
        "  File \"main.py\", line 5, in <module>",
        "    f(0)",
        "  File \"main.py\", line 3, in f",
        "    return 1 // x",
        "ZeroDivisionError: integer division or modulo by zero",
    ];
    assert_eq!(lines[..5], expected[..5]);
    assert!(lines[5].starts_with("ZeroDivisionError"));
    // The marks stand below what they mark, also in a last line without an end. Python before 3.11 makes none.
    let run = guest.python("print(1)\n1/0");
    let marks = run.stderr.lines().find(|line| line.contains('~'));
    assert!(marks.is_none_or(|marks| marks == "    ~^~"), "{}", run.stderr);
    let run = guest.python("x = 1\ny = = 2\n");
    assert!(run.stderr.starts_with("  File \"main.py\", line 2\n    y = = 2\n"), "{}", run.stderr);
    assert_eq!(run.exit, Exit::Code(1));
}

#[test]
fn python_finds_itself_in_a_clean_main() {
    let Some(mut guest) = guest() else { return };
    let run = guest.python(
        "names = sorted(n for n in globals() if not n.startswith('__'))\nimport os, sys\n\
         fds = []\nfor n in range(3, 64):\n    try:\n        os.fstat(n); fds.append(n)\n    except OSError: pass\n\
         print(names, fds, sys.argv, sys.path[0] == '', __name__, os.getcwd())\nprint('\\ud800 ü')\n",
    );
    assert_eq!(run.stdout, "[] [] ['main.py'] True __main__ /workspace\n\\ud800 ü\n", "{}", run.stderr);
}

#[test]
fn no_language_gets_a_descriptor_of_ours() {
    let Some(mut guest) = guest() else { return };
    let large = "#".repeat(200 * 1024);
    // `ls` has the directory itself open as 3.
    for code in ["ls /proc/self/fd".to_owned(), format!("ls /proc/self/fd\n{large}")] {
        assert_eq!(guest.run(shell(&code), b"").stdout, "0\n1\n2\n3\n");
    }
    // Node opens its own; ours would be a memory file, a socket or a pipe that is not 0, 1 or 2.
    let code = "const fs = require('fs'); for (const n of fs.readdirSync('/proc/self/fd')) { if (n < 3) continue;
        try { const t = fs.readlinkSync('/proc/self/fd/' + n); if (/memfd|socket/.test(t)) console.log(n, t) } catch {} }";
    let large = format!("{code}\n/*{}*/", "x".repeat(200 * 1024));
    for code in [code, &large] {
        let run = guest.run(javascript(code), b"");
        assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.exit), ("", "", Exit::Code(0)));
    }
}

#[test]
fn code_too_large_for_an_argument_runs() {
    let Some(mut guest) = guest() else { return };
    let filler = |comment: &str| format!("{comment}{}\n", "x".repeat(200 * 1024));
    for source in [
        python(&format!("{}print('end')", filler("# "))),
        javascript(&format!("{}console.log(require('path').basename('/a/end'))", filler("// "))),
        shell(&format!("{}echo end", filler("# "))),
    ] {
        let run = guest.run(source, b"");
        assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.exit), ("end\n", "", Exit::Code(0)));
    }
}

#[test]
fn code_that_looks_like_an_option_is_still_code() {
    let Some(mut guest) = guest() else { return };
    assert_eq!(guest.run(javascript("-console.log('js')"), b"").stdout, "js\n");
    let run = guest.run(shell("-x; echo sh"), b"");
    assert_eq!(run.stdout, "sh\n");
    assert!(run.stderr.starts_with("bash: line 1: -x:") || run.stderr.starts_with("sh: "), "{}", run.stderr);
    assert_eq!(guest.python("-print('py') if 0 else print('py')").stdout, "py\n");
}

#[test]
fn a_script_imports_npm_packages_by_their_names() {
    let Some(mut guest) = guest() else { return };
    guest.shell(
        "mkdir -p node_modules/@a/b; echo '{\"exports\": {\"./sub\": \"./s.cjs\"}}' >node_modules/@a/b/package.json
         echo 'module.exports = 42' >node_modules/@a/b/s.cjs",
    );
    for code in [
        "console.log(require('npm:@a/b@1.2/sub'))",
        "import('npm:@a/b/sub').then((b) => console.log(b.default))",
        "import b from 'npm:@a/b@^1/sub'; console.log(b)",
    ] {
        let run = guest.run(javascript(code), b"");
        assert_eq!((run.stdout.as_str(), run.exit), ("42\n", Exit::Code(0)), "{code}: {}", run.stderr);
    }
}

#[test]
fn a_python_script_looks_for_packages_where_a_layer_is_put() {
    let Some(mut guest) = guest() else { return };
    let code = "import sys\nprint([path for path in sys.path if path.startswith('/belljar') or path.endswith('-packages')][:1])";
    let run = guest.python(code);
    let version = guest.python("import sys\nprint('%d.%d' % sys.version_info[:2], end='')").stdout;
    assert_eq!(run.stdout, format!("['/belljar/packages/lib/python{version}/site-packages']\n"), "{}", run.stderr);
}

#[test]
fn javascript_takes_modules_of_both_kinds_from_the_workspace() {
    let Some(mut guest) = guest() else { return };
    guest.shell("echo 'module.exports = 7' > seven.js; echo 'export default 8' > eight.mjs");
    assert_eq!(guest.run(javascript("console.log(require('./seven.js'))"), b"").stdout, "7\n");
    let run = guest.run(javascript("import e from './eight.mjs'; console.log(e, await 1)"), b"");
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("8 1\n", ""));
}

#[test]
fn environment_directory_and_limits_reach_the_program() {
    let Some(mut guest) = guest() else { return };
    let source = shell("pwd; echo $A $HOME; ulimit -t; umask; trap");
    guest.shell("mkdir sub");
    let id = guest.begin_in(source, Some("sub"), &[("A", "b c"), ("HOME", "/elsewhere")]);
    guest.send(&ToGuest::InputEnd { id });
    let run = guest.finish(id, Told::default()).unwrap();
    assert_eq!(run.stdout, "/workspace/sub\nb c /elsewhere\n30\n0022\n");
}

#[test]
fn a_python_of_every_version_here_runs_the_driver() {
    let Some(mut guest) = Guest::start(Place::default()) else { return };
    let found = guest.shell("ls /usr/bin /usr/local/bin | grep -xE 'python3\\.[0-9]+'").stdout;
    for name in found.lines() {
        let Some(mut guest) = guest_with_python("/workspace/python3") else { return };
        guest.shell(&format!("ln -s $(command -v {name}) python3"));
        let run = guest.python("import sys\nprint('%d.%d' % sys.version_info[:2])\nraise KeyError('k')");
        assert_eq!(run.stdout.trim(), name.trim_start_matches("python"));
        assert!(run.stderr.contains("line 3, in <module>\n    raise KeyError('k')\n"), "{}", run.stderr);
    }
}
