//! Whatever a program inside says to the proxy: reading ends, stays inside its input, and a request that is taken is written
//! as one that reads the same, with one host.
#![no_main]

use belljar_egress::parse::head::{self, Asked};
use belljar_egress::parse::{chunks, hello, message, socks};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = hello::parse(bytes);
    match message::Question::parse(bytes) {
        Ok(question) => assert!(question.answer(message::Answer::Empty).len() <= message::BYTES_MAX),
        Err(bad) => assert!(bad.answer().is_none_or(|answer| answer.len() == 12)),
    }
    if let Ok(socks::Parsed::Whole(_, used)) = socks::request(bytes) {
        assert!(used <= bytes.len());
    }
    let _ = socks::greeting(bytes);
    let (mut body, mut apart) = (Vec::new(), chunks::Chunks::default());
    if let Ok(used) = apart.push(bytes, &mut body) {
        assert!(used <= bytes.len() && body.len() <= used);
    }
    let _ = head::response(bytes, "GET");
    if let Ok(Asked::Request(request)) = head::request(bytes) {
        let host = "decided.test".parse().expect("a host");
        let written = request.write(&host, 80, 80);
        assert_eq!(head::end(&written), Some(written.len()), "one head, and nothing behind it");
        let Ok(Asked::Request(again)) = head::request(&written) else { panic!("{written:?}") };
        assert_eq!(again.host, Some((host, None)));
        assert_eq!((again.path, again.headers, again.framing), (request.path, request.headers, request.framing));
    }
});
