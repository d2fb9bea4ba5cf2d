"""Fields of a request: which of them a server heeds, seen by asking with them and looking at the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from truetune.generation.backends.http_client import (
    ANSWER_TIMEOUT_S,
    Reply,
    list_field,
    send_request,
)
from truetune.generation.backends.server_prompt_ids import id_list

FieldVerdict = Literal["kept", "ignored", "refused", "unknown"]
SendBody = Callable[[Mapping[str, Any]], Reply]
"""Sends a request to one route"""
REFUSED = frozenset({400, 404, 405, 413, 415, 422, 500, 501})
PROBE_TOKENS = 12
"""Tokens of an answer that is asked for to see what a field does"""
HIGH_TEMPERATURES = (50.0, 2.0)
"""Temperatures at which no two answers are equal; some servers take no more than 2"""


@dataclass(frozen=True, slots=True)
class FieldSupport:
    """What a server did with one field."""

    name: str
    verdict: FieldVerdict
    why: str = ""
    """Its words, or what was looked at"""


def has_logprobs(body: Any) -> bool:
    """Numbers, one a token at least."""
    held = _choice(body).get("logprobs")
    content = [
        entry.get("logprob") for entry in list_field(held, "content") if isinstance(entry, dict)
    ]
    return any(
        isinstance(one, int | float) for one in content or list_field(held, "token_logprobs")
    )


def has_token_ids(body: Any) -> bool:
    """Does a reply tell the ids of its tokens?"""
    return bool(id_list(_choice(body), "token_ids"))


def has_prompt_logprobs(body: Any) -> bool:
    """Does a reply tell the log-probabilities of its prompt?"""
    return bool(list_field(body, "prompt_logprobs") or list_field(_choice(body), "prompt_logprobs"))


def has_tokens_as_ids(body: Any) -> bool:
    """Does a reply spell its tokens as ids?"""
    held = _choice(body).get("logprobs")
    tokens = [
        entry.get("token") for entry in list_field(held, "content") if isinstance(entry, dict)
    ]
    tokens = tokens or list_field(held, "tokens")
    return bool(tokens) and all(str(token).startswith("token_id:") for token in tokens)


def has_echo(body: Any) -> bool:
    """More log-probabilities than tokens of the answer"""
    usage = body.get("usage") if isinstance(body, dict) else None
    made = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return (
        type(made) is int
        and len(list_field(_choice(body).get("logprobs"), "token_logprobs")) > made
    )


def body_sender(url: str, seconds: float = ANSWER_TIMEOUT_S) -> SendBody:
    """Sends to this URL, again where the server is busy; other refusals are what is looked for."""
    return lambda body: send_request(url, body, seconds, tries=4, passing=frozenset({429, 503}))


def try_fields(
    ask: SendBody, plain: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]
) -> tuple[Reply, list[FieldSupport]]:
    """A reply to `plain` with as many of `fields` (name -> what is sent) as the server takes, and what it did with
    each. Where it refuses even `plain`, nothing is said of them."""
    reply = ask(
        {**plain, **{key: value for sent in fields.values() for key, value in sent.items()}}
    )
    if reply.status == 200 or not fields:
        return reply, [
            FieldSupport(name, "kept" if FIELD_EFFECTS[name](reply.body) else "ignored")
            for name in fields
        ]
    whole = ask(plain)
    if whole.status != 200:
        return whole, []
    seen = []
    for name, sent in fields.items():
        reply = ask({**plain, **sent})
        kept = reply.status == 200 and FIELD_EFFECTS[name](reply.body)
        whole = reply if kept else whole
        seen.append(
            FieldSupport(name, "kept" if kept else "ignored")
            if reply.status == 200
            else _refused_field(name, reply)
        )
    return whole, seen


FIELD_EFFECTS: dict[str, Callable[[Any], bool]] = {
    "logprobs": has_logprobs,
    "return_token_ids": has_token_ids,
    "return_tokens_as_token_ids": has_tokens_as_ids,
    "prompt_logprobs": has_prompt_logprobs,
    "echo": has_echo,
}


def survey_fields(
    ask: SendBody, plain: Mapping[str, Any], *, settings: Mapping[str, Any] | None = None
) -> list[FieldSupport]:
    """What a server does with each field. `plain` is a request of a chat or a completion: what is asked, and of which
    model; `settings` are variables that make its template write another number of tokens.

    Raises UsageError where no answer comes; says nothing where the server refuses the request itself.
    """
    plain = {**plain, "temperature": 0, "max_tokens": PROBE_TOKENS}
    first = ask(plain)
    if first.status != 200:
        return []
    is_chat = "messages" in plain
    seen = [
        _probe_visible_field(ask, plain, name, sent)
        for name, sent in _visible_fields(is_chat).items()
    ]
    seen += [
        _probe_max_tokens(ask, plain, first),
        _probe_stop(ask, plain, first),
        _probe_answer_count(ask, plain),
    ]
    seen += probe_sampling(ask, plain, first)
    if is_chat:
        seen.append(
            _probe_prompt_length(
                ask, plain, first, "add_generation_prompt", {"add_generation_prompt": False}
            )
        )
        if settings:
            seen.append(
                _probe_prompt_length(
                    ask,
                    plain,
                    first,
                    "chat_template_kwargs",
                    {"chat_template_kwargs": dict(settings)},
                )
            )
    else:
        seen.append(_probe_echo(ask, plain))
    return seen


def _visible_fields(is_chat: bool) -> dict[str, dict[str, Any]]:
    logprobs: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if is_chat else {"logprobs": 2}
    return {
        "logprobs": logprobs,
        "return_token_ids": {"return_token_ids": True},
        "return_tokens_as_token_ids": {**logprobs, "return_tokens_as_token_ids": True},
        "prompt_logprobs": {"prompt_logprobs": 1},
    }


def _probe_visible_field(
    ask: SendBody, plain: Mapping[str, Any], name: str, sent: Mapping[str, Any]
) -> FieldSupport:
    reply = ask({**plain, **sent})
    return (
        _refused_field(name, reply)
        if reply.status != 200
        else FieldSupport(name, "kept" if FIELD_EFFECTS[name](reply.body) else "ignored")
    )


def _probe_max_tokens(ask: SendBody, plain: Mapping[str, Any], first: Reply) -> FieldSupport:
    name, reply = "max_tokens", ask({**plain, "max_tokens": 2})
    if reply.status != 200:
        return _refused_field(name, reply)
    count, whole = _count(reply, "completion_tokens"), _count(first, "completion_tokens")
    if whole is None or count is None or whole <= 2:
        return FieldSupport(name, "unknown", "no answer is long enough to be cut")
    return FieldSupport(name, "kept" if count <= 2 else "ignored", f"{count} tokens of 2")


def _probe_stop(ask: SendBody, plain: Mapping[str, Any], first: Reply) -> FieldSupport:
    name, text = "stop", _answer_text(first)
    words = [word for word in text.split()[1:] if text.count(word) == 1]
    if not words:
        return FieldSupport(name, "unknown", "no answer has a word to stop at")
    word = words[0]
    reply = ask({**plain, "stop": [word]})
    if reply.status != 200:
        return _refused_field(name, reply)
    said, upto = _answer_text(reply), text.partition(word)[0]
    if said.strip() == upto.strip():
        return FieldSupport(name, "kept")
    if said == upto + word:
        return FieldSupport(name, "kept", "the stop string is left in the text")
    return FieldSupport(name, "ignored", f"the answer goes on behind {word!r}")


def _probe_answer_count(ask: SendBody, plain: Mapping[str, Any]) -> FieldSupport:
    reply = ask({**plain, "n": 2, "temperature": 1.0})
    if reply.status != 200:
        return _refused_field("n", reply)
    count = len(list_field(reply.body, "choices"))
    return FieldSupport("n", "kept" if count == 2 else "ignored", f"{count} answers of 2")


def probe_sampling(ask: SendBody, plain: Mapping[str, Any], first: Reply) -> list[FieldSupport]:
    """The temperature, and with it seed and top_p, which do nothing without one."""
    for heat in HIGH_TEMPERATURES:
        hot = {**plain, "temperature": heat}
        replies = [ask({**hot, "seed": seed}) for seed in (1, 1, 2)]
        if replies[0].status == 200:
            break
    else:
        return [_refused_field("temperature", ask(hot)), _refused_field("seed", replies[0])]
    same, again, other = map(_answer_text, replies)
    if same == again == other == _answer_text(first):
        why = f"the greedy answer at a temperature of {heat:g}"
        return [
            FieldSupport("temperature", "ignored" if heat > 10 else "unknown", why),
            FieldSupport("seed", "unknown", why),
            FieldSupport("top_p", "unknown", why),
        ]
    seed = "ignored" if same != again else "kept" if same != other else "unknown"
    seen = [FieldSupport("temperature", "kept"), FieldSupport("seed", seed)]  # type: ignore[arg-type]
    narrow = ask({**hot, "top_p": 1e-6})
    kept = narrow.status == 200 and _answer_text(narrow) == _answer_text(first)
    return [
        *seen,
        (
            _refused_field("top_p", narrow)
            if narrow.status != 200
            else FieldSupport("top_p", "kept" if kept else "ignored")
        ),
    ]


def probe_template_variables(
    ask: SendBody, plain: Mapping[str, Any], count: int
) -> list[FieldSupport]:
    """Are the variables for the template ignored, where the prompt has not `count` tokens with them?"""
    name = "chat_template_kwargs"
    with_them, without = (
        ask(plain),
        ask({key: value for key, value in plain.items() if key != name}),
    )
    found = _count(with_them, "prompt_tokens")
    ignored = found not in (None, count) and found == _count(without, "prompt_tokens")
    return (
        [FieldSupport(name, "ignored", f"{found} tokens of a prompt of {count}")] if ignored else []
    )


def _probe_prompt_length(
    ask: SendBody, plain: Mapping[str, Any], first: Reply, name: str, sent: Mapping[str, Any]
) -> FieldSupport:
    """Does the prompt get another length?"""
    reply = ask({**plain, **sent})
    if reply.status != 200:
        return _refused_field(name, reply)
    count, before = _count(reply, "prompt_tokens"), _count(first, "prompt_tokens")
    if count is None or before is None:
        return FieldSupport(name, "unknown", "the server does not count its prompts")
    return FieldSupport(
        name, "kept" if count != before else "ignored", f"{count} tokens of a prompt of {before}"
    )


def _probe_echo(ask: SendBody, plain: Mapping[str, Any]) -> FieldSupport:
    reply = ask({**plain, "echo": True, "max_tokens": 1})
    if reply.status != 200:
        return _refused_field("echo", reply)
    prompt = plain.get("prompt")
    longer = (
        isinstance(prompt, str)
        and _answer_text(reply).startswith(prompt[:20])
        and len(_answer_text(reply)) >= len(prompt)
    )
    return FieldSupport("echo", "kept" if longer else "ignored")


def _refused_field(name: str, reply: Reply) -> FieldSupport:
    return FieldSupport(name, "refused", reply.refusal)


def _choice(body: Any) -> dict[str, Any]:
    found = next(iter(list_field(body, "choices")), None)
    return found if isinstance(found, dict) else {}


def _answer_text(reply: Reply) -> str:
    choice = _choice(reply.body)
    message = choice.get("message")
    return str((message.get("content") if isinstance(message, dict) else choice.get("text")) or "")


def _count(reply: Reply, name: str) -> int | None:
    usage = reply.body.get("usage") if isinstance(reply.body, dict) else None
    found = usage.get(name) if isinstance(usage, dict) else None
    return found if type(found) is int else None
