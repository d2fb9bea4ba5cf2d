"""The serving contract: prompts as a model was trained to be asked, to the id; any serving stack can be tested on it.

It holds no code and needs none to be used: each prompt has its messages, its text and its ids. docs/record.md describes
it, docs/schema/contract-1.json is its schema.

The trade-off: examples instead of rules. A stack that differs only in a case that no prompt shows keeps the contract;
in return it is tested without anyone knowing how it renders. So the fixed prompts take the cases in which stacks are
known to differ: several turns, a system message, tools, a call with its result, an emoji and white space.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import truetune
from truetune.data.conversation import Conversation, Message
from truetune.errors import SpecError, TemplateError
from truetune.render.probes import Probes, probes
from truetune.render.template import OWN_KEYS, Template
from truetune.render.tokenizer import load
from truetune.render.tokenizer_folder import files_of
from truetune.render.traced_string import parts
from truetune.spec.run import RunSpec

FORMAT = 1
MAX_PROMPT_TOKENS = 2048
"""Tokens of a row's prompt; rows with longer ones are passed over. Chosen: a contract is a file that people read, and
every serving stack takes as much."""
MAX_QUESTIONS = 4
SYSTEM = "You answer in one short sentence."
CHAT_CONTENTS = (
    "Where is the lighthouse?",
    "On the northern cliff.",
    "How high is it?",
    "It is 41 metres high, lamp included.",
    "Is it open on Sundays?",
    "Yes, from 10 to 16 o'clock.",
    "Thanks! Was kostet der Eintritt? 🙂",
)
TOOL = {
    "type": "function",
    "function": {
        "name": "opening_hours",
        "description": "The hours at which a place is open.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Name of the place"}},
            "required": ["place"],
        },
    },
}
TOOL_CHAT: list[Message] = [
    {"role": "user", "content": "When does the lighthouse open?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call00001", "type": "function",
         "function": {"name": "opening_hours", "arguments": {"place": "lighthouse"}}},
    ]},
    {"role": "tool", "tool_call_id": "call00001", "name": "opening_hours", "content": "10:00 to 16:00"},
]  # fmt: skip


def contract_of(
    probes: Probes,
    rows: Iterable[Conversation] = (),
    *,
    count: int = 4,
    now: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Of a tokenizer under the settings of a run: its prompts for fixed conversations, and for `count` of the rows.

    Where the template writes the date, `now` is what it is told (default: the present), and the contract says so.
    """
    made, clock = _with_fixed_clock(probes, now or datetime.datetime.now().replace(microsecond=0))
    tokenizer, templates = (
        made.tokenizer,
        [t for t in (made.template, made.tool_template) if t is not None],
    )
    return {
        "format": FORMAT,
        "truetune": truetune.__version__,
        "tokenizer": {
            p.name: _hex_digest(p.read_bytes())
            for p in files_of(tokenizer.folder, tokenizer.weights)
        },
        "templates": {
            template.name: _hex_digest(template.source.encode()) for template in templates
        },
        "template_kwargs": made.spec.template_kwargs,
        "clock": clock.isoformat() if clock else None,
        "special": {
            name: {"token": special.token, "id": special.id}
            for name, special in tokenizer.special.items()
        },
        "adds_bos": tokenizer.adds_bos,
        "stops": [
            {"token": stop.token, "id": stop.id, "origins": list(stop.origins)}
            for stop in made.stops
        ],
        "generation": tokenizer.generation_config,
        "prompts": [*_fixed_prompts(made), *islice(_row_prompts(made, rows), count)],
    }


def verify(
    contract: Mapping[str, Any], folder: str | Path, *, model: str | Path | None = None
) -> list[str]:
    """How a tokenizer folder breaks a contract, one text for each way; empty where it keeps it.

    The template is taken by the name that the contract has for it, and the clock is set to the contract's.

    `model` is the folder of config.json and generation_config.json, where it is another. Raises TokenizerError or
    TemplateError where the folder can't be read, SpecError for a contract that is none.
    """
    with _contract_errors(contract):
        tokenizer = load(str(folder), model=str(model) if model else None)
        names = [
            name
            for name in contract["templates"]
            if name in tokenizer.templates and name != "tool_use"
        ]
        spec = RunSpec(
            template=names[0] if names else None, template_kwargs=contract["template_kwargs"]
        )
        return contract_breaks(contract, probes(tokenizer, spec))


def contract_breaks(contract: Mapping[str, Any], made: Probes) -> list[str]:
    """How a tokenizer and template under some settings break a contract, like `verify`."""
    with _contract_errors(contract):
        clock = (
            datetime.datetime.fromisoformat(contract["clock"])
            if contract["clock"]
            else datetime.datetime.now()
        )
        still, _ = _with_fixed_clock(made, clock)
        return [
            *_token_breaks(contract, still),
            *(text for prompt in contract["prompts"] for text in _prompt_breaks(prompt, still)),
        ]


@contextmanager
def _contract_errors(contract: Mapping[str, Any]) -> Iterator[None]:
    """Raises SpecError for a contract that is none."""
    if contract.get("format") != FORMAT:
        raise SpecError(f"contract: expected format {FORMAT}, found {contract.get('format')!r}")
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"contract: not as docs/schema/contract-1.json says: {error!r}") from None


