"""Which fields of a request a server heeds: seen by asking with each of them and looking at the answer.

OpenAI-compatible servers differ in what they take, and most take a field that they do not know without a word: a seed
that does nothing looks like one that works. So nothing is believed by the name of a server or its version. A field is
*kept* where its effect shows in an answer (there are log-probabilities, there are two answers, the answer is short),
*ignored* where the request succeeds without the effect, *refused* where the server says no, and *unknown* where no
answer could have shown it.

Two users: the server backend tries the few optional fields that it would like (`ask_with_accepted_fields`), in
one request where that succeeds; `truetune serve-check` surveys all of them (`survey_heeded_fields`), one by one, at
some 15 short requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from truetune.generation.backends.http_client import (
    ANSWER_TIMEOUT_S,
    Reply,
    first_choice,
    list_field,
    send_request,
    usage_count,
)
from truetune.generation.backends.server_prompt_ids import id_list

FieldVerdict = Literal["kept", "ignored", "refused", "unknown"]
SendBody = Callable[[Mapping[str, Any]], Reply]
"""Sends a request to one route"""
# Chosen, not measured: long enough to hold a word to stop at and to be cut at 2, and cheap on a CPU.
PROBE_TOKENS = 12
"""Tokens of an answer that is asked for to see what a field does"""
CUT_TOKENS = 2
"""To which an answer is cut to see whether the limit is heeded"""
# At 2 a model that is sure of itself (an overfitted one) may still give the greedy answer, so that equality proves
# nothing there.
HIGH_TEMPERATURES = (50.0, 2.0)
"""At which no two answers are equal; some servers take no more than 2"""
TINY_TOP_P = 1e-6
"""Leaves the likeliest token alone: a server that heeds it gives the greedy answer at any temperature"""
WHOLE_MIN_P = 1.0
"""Leaves the likeliest token alone, as `TINY_TOP_P` does"""
VERBS = {"ignored": "ignores", "refused": "refuses"}
CONSEQUENCES = {
    "logprobs": "the log-probabilities of its answers are not known",
    "return_token_ids": "the ids of its answers are those of their text",
    "temperature": "its answers are not sampled as asked",
    "seed": "another run gives other answers",
    "top_p": "its answers are drawn from all tokens",
    "min_p": "its answers are drawn from unlikely tokens too",
    "chat_template_kwargs": "its prompts are made without the variables of the template",
}
"""What follows for a reader where a field is not heeded"""


@dataclass(frozen=True, slots=True)
class FieldSupport:
    """What a server did with one field."""

    name: str
    verdict: FieldVerdict
    why: str = ""
    """Its words, or what was looked at"""


def notes_on_unheeded_fields(fields: Iterable[FieldSupport]) -> Iterator[str]:
    """A sentence for each field that a server was asked to heed and did not."""
    for field in fields:
        if field.verdict in VERBS:
            why = f" ({field.why})" if field.why else ""
            yield (
                f"the server {VERBS[field.verdict]} `{field.name}`{why}: {CONSEQUENCES[field.name]}"
            )


def has_logprobs(body: Any) -> bool:
    """Does a reply hold the log-probability of one token at least?"""
    logprobs = first_choice(body).get("logprobs")
    content = [entry for entry in list_field(logprobs, "content") if isinstance(entry, dict)]
    values = [entry.get("logprob") for entry in content] or list_field(logprobs, "token_logprobs")
    return any(isinstance(value, int | float) for value in values)


def has_token_ids(body: Any) -> bool:
    """Does a reply tell the ids of its tokens?"""
    return bool(id_list(first_choice(body), "token_ids"))


def has_prompt_logprobs(body: Any) -> bool:
    """Does a reply tell the log-probabilities of its prompt?"""
    # Of chats vLLM puts them beside the choices, of completions into the choice.
    places = (body, first_choice(body))
    return any(list_field(place, "prompt_logprobs") for place in places)


def has_tokens_as_ids(body: Any) -> bool:
    """Does a reply spell its tokens as ids (`token_id:42`)?"""
    logprobs = first_choice(body).get("logprobs")
    content = [entry for entry in list_field(logprobs, "content") if isinstance(entry, dict)]
    tokens = [entry.get("token") for entry in content] or list_field(logprobs, "tokens")
    return bool(tokens) and all(str(token).startswith("token_id:") for token in tokens)


def has_logprobs_of_prompt_too(body: Any) -> bool:
    """Does a reply hold more log-probabilities than the tokens of its answer?"""
    completed = usage_count(body, "completion_tokens")
    logprobs = list_field(first_choice(body).get("logprobs"), "token_logprobs")
    return completed is not None and len(logprobs) > completed


FIELD_EFFECTS: dict[str, Callable[[Any], bool]] = {
    "logprobs": has_logprobs,
    "return_token_ids": has_token_ids,
    "return_tokens_as_token_ids": has_tokens_as_ids,
    "prompt_logprobs": has_prompt_logprobs,
    "echo": has_logprobs_of_prompt_too,
}
"""Name of a field -> does the body of a reply show its effect?"""


def make_request_sender(url: str, seconds: float = ANSWER_TIMEOUT_S) -> SendBody:
    """A function that sends a request to this URL, again where the server is busy. It returns
    refusals, which are what is looked for.
    """
    return lambda body: send_request(url, body, seconds, tries=4, passing=frozenset({429, 503}))


def ask_with_accepted_fields(
    ask: SendBody, plain: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]
) -> tuple[Reply, list[FieldSupport]]:
    """Ask with as many of some fields as the server takes.

    Args:
        ask: sends to one route.
        plain: a request without them.
        fields: name -> what is sent for it.

    Returns:
        A reply to `plain` with the fields that the server keeps, and what it did with each. Where it refuses even
        `plain`, its refusal, and nothing is said of the fields.
    """
    # All at once first: most servers take unknown fields, and each further request costs an answer.
    everything = {key: value for extra in fields.values() for key, value in extra.items()}
    reply = ask({**plain, **everything})
    if reply.status == 200 or not fields:
        return reply, [_support_of_field_seen_in_reply(name, reply) for name in fields]
    best = ask(plain)
    if best.status != 200:
        return best, []
    support = []
    for name, extra in fields.items():
        reply = ask({**plain, **extra})
        support.append(_support_of_field_seen_in_reply(name, reply))
        if support[-1].verdict == "kept":
            best = reply
    return best, support


def survey_heeded_fields(
    ask: SendBody, plain: Mapping[str, Any], *, settings: Mapping[str, Any] | None = None
) -> list[FieldSupport]:
    """Find out what a server does with each field that users send.

    Args:
        ask: sends to one route.
        plain: a request of a chat or a completion: what is asked, and of which model.
        settings: variables that make its template write another number of tokens, where there are such.

    Returns:
        One entry a field; none where the server refuses the request itself.

    Raises:
        UsageError: where no answer comes.
    """
    plain = {**plain, "temperature": 0, "max_tokens": PROBE_TOKENS}
    first = ask(plain)
    if first.status != 200:
        return []
    is_chat = "messages" in plain
    support = [
        _support_of_field_seen_in_reply(name, ask({**plain, **extra}))
        for name, extra in _fields_with_effect_in_reply(is_chat).items()
    ]
    support += [
        _probe_max_tokens(ask, plain, first),
        _probe_stop(ask, plain, first),
        _probe_answer_count(ask, plain),
    ]
    support += probe_sampling(ask, plain, first)
    if not is_chat:
        return [*support, _probe_echo(ask, plain)]
    variables: dict[str, dict[str, Any]] = {
        "add_generation_prompt": {"add_generation_prompt": False}
    }
    if settings:
        variables["chat_template_kwargs"] = {"chat_template_kwargs": dict(settings)}
    for name, extra in variables.items():
        support.append(_probe_prompt_length(ask, plain, first, name, extra))
    return support


def probe_sampling(ask: SendBody, plain: Mapping[str, Any], first: Reply) -> list[FieldSupport]:
    """The temperature, and with it seed, top_p and min_p, which do nothing without one.

    Args:
        ask: sends to one route.
        plain: a greedy request.
        first: the answer to it.
    """
    # Two requests with one seed and a third with another: what is equal between them tells the fields apart.
    for heat in HIGH_TEMPERATURES:
        hot = {**plain, "temperature": heat}
        replies = [ask({**hot, "seed": seed}) for seed in (1, 1, 2)]
        if replies[0].status == 200:
            break
    else:
        # Was it the temperature, or the seed, that was refused? Without a seed it is the temperature alone.
        return [_refused_field("temperature", ask(hot)), _refused_field("seed", replies[0])]
    same, again, other = map(_answer_text, replies)
    if same == again == other == _answer_text(first):
        why = f"the greedy answer at a temperature of {heat:g}"
        return [
            FieldSupport("temperature", "ignored" if heat > 10 else "unknown", why),
            FieldSupport("seed", "unknown", why),
            FieldSupport("top_p", "unknown", why),
            _min_p_support_without_effect(ask({**hot, "min_p": WHOLE_MIN_P}), why),
        ]
    narrow = ask({**hot, "top_p": TINY_TOP_P})
    return [
        FieldSupport("temperature", "kept"),
        FieldSupport("seed", _seed_verdict(same, again, other)),
        _field_support_by_effect("top_p", narrow, _answer_text(narrow) == _answer_text(first)),
        _probe_min_p(ask, hot, first, same if same == again else None),
    ]


def _min_p_support_without_effect(reply: Reply, why: str) -> FieldSupport:
    """What is known of min_p where no answer shows an effect: whether it is refused, as no field of OpenAI's."""
    if reply.status != 200:
        return _refused_field("min_p", reply)
    return FieldSupport("min_p", "unknown", why)


