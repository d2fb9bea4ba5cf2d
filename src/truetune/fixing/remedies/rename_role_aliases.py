"""Renames roles to the four that chat templates know, where people gave them other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.data.bring_messages_into_openai_form import ROLE_BY_SHAREGPT_NAME, ROLES
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue
from truetune.fixing.row_messages_with_paths import Turn

_SPOKEN = {
    "user": ("human", "prompter", "usr", "user_message", "customer", "client", "instruction"),
    "assistant": (
        "bot",
        "chatbot",
        "gpt",
        "chatgpt",
        "gpt4",
        "gpt-4",
        "chatgpt-4",
        "model",
        "ai",
        "llm",
        "agent",
        "response",
        "assistent",
        "asistant",
        "assistant_message",
        "ai_assistant",
        "bing",
        "bard",
        "claude",
        "gemini",
    ),
    "system": ("sys", "system_prompt", "system_message"),
    "tool": (
        "observation",
        "function_response",
        "function_result",
        "function_output",
        "tool_response",
        "tool_result",
        "tool_output",
        "ipython_output",
    ),
}
ALIASES = {alias: role for role, aliases in _SPOKEN.items() for alias in aliases}
"""Only names whose meaning is plain: `agent` and `customer` are the two sides of support chats."""
IN_SHAREGPT = {"user": "human", "assistant": "gpt", "system": "system", "tool": "tool"}


def standard_role_of_name(name: Any) -> str | None:
    """The standard role that a name stands for; None where that is not plain."""
    if not isinstance(name, str):
        return None
    # `User:` and ` user ` are what scripts cut out of plain text.
    plain = name.strip().strip(":").strip().lower().replace(" ", "_")
    return plain if plain in ROLES else ALIASES.get(plain)


class RenameRoles(ProblemRemedy):
    """Renames roles whose name stands for one standard role."""

    rule = "turn-roles-unknown-to-template"
    what = "rename roles to those that templates know"
    safe = True
    stage = Stage.SHAPE
    kinds = ("unknown-role",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that renames the roles of all turns of the row."""
        yield from combine_into_one_attempt(
            edit for turn in row.turns for edit in self._edits_of_turn(row, turn)
        )

    def _edits_of_turn(self, row: RowView, turn: Turn) -> Iterator[Edit]:
        """The edit of a turn's role, where its name is an alias and not read as it is."""
        key, name = turn.role_key, turn.role
        known = ROLE_BY_SHAREGPT_NAME if key == "from" else ROLES
        if key is None or not isinstance(name, str) or name in known or name == "function_call":
            return
        meant = standard_role_of_name(name)
        # Left to a person, with a note: a wrong role teaches the model to speak as the user.
        if meant is None:
            row.notes.append(f"the role {str(name)[:40]!r} could be any; rename it yourself")
            return
        yield PutValue(
            (*turn.path, key), self._spelling_of_role(row, meant) if key == "from" else meant
        )

    def _spelling_of_role(self, row: RowView, role: str) -> str:
        """How a standard role is spelled in this row: `from` takes ShareGPT's names, unless the
        other turns of the row have OpenAI's.
        """
        others = {turn.role for turn in row.turns if turn.role_key == "from"}
        return role if others & {"user", "assistant"} else IN_SHAREGPT.get(role, role)
