"""Tests how long a prompt a server takes, and what it does with a longer one.

A prompt that is a little longer than the context must be refused. A server that takes it cut something, silently: two
prompts that differ in their first words tell whether the beginning was read. The trade-off: one long prompt is slow on
a small machine, so none is sent beyond `longest`, and then only what the server tells of itself is known.
"""

from __future__ import annotations

from typing import Any

from truetune.generation.server_observations import ContextLength
from truetune.serving.load_contract_of_trained_prompts import TrainedPrompt
from truetune.serving.server_client import GREEDY, ServerAnswer, ServerClient

# Chosen, not measured: more than a template adds or a count may be off, little against any context.
EXTRA_TOKENS = 64
"""Tokens by which a prompt is longer than the context that the server tells"""
# The context that several servers fall back to (Ollama's default was 2048 for long), so that the cut shows there.
DEFAULT_LONG_PROMPT_TOKENS = 2048
"""Tokens of a long prompt where neither the training nor the server says a length"""
# A plain word: control tokens or rare bytes may be read otherwise by a server than by our tokenizer.
FILLER_WORD = "lighthouse "
# Different in language and words: an answer to one can't be the answer to the other.
BEGINNINGS = ("The first word is apple.", "Das erste Wort ist Birne.")
MODELS_PATH = "/v1/models"
CONTEXT_LENGTH_FIELDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (MODELS_PATH, ("max_model_len",)),
    (MODELS_PATH, ("meta", "n_ctx")),
    ("/props", ("default_generation_settings", "n_ctx")),
    ("/get_server_info", ("context_length",)),
    ("/get_model_info", ("context_length",)),
)
"""Where vLLM, llama.cpp and SGLang tell it: the path, and the place in its answer, of models in the entry of its own"""


def find_context_length_by_long_prompts(
    client: ServerClient,
    trained: TrainedPrompt,
    *,
    positions: int | None,
    longest_trained: int | None,
    longest: int,
    encode: Any,
) -> ContextLength:
    """Send prompts that are longer than the context should be, and see whether they are refused or
    cut.

    Args:
        client: the server.
        trained: a prompt of one turn.
        positions: tokens that the model has positions for.
        longest_trained: tokens of the longest example of the training.
        longest: the most tokens that are sent; 0 for none.
        encode: text -> ids, with the tokenizer of the training.
    """
    reported = read_reported_context_length(client)
    base_facts = ContextLength(reported, positions, longest_trained)
    usual = longest_trained or DEFAULT_LONG_PROMPT_TOKENS
    # A server that tells its context gets more than it takes; of one that does not, what a user would send.
    prompt_tokens = min(usual, positions or usual)
    if reported is not None:
        prompt_tokens = reported + EXTRA_TOKENS
    if prompt_tokens > longest:
        return base_facts
    first_chat, second_chat = (
        _make_long_chat(trained, beginning, prompt_tokens, encode) for beginning in BEGINNINGS
    )
    sent = len(encode(first_chat["messages"][-1]["content"]))
    answer = client.chat(first_chat, 1, **GREEDY, logprobs=True)
    if answer.refusal:
        return ContextLength(reported, positions, longest_trained, sent, None, answer.refusal)
    other_answer = client.chat(second_chat, 1, **GREEDY, logprobs=True)
    depends = _answer_depends_on_beginning(client, trained, answer, other_answer, encode)
    return ContextLength(
        reported, positions, longest_trained, sent, answer.prompt_tokens, "", depends
    )


def read_reported_context_length(client: ServerClient) -> int | None:
    """The context length that the server tells, in tokens."""
    for path, keys in CONTEXT_LENGTH_FIELDS:
        value = client.get(path)
        value = _model_entry_in_list(value, client.server.model) if path == MODELS_PATH else value
        for name in keys:
            value = value.get(name) if isinstance(value, dict) else None
        if type(value) is int and value > 0:
            return value
    return None


def _model_entry_in_list(listed: Any, model: str | None) -> Any:
    """The entry of the model that is asked; of an adapter (vLLM) that of its base, which tells more."""
    entries = listed.get("data") if isinstance(listed, dict) else None
    entries = entries if isinstance(entries, list) else []
    named = {
        entry.get("id"): entry
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    }
    own = named.get(model) if model is not None else next(iter(named.values()), None)
    if not own:
        return None
    parent = named.get(str(own.get("parent"))) or {}
    # vLLM writes max_model_len null for an adapter: what the adapter does not say, its base does.
    return {**parent, **{name: value for name, value in own.items() if value is not None}}


def _make_long_chat(
    trained: TrainedPrompt, beginning: str, tokens: int, encode: Any
) -> dict[str, Any]:
    """A chat whose last message alone has so many tokens, or some more."""
    # From below, as the word is one to four tokens: a prompt that is far too long would cost the server minutes.
    words = tokens // 4 + 1
    while len(encode(FILLER_WORD * words)) < tokens:
        words += words // 8 + 1
    # The question stays at the end, where even a server that cuts beginnings still finds it.
    text = f"{beginning} {FILLER_WORD * words}{trained.messages[-1]['content']}"
    return {
        **trained.as_chat_request_body,
        "messages": [*trained.messages[:-1], {**trained.messages[-1], "content": text}],
    }


def _answer_depends_on_beginning(
    client: ServerClient,
    trained: TrainedPrompt,
    first_answer: ServerAnswer,
    second_answer: ServerAnswer,
    encode: Any,
) -> bool | None:
    """Does the answer depend on the beginning? None where it does not do so in a short prompt either."""
    if not first_answer.steps or not second_answer.steps:
        return None
    # The control: a model that answers the same whatever the first words are would look as if they were cut.
    short = [
        client.chat(_make_long_chat(trained, beginning, 16, encode), 1, **GREEDY, logprobs=True)
        for beginning in BEGINNINGS
    ]
    if (
        any(answer.refusal or not answer.steps for answer in short)
        or short[0].steps[0] == short[1].steps[0]
    ):
        return None
    return first_answer.steps[0] != second_answer.steps[0]
