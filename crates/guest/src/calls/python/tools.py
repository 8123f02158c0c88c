"""The tools of other servers: `from tools import github; github.list_issues(owner="o")`. See /tools/README.md."""

import sys

import mcp_runtime

# Not this module, which can have no subscription of its own. What is behind it is elsewhere, so that a file of the same
# name in the workspace stands in nobody's way.
sys.modules[__name__] = mcp_runtime.found()
