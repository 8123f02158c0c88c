# Brings uv in, inside the walls: finds the wheel of a known hash in the index, and unpacks the one program.
import hashlib
import html.parser
import io
import json
import os
import sys
import urllib.parse
import urllib.request
import zipfile

job = json.load(sys.stdin)
SIZE_MAX = 200 << 20


def get(url, accept):
    request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "belljar"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.geturl(), answer.headers.get_content_type(), answer.read(SIZE_MAX)


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(dict(attributes).get("href") or "")


def wheel(index):
    url, kind, page = get(index.rstrip("/") + "/uv/", "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
    if kind == "application/vnd.pypi.simple.v1+json":
        links = [file["url"] for file in json.loads(page)["files"]]
    else:
        links = Links()
        links.feed(page.decode("utf-8", "replace"))
        links = links.found
    for link in links:
        name = urllib.parse.unquote(urllib.parse.urlparse(link).path.rsplit("/", 1)[-1])
        if name == job["wheel"]:
            return get(urllib.parse.urldefrag(urllib.parse.urljoin(url, link)).url, "*/*")[2]
    raise SystemExit("%s is not in the index" % job["wheel"])


print("belljar:downloading", file=sys.stderr, flush=True)
try:
    found = wheel(job["index"])
except OSError as error:
    raise SystemExit("uv could not be downloaded: %s" % error)
if hashlib.sha256(found).hexdigest() != job["sha256"]:
    raise SystemExit("the wheel of uv is not the one that is known")
layer = job["build"] + "/layer"
os.makedirs(layer + "/bin")
with zipfile.ZipFile(io.BytesIO(found)) as archive:
    program = archive.read("uv-%s.data/scripts/uv" % job["version"])
with open(layer + "/bin/uv", "wb") as file:
    file.write(program)
os.chmod(layer + "/bin/uv", 0o755)
json.dump({"packages": [["uv", job["version"]]], "modules": []}, sys.stdout)