def _probe_min_p(
    ask: SendBody, hot: Mapping[str, Any], first: Reply, unfiltered: str | None
) -> FieldSupport:
    """Is an answer drawn with a min_p of 1 the greedy one, or at least another than without it?

    Args:
        ask: sends to one route.
        hot: a request at a high temperature.
        first: the greedy answer.
        unfiltered: that to `hot` with the seed 1; None where the seed does not decide it.
    """
    reply = ask({**hot, "seed": 1, "min_p": WHOLE_MIN_P})
    text = _answer_text(reply)
    # Two tokens may be equally likely (logits of bfloat16 often are): then min_p leaves both, and the draw decides.
    has_effect = text == _answer_text(first) or (unfiltered is not None and text != unfiltered)
    return _field_support_by_effect("min_p", reply, has_effect)


def probe_template_variables(
    ask: SendBody, plain: Mapping[str, Any], count: int
) -> list[FieldSupport]:
    """Are the variables for the template ignored? Only where that is sure: there is no entry where they may be heeded.

    Args:
        ask: sends to the route of chats.
        plain: a request with `chat_template_kwargs`.
        count: tokens that its prompt has with them.
    """
    name = "chat_template_kwargs"
    without = {key: value for key, value in plain.items() if key != name}
    counts = [usage_count(ask(body).body, "prompt_tokens") for body in (plain, without)]
    # Another number than expected may be a BOS that the server adds. That it is the same without them is the proof.
    is_ignored = counts[0] not in (None, count) and counts[0] == counts[1]
    why = f"{counts[0]} tokens of a prompt of {count}"
    return [FieldSupport(name, "ignored", why)] if is_ignored else []


