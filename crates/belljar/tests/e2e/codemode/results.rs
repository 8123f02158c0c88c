//! What is too large or no text becomes a file in the sandbox.

use serde_json::json;

use super::place::{Place, prints};
use crate::client::Caller;

#[test]
fn pictures_and_long_answers_become_files() {
    Place::each_public(|place| {
        let place = place.everything().filesystem();
        let mut server = place.serve();
        let client = &mut server.client;
        let picture = r#"
from tools import everything
image = next(each for each in everything.get_tiny_image() if isinstance(each, dict))
data = open(image["file"], "rb").read()
raw = everything.get_tiny_image.raw()
print(image["mime_type"], image["bytes"] == len(data), data[:4], [sorted(each) for each in raw.content], raw.files == [image])
"#;
        prints(
            client,
            "python",
            picture,
            "image/png True b'\\x89PNG' [['text', 'type'], ['bytes', 'file', 'mime_type'], ['text', 'type']] False\n",
        );

        // Three megabytes, of which the model sees one line.
        let lines: String = (0..100_000).map(|number| format!("{number:06} a line of thirty bytes.\n")).collect();
        assert!(lines.len() > 3_000_000);
        place.write("files/large.txt", &lines);
        let path = place.path("files/large.txt");
        let sandbox = client.create(json!({}));
        let read = format!(
            "from tools import filesystem\ntext = filesystem.read_text_file(path={path:?})['content']\n\
             print(len(text), text.splitlines()[99_999][:6])"
        );
        let arguments = |language: &str, code: &str| json!({"language": language, "code": code, "sandbox_id": sandbox});
        let answer = client.call("run_code", arguments("python", &read));
        answer.printed(&format!("{} 099999\n", lines.len()));
        assert!(answer.result.to_string().len() < 4_000, "{}", answer.result);
        let tokens = &answer.result["_meta"]["belljar/tokens"];
        let (entered, direct) = (tokens["entered"].as_u64().unwrap(), tokens["direct"].as_u64().unwrap());
        assert!(entered < 20 && direct > 500_000, "what direct calls would have cost is told: {tokens}");
        let read = format!(
            "import {{ filesystem }} from 'tools';\nconst {{ content }} = await filesystem.read_text_file({{ path: {path:?} }});\n\
             console.log(content.length);"
        );
        client.call("run_code", arguments("typescript", &read)).printed(&format!("{}\n", lines.len()));
        let shell =
            format!("tools call filesystem read_text_file path={path} | wc -c; find .results -size +2M | wc -l");
        let answer = client.call("run_code", arguments("shell", &shell));
        let counts: Vec<u64> = answer.stdout().split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert!(counts[0] > lines.len() as u64 && counts[1] >= 1, "{counts:?}: {}", answer.result);
    });
}
