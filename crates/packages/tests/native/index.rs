//! A simple index (PEP 503) on loopback, with one source distribution whose build does as it likes.

use std::fs;
use std::process::Command;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Serves `name` 1.0, whose build runs `code` before it makes a wheel with a module of that name. In `code`, `told` is
/// a list that the module will have.
pub(crate) async fn serve(name: &str, code: &str) -> u16 {
    serve_to(name, code, None).await
}

/// Only to those who send this header.
pub(crate) async fn serve_to(name: &str, code: &str, header: Option<&'static str>) -> u16 {
    let archive = source_distribution(name, code);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = name.to_owned();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (archive, name) = (archive.clone(), name.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 8192];
                let mut length = 0;
                while !request[..length].ends_with(b"\r\n\r\n") {
                    match stream.read(&mut request[length..]).await {
                        Ok(more) if more > 0 => length += more,
                        _ => return,
                    }
                }
                let line = String::from_utf8_lossy(&request[..length]).lines().next().unwrap().to_owned();
                let is_welcome = header.is_none_or(|header| {
                    String::from_utf8_lossy(&request[..length]).lines().any(|line| line.eq_ignore_ascii_case(header))
                });
                let path = line.split(' ').nth(1).unwrap().to_owned();
                let (status, kind, body) = if !is_welcome {
                    ("401 Unauthorized", "text/plain", b"who?".to_vec())
                } else if path.trim_end_matches('/').ends_with(&format!("/simple/{name}")) {
                    let page =
                        format!("<html><body><a href=\"/files/{name}-1.0.tar.gz\">{name}-1.0.tar.gz</a></body></html>");
                    ("200 OK", "text/html", page.into_bytes())
                } else if path.contains("/files/") {
                    ("200 OK", "application/octet-stream", archive)
                } else {
                    ("404 Not Found", "text/plain", b"no".to_vec())
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&body).await;
            });
        }
    });
    port
}

fn source_distribution(name: &str, code: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join(format!("{name}-1.0"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("PKG-INFO"), format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")).unwrap();
    let project = "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n";
    fs::write(root.join("pyproject.toml"), project).unwrap();
    let backend = format!(
        r#"
import zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    told = []
{code}
    info = "{name}-1.0.dist-info"
    with zipfile.ZipFile(directory + "/{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("{name}.py", "told = " + repr(told) + "\n")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "/RECORD", "")
    return "{name}-1.0-py3-none-any.whl"
"#
    );
    fs::write(root.join("backend.py"), backend).unwrap();
    let archive = directory.path().join("x.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&archive).arg("-C").arg(directory.path()).arg(root.file_name().unwrap());
    assert!(tar.status().unwrap().success());
    fs::read(archive).unwrap()
}
