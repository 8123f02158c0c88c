# What a call can fail with. All of it is catchable, by these or by what Python itself would have raised.


class ToolError(Exception):
    """A tool failed, or could not be called. `str()` is what to do about it."""

    server = tool = code = data = call_id = signature = None
    retryable = False
    problems = suggestions = ()

    def __init__(self, message="", **more):
        Exception.__init__(self, message)
        self.message = message
        self.__dict__.update(more)

    def __str__(self):
        lines = [str(self.message)]
        lines += ["- %s" % problem for problem in self.problems if problem not in lines[0]]
        if self.signature and self.signature not in lines[0]: lines.append("Signature: %s" % self.signature)
        if self.suggestions and not any([each in lines[0] for each in self.suggestions]):
            lines.append("Did you mean: %s" % ", ".join(self.suggestions))
        return "\n".join(lines)

    def __reduce__(self):
        return again, (type(self), self.message, {name: value for name, value in self.__dict__.items()
            if name != "message" and name[:1] != "_"})


class InvalidArguments(ToolError, TypeError):
    """The arguments do not fit; nothing was called. `problems` says why, `signature` what fits."""


class UnknownTool(ToolError, AttributeError):
    """There is no such server or tool. `suggestions` are names that may have been meant."""


class PolicyDenied(ToolError):
    """The operator does not allow this call."""


class ApprovalDenied(ToolError):
    """A person was asked, and said no."""


class AuthRequired(ToolError):
    """A person has to log in first, at `url`."""

    url = None


class RateLimited(ToolError):
    """Too many calls; again after `retry_after` seconds."""

    retry_after = None


class ToolTimeout(ToolError, TimeoutError):
    """The call took longer than its `limit`, in seconds."""

    limit = None


class Cancelled(ToolError):
    """The call was given up."""


class Upstream(ToolError):
    """The server could not be reached, ended, or broke the protocol."""


class BudgetExceeded(ToolError):
    """The program has made as many calls as it may."""


ALL = {each.__name__: each for each in (ToolError, InvalidArguments, UnknownTool, PolicyDenied, ApprovalDenied,
    AuthRequired, RateLimited, ToolTimeout, Cancelled, Upstream, BudgetExceeded)}
for each in ALL.values(): each.__module__ = "tools"
del each


def again(kind, message, more):
    return kind(message, **more)


def made_of(told):
    """The error that an answer tells of."""
    if type(told) is not dict: return ToolError(str(told))
    more = {name: value for name, value in told.items() if name not in ("type", "message", "args") and name[:1] != "_"
        and not callable(getattr(ToolError, name, None))}
    return ALL.get(told.get("type"), ToolError)(str(told.get("message", "the call failed")), **more)
