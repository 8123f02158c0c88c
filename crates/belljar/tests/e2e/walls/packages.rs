//! Packages from an index of the tests' own.

use serde_json::json;

use super::wall::{Ability, Wall, is_refused};
use crate::index::{Index, Store, point_at};

pub(super) fn packages_are_there(wall: &Wall) {
    let index = Index::start();
    let mut wall = Wall::find(wall.name).unwrap();
    let store = Store::new(&wall.user);
    point_at(&mut wall.user, &index, "");
    let cache = store.cache().display().to_string();
    let more = format!("[network.hosts]\n\"index.test\" = \"127.0.0.1\"\n[packages]\ncache = {cache:?}\n");
    let mut behind = wall.serve_with(&more, &[]);
    let wanted = json!({"packages": ["probe-alpha<2"], "timeout": 50});
    let code = "import probe_alpha\nprint(probe_alpha.VERSION)";
    let answer = behind.run("python", code, wanted.clone());
    if !wall.has(Ability::Packages) {
        return is_refused(&answer, &["package"]);
    }
    answer.printed("1\n");
    let again = behind.run("python", code, wanted);
    again.printed("1\n");
    assert_eq!(again.field("packages")["cached"], true, "{}", again.result);
    // A live sandbox gets more, and keeps what it has.
    let sandbox = behind.create(json!({}));
    let here = |packages: &[&str]| json!({"sandbox_id": sandbox, "packages": packages, "timeout": 50});
    behind.run("python", "kept = 41", here(&[]));
    let added = behind.run("python", "import probe_alpha\nprint(kept + probe_alpha.VERSION)", here(&["probe-alpha<2"]));
    added.printed("42\n");
    let read_only =
        "import probe_alpha\ntry: print(open(probe_alpha.__file__, 'a'))\nexcept OSError: print('read-only')";
    behind.run("python", read_only, here(&[])).printed("read-only\n");
}
