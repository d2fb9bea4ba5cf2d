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

from truetune.data.conversation import Conversation, Message
from truetune.errors import SpecError, TemplateError
from truetune.package import __version__
from truetune.render.find_tokenizer_folder import tokenizer_and_model_files
from truetune.render.template import OWN_KEYS, Template
from truetune.render.template_probes import Probes, make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.render.traced_string import plain_text
from truetune.settings.run_spec import RunSpec

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


def make_serving_contract(
    probes: Probes,
    rows: Iterable[Conversation] = (),
    *,
    count: int = 4,
    now: datetime.datetime | None = None,
) -> dict[str, Any]:
    """Make the serving contract of a tokenizer under the settings of a run: its prompts for fixed
    conversations, and for `count` of the rows.

    Where the template writes the date, `now` is what it is told (default: the present), and the contract says so.
    """
    # Whole seconds, for the contract writes the moment down and must come out the same when it is read again.
    moment = now or datetime.datetime.now().replace(microsecond=0)
    probes, clock = _probes_with_fixed_clock(probes, moment)
    tokenizer = probes.tokenizer
    templates = [t for t in (probes.template, probes.tool_template) if t is not None]
    return {
        "format": FORMAT,
        "truetune": __version__,
        "tokenizer": {
            p.name: _hex_digest(p.read_bytes())
            for p in tokenizer_and_model_files(tokenizer.folder, tokenizer.weights)
        },
        "templates": {
            template.name: _hex_digest(template.source.encode()) for template in templates
        },
        "template_kwargs": probes.spec.template_kwargs,
        "clock": clock.isoformat() if clock else None,
        "special": {
            name: {"token": special.token, "id": special.id}
            for name, special in tokenizer.special.items()
        },
        "adds_bos": tokenizer.adds_bos,
        "stops": [
            {"token": stop.token, "id": stop.id, "origins": list(stop.origins)}
            for stop in probes.stops
        ],
        "generation": tokenizer.generation_config,
        "prompts": [*_fixed_prompts(probes), *islice(_row_prompts(probes, rows), count)],
    }


def verify(
    contract: Mapping[str, Any], folder: str | Path, *, model: str | Path | None = None
) -> list[str]:
    """Verify that a tokenizer folder keeps a contract: one text for each way in which it breaks it; empty
    where it keeps it.

    The template is taken by the name that the contract has for it, and the clock is set to the contract's.

    `model` is the folder of config.json and generation_config.json, where it is another. Raises TokenizerError or
    TemplateError where the folder can't be read, SpecError for a contract that is none.
    """
    with _raise_malformed_contract_as_spec_error(contract):
        tokenizer = load_tokenizer(str(folder), model=str(model) if model else None)
        # Two are `default` and `tool_use`, between which tools decide: to name one would leave the other out.
        names = list(contract["templates"])
        is_named = len(names) == 1 and names[0] in tokenizer.templates
        spec = RunSpec(
            template=names[0] if is_named else None, template_kwargs=contract["template_kwargs"]
        )
        return describe_breaches_of_serving_contract(contract, make_probes(tokenizer, spec))


def describe_breaches_of_serving_contract(contract: Mapping[str, Any], made: Probes) -> list[str]:
    """How a tokenizer and template under some settings break a contract, like `verify`."""
    with _raise_malformed_contract_as_spec_error(contract):
        # Without a clock in it, no template reads one, and any moment will do.
        moment = datetime.datetime.now()
        if contract["clock"]:
            moment = datetime.datetime.fromisoformat(contract["clock"])
        fixed, _ = _probes_with_fixed_clock(made, moment)
        texts = list(_describe_changed_special_tokens(contract, fixed))
        for prompt in contract["prompts"]:
            texts += _describe_changed_prompt(prompt, fixed)
        return texts


@contextmanager
def _raise_malformed_contract_as_spec_error(contract: Mapping[str, Any]) -> Iterator[None]:
    """Inside, the errors of a contract that is none become SpecError."""
    if contract.get("format") != FORMAT:
        raise SpecError(f"contract: expected format {FORMAT}, found {contract.get('format')!r}")
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"contract: not as docs/schema/contract-1.json says: {error!r}") from None


def _describe_changed_special_tokens(contract: Mapping[str, Any], probes: Probes) -> Iterator[str]:
    """How the special tokens of a tokenizer break a contract: stops that end nothing, names with another token."""
    stops = {stop.id for stop in probes.stops}
    # More stop tokens than the contract has break nothing: an answer never holds them.
    for stop in contract["stops"]:
        if stop["id"] not in stops:
            yield f"{stop['token']} ({stop['id']}) does not end an answer"
    for name, special in contract["special"].items():
        actual = probes.tokenizer.special.get(name)
        if actual is None or actual.id != special["id"]:
            described = "not set" if actual is None else f"{actual.token} ({actual.id})"
            yield f"{name} is {described}, not {special['token']} ({special['id']})"


