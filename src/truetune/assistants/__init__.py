"""What coding assistants use: a skill that tells them which command is for what, and a server of tools.

- `skill.py`, `SKILL.md`: the skill's text, printed or installed.
- `tools.py`: the six tools as plain functions that return records; tests and benches call them in-process.
- `mcp_server.py`: the same six over the Model Context Protocol, with the SDK of the extra `truetune[mcp]`.
"""

from __future__ import annotations
