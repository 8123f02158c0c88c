//! Against a server that plays Firecracker: what it is asked, in which order, and what becomes of its answers.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Answers each request as told, and keeps what it was asked.
fn played(socket: &Path, answers: Vec<&'static str>) -> Arc<Mutex<Vec<String>>> {
    let listener = UnixListener::bind(socket).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            while !bytes.ends_with(b"}") {
                stream.read_buf(&mut bytes).await.unwrap();
            }
            hears.lock().unwrap().push(String::from_utf8(bytes).unwrap());
            // In two pieces, as a network would.
            let (first, rest) = answer.split_at(answer.len() / 2);
            stream.write_all(first.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            stream.write_all(rest.as_bytes()).await.unwrap();
        }
    });
    heard
}

fn machine() -> Machine {
    Machine {
        memory_bytes: 256 << 20,
        cpu_milli: 1500,
        kernel: "/k".into(),
        initramfs: "/i".into(),
        command_line: "quiet".to_owned(),
        drives: vec!["/r".into(), "/f".into()],
    }
}

const DONE: &str = "HTTP/1.1 204 \r\nServer: Firecracker API\r\nConnection: keep-alive\r\n\r\n";
const FAULT: &str = "HTTP/1.1 400 \r\nContent-Type: application/json\r\nContent-Length: 33\r\n\r\n{\"fault_message\": \"no such file\"}";

#[tokio::test]
async fn a_machine_is_described_and_then_started() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let heard = played(&socket, vec![DONE; 6]);
    for (method, path, body) in requests(&machine(), false) {
        api::ask(&socket, method, &path, &body).await.unwrap();
    }
    let heard = heard.lock().unwrap().clone();
    let lines: Vec<&str> = heard.iter().filter_map(|request| request.lines().next()).collect();
    assert_eq!(
        lines,
        [
            "PUT /machine-config HTTP/1.1",
            "PUT /boot-source HTTP/1.1",
            "PUT /drives/drive0 HTTP/1.1",
            "PUT /drives/drive1 HTTP/1.1",
            "PUT /vsock HTTP/1.1",
            "PUT /actions HTTP/1.1"
        ]
    );
    assert!(heard[0].contains(r#""vcpu_count":2"#) && heard[0].contains(r#""mem_size_mib":256"#), "{}", heard[0]);
    assert!(heard[2].contains(r#""is_read_only":true"#), "{}", heard[2]);
    assert!(!heard.iter().any(|request| request.contains("network-interfaces")), "it has no network");
}

#[tokio::test]
async fn a_fault_is_told_in_its_own_words() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let _heard = played(&socket, vec![FAULT]);
    let (method, path, body) = requests(&machine(), true).remove(0);
    assert_eq!(path, "/snapshot/load");
    let error = api::ask(&socket, method, &path, &body).await.unwrap_err().to_string();
    assert!(error.contains("no such file") && error.contains("400"), "{error}");
    // Whoever is gone does not answer.
    assert!(api::ask(&directory.path().join("none"), method, &path, &body).await.is_err());
}

#[test]
fn the_jailer_is_told_where_its_root_is() {
    let below = tempfile::tempdir().unwrap();
    let place = Directory::new(below.path(), None).unwrap();
    let command = place.jailed(Path::new("/opt/jailer"), Path::new("/opt/firecracker"), 12345);
    let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let base = words.iter().position(|word| word == "--chroot-base-dir").map(|at| words[at + 1].clone()).unwrap();
    let id = words.iter().position(|word| word == "--id").map(|at| words[at + 1].clone()).unwrap();
    // As its documentation has it: <base>/<name of the program>/<id>/root.
    assert_eq!(Path::new(&base).join("firecracker").join(id).join("root"), place.0);
    assert!(words.windows(2).any(|pair| pair == ["--uid", "12345"]));
    let root = place.0.clone();
    drop(place);
    assert!(!root.exists());
}
