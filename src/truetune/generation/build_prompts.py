"""Prompts: questions of the data, as they will be served, with the answers that are trained."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from truetune.auditing.turns import marker_of
from truetune.data.conversation import Conversation, Message
from truetune.encoding.documents import CONTENT, HARMLESS
from truetune.encoding.encoder import Encoder
from truetune.encoding.token_labels import label_tokens
from truetune.errors import TemplateError
from truetune.generation.answer_samples import Chat, Prompt
from truetune.render.probes import Probes, prepared
from truetune.render.rendering import Rendering, Source, Span
from truetune.render.template import OWN_KEYS
from truetune.render.tokenizer import Tokenizer
from truetune.render.traced_string import parts
from truetune.spec.run import Learn, RunSpec

CANDIDATES = 16
"""Rows that are kept for each prompt wanted, of which one must be of use"""
OPENING = 400
"""Characters of plain text, at most, that are a prompt"""


class NoPrompt(Exception):
    """Why a row has no prompt to answer."""


def build_prompts(
    spec: RunSpec,
    rows: Iterable[Conversation],
    count: int,
    *,
    seed: int = 0,
    seen: bool = False,
    probes: Probes | None = None,
    skipped: Counter[str] | None = None,
) -> list[Prompt]:
    """Up to `count` prompts, all different, in the order of their rows and spread over them; reads all rows once.

    The ids are those that serving makes (`render(messages[:i], add_generation_prompt=True)`, i the last assistant turn
    that is trained). Of text without turns the first half, at most 400 characters, is the prompt. `skipped` is told why
    rows that were tried gave none. Raises what `truetune.render.probes.prepared` raises.
    """
    maker = PromptMaker(probes or prepared(spec))
    choose = random.Random(seed)
    kept = _reservoir_sample(rows, count * CANDIDATES, choose)
    strata = [kept[i * len(kept) // count : (i + 1) * len(kept) // count] for i in range(count)]
    for stratum in strata:
        choose.shuffle(stratum)
    reasons: Counter[str] = Counter() if skipped is None else skipped
    found: dict[tuple[int, ...], tuple[int, Prompt]] = {}

    def fill(candidates: list[tuple[int, Conversation]], wanted: int) -> None:
        while candidates and wanted:
            place, row = candidates.pop()
            try:
                made = maker.make(row, seen=seen)
            except NoPrompt as error:
                reasons[str(error)] += 1
                continue
            if made.ids in found:
                reasons["the same prompt as another row's"] += 1
                continue
            found[made.ids] = place, made
            wanted -= 1

    for stratum in strata:
        fill(stratum, 1)
    fill([row for stratum in strata for row in stratum], count - len(found))
    return [prompt for _, prompt in sorted(found.values(), key=lambda pair: pair[0])]


def _reservoir_sample(
    rows: Iterable[Conversation], size: int, choose: random.Random
) -> list[tuple[int, Conversation]]:
    """At most `size` rows with their places, in order, each as likely as any (algorithm R)."""
    kept: list[tuple[int, Conversation]] = []
    for place, row in enumerate(rows):
        if len(kept) < size:
            kept.append((place, row))
        elif (at := choose.randrange(place + 1)) < size:
            kept[at] = place, row
    return sorted(kept, key=lambda pair: pair[0])


class _RowPrompt(NamedTuple):
    """One row, before it is encoded."""

    rendering: Rendering
    """Of the row up to and with its answer, which is all that is supervised"""
    prompt: str
    start: int
    """First character of the answer in the rendering's text"""
    stop: int
    """First character of what ends it"""
    question: str
    chat: Chat | None = None


