//! Requests that are refused before anything is opened for them.

use belljar_engine::{CODE_BYTES_MAX, EngineError, STDIN_BYTES_MAX, Wish};
use belljar_testkit::fake::Manners;

use super::*;

#[tokio::test(start_paused = true)]
async fn programs_that_could_not_run_are_refused() {
    let manners = Manners { languages: vec![Language::Shell, Language::Python], ..Manners::default() };
    let (fake, engine) = engine_with(manners, Settings { wall_max: Duration::from_secs(60), ..Settings::default() });
    assert_eq!(engine.languages(), [Language::Shell, Language::Python]);

    type Case = (fn(&mut Program), fn(&EngineError) -> bool);
    let code = |program: &mut Program, code: String| {
        program.source = Source::Code { language: Language::Python, code };
    };
    let cases: &[Case] = &[
        (
            |p| p.source = Source::Code { language: Language::JavaScript, code: "print a".into() },
            |e| e.to_string() == "javascript is not available here; use one of: shell, python",
        ),
        (|p| p.source = Source::Command("  ".into()), |e| matches!(e, EngineError::EmptyCode)),
        (|p| p.source = Source::Command("print a\0".into()), |e| matches!(e, EngineError::BadCode)),
        (
            |p| p.stdin = belljar_core::Stdin::Whole(vec![0; STDIN_BYTES_MAX + 1]),
            |e| matches!(e, EngineError::StdinTooLong { .. }),
        ),
        (|p| p.wall = Duration::ZERO, |e| matches!(e, EngineError::BadTimeout { max_seconds: 60 })),
        (|p| p.wall = Duration::from_millis(60_001), |e| e.to_string().ends_with("at most 60 seconds")),
        (|p| p.env = vec![("".into(), "x".into())], |e| matches!(e, EngineError::BadEnv { .. })),
        (|p| p.env = vec![("A=B".into(), "x".into())], |e| matches!(e, EngineError::BadEnv { .. })),
        (|p| p.env = vec![("A".into(), "\0".into())], |e| matches!(e, EngineError::BadEnv { .. })),
        (|p| p.env = vec![("A".into(), "x".into()); 129], |e| matches!(e, EngineError::BadEnv { .. })),
        (|p| p.env = vec![("A".into(), "x".repeat(128 * 1024))], |e| matches!(e, EngineError::BadEnv { .. })),
        (|p| p.cwd = Some("\0".into()), |e| matches!(e, EngineError::BadCwd { .. })),
    ];
    for (n, (change, expected)) in cases.iter().enumerate() {
        let mut request = fresh("print a");
        change(&mut request.program);
        let error = engine.run(&me(), request).await.unwrap_err();
        assert!(expected(&error), "case {n}: {error:?}");
    }

    let mut request = fresh("");
    code(&mut request.program, format!("print {}", "x".repeat(CODE_BYTES_MAX)));
    let error = engine.run(&me(), request.clone()).await.unwrap_err();
    assert!(matches!(error, EngineError::CodeTooLong { .. }), "{error:?}");
    assert_eq!(fake.opened(), 0);

    code(&mut request.program, format!("print {}", "x".repeat(CODE_BYTES_MAX - 6)));
    request.program.stdin = belljar_core::Stdin::Whole(vec![0; STDIN_BYTES_MAX]);
    request.program.wall = Duration::from_secs(60);
    request.program.env = vec![("A".into(), "x".into()); 128];
    assert!(engine.run(&me(), request).await.is_ok(), "each bound is inclusive");
}

#[tokio::test(start_paused = true)]
async fn wishes_and_environments_that_cannot_be_granted_are_refused() {
    let (fake, engine) = engine();
    let wish = |wish| CreateRequest { wish, ..CreateRequest::default() };
    for request in [
        wish(Wish { memory_bytes: Some(9 << 30), ..Wish::default() }),
        wish(Wish { cpu_milli: Some(8001), ..Wish::default() }),
        wish(Wish { processes: Some(1025), ..Wish::default() }),
        wish(Wish { open_files: Some(65537), ..Wish::default() }),
        wish(Wish { disk_bytes: Some((4 << 30) + 1), ..Wish::default() }),
        wish(Wish { output_bytes: Some((16 << 20) + 1), ..Wish::default() }),
    ] {
        let error = engine.create(&me(), request.clone()).await.unwrap_err();
        assert!(matches!(error, EngineError::LimitTooHigh { .. }), "{request:?}: {error:?}");
    }
    for request in [
        wish(Wish { memory_bytes: Some(1 << 20), ..Wish::default() }),
        wish(Wish { cpu_milli: Some(0), ..Wish::default() }),
        wish(Wish { processes: Some(1), ..Wish::default() }),
        wish(Wish { open_files: Some(3), ..Wish::default() }),
        wish(Wish { disk_bytes: Some(0), ..Wish::default() }),
        wish(Wish { output_bytes: Some(1023), ..Wish::default() }),
    ] {
        let error = engine.create(&me(), request.clone()).await.unwrap_err();
        assert!(matches!(error, EngineError::LimitTooLow { .. }), "{request:?}: {error:?}");
    }
    let request = CreateRequest { env: vec![("=".into(), String::new())], ..CreateRequest::default() };
    assert!(matches!(engine.create(&me(), request).await, Err(EngineError::BadEnv { .. })));
    assert_eq!(fake.opened(), 0);
}