def _describe_changed_prompt(prompt: Mapping[str, Any], probes: Probes) -> Iterator[str]:
    """How one prompt of a contract comes out otherwise: refused or not, another text, or other ids of the same text."""
    name = prompt["name"]
    actual = _prompt_entry(probes, name, prompt.get("messages"), prompt.get("tools"), prompt)
    is_refused = "refused" in actual
    if is_refused or "refused" in prompt:
        # Two refusals are alike, whatever their words: the message is the template's or the library's.
        if is_refused != ("refused" in prompt):
            yield f"{name}: {'refused: ' + actual['refused'] if is_refused else 'no longer refused'}"
    elif actual["text"] != prompt["text"]:
        at = _first_difference(actual["text"], prompt["text"])
        yield (
            f"{name}: the text is {_quote_excerpt(actual['text'], at)}, not"
            f" {_quote_excerpt(prompt['text'], at)}"
        )
    elif actual["ids"] != prompt["ids"]:
        at = _first_difference(actual["ids"], prompt["ids"])
        yield (
            f"{name}: ids {actual['ids'][at : at + 5]}, not {prompt['ids'][at : at + 5]},"
            f" at token {at}"
        )


def _fixed_prompts(probes: Probes) -> Iterator[dict[str, Any]]:
    """The entries for the conversations that every contract holds."""
    if probes.template is None:
        yield _prompt_entry(probes, "plain text", None, None, {"text": CHAT_CONTENTS[0]})
        return
    for questions in range(1, MAX_QUESTIONS + 1):
        # Ends with a question: contents 0, 2, 4, ... are the user's.
        chat = [
            {"role": ("user", "assistant")[i % 2], "content": text}
            for i, text in enumerate(CHAT_CONTENTS[: 2 * questions - 1])
        ]
        turns = "1 turn" if questions == 1 else f"{questions} turns"
        for system in ((), ({"role": "system", "content": SYSTEM},)):
            for tools in (None, [TOOL]):
                name = turns + (", system" if system else "") + (", tools" if tools else "")
                yield _prompt_entry(probes, name, [*system, *chat], tools)
    yield _prompt_entry(probes, "a tool was called", TOOL_CHAT, [TOOL])


def _row_prompts(probes: Probes, rows: Iterable[Conversation]) -> Iterator[dict[str, Any]]:
    """The entries for the prompts of rows: what stands before their answers. Rows without a prompt have none."""
    for row in rows:
        entry = _row_prompt(probes, row)
        if entry is not None and len(entry.get("ids", ())) <= MAX_PROMPT_TOKENS:
            yield entry


def _row_prompt(probes: Probes, row: Conversation) -> dict[str, Any] | None:
    """The entry for the prompt of one row; None where it has none."""
    name = f"row {row.origin.row}"
    if not row.is_chat:
        if not row.prompt:
            return None
        return _prompt_entry(probes, name, None, None, {"text": row.prompt})
    messages = row.messages[: row.prompt_messages]
    while messages and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    if not messages:
        return None
    # Keys for truetune alone would be strange to other stacks.
    plain = [
        {key: value for key, value in message.items() if key not in OWN_KEYS}
        for message in messages
    ]
    more = {"template_kwargs": row.template_kwargs}
    return _prompt_entry(probes, name, plain, row.tools, more)


def _prompt_entry(
    probes: Probes,
    name: str,
    messages: list[Message] | None,
    tools: list[Any] | None,
    more: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """The entry of one prompt: its text and ids, or why there is none.

    Args:
        probes: the tokenizer and its templates.
        name: what the prompt is called in reports.
        messages: the conversation; None for a plain text.
        tools: definitions of tools, None without any.
        more: `template_kwargs`, and the `text` where there are no messages. An entry of a contract is one of these.
    """
    kwargs = more.get("template_kwargs") or {}
    fields = {"messages": messages, "tools": tools, "template_kwargs": kwargs}
    entry = {"name": name, **{key: value for key, value in fields.items() if value}}
    template = probes.template_for(has_tools=bool(tools))
    if messages is None:
        # Stacks write BOS before a plain prompt themselves: it is among the ids, and not in the text.
        bos = probes.tokenizer.special["bos"].token if probes.tokenizer.adds_bos else ""
        text, sent = more["text"], bos + more["text"]
    elif template is None:
        return entry | {"refused": "there is no chat template"}
    else:
        variables = {**probes.spec.template_kwargs, **kwargs}
        try:
            rendered = template.render(
                messages, tools=tools, add_generation_prompt=True, **variables
            )
        except TemplateError as error:
            return entry | {"refused": str(error)}
        text = sent = plain_text(rendered)
    ids = probes.tokenizer.backend.encode(sent, add_special_tokens=False).ids
    return entry | {"text": text, "ids": ids}


def _probes_with_fixed_clock(
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
    # By the name in the source: a template that names the clock and never asks gets a date in its contract, no harm.
    reads_clock = any("strftime_now" in template.source for template in templates)
    fixed = replace(made, template=still(made.template), tool_template=still(made.tool_template))
    return fixed, moment if reads_clock else None


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
    """The hex digest of some bytes, by BLAKE2b of 20 bytes."""
    return hashlib.blake2b(body, digest_size=20).hexdigest()