def _token_breaks(contract: Mapping[str, Any], made: Probes) -> Iterator[str]:
    stops = {stop.id for stop in made.stops}
    for stop in contract["stops"]:
        if stop["id"] not in stops:
            yield f"{stop['token']} ({stop['id']}) does not end an answer"
    for name, special in contract["special"].items():
        mine = made.tokenizer.special.get(name)
        if mine is None or mine.id != special["id"]:
            found = "not set" if mine is None else f"{mine.token} ({mine.id})"
            yield f"{name} is {found}, not {special['token']} ({special['id']})"


def _prompt_breaks(prompt: Mapping[str, Any], made: Probes) -> Iterator[str]:
    found = _prompt_entry(made, prompt["name"], prompt.get("messages"), prompt.get("tools"), prompt)
    if "refused" in found or "refused" in prompt:
        if ("refused" in found) != ("refused" in prompt):
            yield (
                f"{prompt['name']}:"
                f" {'refused: ' + found['refused'] if 'refused' in found else 'no longer refused'}"
            )
    elif found["text"] != prompt["text"]:
        at = _first_difference(found["text"], prompt["text"])
        yield (
            f"{prompt['name']}: the text is {_quote_excerpt(found['text'], at)}, not"
            f" {_quote_excerpt(prompt['text'], at)}"
        )
    elif found["ids"] != prompt["ids"]:
        at = _first_difference(found["ids"], prompt["ids"])
        yield (
            f"{prompt['name']}: ids {found['ids'][at : at + 5]}, not {prompt['ids'][at : at + 5]},"
            f" at token {at}"
        )


def _fixed_prompts(made: Probes) -> Iterator[dict[str, Any]]:
    if made.template is None:
        yield _prompt_entry(made, "plain text", None, None, {"text": CHAT_CONTENTS[0]})
        return
    for turns in range(1, MAX_QUESTIONS + 1):
        talk = [
            {"role": ("user", "assistant")[i % 2], "content": text}
            for i, text in enumerate(CHAT_CONTENTS[: 2 * turns - 1])
        ]
        for system in ((), ({"role": "system", "content": SYSTEM},)):
            for tools in (None, [TOOL]):
                extras = ", system" * bool(system) + ", tools" * bool(tools)
                yield _prompt_entry(
                    made, f"{turns} turn{'s'[: turns > 1]}{extras}", [*system, *talk], tools
                )
    yield _prompt_entry(made, "a tool was called", TOOL_CHAT, [TOOL])


def _row_prompts(made: Probes, rows: Iterable[Conversation]) -> Iterator[dict[str, Any]]:
    for row in rows:
        name = f"row {row.origin.row}"
        if row.is_chat:
            messages = row.messages[: row.prompt_messages]
            while messages and messages[-1].get("role") == "assistant":
                messages = messages[:-1]
            plain = [
                {k: v for k, v in message.items() if k not in OWN_KEYS} for message in messages
            ]
            found = (
                _prompt_entry(
                    made, name, plain, row.tools, {"template_kwargs": row.template_kwargs}
                )
                if plain
                else None
            )
        else:
            found = (
                _prompt_entry(made, name, None, None, {"text": row.prompt}) if row.prompt else None
            )
        if found is not None and len(found.get("ids", ())) <= MAX_PROMPT_TOKENS:
            yield found


def _prompt_entry(
    made: Probes,
    name: str,
    messages: list[Message] | None,
    tools: list[Any] | None,
    more: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """One entry: text and ids of a prompt, or why there is none. Without messages, `more` holds the plain text."""
    kwargs = more.get("template_kwargs") or {}
    given = {"messages": messages, "tools": tools, "template_kwargs": kwargs}
    entry = {"name": name, **{key: value for key, value in given.items() if value}}
    template = (made.tool_template if tools else None) or made.template
    if messages is None:
        bos = made.tokenizer.special["bos"].token if made.tokenizer.adds_bos else ""
        text, sent = more["text"], bos + more["text"]
    elif template is None:
        return entry | {"refused": "there is no chat template"}
    else:
        try:
            settings = {**made.spec.template_kwargs, **kwargs}
            sent = "".join(
                parts(
                    template.render(messages, tools=tools, add_generation_prompt=True, **settings)
                )
            )
        except TemplateError as error:
            return entry | {"refused": str(error)}
        text = sent
    return entry | {
        "text": text,
        "ids": made.tokenizer.backend.encode(sent, add_special_tokens=False).ids,
    }


def _with_fixed_clock(
    made: Probes, moment: datetime.datetime
) -> tuple[Probes, datetime.datetime | None]:
    """The probes with a clock that stands still, and the moment, where a template reads it."""

    def still(template: Template | None) -> Template | None:
        return template and Template(
            template.source, template.special, name=template.name, now=lambda: moment
        )

    templates = [
        template for template in (made.template, made.tool_template) if template is not None
    ]
    reads = any("strftime_now" in template.source for template in templates)
    found = replace(made, template=still(made.template), tool_template=still(made.tool_template))
    return found, moment if reads else None


def _first_difference(one: Any, other: Any) -> int:
    """Where two sequences begin to differ; the end of the shorter one where it begins the other."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _quote_excerpt(text: str, at: int) -> str:
    """The characters around a place, quoted: a little before it, more behind it, where the two texts differ."""
    return repr(text[max(0, at - 10) : at + 30])


def _hex_digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=20).hexdigest()
