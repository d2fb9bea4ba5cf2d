"""Tells which roles of a chat's turns are those of the answering side, in the spellings of OpenAI,
ShareGPT, Gemma or a bot framework.

Roles are asked about before rows are read in truetune's form, in rows and in scripts: a role may be any JSON value.
"""

from __future__ import annotations

ANSWERING_ROLES = frozenset(("assistant", "gpt", "chatgpt", "model", "bot", "chatbot"))
"""The names under which public sets and templates keep the side that answers; in lower case"""


def is_answering_role(role: object) -> bool:
    """Is this the role of who answers? False for a role that is no text (a list can't be looked up in a set).

    Args:
        role: the value of `role` or `from` in one turn, as it stands in the row.
    """
    return isinstance(role, str) and role.lower() in ANSWERING_ROLES
