use super::*;

fn cleaned(text: &str) -> String {
    clean(text.as_bytes())
}

#[test]
fn plain_text_stays() {
    for text in ["", "hello\n", "a\tb\n", "naïve — 日本語 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}\n", "می\u{200c}خواهم"]
    {
        assert_eq!(cleaned(text), text);
    }
}

#[test]
fn line_ends_become_newlines() {
    assert_eq!(cleaned("a\r\nb\r\r\nc \r\n\r\n"), "a\nb\nc \n\n");
}

#[test]
fn terminal_sequences_go() {
    assert_eq!(cleaned("\x1b[31mred\x1b[0m \x1b[1;38;5;200mx\x1b[K\x1b[2J\x1b[?25l"), "red x");
    assert_eq!(cleaned("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b"), "alinkb");
    assert_eq!(cleaned("\x1bPq#0\x1b\\a\x1b_apc\x1b\\b\x1b(Bc\x1b7d\x1bMe"), "abcde");
}

#[test]
fn a_sequence_that_never_ends_hides_nothing() {
    assert_eq!(cleaned("\x1b]0;title\nall of this\n"), "\\u{1b}]0;title\nall of this\n");
    assert_eq!(cleaned("\x1b[31"), "\\u{1b}[31");
    assert_eq!(cleaned("x\x1b"), "x\\u{1b}");
    let long = format!("\x1b]{}", "a".repeat(10_000));
    assert!(cleaned(&long).ends_with(&"a".repeat(10_000)));
}

#[test]
fn what_cannot_be_seen_is_shown() {
    assert_eq!(cleaned("a\0b\x0bc\x7f\r"), "a\\u{0}b\\u{b}c\\u{7f}");
    assert_eq!(cleaned("\u{9b}31m\u{85}"), "\\u{9b}31m\\u{85}");
    assert_eq!(cleaned("abc\u{202e}fed\u{2066}"), "abc\\u{202e}fed\\u{2066}");
    assert_eq!(cleaned("\u{e0041}\u{e007f}\u{e0100}"), "\\u{e0041}\\u{e007f}\\u{e0100}");
    assert_eq!(cleaned("a\u{200b}b\u{feff}\u{ad}"), "a\\u{200b}b\\u{feff}\\u{ad}");
    assert_eq!(cleaned("a\u{200d}b"), "a\\u{200d}b");
    assert_eq!(cleaned("😀\u{fe01}\u{fe02}"), "😀\u{fe01}\\u{fe02}");
    assert_eq!(cleaned("\u{9b}\u{200d}"), "\\u{9b}\\u{200d}");
    assert_eq!(cleaned("日\u{200d}\u{200c}"), "日\u{200d}\\u{200c}");
}

#[test]
fn bytes_that_are_not_text_become_replacement_characters() {
    assert_eq!(clean(b"a\xff\xfeb\xc3"), "a\u{fffd}\u{fffd}b\u{fffd}");
}

#[test]
fn a_file_keeps_its_line_ends_and_its_sequences_are_shown() {
    assert!(matches!(reveal("a\r\nb\n"), Cow::Borrowed("a\r\nb\n")));
    assert_eq!(reveal("\x1b[31m\r\n\u{202e}"), "\\u{1b}[31m\r\n\\u{202e}");
}

