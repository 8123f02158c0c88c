from typing import Any, Literal

def list_issues(
    *,
    owner: str,
    repo: str,
    after: str = ...,
    direction: Literal["ASC", "DESC"] = ...,
    labels: list[str] = ...,
    perPage: float = ...,
    since: str = ...,
    state: Literal["OPEN", "CLOSED"] = ...,
) -> Any:
    """
    List issues in a GitHub repository. For pagination, use the 'endCursor' from the previous response's 'pageInfo' in the 'after' parameter.

    Args:
        owner: Repository owner
        repo: Repository name
        after: Cursor for pagination.
        direction: Order direction.
        labels: Filter by labels
        perPage: Results per page (at least 1; at most 100)
        since: Filter by date (format date-time)
        state: Filter by state

    By the server's own words: only reads.

    Example:
        files.list_issues(owner="...", repo="...")
    """