class PromptMaker:
    """Makes the prompts of one run."""

    def __init__(self, probes: Probes) -> None:
        self.spec, self.tokenizer = probes.spec, probes.tokenizer
        self.renderer = replace(probes, only_reference=True).renderer(
            learn=Learn(what="last"), history="single"
        )
        self.encoder = Encoder(probes.tokenizer.backend, only_reference=True)
        self.marker = marker_of(probes).decode()
        self.stops = [stop.token for stop in probes.stops]
        positions = max_positions(self.tokenizer.model_config)
        limits = [limit for limit in (self.spec.max_length, positions) if isinstance(limit, int)]
        self.longest = min(limits, default=None)

    def make(self, row: Conversation, *, seen: bool = False) -> Prompt:
        """Raises NoPrompt."""
        if row.label is False:
            raise NoPrompt("its answer is labelled a bad one")
        if lost := [problem.text for problem in row.problems if problem.kind not in HARMLESS]:
            raise NoPrompt(lost[0])
        row = replace(row, rejected=None, label=None)
        try:
            asked = self._chat(row) if row.is_chat else self._text(row)
        except TemplateError as error:
            raise NoPrompt(str(error)) from None
        text = asked.rendering.text
        reference = text[asked.start : asked.stop]
        if not reference.strip():
            raise NoPrompt("it has no answer")
        encoded = self.encoder.encode([text])
        source, supervised = label_tokens([asked.rendering], encoded)
        control = np.isin(encoded.ids, list(self.tokenizer.control)) & CONTENT[source]
        if control.any() and self.spec.encode.content_specials != "keep":
            raise NoPrompt("a control token stands in its contents")
        ids = self.encoder.encode([asked.prompt]).ids.tolist()
        answer = encoded.ids[supervised].tolist()
        if not ids:
            raise NoPrompt("its prompt is empty")
        if self.longest is not None and len(ids) + len(answer) > self.longest:
            raise NoPrompt(f"it is longer than {self.longest:,} tokens")
        return Prompt(
            tuple(ids),
            asked.question,
            reference,
            tuple(answer),
            row.origin.file,
            row.origin.line,
            seen,
            asked.prompt,
            asked.chat,
            row.origin.row,
        )

    def _chat(self, row: Conversation) -> _RowPrompt:
        at = _last_trained(row.messages)
        if at is None:
            raise NoPrompt("it has no answer that is trained")
        answer = {key: value for key, value in row.messages[at].items() if key not in OWN_KEYS}
        rendering = self.renderer.exact(
            replace(row, messages=[*row.messages[:at], answer], prompt_messages=None)
        )[0]
        turn = next((turn for turn in rendering.turns if turn.message == at), None)
        if turn is None or turn.start < 0 or not rendering.spans:
            raise NoPrompt("the template leaves its answer out")
        template = self.renderer.tool_template if row.tools else self.renderer.template
        assert template is not None
        settings = {**self.spec.template_kwargs, **row.template_kwargs}
        prompt = template.render(
            row.messages[:at],
            tools=row.tools,
            documents=row.documents,
            add_generation_prompt=True,
            **settings,
        )
        stop = turn.end if turn.stop_start < 0 else turn.stop_start
        question = _message_text(row.messages[at - 1]) if at else ""
        messages = tuple(
            {key: v for key, v in m.items() if key not in OWN_KEYS} for m in row.messages[:at]
        )
        chat = Chat(messages, tuple(row.tools or ()), settings)
        return _RowPrompt(rendering, "".join(parts(prompt)), turn.start, stop, question, chat)

    def _text(self, row: Conversation) -> _RowPrompt:
        rendering = self.renderer.exact(row)[0]
        text, wanted = rendering.text, Source.ASSISTANT if row.text is None else Source.TEXT
        if wanted not in rendering.sources:
            raise NoPrompt("it has no answer")
        at = rendering.sources.index(wanted)
        begin, stop = rendering.starts[at], rendering.starts[at + 1]
        if row.text is None:
            return _RowPrompt(rendering, text[:begin], begin, stop, row.prompt or "")
        start, stop, end = self._cut(text, begin, stop)
        spans = [Span(start, end, -1, 1.0)]
        return _RowPrompt(
            replace(rendering, spans=spans), text[:start], start, stop, text[begin:start]
        )

    def _cut(self, text: str, begin: int, end: int) -> tuple[int, int, int]:
        """Where the answer in `text[begin:end]` begins and ends, and with what ends it: its last turn where the
        template's marks stand in it."""
        marked = text.rfind(self.marker, begin, end) if self.marker else -1
        if marked >= 0:
            start = marked + len(self.marker)
            ends = [
                (at, at + len(stop))
                for stop in self.stops
                if (at := text.find(stop, start, end)) >= 0
            ]
            return start, *min(ends, default=(end, len(text)))
        half = begin + min((end - begin) // 2, OPENING)
        space = text.rfind(" ", (begin + half) // 2, half + 1)
        return (half if space < 0 else space), end, len(text)


def _last_trained(messages: list[Message]) -> int | None:
    trained = [
        i
        for i, message in enumerate(messages)
        if message.get("role") == "assistant"
        and message.get("train", True)
        and message.get("weight", 1)
    ]
    return trained[-1] if trained else None


def _message_text(message: Message) -> str:
    """The text of a message, of one in parts those that are text."""
    content = message.get("content")
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def max_positions(config: Mapping[str, Any]) -> int | None:
    """How many tokens a model has places for, by its config.json."""
    part = config.get("text_config")
    names = ("max_position_embeddings", "n_positions")
    given = (
        known.get(name)
        for known in (part if isinstance(part, dict) else {}, config)
        for name in names
    )
    return next((found for found in given if isinstance(found, int)), None)


def make_decoder(tokenizer: Tokenizer) -> Callable[[Iterable[int]], str]:
    """Decodes ids, control tokens shown."""
    return lambda ids: str(tokenizer.backend.decode(list(ids), skip_special_tokens=False))


def control_token_texts(tokenizer: Tokenizer) -> frozenset[str]:
    """The control tokens as text."""
    return frozenset(str(tokenizer.backend.id_to_token(id)) for id in tokenizer.control)
