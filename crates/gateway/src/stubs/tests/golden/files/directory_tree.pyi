from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

class FilterValue(TypedDict):
    op: Literal["not"]
    arg: Filter

class FilterValue_2(TypedDict):
    op: Literal["name"]
    glob: str

Filter: TypeAlias = FilterValue | FilterValue_2

class Node(TypedDict):
    name: str
    size: NotRequired[int | None]
    children: NotRequired[list[Node]]
    meta: NotRequired[dict[str, str]]

def directory_tree(
    *,
    from_: str | None,
    at: tuple[float, float] = ...,
    **others: Any,
) -> list[Node]:
    """
    Args:
        from_: (default null)

    Only as `**{"name": value}`, for these are no names in Python:
        "x-filter": Filter

    Example:
        files.directory_tree(from_="...")
    """
