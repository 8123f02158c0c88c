import json
from tools import github, atlassian, slack

repo = dict(owner="acme", repo="billing")
bugs = github.list_issues(**repo, state="open", labels=["bug"], per_page=10)
worst = max(bugs, key=lambda bug: bug["comments"])
issue = github.get_issue(**repo, issue_number=worst["number"])
pulls = github.list_pull_requests(**repo, state="open", per_page=5)
pull = pulls[0]
files = github.get_pull_request_files(**repo, pull_number=pull["number"])
status = github.get_pull_request_status(**repo, pull_number=pull["number"])
ticket = json.loads(atlassian.jira_create_issue(
    project_key="OPS", summary=issue["title"], issue_type="Bug", description=issue["body"]))
key = ticket["issue"]["key"]
atlassian.jira_add_comment(
    issue_key=key, body=f"Pull request {pull['number']} ({status['state']}) touches {len(files)} files.")
github.add_issue_comment(**repo, issue_number=issue["number"], body=f"Tracked as {key}.")
slack.slack_post_message(channel_id="C024BE91L", text=f"{key}: {issue['title']}")
print(f"{key} for issue {issue['number']}; pull request {pull['number']} is {status['state']}.")