#[test]
fn every_character_alone_is_either_kept_or_shown() {
    for c in '\0'..=char::MAX {
        let out = cleaned(&c.to_string());
        assert!(!out.is_empty() || c == '\r' || c == '\u{8}', "{c:?}");
        assert!(!out.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{c:?} gave {out:?}");
    }
}

#[test]
fn a_progress_bar_is_its_last_state() {
    assert_eq!(cleaned("10%\r20%\r100%\n"), "100%\n");
    assert_eq!(cleaned("10%\r20%\r\n"), "20%\n");
    assert_eq!(cleaned("downloading 1 of 12\rdone\x1b[K\nnext"), "done\nnext");
    assert_eq!(cleaned("abc\rX"), "Xbc", "what is not written over stays, as in a terminal");
    assert_eq!(cleaned("working...\r          \rdone\n"), "done\n");
    assert_eq!(cleaned("working...\r          \r\n"), "\n");
    let tqdm: String = (0..=50).map(|n| format!("\r{:3}%|{:<10}| {n}/50", 2 * n, "#".repeat(n / 5))).collect();
    assert_eq!(cleaned(&format!("start\n{tqdm}\nend\n")), "start\n100%|##########| 50/50\nend\n");
    let spinner: String = "⠋⠙⠹⠸".chars().map(|c| format!("\x1b[1G\x1b[0K{c} install")).collect();
    assert_eq!(cleaned(&format!("{spinner}\x1b[1G\x1b[0K\nadded 3 packages\n")), "\nadded 3 packages\n");
    let cargo = "\x1b[1m\x1b[32m   Compiling\x1b[0m a v1\n\x1b[1m\x1b[36m    Building\x1b[0m [=>   ] 1/2: a\r\x1b[K\
        \x1b[1m\x1b[32m   Compiling\x1b[0m b v1\n    Building [===> ] 2/2: b\r\x1b[K    Finished `dev`\n";
    assert_eq!(cleaned(cargo), "   Compiling a v1\n   Compiling b v1\n    Finished `dev`\n");
}

#[test]
fn several_bars_at_once_are_their_last_state() {
    let mut rich = String::from("\x1b[?25lone 0%\ntwo 0%");
    for n in [25, 50, 100] {
        rich.push_str(&format!("\r\x1b[2K\x1b[1A\x1b[2Kone {n}%\ntwo {n}%"));
    }
    rich.push_str("\n\x1b[?25hbye\n");
    assert_eq!(cleaned(&rich), "one 100%\ntwo 100%\nbye\n");
    let docker = "a: wait\nb: wait\n\x1b[2A\x1b[2Ka: done\x1b[2B\r\x1b[1A\x1b[2Kb: done\x1b[1B\r";
    assert_eq!(cleaned(docker), "a: done\nb: done\n");
    assert_eq!(cleaned("1\n2\n3\n\x1b[3F\x1b[Jx\n"), "x\n");
    assert_eq!(cleaned("a\n\x1b7b\nc\x1b8B\x1b[s\nC\x1b[u!"), "a\nB!\nC");
}

#[test]
fn the_cursor_moves_as_in_a_terminal() {
    assert_eq!(cleaned("abc\x1b[2DX"), "aXc");
    assert_eq!(cleaned("abc\x1b[3GX"), "abX");
    assert_eq!(cleaned("a\x1b[3Cb"), "a   b");
    assert_eq!(cleaned("a\x1b[2Bb"), "a\n\n b");
    assert_eq!(cleaned("a\x1b[Eb\x1b[2E"), "a\nb");
    assert_eq!(cleaned("abcdef\x1b[3D\x1b[1Kx"), "   xef");
    assert_eq!(cleaned("abc\x1b[1K"), "");
    assert_eq!(cleaned("N\x08NA\x08AME a\x08\x08\x08\x08\x08\x08\x08\x08X"), "XAME a");
    assert_eq!(cleaned("a\tbcd\rXXXX"), "XXXX    bcd", "a tab is as wide as it looks");
    assert_eq!(cleaned("a\tb\x08c\td"), "a       c       d");
    assert_eq!(cleaned("\x1b[31mx\x1b[m\x1b[K\ty \n"), "x\ty \n", "erasing nothing changes nothing");
    assert_eq!(cleaned("a\tbc\nxyz\x1b[AX"), "a  X    bc\nxyz");
}

#[test]
fn a_cleared_screen_takes_the_place_of_the_one_before_and_of_nothing_else() {
    assert_eq!(cleaned("log\n\x1b[2J\x1b[Hone\nmore\n\x1b[2J\x1b[Htwo\n\x1b[H\x1b[Jthree\n"), "log\nthree\n");
    assert_eq!(cleaned("log\x1b[H\x1b[2Jone\x1b[2;3Hx\x1bctwo"), "log\ntwo");
    let long: String = (0..120).map(|n| format!("{n}\n")).collect();
    let shown = cleaned(&format!("\x1b[2J\x1b[H{long}\x1b[2J\x1b[Hend"));
    assert!(shown.starts_with("0\n1\n") && shown.contains("\n70\n"), "what scrolled away stays: {shown:?}");
    assert!(shown.ends_with("\nend") && !shown.contains("119"), "{shown:?}");
}

#[test]
fn what_is_far_above_is_out_of_reach() {
    let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
    let shown = cleaned(&format!("{lines}\x1b[999A\x1b[Jend"));
    assert_eq!(shown.lines().count(), 802);
    assert!(shown.starts_with("line 0\nline 1\n") && shown.ends_with("line 800\nend"), "{shown:?}");
}

/// The numbers of a small generator, so that a failure can be had again.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

#[test]
fn whatever_is_printed_the_answer_is_bounded_and_holds_nothing_hidden() {
    const PARTS: &[&str] = &[
        "\r",
        "\n",
        "\t",
        "\x08",
        "\x1b[A",
        "\x1b[99B",
        "\x1b[999999999C",
        "\x1b[3D",
        "\x1b[1K",
        "\x1b[2K",
        "\x1b[K",
        "\x1b[J",
        "\x1b[1J",
        "\x1b[2J",
        "\x1b[H",
        "\x1b[999;999H",
        "\x1bc",
        "\x1b7",
        "\x1b8",
        "\x1b[E",
        "\x1b[5F",
        "\x1b[99999999999999999999G",
        "abc",
        "日本",
        "\u{200d}",
        "\u{202e}",
        "\0",
        "\x1b",
        "\x1b]0;x",
        "\x07",
        "\x1b[;;;m",
        "\x1b[?25l",
        "\u{9b}",
        "e\u{301}",
        "  ",
    ];
    for seed in 0..3000 {
        let mut number = numbers(seed);
        let text: String = (0..number(80)).map(|_| PARTS[number(PARTS.len())]).collect();
        let shown = cleaned(&text);
        assert!(shown.len() <= 16 * text.len() + 4096, "{text:?} gave {} bytes", shown.len());
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?} gave {shown:?}");
        assert!(!shown.contains(['\u{202e}', '\u{9b}']), "{text:?} gave {shown:?}");
        assert_eq!(cleaned(&shown), shown, "{text:?}: what was shown is plain");
    }
}