def _fields_with_effect_in_reply(is_chat: bool) -> dict[str, dict[str, Any]]:
    """Fields whose effect stands in the reply itself: name -> what is sent."""
    logprobs: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if is_chat else {"logprobs": 2}
    return {
        "logprobs": logprobs,
        "return_token_ids": {"return_token_ids": True},
        "return_tokens_as_token_ids": {**logprobs, "return_tokens_as_token_ids": True},
        "prompt_logprobs": {"prompt_logprobs": 1},
    }


def _probe_max_tokens(ask: SendBody, plain: Mapping[str, Any], first: Reply) -> FieldSupport:
    """Is an answer cut at the limit? Seen only where it is longer without one."""
    reply = ask({**plain, "max_tokens": CUT_TOKENS})
    if reply.status != 200:
        return _refused_field("max_tokens", reply)
    count = usage_count(reply.body, "completion_tokens")
    whole = usage_count(first.body, "completion_tokens")
    if whole is None or count is None or whole <= CUT_TOKENS:
        return FieldSupport("max_tokens", "unknown", "no answer is long enough to be cut")
    why = f"{count} tokens of {CUT_TOKENS}"
    return FieldSupport("max_tokens", "kept" if count <= CUT_TOKENS else "ignored", why)


def _probe_stop(ask: SendBody, plain: Mapping[str, Any], first: Reply) -> FieldSupport:
    """Does an answer end at a word that stands in it once, and is not its first?"""
    text = _answer_text(first)
    words = [word for word in text.split()[1:] if text.count(word) == 1]
    if not words:
        return FieldSupport("stop", "unknown", "no answer has a word to stop at")
    word = words[0]
    reply = ask({**plain, "stop": [word]})
    if reply.status != 200:
        return _refused_field("stop", reply)
    answer, before = _answer_text(reply), text.partition(word)[0]
    if answer.strip() == before.strip():
        return FieldSupport("stop", "kept")
    if answer == before + word:
        return FieldSupport("stop", "kept", "the stop string is left in the text")
    return FieldSupport("stop", "ignored", f"the answer continues after {word!r}")


