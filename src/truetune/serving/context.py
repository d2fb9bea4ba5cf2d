"""Context: how long a prompt a server takes, and what it does with a longer one."""

from __future__ import annotations

from typing import Any

from truetune.generation.server_observations import ContextLength
from truetune.serving.client import GREEDY, Client, Said
from truetune.serving.trained import Trained

MORE = 64
"""Tokens by which a prompt is longer than the context that the server tells"""
USUAL = 2048
"""Tokens of a long prompt where neither the training nor the server says a length"""
WORD = "lighthouse "
BEGINNINGS = ("The first word is apple.", "Das erste Wort ist Birne.")
MODELS = "/v1/models"
TOLD: tuple[tuple[str, tuple[str, ...]], ...] = (
    (MODELS, ("max_model_len",)),
    (MODELS, ("meta", "n_ctx")),
    ("/props", ("default_generation_settings", "n_ctx")),
    ("/get_server_info", ("context_length",)),
    ("/get_model_info", ("context_length",)),
)
"""Where vLLM, llama.cpp and SGLang tell it: the path, and the place in its answer, of models in the entry of its own"""


def context_of(
    client: Client,
    trained: Trained,
    *,
    positions: int | None,
    longest_trained: int | None,
    longest: int,
    encode: Any,
) -> ContextLength:
    """`trained` is a prompt of one turn, `longest` the most tokens that are sent (0: none)."""
    told = told_by(client)
    known = ContextLength(told, positions, longest_trained)
    usual = longest_trained or USUAL
    wanted = told + MORE if told is not None else min(usual, positions or usual)
    if wanted > longest:
        return known
    one, other = (_long(trained, beginning, wanted, encode) for beginning in BEGINNINGS)
    sent = len(encode(one["messages"][-1]["content"]))
    said = client.chat(one, 1, **GREEDY, logprobs=True)
    if said.refusal:
        return ContextLength(told, positions, longest_trained, sent, None, said.refusal)
    return ContextLength(
        told,
        positions,
        longest_trained,
        sent,
        said.read,
        "",
        _tells(client, trained, said, client.chat(other, 1, **GREEDY, logprobs=True), encode),
    )


def told_by(client: Client) -> int | None:
    """The context length that the server tells, in tokens."""
    for path, place in TOLD:
        found = client.get(path)
        found = _own(found, client.server.model) if path == MODELS else found
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if type(found) is int and found > 0:
            return found
    return None


def _own(listed: Any, model: str | None) -> Any:
    """The entry of the model that is asked; of an adapter (vLLM) that of its base, which tells more."""
    entries = listed.get("data") if isinstance(listed, dict) else None
    entries = entries if isinstance(entries, list) else []
    named = {
        one.get("id"): one
        for one in entries
        if isinstance(one, dict) and isinstance(one.get("id"), str)
    }
    own = named.get(model) if model is not None else next(iter(named.values()), None)
    parent = named.get(str(own.get("parent"))) if own else None
    return (
        {**(parent or {}), **{name: value for name, value in own.items() if value is not None}}
        if own
        else None
    )


def _long(trained: Trained, beginning: str, tokens: int, encode: Any) -> dict[str, Any]:
    """A chat whose last message alone has so many tokens, or some more."""
    words = tokens // 4 + 1
    while len(encode(WORD * words)) < tokens:
        words += words // 8 + 1
    text = f"{beginning} {WORD * words}{trained.messages[-1]['content']}"
    return {
        **trained.chat,
        "messages": [*trained.messages[:-1], {**trained.messages[-1], "content": text}],
    }


def _tells(client: Client, trained: Trained, one: Said, other: Said, encode: Any) -> bool | None:
    """Does the answer depend on the beginning? None where it does not do so in a short prompt either."""
    if not one.steps or not other.steps:
        return None
    short = [
        client.chat(_long(trained, beginning, 16, encode), 1, **GREEDY, logprobs=True)
        for beginning in BEGINNINGS
    ]
    if (
        any(said.refusal or not said.steps for said in short)
        or short[0].steps[0] == short[1].steps[0]
    ):
        return None
    return one.steps[0] != other.steps[0]
