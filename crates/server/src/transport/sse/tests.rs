use belljar_engine::{Engine, Settings};
use belljar_testkit::fake::{Fake, Manners};
use http_body::Body as _;

use super::*;
use crate::handler::Surface;
use crate::shares::Shares;

fn sessions() -> Arc<Sessions> {
    let engine = Engine::new(Fake::new(Manners::default()), Settings::default());
    let handler = Handler::http(engine, Surface::default(), Arc::new(Shares::new(8, 8)));
    Arc::new(Sessions { handler, stop: CancellationToken::new(), living: Mutex::default() })
}

async fn next(events: &mut Events) -> String {
    let mut events = Pin::new(events);
    let frame = std::future::poll_fn(|context| events.as_mut().poll_frame(context)).await;
    String::from_utf8(frame.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap()
}

fn id_in(first: &str) -> &str {
    first.strip_prefix("event: endpoint\ndata: /messages?sessionId=").unwrap().strip_suffix("\n\n").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_says_that_it_is_there() {
    let sessions = sessions();
    let mut events = sessions.begin(&Principal::new("ann"), None).unwrap();
    let first = next(&mut events).await;
    assert_eq!(id_in(&first).len(), 2 * ID_BYTES);
    for _ in 0..3 {
        let since = Instant::now();
        assert_eq!(next(&mut events).await, ": still here\n\n");
        assert_eq!(since.elapsed().as_secs(), 15);
    }
}

#[tokio::test]
async fn a_session_is_found_by_its_owner_alone_and_for_as_long_as_its_stream() {
    let sessions = sessions();
    let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
    let mut events = sessions.begin(&ann, Some("codemode=false")).unwrap();
    let first = next(&mut events).await;
    let query = id_in(&first).to_owned();
    assert!(query.ends_with("&codemode=false"), "{query}");
    let query = format!("sessionId={query}");
    let session = sessions.find(&ann, &query).expect("her own");
    assert!(sessions.find(&bob, &query).is_none());
    let twice = format!("{query}&{query}");
    for bad in ["", "sessionId=", "sessionId=x", "sessionid=", twice.as_str()] {
        assert!(sessions.find(&ann, bad).is_none(), "{bad}");
    }
    drop(events);
    assert!(session.hangup.is_cancelled());
    assert!(sessions.find(&ann, &query).is_none());
}

#[tokio::test]
async fn streams_are_bounded_for_each() {
    let sessions = sessions();
    let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
    let mut of_ann: Vec<_> = (0..PER_PRINCIPAL_MAX).map(|_| sessions.begin(&ann, None).unwrap()).collect();
    assert!(sessions.begin(&ann, None).unwrap_err().starts_with("you have too many"));
    assert!(sessions.begin(&bob, None).is_ok());
    of_ann.pop();
    assert!(sessions.begin(&ann, None).is_ok());
}
