"""An MCP server over stdio that offers a recorded catalogue, and answers some of its tools with made-up data.

    python3 upstream.py RECORD.json

The tools are listed as the real server sent them. Those that the token benchmark's workflows call have an answer below: the
same for the same arguments, on every machine and in every version of Python, so that what is measured can be measured again.
The shapes are those of the real servers. Every other tool says that it has none. Nothing is remembered between calls.
"""

import json
import sys

PAGE = 100


class Dice:
    """Numbers that look random and never change; Python's own may, between versions."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % bound

    def of(self, things):
        return things[self.below(len(things))]


def seed_of(text):
    seed = 1469598103934665603
    for byte in text.encode():
        seed = (seed ^ byte) * 1099511628211 % (1 << 64)
    return seed


class ToolFailed(Exception):
    """What a tool says when it fails: a result, and no error of the protocol."""


PEOPLE = ["Amara Okafor", "Jonas Lindqvist", "Priya Raman", "Tomasz Nowak", "Elena Petrova", "Marcus Hale"]
OPENINGS = ["So", "Right, so", "I think", "Honestly", "To be clear", "From our side", "As far as I know", "The way I see it"]
SUBJECTS = [
    "the migration", "the pricing page", "the onboarding flow", "our biggest customer", "the support backlog", "the forecast",
    "the mobile release", "the audit", "the data warehouse", "the partner programme", "the renewal", "the hiring plan",
]
VERBS = [
    "needs another week", "is ahead of what we planned", "depends on the legal review", "was harder than it looked",
    "should be split into two parts", "costs more than we budgeted", "is blocked until procurement answers",
    "got very good feedback", "has to be ready before the board meets", "worries me a little",
]
REASONS = [
    "because the numbers from the last quarter changed", "since nobody owns it yet", "and I will write that down for everyone",
    "so let us come back to it on Thursday", "although the pilot group liked it", "which is what we promised in writing",
    "and the dashboard shows the same", "unless finance objects", "because two people are on leave", "and that is fine by me",
]


def transcript(seed, turns):
    """The words of a long meeting."""
    dice = Dice(seed)
    lines, seconds = [], 0
    for _ in range(turns):
        seconds += 7 + dice.below(40)
        said = " ".join(
            f"{dice.of(OPENINGS)} {dice.of(SUBJECTS)} {dice.of(VERBS)} {dice.of(REASONS)}." for _ in range(1 + dice.below(3))
        )
        lines.append(f"[{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}] {dice.of(PEOPLE)}: {said}")
    return "\n\n".join(lines)


def page_markdown(arguments):
    body = transcript(seed_of(arguments["page_id"]), 505)
    return {"object": "page_markdown", "id": arguments["page_id"], "markdown": f"# Quarterly planning call\n\n{body}", "truncated": False,
            "unknown_block_ids": []}


def create_engagement(arguments):
    body = arguments["metadata"].get("body", "")
    number = seed_of(body) % 10**11
    return {"engagement": {"id": number, "type": arguments["type"], "ownerId": arguments["ownerId"], "active": True},
            "associations": arguments["associations"], "characters": len(body)}


CITIES = ["Lagos", "Lyon", "Lima", "Leeds", "Linz", "Lublin", "Luanda", "Lahore"]
STATES = ["paid", "paid", "paid", "pending", "shipped", "refunded"]


def records(arguments):
    dice = Dice(seed_of(arguments["baseId"] + arguments["tableId"]))
    rows = []
    for number in range(min(int(arguments.get("maxRecords", 10_000)), 10_000)):
        rows.append({"id": f"rec{number:08}", "fields": {
            "Order": f"SO-{100_000 + number}", "Customer": dice.of(PEOPLE), "City": dice.of(CITIES), "Status": dice.of(STATES),
            "Amount": (500 + dice.below(99_500)) / 100}})
    return {"records": rows}


def geocode(arguments):
    dice = Dice(seed_of(arguments["address"]))
    place = {"lat": (dice.below(120_000_000) - 50_000_000) / 1_000_000, "lng": (dice.below(300_000_000) - 150_000_000) / 1_000_000}
    return {"location": place, "formatted_address": arguments["address"] + ", Germany", "place_id": f"ChIJ{dice.below(10**9):09}"}


def current_time(arguments):
    hours = seed_of(arguments["timezone"]) % 24
    return {"timezone": arguments["timezone"], "datetime": f"2026-03-04T{hours:02}:30:00+00:00", "day_of_week": "Wednesday", "is_dst": False}


def user(dice):
    name = dice.of(PEOPLE)
    login = name.split()[0].lower()
    return {"login": login, "id": dice.below(10**7), "avatar_url": f"https://avatars.example.com/u/{login}",
            "url": f"https://api.example.com/users/{login}", "html_url": f"https://git.example.com/{login}"}


def issue(arguments, number, body):
    dice = Dice(seed_of(f"{arguments['owner']}/{arguments['repo']}#{number}"))
    where = f"https://git.example.com/{arguments['owner']}/{arguments['repo']}/issues/{number}"
    subject = dice.of(SUBJECTS)
    found = {"url": where.replace("git.", "api."), "html_url": where, "id": dice.below(10**9), "number": number,
             "title": f"{subject} {dice.of(VERBS)}", "state": "open", "locked": False, "user": user(dice),
             "labels": [{"id": dice.below(10**6), "name": name} for name in ("bug", dice.of(["p1", "p2", "p3"]))],
             "comments": dice.below(40), "created_at": "2026-02-01T10:00:00Z", "updated_at": "2026-03-01T10:00:00Z"}
    if body:
        found["body"] = " ".join(f"{dice.of(OPENINGS)} {subject} {dice.of(VERBS)} {dice.of(REASONS)}." for _ in range(12))
    return found


def issues(arguments):
    number = int(arguments.get("per_page", 30))
    return [issue(arguments, 400 + place, body=False) for place in range(number)]


def pull(arguments, number):
    dice = Dice(seed_of(f"{arguments['owner']}/{arguments['repo']}!{number}"))
    return {"number": number, "title": f"Fix {dice.of(SUBJECTS)}", "state": "open", "user": user(dice), "draft": False,
            "html_url": f"https://git.example.com/{arguments['owner']}/{arguments['repo']}/pull/{number}",
            "head": {"ref": f"fix-{number}", "sha": f"{dice.below(1 << 30):08x}"}, "base": {"ref": "main"},
            "body": f"Closes #{400 + number % 10}. {dice.of(OPENINGS)} {dice.of(SUBJECTS)} {dice.of(VERBS)}."}


def pulls(arguments):
    return [pull(arguments, 700 + place) for place in range(int(arguments.get("per_page", 10)))]


def pull_files(arguments):
    dice = Dice(int(arguments["pull_number"]))
    names = ["src/billing.py", "src/invoice.py", "tests/test_billing.py", "docs/billing.md"]
    return [{"filename": name, "status": "modified", "additions": dice.below(60), "deletions": dice.below(30),
             "patch": "@@ -1,4 +1,4 @@\n" + "\n".join(f"{dice.of('+- ')} {dice.of(SUBJECTS)} {dice.of(VERBS)}" for _ in range(10))}
            for name in names]


def pull_status(arguments):
    dice = Dice(int(arguments["pull_number"]))
    checks = [{"context": name, "state": dice.of(["success", "success", "failure"]), "description": "Finished"}
              for name in ("build", "unit", "lint", "e2e")]
    failed = any(check["state"] == "failure" for check in checks)
    return {"state": "failure" if failed else "success", "statuses": checks, "total_count": len(checks)}


def github_comment(arguments):
    return {"id": seed_of(arguments["body"]) % 10**9, "body": arguments["body"],
            "html_url": f"https://git.example.com/{arguments['owner']}/{arguments['repo']}/issues/{arguments['issue_number']}#comment"}


def jira_create(arguments):
    key = f"{arguments['project_key']}-{100 + seed_of(arguments['summary']) % 900}"
    return {"message": "Issue created successfully", "issue": {"key": key, "summary": arguments["summary"], "status": {"name": "To Do"},
            "url": f"https://jira.example.com/browse/{key}"}}


def jira_comment(arguments):
    return {"id": str(seed_of(arguments["body"]) % 10**6), "body": arguments["body"], "created": "2026-03-04T09:30:00+00:00"}


TRANSITIONS = [("11", "To Do"), ("21", "In Progress"), ("31", "In Review"), ("41", "Done")]


def jira_transitions(_arguments):
    return [{"id": number, "name": name, "to_status": name} for number, name in TRANSITIONS]


def jira_transition(arguments):
    names = dict(TRANSITIONS)
    if arguments["transition_id"] not in names:
        raise ToolFailed(f"Error transitioning issue {arguments['issue_key']}: It seems that you have tried to perform a workflow "
                         f"operation ({arguments['transition_id']}) that is not valid for the current state of this issue.")
    return {"message": f"Issue {arguments['issue_key']} transitioned successfully",
            "issue": {"key": arguments["issue_key"], "status": {"name": names[arguments["transition_id"]]}}}


def slack_post(arguments):
    stamp = f"1772616600.{seed_of(arguments['text']) % 10**6:06}"
    return {"ok": True, "channel": arguments["channel_id"], "ts": stamp, "message": {"type": "message", "text": arguments["text"], "ts": stamp}}


def fetched(arguments):
    whole = transcript(seed_of(arguments["url"]), 60)
    start = int(arguments.get("start_index", 0))
    return f"Contents of {arguments['url']}:\n{whole[start:start + int(arguments.get('max_length', 5000))]}"


ANSWERS = {
    ("notion", "API-retrieve-page-markdown"): page_markdown,
    ("hubspot", "hubspot-create-engagement"): create_engagement,
    ("airtable", "list_records"): records,
    ("google_maps", "maps_geocode"): geocode,
    ("time", "get_current_time"): current_time,
    ("github", "list_issues"): issues,
    ("github", "get_issue"): lambda arguments: issue(arguments, int(arguments["issue_number"]), body=True),
    ("github", "list_pull_requests"): pulls,
    ("github", "get_pull_request_files"): pull_files,
    ("github", "get_pull_request_status"): pull_status,
    ("github", "add_issue_comment"): github_comment,
    ("atlassian", "jira_create_issue"): jira_create,
    ("atlassian", "jira_add_comment"): jira_comment,
    ("atlassian", "jira_get_transitions"): jira_transitions,
    ("atlassian", "jira_transition_issue"): jira_transition,
    ("slack", "slack_post_message"): slack_post,
    ("fetch", "fetch"): fetched,
}


def call(server, definition, arguments):
    """The result of one call, as the protocol has it."""
    answer = ANSWERS.get((server, definition["name"]))
    if answer is None:
        return {"content": [{"type": "text", "text": f"{definition['name']} has no recorded answer."}], "isError": True}
    try:
        value = answer(arguments)
    except ToolFailed as failed:
        return {"content": [{"type": "text", "text": str(failed)}], "isError": True}
    except (KeyError, TypeError, ValueError) as error:
        return {"content": [{"type": "text", "text": f"wrong arguments: {error!r}"}], "isError": True}
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result = {"content": [{"type": "text", "text": text}], "isError": False}
    schema = definition.get("outputSchema")
    if schema:
        # What FastMCP does with a tool that returns a string.
        result["structuredContent"] = {"result": text} if schema.get("x-fastmcp-wrap-result") else value
    return result


def answer(record, method, params):
    tools = record["tools"]
    if method == "initialize":
        return {"protocolVersion": params.get("protocolVersion", "2025-06-18"), "capabilities": {"tools": {}},
                "serverInfo": {"name": record["server"], "version": record["version"]}}
    if method == "ping":
        return {}
    if method == "tools/list":
        start = int(params.get("cursor") or 0)
        page = {"tools": tools[start:start + PAGE]}
        return page | ({"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {})
    if method == "tools/call":
        for definition in tools:
            if definition["name"] == params.get("name"):
                return call(record["server"], definition, params.get("arguments") or {})
        raise LookupError(f"Unknown tool: {params.get('name')}")
    raise NotImplementedError(f"Method not found: {method}")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        record = json.load(file)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = answer(record, message["method"], message.get("params") or {})
        except NotImplementedError as error:
            reply["error"] = {"code": -32601, "message": str(error)}
        except (LookupError, ValueError) as error:
            reply["error"] = {"code": -32602, "message": str(error)}
        sys.stdout.buffer.write(json.dumps(reply, ensure_ascii=False).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
