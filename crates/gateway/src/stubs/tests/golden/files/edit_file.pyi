from typing import TypedDict

class EditFileEditsItem(TypedDict):
    oldText: str  # Text to search for - must match exactly
    newText: str  # Text to replace with

class EditFileResult(TypedDict):
    content: str

def edit_file(
    *,
    path: str,
    edits: list[EditFileEditsItem],
    dryRun: bool = ...,
) -> EditFileResult:
    """
    Make line-based edits to a text file.

    Each edit replaces exact line sequences.

    Args:
        dryRun: Preview changes using git-style diff format (default false)

    By the server's own words: may destroy.

    Example:
        files.edit_file(path="...", edits=[{"oldText": "...", "newText": "..."}])
    """
