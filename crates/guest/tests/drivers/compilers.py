"""The scripts that compile Go and Rust, in projects with dependencies: python3 compilers.py [unittest's arguments].

They take the go and rustc that are in PATH, or none. A folder stands in for a registry.
"""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
import zipfile

from jsharness import text_of

ASK_FOR = 'ask for network: ["packages"]'


class Case(unittest.TestCase):
    language = compiler = None

    def setUp(self):
        if not self.compiler:
            self.skipTest("no compiler of " + self.language)
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.workspace = os.path.join(self.folder, "workspace")
        os.mkdir(self.workspace)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def compile(self, code, **env):
        code = self.write("code", code)
        env = {"PATH": os.environ["PATH"], "HOME": os.path.join(self.folder, "home"), **env}
        # The code is on descriptor 3.
        command = ["sh", "-c", 'exec sh -c "$1" "$2" "$3" 3<"$4"', "sh", text_of(self.language, "run.sh"), self.language,
                   self.compiler, code]
        return subprocess.run(command, cwd=self.workspace, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=300)


class Go(Case):
    language, compiler = "go", shutil.which("go")
    CODE = 'package main\n\nimport (\n\t"fmt"\n\t"example.test/tiny"\n)\n\nfunc main() { fmt.Println(tiny.V()) }\n'

    def setUp(self):
        super().setUp()
        self.write("workspace/go.mod", "module mine\ngo 1.18\nrequire example.test/tiny v1.0.0\n")
        self.env = {"GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-modcacherw"}

    def test_a_requirement_is_fetched_from_where_the_environment_says(self):
        place, files = "proxy/example.test/tiny/@v/v1.0.0", {"go.mod": "module example.test/tiny\ngo 1.18\n",
                                                             "tiny.go": "package tiny\nfunc V() int { return 42 }\n"}
        self.write(place + ".mod", files["go.mod"])
        self.write(place + ".info", '{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}')
        with zipfile.ZipFile(os.path.join(self.folder, place + ".zip"), "w") as archive:
            for name, text in files.items():
                archive.writestr("example.test/tiny@v1.0.0/" + name, text)
        done = self.compile(self.CODE, GOPROXY="file://" + os.path.join(self.folder, "proxy"), **self.env)
        self.assertEqual((done.stdout, done.returncode), ("42\n", 0), done.stderr)

    def test_without_a_network_it_is_told_what_to_ask_for(self):
        done = self.compile(self.CODE, GOPROXY="off", **self.env)
        self.assertIn("example.test/tiny", done.stderr)
        self.assertIn(ASK_FOR, done.stderr.splitlines()[-1])
        done = self.compile("package main\nfunc main() { x }\n", GOPROXY="off", **self.env)
        self.assertIn("undefined: x", done.stderr)
        self.assertNotIn("hint:", done.stderr)


class Rust(Case):
    language, compiler = "rust", shutil.which("rustc")
    CODE = 'fn main() { println!("{}", tiny::v()) }\n'

    def setUp(self):
        super().setUp()
        # What rustup puts there only leads to it.
        root = subprocess.run([self.compiler, "--print", "sysroot"], stdout=subprocess.PIPE, check=True).stdout
        self.compiler = os.path.join(root.decode().strip(), "bin/rustc")
        if not os.path.exists(os.path.join(os.path.dirname(self.compiler), "cargo")):
            self.skipTest("no cargo beside rustc")
        self.env = {"CARGO_HOME": os.path.join(self.folder, "cargo"), "CARGO_NET_OFFLINE": "true"}

    def package(self):
        self.write("workspace/Cargo.toml", '[package]\nname = "mine"\nversion = "0.1.0"\nedition = "2021"\n'
                                           '[dependencies]\ntiny = "1"\n')

    def test_a_dependency_comes_from_where_cargo_is_told(self):
        self.package()
        self.write("vendor/tiny/Cargo.toml", '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n')
        self.write("vendor/tiny/src/lib.rs", "pub fn v() -> u8 { 42 }")
        self.write("vendor/tiny/.cargo-checksum.json", json.dumps({"files": {}, "package": None}))
        self.write("cargo/config.toml", '[source.crates-io]\nreplace-with = "here"\n[source.here]\ndirectory = "%s"\n'
                   % os.path.join(self.folder, "vendor"))
        done = self.compile(self.CODE, **self.env)
        self.assertEqual((done.stdout, done.returncode), ("42\n", 0), done.stderr)

    def test_without_a_network_it_is_told_what_to_ask_for(self):
        self.package()
        done = self.compile(self.CODE, **self.env)
        self.assertIn("tiny", done.stderr)
        self.assertIn(ASK_FOR, done.stderr.splitlines()[-1])

    def test_without_a_package_it_is_told_that_it_takes_one(self):
        done = self.compile(self.CODE, **self.env)
        self.assertIn("Cargo.toml", done.stderr.splitlines()[-1])
        self.assertNotIn("hint:", self.compile("fn main() { x }", **self.env).stderr)


if __name__ == "__main__":
    unittest.main()
