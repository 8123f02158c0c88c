//! What a program that runs for long is given: input as it comes, signals, and its bounds.

use belljar_core::{Event, Exit, Finish, Limits, Program, Running, Stdin, Stream};

use super::{PATIENCE, Stage, command, lacks_processes, open, run};

async fn next(running: &mut dyn Running) -> Event {
    tokio::time::timeout(PATIENCE, running.next()).await.expect("in time").expect("the sandbox stands")
}

/// Input that comes while a program runs is read as it comes, and its end is its end.
pub async fn input_comes_live(stage: &Stage) {
    if lacks_processes(&*stage.backend) {
        return;
    }
    let sandbox = open(&*stage.backend, Limits::default()).await;
    let echo = "while read line; do echo got $line; done; echo end";
    let mut running = sandbox.start(Program { stdin: Stdin::Live, ..command(echo) }).await.expect("the program starts");
    let mut stdin = running.stdin().expect("its input is live");
    for word in ["one", "two"] {
        stdin.write(format!("{word}\n").into_bytes()).await.expect("it is passed on");
        let said = Event::Output { stream: Stream::Stdout, bytes: format!("got {word}\n").into_bytes() };
        assert_eq!(next(&mut *running).await, said);
    }
    drop(stdin);
    assert_eq!(next(&mut *running).await, Event::Output { stream: Stream::Stdout, bytes: b"end\n".to_vec() });
    assert!(matches!(next(&mut *running).await, Event::Finished(Finish { exit: Exit::Code(0), .. })));
    sandbox.close().await.expect("closes");
}

/// A signal reaches the program and what it started.
pub async fn a_signal_arrives(stage: &Stage) {
    if lacks_processes(&*stage.backend) {
        return;
    }
    let sandbox = open(&*stage.backend, Limits::default()).await;
    let trap = "trap 'echo asked; exit 7' TERM; echo up; sleep 4321.5 & wait";
    let mut running = sandbox.start(command(trap)).await.expect("the program starts");
    assert_eq!(next(&mut *running).await, Event::Output { stream: Stream::Stdout, bytes: b"up\n".to_vec() });
    running.signal(15);
    assert_eq!(next(&mut *running).await, Event::Output { stream: Stream::Stdout, bytes: b"asked\n".to_vec() });
    let Event::Finished(finish) = next(&mut *running).await else { panic!("it goes on") };
    assert_eq!(finish.exit, Exit::Code(7));
    sandbox.close().await.expect("closes");
}

/// A program that forks without end is held, and the sandbox goes on when it is stopped.
pub async fn processes_are_held(stage: &Stage) {
    if lacks_processes(&*stage.backend) {
        return;
    }
    let sandbox = open(&*stage.backend, Limits { processes: 32, ..Limits::default() }).await;
    let bomb = "import os, time\nmade = 0\nfor _ in range(200):\n    try:\n        if os.fork() == 0:\n            time.sleep(60)\n            os._exit(0)\n        made += 1\n    except OSError:\n        break\nprint(made)";
    let ran = run(&*sandbox, super::code(belljar_core::Language::Python, bomb)).await;
    let made: u32 = ran.stdout.trim().parse().expect("a number");
    assert!((1..=32).contains(&made), "{made} were made");
    assert_eq!(run(&*sandbox, command("echo still here")).await.stdout, "still here\n");
    sandbox.close().await.expect("closes");
}
