//! A network that is closed until a host is named, and secrets that never come in.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, Caller, StdioClient};
use crate::server::{Server, User, folder};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/web.py");
const ADDRESS: &str = "127.0.10.30";
const SECRET: &str = "s3cr3t-of-the-operator";

/// A web server that stands in for a host of the internet, `api.test`.
#[derive(Debug)]
pub(crate) struct Web {
    process: Child,
    folder: TempDir,
    pub(crate) port: u16,
}

impl Web {
    pub(crate) fn plain() -> Web {
        Web::start(folder(0o755), &[])
    }

    /// With a certificate, and the file of who signed it.
    fn secure() -> (Web, PathBuf) {
        let folder = folder(0o755);
        let at = |name: &str| folder.path().join(name);
        let (certificate, key) = (at("certificate.pem"), at("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=api.test", "-addext", "subjectAltName=DNS:api.test"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        let words = [certificate.to_str().unwrap().to_owned(), key.to_str().unwrap().to_owned()];
        (Web::start(folder, &words), certificate)
    }

    fn start(folder: TempDir, more: &[String]) -> Web {
        let mut process = Command::new("python3")
            .arg(SCRIPT)
            .arg(folder.path())
            .arg(ADDRESS)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Web { process, folder, port: port.trim().parse().unwrap() }
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        let seen = fs::read_to_string(self.folder.path().join("seen")).unwrap_or_default();
        seen.lines().map(str::to_owned).collect()
    }

    /// That callers may ask for this host, and where it is.
    pub(crate) fn configuration(&self) -> String {
        let port = self.port;
        format!(
            "[network]\nallow = [\"api.test:{port}\", \"other.test\", \"inward.test:{port}\"]\nprivate = [\"127.0.10.0/24\"]\n\
             hosts = {{ \"api.test\" = \"{ADDRESS}\", \"other.test\" = \"{ADDRESS}\", \"inward.test\" = \"127.0.0.1\" }}\n"
        )
    }

    /// A server whose callers may ask for this host.
    fn serve(&self, user: &User, more: &str) -> (Server<StdioClient>, TempDir) {
        let folder = folder(0o777);
        let config = folder.path().join("config.toml");
        fs::write(&config, self.configuration() + more).unwrap();
        (user.serve_with(&["--config", config.to_str().unwrap()]), folder)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(client: &mut StdioClient, language: &str, code: &str, network: Value) -> Answer {
    client.call("run_code", json!({"language": language, "code": code, "network": network}))
}

const FETCH: &str = "import urllib.request, sys\ndef get(url):\n    try: return urllib.request.urlopen(url, timeout=10).read().decode()\n    \
                     except Exception as error: return f'{type(error).__name__}: {error}'\n";

#[test]
fn without_a_word_there_is_no_network_and_no_name() {
    for user in User::all() {
        let mut server = user.serve();
        let code = "import socket\nfor do in (lambda: socket.getaddrinfo('api.test', 80), lambda: socket.create_connection(('1.1.1.1', 80), 2)):\n    \
                    try: print(do())\n    except OSError as error: print('refused')\n\
                    s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('loopback')";
        server.client.python(code).printed("refused\nrefused\nloopback\n");
        let asked = run(&mut server.client, "python", "1", json!(["api.test"]));
        asked.refused(&["api.test", "--allow-network"]);
        run(&mut server.client, "python", "1", json!(["http://api.test/"])).refused(&["http://api.test/"]);
        run(&mut server.client, "python", "1", json!(["packages"])).refused(&["packages"]);
    }
}

#[test]
fn programs_reach_a_granted_host_as_they_are() {
    let web = Web::plain();
    for user in User::all() {
        let (mut server, _folder) = web.serve(&user, "");
        let client = &mut server.client;
        let (port, host) = (web.port, json!([format!("api.test:{}", web.port)]));
        let python = format!("{FETCH}print('Host' in get('http://api.test:{port}/'))");
        run(client, "python", &python, host.clone()).printed("True\n");
        // Without the variables, as programs do that do not know of them: by name, to a stand-in.
        let bare = format!(
            "import os\nfor name in list(os.environ):\n    if 'proxy' in name.lower(): del os.environ[name]\n{python}"
        );
        run(client, "python", &bare, host.clone()).printed("True\n");
        let node = format!("const answer = await fetch('http://api.test:{port}/'); console.log(answer.status)");
        run(client, "javascript", &node, host.clone()).printed("200\n");
        let curl = format!(
            "curl -s -o /dev/null -w '%{{http_code}}' http://api.test:{port}/; curl -s -o /dev/null -w ' %{{size_download}}' http://api.test:{port}/large"
        );
        run(client, "shell", &curl, host.clone()).printed("200 8388608");
        let socks = format!(
            "curl -s -o /dev/null -w '%{{http_code}}' --socks5-hostname 127.0.0.1:3128 http://api.test:{port}/"
        );
        run(client, "shell", &socks, host.clone()).printed("200");
        // A sandbox that stays has what it was created with.
        let created = client.call("create_sandbox", json!({"network": host}));
        assert!(created.text().contains("api.test"), "{}", created.text());
        let id = created.field("sandbox_id").as_str().unwrap().to_owned();
        client.call("run_code", json!({"language": "python", "code": python, "sandbox_id": id})).printed("True\n");
        let changed = json!({"language": "python", "code": "1", "sandbox_id": id, "network": ["other.test"]});
        client.call("run_code", changed).refused(&["created with"]);
    }
}

#[test]
fn a_refusal_says_which_host_and_how_it_can_be_granted() {
    let web = Web::plain();
    for user in User::all() {
        let (mut server, _folder) = web.serve(&user, "");
        let port = web.port;
        let network = json!([format!("api.test:{port}"), format!("inward.test:{port}")]);
        let code = format!(
            "{FETCH}print(get('http://evil.test/'))\nprint(get('https://evil.test/'))\nprint(get('http://api.test:22/'))\nprint(get('http://inward.test:{port}/'))"
        );
        let answer = run(&mut server.client, "python", &code, network);
        let lines: Vec<&str> = answer.stdout().lines().collect();
        for line in &lines[..2] {
            assert!(line.contains("403") && line.contains("evil.test"), "{line}");
        }
        assert!(answer.stdout().contains("--allow-network"), "{}", answer.stdout());
        assert!(lines.iter().all(|line| line.contains("Error")), "{}", answer.stdout());
        let refused = answer.field("refused_hosts").to_string();
        assert!(refused.contains("evil.test:80") && refused.contains("evil.test:443"), "{refused}");
        assert!(answer.text().contains("evil.test"), "{}", answer.text());
        assert_eq!(web.seen(), Vec::<String>::new());
    }
}

#[test]
fn a_secret_goes_out_to_its_host_and_is_seen_nowhere() {
    let (web, authority) = Web::secure();
    for mut user in User::all() {
        fs::write(web.folder.path().join("seen"), "").unwrap();
        user.env.push(("SSL_CERT_FILE".into(), authority.to_str().unwrap().to_owned()));
        user.env.push(("OPERATORS_KEY".into(), SECRET.into()));
        let port = web.port;
        let (mut server, folder) = web.serve(
            &user,
            &format!(
                "[secrets.API]\nenv = \"OPERATORS_KEY\"\nhosts = [\"api.test:{port}\"]\nheaders = [\"authorization\"]\n"
            ),
        );
        let client = &mut server.client;
        let code = format!(
            "import os, urllib.request\nplaceholder = os.environ['BELLJAR_SECRET_API']\n\
             request = urllib.request.Request('https://api.test:{port}/', headers={{'Authorization': 'Bearer ' + placeholder, 'X-Other': placeholder}})\n\
             print(urllib.request.urlopen(request, timeout=10).read().decode())\nprint(dict(os.environ))"
        );
        let answer = run(client, "python", &code, json!([format!("api.test:{port}")]));
        assert!(!answer.is_error(), "{}", answer.result);
        assert!(!answer.result.to_string().contains(SECRET), "{}", answer.result);
        assert_eq!(web.seen(), [format!("GET api.test:{port} Bearer {SECRET}")]);
        // Nobody else gets even the placeholder.
        let other =
            run(client, "python", "import os\nprint('BELLJAR_SECRET_API' in os.environ)", json!(["other.test"]));
        other.printed("False\n");
        client.python("import os\nprint('BELLJAR_SECRET_API' in os.environ)").printed("False\n");
        drop(folder);
    }
}

#[test]
fn every_attempt_is_a_line_of_the_audit() {
    let web = Web::plain();
    for user in User::all() {
        let audit = folder(0o777);
        let file = audit.path().join("audit.jsonl");
        let (mut server, _folder) = web.serve(&user, &format!("[audit]\nfile = {:?}\n", file.to_str().unwrap()));
        let port = web.port;
        let code = format!("{FETCH}get('http://api.test:{port}/path?token=secretpath')\nget('http://evil.test/')");
        run(&mut server.client, "python", &code, json!([format!("api.test:{port}")]));
        drop(server);
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |host: &str| lines.iter().filter(|line| line.to_string().contains(host)).count();
        assert!(of("api.test") >= 1 && of("evil.test") >= 1, "{text}");
        assert!(!text.contains("secretpath"), "{text}");
    }
}
