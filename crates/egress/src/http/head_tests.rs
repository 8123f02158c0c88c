use proptest::prelude::*;

use super::*;

fn read(head: &str) -> Result<Request, Bad> {
    match request(head.as_bytes())? {
        Asked::Request(request) => Ok(request),
        Asked::Connect(..) => Err(Bad("a CONNECT")),
    }
}

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

#[test]
fn a_request_is_written_anew() {
    let request = read(
        "POST /a?b HTTP/1.1\r\nhost: Api.test:8080\r\nProxy-Authorization: x\r\nConnection: close, X-Own\r\nX-Own: 1\r\n\
         Upgrade: h2c\r\nX-Kept:  v \r\ncontent-length: 3\r\n\r\n",
    )
    .unwrap();
    assert_eq!(request.host, Some((host("api.test"), Some(8080))));
    assert_eq!(
        String::from_utf8(request.write(&host("api.test"), 8080, 80)).unwrap(),
        "POST /a?b HTTP/1.1\r\nHost: api.test:8080\r\nX-Kept: v\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn an_absolute_target_has_a_host_and_a_path() {
    let request = read("GET http://Api.test:81?q=1 HTTP/1.1\r\nHost: api.test:81\r\n\r\n").unwrap();
    assert_eq!((request.authority, request.path.as_str()), (Some((host("api.test"), Some(81))), "/?q=1"));
    let request = read("OPTIONS HTTP://api.test HTTP/1.1\r\nHost: api.test\r\n\r\n").unwrap();
    assert_eq!(request.path, "*");
}

#[test]
fn what_could_be_read_differently_is_refused() {
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://b\\@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a%2fb/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT u@a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: b:1\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a:2\r\n\r\n",
    ] {
        assert!(request(head.as_bytes()).is_err(), "{head:?}");
    }
}

#[test]
fn a_connect_names_host_and_port() {
    for head in ["CONNECT A.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "CONNECT a.test:443 HTTP/1.0\r\n\r\n"] {
        assert_eq!(request(head.as_bytes()), Ok(Asked::Connect(host("a.test"), 443)));
    }
}

#[test]
fn an_answer_says_how_long_it_is() {
    let framing = |head: &str, method| response(head.as_bytes(), method).map(|answer| (answer.framing, answer.after));
    assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET"), Ok((Framing::Length(5), After::Stays)));
    assert_eq!(framing("HTTP/1.1 200 OK\r\n\r\n", "GET"), Ok((Framing::UntilClose, After::Closes)));
    assert_eq!(framing("HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n", "GET"), Ok((Framing::None, After::Stays)));
    assert_eq!(
        framing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD"),
        Ok((Framing::None, After::Stays))
    );
    for bad in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    ] {
        assert!(response(bad.as_bytes(), "GET").is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn no_head_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (request(&bytes), response(&bytes, "GET"), end(&bytes));
    }

    /// Of heads that are nearly right, those that are taken are written as something that reads the same, with one host.
    #[test]
    fn what_is_written_anew_reads_as_it_was_meant(
        target in "(/|http://|\\*|)[a-z0-9.:@/?#%\\[\\]\\\\ -]{0,20}",
        lines in prop::collection::vec("(Host|host|Content-Length|Transfer-Encoding|Connection|X-A|Upgrade)[ \t]{0,1}:[ -~\t]{0,12}(\r|\n|\0|)", 0..6),
        name in "[a-z]{1,5}",
    ) {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {name}\r\n{}\r\n", lines.iter().map(|line| format!("{line}\r\n")).collect::<String>());
        if let Ok(Asked::Request(first)) = request(head.as_bytes()) {
            let written = first.write(&"decided.test".parse().unwrap(), 80, 80);
            prop_assert_eq!(end(&written), Some(written.len()), "one head, and nothing behind it");
            let Ok(Asked::Request(second)) = request(&written) else { return Err(TestCaseError::fail("unreadable")) };
            prop_assert_eq!(second.host, Some(("decided.test".parse().unwrap(), None)));
            prop_assert_eq!(second.authority, None);
            prop_assert_eq!((second.path, second.headers, second.framing), (first.path, first.headers, first.framing));
        }
    }
}
