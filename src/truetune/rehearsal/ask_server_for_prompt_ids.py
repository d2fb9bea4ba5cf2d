"""Asks a server which ids its serving stack makes of the messages of the memorised rows.

What the miniature was asked is the prompt of the training's own template; whether a server builds the same one, only
the server can say. Some tell ids, others their number alone, which proves less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.errors import UsageError
from truetune.generation.backends import http_client
from truetune.generation.backends.http_client import Server
from truetune.generation.backends.server_prompt_ids import ServerPrompt, ask_server_prompt
from truetune.probe.run_record import Record


def find_prompt_server(url: str, model: str | None = None) -> Server:
    """Find a server at a URL that can be asked for prompts. Raises UsageError where nothing answers
    there.
    """
    try:
        return http_client.find_server(url, model)
    except UsageError as error:
        raise UsageError(f"--endpoint: {error}") from None


def ask_server_for_recited_rows_prompts(record: Record, server: Server) -> None:
    """Ask for the prompt of each recited row whose messages are known: `facts["recitation"]["served"]`.

    Raises UsageError where the server stops answering, or has no way to tell any prompt.
    """
    recitation = record.facts.get("recitation", {})
    rows = [
        (i, row["asked"]) for i, row in enumerate(recitation.get("rows", ())) if row.get("asked")
    ]
    # Rows without messages (plain text, rows that were not recognised) have no chat to be asked.
    prompts: list[dict[str, Any]] = []
    refused: list[str] = []
    for i, chat in rows:
        served_prompt = ask_server_prompt(server, chat)
        if isinstance(served_prompt, ServerPrompt) and served_prompt.count is not None:
            prompts.append({"row": i, "ids": served_prompt.ids, "count": served_prompt.count})
        else:
            refused.append(
                served_prompt
                if isinstance(served_prompt, str)
                else "it tells neither ids nor their number"
            )
    # Some refusals are a template's (no system message); all of them are a server that can't be asked.
    if refused and not prompts:
        raise UsageError(
            f"{server.root} tells no prompt of a chat ({refused[0]}): expected vLLM, SGLang,"
            " llama.cpp's server, or any other with /v1/chat/completions, which may need"
            " --served-model"
        )
    recitation["served"] = {"url": server.root, "prompts": prompts}
    record.facts["notes"] += list(
        _notes_on_asked_and_refused_server_prompts(server, prompts, refused)
    )


def _notes_on_asked_and_refused_server_prompts(
    server: Server, prompts: list[dict[str, Any]], refused: list[str]
) -> Iterator[str]:
    """Notes on which prompts the server refused, and what of the others was compared."""
    if refused:
        yield (
            f"{server.root} refused {len(refused)} of {len(refused) + len(prompts)} chats:"
            f" {refused[0]}"
        )
    if not prompts:
        yield f"{server.root} was asked nothing: no messages of a recited row are known"
    elif any(prompt["ids"] is None for prompt in prompts):
        yield (
            f"{server.root} can't tell its prompt ids: the number of tokens of {len(prompts)}"
            " prompts was compared"
        )
    else:
        yield f"the ids of {len(prompts)} prompts were compared with those of {server.root}"