#[test]
fn without_a_cursor_that_moves_no_text_is_lost() {
    const PARTS: &[&str] = &["a", "\t", "\n", "\r\n", " ", "\x1b[1m", "\x1b[0K", "é", "\x1b]0;t\x07"];
    for seed in 0..1000 {
        let mut number = numbers(seed);
        let text: String = (0..number(60)).map(|_| PARTS[number(PARTS.len())]).collect();
        let plain =
            PARTS[5..].iter().filter(|part| **part != "é").fold(text.clone(), |text, part| text.replace(part, ""));
        assert_eq!(cleaned(&text), plain.replace('\r', ""), "{text:?}");
    }
}

#[test]
fn hostile_output_takes_its_length_in_time() {
    // A squared cost shows in either.
    const BYTES: usize = if cfg!(debug_assertions) { 1 << 18 } else { 1 << 20 };
    let long = "x".repeat(BYTES / 2);
    for part in [
        "\x1b[A",
        "\r",
        "\t",
        "\t\r",
        "\x1b[1000000000C",
        "\x1b[1000000000Cx\n",
        "\x1b[1K",
        "\x1b[200B",
        "\x1b[J",
        "\x1b[H",
        "\x1b[2J",
        "\x1b",
        "\x1b]",
        "\x1b[1",
        "\x1b[400Gx\x1b[1K",
        "\x08\x1b[1K",
        "\x1b7\rx\x1b8\x1b[1K",
        "\n\x1b[200A\x1b[J",
        "\x1b[9999;9999Hx",
        "x\x1b[B",
    ] {
        for before in ["", &long] {
            let text = format!("{before}{}", part.repeat(BYTES / part.len()));
            let begun = std::time::Instant::now();
            let shown = cleaned(&text);
            // That would be minutes and hours. The bound leaves room for a slow machine without optimisation.
            assert!(begun.elapsed().as_secs() < 10, "{part:?} took {:?}", begun.elapsed());
            assert!(shown.len() <= 8 * text.len(), "{part:?} gave {} bytes", shown.len());
        }
    }
}

/// Not a promise that every machine can keep, so it is asked for: `cargo test --release -- --ignored plain_text_is_fast`.
#[test]
#[ignore = "measures time, which needs a release build and a quiet machine"]
fn plain_text_is_fast() {
    let ascii = "a line of a program's output, 64 characters wide with its end.\n".repeat((1 << 20) / 63);
    let other = "eine Zeile mit ü und 日本語 darin, wie sie auch vorkommt.\n".repeat((1 << 20) / 64);
    let coloured = "\x1b[32mok\x1b[0m a line of a program's output with a colour in it.\n".repeat((1 << 20) / 64);
    for (text, millis) in [(ascii, 2), (other, 8), (coloured, 30)] {
        let best = (0..20).map(|_| {
            let begun = std::time::Instant::now();
            assert!(!std::hint::black_box(clean(text.as_bytes())).is_empty());
            begun.elapsed()
        });
        let best = best.min().unwrap();
        println!("{} bytes in {best:?}", text.len());
        assert!(best.as_millis() < millis, "{best:?}");
    }
}