def _probe_answer_count(ask: SendBody, plain: Mapping[str, Any]) -> FieldSupport:
    """Does `n` give so many answers? At a temperature, as some servers refuse several greedy ones."""
    reply = ask({**plain, "n": 2, "temperature": 1.0})
    count = len(list_field(reply.body, "choices"))
    return _field_support_by_effect("n", reply, count == 2, f"{count} answers of 2")


def _probe_prompt_length(
    ask: SendBody, plain: Mapping[str, Any], first: Reply, name: str, extra: Mapping[str, Any]
) -> FieldSupport:
    """Does the prompt get another length with this field?"""
    reply = ask({**plain, **extra})
    if reply.status != 200:
        return _refused_field(name, reply)
    counts = [usage_count(one.body, "prompt_tokens") for one in (reply, first)]
    if None in counts:
        return FieldSupport(name, "unknown", "the server does not count its prompts")
    why = f"{counts[0]} tokens of a prompt of {counts[1]}"
    return FieldSupport(name, "kept" if counts[0] != counts[1] else "ignored", why)


def _probe_echo(ask: SendBody, plain: Mapping[str, Any]) -> FieldSupport:
    """Does the text begin with the prompt? Its first characters tell: decoding may change white space further on."""
    reply = ask({**plain, "echo": True, "max_tokens": 1})
    prompt, text = plain.get("prompt"), _answer_text(reply)
    is_echoed = (
        isinstance(prompt, str) and text.startswith(prompt[:20]) and len(text) >= len(prompt)
    )
    return _field_support_by_effect("echo", reply, is_echoed)


def _seed_verdict(same: str, again: str, other: str) -> FieldVerdict:
    """What the server does with a seed, by two answers with one seed and one with another."""
    if same != again:
        return "ignored"
    return "kept" if same != other else "unknown"


def _support_of_field_seen_in_reply(name: str, reply: Reply) -> FieldSupport:
    """What was done with a field whose effect stands in the reply."""
    return _field_support_by_effect(name, reply, FIELD_EFFECTS[name](reply.body))


def _field_support_by_effect(
    name: str, reply: Reply, has_effect: bool, why: str = ""
) -> FieldSupport:
    """What the server did with a field: refused, kept where it has an effect, else ignored."""
    if reply.status != 200:
        return _refused_field(name, reply)
    return FieldSupport(name, "kept" if has_effect else "ignored", why)


def _refused_field(name: str, reply: Reply) -> FieldSupport:
    """The record of a field that the server refused, with its reason."""
    return FieldSupport(name, "refused", reply.refusal_message_in_one_line)


def _answer_text(reply: Reply) -> str:
    """The text of the first answer, of a chat or of a completion."""
    choice = first_choice(reply.body)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return str(text or "")
