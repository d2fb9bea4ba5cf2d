"""What the page asks of truetune: the tokens of a pasted chat, as `truetune show --json` prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from truetune.cached_for_one_call import forget_what_was_read
from truetune.checks.check_data import view_row_tokens
from truetune.errors import TruetuneError
from truetune.package import __version__
from truetune.report.token_view_terminal import token_view_json
from truetune.settings.read_truetune_settings import validate_settings

FOLDER = Path("/pasted")
CHAT = FOLDER / "chat.jsonl"
TEMPLATE = FOLDER / "template.jinja"


def show_pasted_chat(chat: str, template: str, settings: str) -> str:
    """Show the tokens of one chat.

    Args:
        chat: a row of training data as JSON, or the messages alone.
        template: Jinja, in place of the tokenizer's own; empty for that one.
        settings: JSON of fields of RunSpec, such as `learn`.

    Returns:
        JSON with `examples`, as of `truetune show --json`, or with `error`.
    """
    forget_what_was_read()
    try:
        given: dict[str, Any] = json.loads(settings)
        CHAT.write_text(json.dumps(_read_chat(chat), ensure_ascii=False) + "\n", encoding="utf-8")
        if template.strip():
            TEMPLATE.write_text(template, encoding="utf-8")
            given["template"] = str(TEMPLATE)
        own = {"data": (str(CHAT),), "tokenizer": str(FOLDER)}
        views = view_row_tokens(validate_settings({**given, **own}, "the page"))
    except (TruetuneError, tokenizers.NoOffsets) as error:
        return json.dumps({"truetune": __version__, "error": str(error)})
    examples = [token_view_json(view) for view in views]
    return json.dumps({"truetune": __version__, "examples": examples})


def _read_chat(text: str) -> Any:
    """The row of a pasted text. Raises TruetuneError where it is no JSON."""
    try:
        row = json.loads(text)
    except ValueError as error:
        raise TruetuneError(f"the chat is not JSON: {error}") from None
    return {"messages": row} if isinstance(row, list) else row
