use super::imports;

fn found(language: &str, source: &str) -> Vec<String> {
    let json: serde_json::Value = serde_json::from_str(&imports(Some(language), source).unwrap()).unwrap();
    let modules = json["modules"].as_array().unwrap();
    modules
        .iter()
        .map(|module| {
            let version = module["version"].as_str().map(|version| format!("@{version}")).unwrap_or_default();
            let mark = if module["optional"].as_bool().unwrap() { "?" } else { "" };
            format!("{}{version}{mark}", module["name"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn python_imports_are_found_wherever_they_stand() {
    let source = "import os, numpy as np\nfrom pandas.io import json\nfrom . import near\nfrom .near import it\n\
                  def f():\n    import scipy.stats\n    return importlib.import_module('sklearn')\n\
                  class A:\n    x = [__import__(\"yaml\") for _ in ()]\n\
                  __import__(name)\nimport_module('.a', 'b')\n";
    assert_eq!(found("python", source), ["numpy", "os", "pandas.io", "scipy.stats", "sklearn", "yaml"]);
}

#[test]
fn what_a_python_program_can_do_without_is_optional() {
    let source = "try:\n    import ujson as json\nexcept ImportError:\n    import orjson as json\n\
                  try:\n    import a1\nexcept (OSError, ModuleNotFoundError):\n    pass\nelse:\n    import a2\n\
                  try:\n    import b1\nexcept ValueError:\n    pass\n\
                  try:\n    import c1\nexcept:\n    pass\n\
                  if TYPE_CHECKING:\n    import d1\nelse:\n    import d2\n\
                  if typing.TYPE_CHECKING:\n    import e1\nimport c1\n";
    assert_eq!(found("python", source), ["a1?", "a2", "b1", "c1", "d1?", "d2", "e1?", "orjson?", "ujson?"]);
}

#[test]
fn cells_with_magics_are_read_and_broken_code_asks_for_nothing() {
    assert_eq!(found("python", "!pip install x\n%matplotlib inline\nimport numpy\nnumpy?\n"), ["numpy"]);
    assert_eq!(found("python", "import numpy\ndef f(:\n"), [] as [&str; 0]);
    assert_eq!(found("python", "text = 'import numpy'\n# import pandas\n"), [] as [&str; 0]);
}

#[test]
fn packages_that_share_a_name_are_told_apart() {
    let source =
        "from google.cloud import storage, bigquery\nimport google.protobuf.message\nfrom google import genai\n";
    assert_eq!(
        found("python", source),
        ["google.cloud.bigquery", "google.cloud.storage", "google.genai", "google.protobuf.message"]
    );
}

#[test]
fn javascript_packages_are_found_in_every_form() {
    let source = "import a from 'lodash';\nimport fs from 'node:fs';\nimport './near.js';\nexport * from '@scope/pack/part';\n\
                  export { x } from 'chalk';\nconst c = require('express'), d = require(name);\n\
                  const e = await import('zod');\nimport npm from 'npm:dayjs@1.11.0/plugin';\n\
                  import 'npm:@types/x@^2'; import 'npm:nanoid/part';\nimport 'https://example.org/x.js';\nrequire.resolve(`ms`);\n";
    assert_eq!(
        found("javascript", source),
        [
            "@scope/pack/part",
            "@types/x@^2",
            "chalk",
            "dayjs@1.11.0",
            "express",
            "lodash",
            "ms",
            "nanoid/part@latest",
            "zod"
        ]
    );
}

#[test]
fn types_are_no_packages_and_what_is_caught_is_optional() {
    let source = "import type { T } from 'only-types';\nimport { x }  from 'real';\nexport type { U } from 'more-types';\n\
                  import y = require('old');\ntry { require('maybe') } catch { require('surely') }\n";
    assert_eq!(found("typescript", source), ["maybe?", "old", "real", "surely"]);
}

#[test]
fn scripts_that_are_no_modules_are_read_too() {
    assert_eq!(found("javascript", "with (Math) { max(1) }\nconst x = require('left-pad');\n"), ["left-pad"]);
    assert_eq!(found("javascript", "import {"), [] as [&str; 0]);
}

#[test]
fn nesting_as_deep_as_code_may_be_long_ends_no_test() {
    // Within the walls the stack is larger; here it is that of a test.
    let source = format!("x = {}1{}\nimport numpy\n", "(".repeat(100_000), ")".repeat(100_000));
    let worker = std::thread::Builder::new().stack_size(crate::STACK_BYTES).spawn(move || found("python", &source));
    worker.unwrap().join().unwrap();
}
