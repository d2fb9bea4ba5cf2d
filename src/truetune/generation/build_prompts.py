"""Builds prompts of the data's rows as they will be served, each with the trained answer as its reference.

A prompt is what serving makes of the messages before an answer (`render(messages[:i], add_generation_prompt=True)`),
and not the beginning of the training text: where the two differ, that is a fault to be seen and not to be hidden. The
reference beside it is the trained answer, ids and text, cut where the rendering says that it begins and ends.

Rows are read once, whatever their number: a reservoir sample keeps some for each prompt that is wanted, as not every
row has one. The trade-off: with rows of which less than one in `CANDIDATES_PER_PROMPT` can be used there are fewer
prompts than wanted, and the reasons are counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from truetune.auditing.expected_tokens_without_rendering import find_answer_marker
from truetune.data.conversation import Conversation, Message
from truetune.encoding.encoder import Encoder
from truetune.encoding.make_documents_or_reject_rows import HARMLESS, IS_FROM_ROW
from truetune.encoding.token_labels_from_character_spans import label_tokens
from truetune.errors import TemplateError
from truetune.generation.answer_samples import Chat, Prompt
from truetune.render.rendering import Rendering, Source, Span
from truetune.render.template import OWN_KEYS
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.render.tokenizer import Tokenizer
from truetune.render.traced_string import plain_text
from truetune.settings.run_spec import Learn, RunSpec

# Chosen, not measured: a row costs little before it is tried, and data of which 15 in 16 rows have no answer is
# another fault.
CANDIDATES_PER_PROMPT = 16
"""Rows that are kept for each prompt wanted, of which one must be of use"""
# Chosen, not measured: some sentences, so that what follows is on topic, and much of the text is left as the
# reference.
MAX_OPENING_CHARACTERS = 400
"""Of plain text, at most, that are a prompt"""


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

    Of text without turns the first half, at most 400 characters, is the prompt.

    Args:
        spec: the settings of the run.
        rows: of the data.
        count: prompts wanted.
        seed: which rows are taken.
        seen: these rows are trained on.
        probes: tokenizer and template, where they are prepared already.
        skipped: is told why rows that were tried gave none.

    Raises:
        SpecError, TokenizerError, TemplateError: as `load_tokenizer_and_template_of_run`.
    """
    choose = random.Random(seed)
    sample = _reservoir_sample(rows, count * CANDIDATES_PER_PROMPT, choose)
    # One prompt of each stratum, so that they are spread over the data and not crowded where rows are of use.
    strata = [
        sample[i * len(sample) // count : (i + 1) * len(sample) // count] for i in range(count)
    ]
    for stratum in strata:
        choose.shuffle(stratum)
    reasons: Counter[str] = Counter() if skipped is None else skipped
    collector = _PromptCollector(
        PromptMaker(probes or load_tokenizer_and_template_of_run(spec)), seen, reasons
    )
    for stratum in strata:
        collector.collect_prompts_from_last_candidates(stratum, 1)
    # Strata without a usable row leave room: it is filled from all others.
    rest = [row for stratum in strata for row in stratum]
    collector.collect_prompts_from_last_candidates(rest, count - len(collector.prompts))
    in_order = sorted(collector.prompts.values(), key=lambda pair: pair[0])
    return [prompt for _, prompt in in_order]


class _PromptCollector:
    """Collects prompts that differ, and the reasons why rows gave none.

    Attributes:
        prompts: ids -> place of the row among all, and its prompt.
    """

    def __init__(self, maker: PromptMaker, seen: bool, reasons: Counter[str]) -> None:
        self.prompts: dict[tuple[int, ...], tuple[int, Prompt]] = {}
        self._maker, self._seen, self._reasons = maker, seen, reasons

    def collect_prompts_from_last_candidates(
        self, candidates: list[tuple[int, Conversation]], wanted: int
    ) -> None:
        """Take rows off the end of `candidates` until so many more prompts are there, or no row is left."""
        while candidates and wanted > 0:
            place, row = candidates.pop()
            try:
                prompt = self._maker.make(row, seen=self._seen)
            except NoPrompt as error:
                self._reasons[str(error)] += 1
                continue
            if prompt.ids in self.prompts:
                self._reasons["the same prompt as another row's"] += 1
                continue
            self.prompts[prompt.ids] = place, prompt
            wanted -= 1


def _reservoir_sample(
    rows: Iterable[Conversation], size: int, choose: random.Random
) -> list[tuple[int, Conversation]]:
    """At most `size` rows with their places, in order, each as likely as any (algorithm R)."""
    sample: list[tuple[int, Conversation]] = []
    for place, row in enumerate(rows):
        if len(sample) < size:
            sample.append((place, row))
            continue
        at = choose.randrange(place + 1)
        if at < size:
            sample[at] = place, row
    return sorted(sample, key=lambda pair: pair[0])


class _RenderedRow(NamedTuple):
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
    """Makes the prompts of one run, row by row."""

    def __init__(self, probes: Probes) -> None:
        self._spec, self._tokenizer = probes.spec, probes.tokenizer
        # The reference engine and exact renderings: prompts are few, and nothing may make them other than serving does.
        self._renderer = replace(probes, only_reference=True).renderer(
            learn=Learn(what="last"), history="single"
        )
        self._encoder = Encoder(probes.tokenizer.backend, only_reference=True)
        self._turn_marker = find_answer_marker(probes).decode()
        self._stops = [stop.token for stop in probes.stops]
        positions = max_positions(self._tokenizer.model_config)
        limits = [limit for limit in (self._spec.max_length, positions) if isinstance(limit, int)]
        self._max_tokens = min(limits, default=None)

    def make(self, row: Conversation, *, seen: bool = False) -> Prompt:
        """The prompt of a row. Raises NoPrompt."""
        # A bad answer of a preference set is no reference.
        if row.label is False:
            raise NoPrompt("its answer is labelled a bad one")
        lost = [problem.text for problem in row.problems if problem.kind not in HARMLESS]
        if lost:
            raise NoPrompt(lost[0])
        rendered = self._render(replace(row, rejected=None, label=None))
        text = rendered.rendering.text
        reference = text[rendered.start : rendered.stop]
        if not reference.strip():
            raise NoPrompt("it has no answer")
        answer_ids = self._encode_answer(rendered.rendering)
        ids = self._encoder.encode([rendered.prompt]).ids.tolist()
        if not ids:
            raise NoPrompt("its prompt is empty")
        if self._max_tokens is not None and len(ids) + len(answer_ids) > self._max_tokens:
            raise NoPrompt(f"it is longer than {self._max_tokens:,} tokens")
        return Prompt(
            tuple(ids),
            rendered.question,
            reference,
            tuple(answer_ids),
            row.origin.file,
            row.origin.line,
            seen,
            rendered.prompt,
            rendered.chat,
            row.origin.row,
        )

    def _render(self, row: Conversation) -> _RenderedRow:
        """Render a row, a chat or a text, to its prompt and its answer. Raises NoPrompt where the
        template refuses it.
        """
        try:
            return self._render_chat(row) if row.is_chat else self._render_plain_text(row)
        except TemplateError as error:
            raise NoPrompt(str(error)) from None

    def _encode_answer(self, rendering: Rendering) -> list[int]:
        """The ids of the answer, which are the supervised ones. Raises NoPrompt where contents hold
        control tokens, as training refuses them too.
        """
        encoded = self._encoder.encode([rendering.text])
        source, supervised = label_tokens([rendering], encoded)
        control = np.isin(encoded.ids, list(self._tokenizer.control)) & IS_FROM_ROW[source]
        if control.any() and self._spec.encode.content_specials != "keep":
            raise NoPrompt("its contents hold a control token")
        ids: list[int] = encoded.ids[supervised].tolist()
        return ids

    def _render_chat(self, row: Conversation) -> _RenderedRow:
        """The last answer that is trained, and the prompt that serving makes of the messages before it."""
        at = _last_trained_message_index(row.messages)
        if at is None:
            raise NoPrompt("it has no answer that is trained")
        answer = _remove_truetune_keys(row.messages[at])
        # Up to the answer and no further: templates change earlier turns by what comes later.
        until_answer = replace(row, messages=[*row.messages[:at], answer], prompt_messages=None)
        rendering = self._renderer.render_by_template_with_offsets(until_answer)[0]
        turn = next((turn for turn in rendering.turns if turn.message == at), None)
        if turn is None or turn.start < 0 or not rendering.spans:
            raise NoPrompt("the template leaves its answer out")
        settings = {**self._spec.template_kwargs, **row.template_kwargs}
        prompt = self._render_prompt(row, at, settings)
        messages = tuple(_remove_truetune_keys(message) for message in row.messages[:at])
        return _RenderedRow(
            rendering,
            prompt,
            turn.start,
            turn.end if turn.stop_start < 0 else turn.stop_start,
            _message_text(row.messages[at - 1]) if at else "",
            Chat(messages, tuple(row.tools or ()), settings),
        )

    def _render_prompt(self, row: Conversation, at: int, settings: Mapping[str, Any]) -> str:
        """What serving makes of the messages before number `at`; `settings` are variables of the template."""
        prompt = self._renderer.template_of(row).render(
            row.messages[:at],
            tools=row.tools,
            documents=row.documents,
            add_generation_prompt=True,
            **settings,
        )
        return plain_text(prompt)

    def _render_plain_text(self, row: Conversation) -> _RenderedRow:
        """A prompt and a completion as they are; of plain text, a beginning and the rest."""
        rendering = self._renderer.render_by_template_with_offsets(row)[0]
        text = rendering.text
        wanted = Source.ASSISTANT if row.text is None else Source.TEXT
        if wanted not in rendering.sources:
            raise NoPrompt("it has no answer")
        at = rendering.sources.index(wanted)
        begin, stop = rendering.starts[at], rendering.starts[at + 1]
        if row.text is None:
            return _RenderedRow(rendering, text[:begin], begin, stop, row.prompt or "")
        start, stop, end = self._find_answer_in_text(text, begin, stop)
        rendering = replace(rendering, spans=[Span(start, end, -1, 1.0)])
        return _RenderedRow(rendering, text[:start], start, stop, text[begin:start])

    def _find_answer_in_text(self, text: str, begin: int, end: int) -> tuple[int, int, int]:
        """Where the answer in `text[begin:end]` begins and ends, and where what ends it ends.

        Its last turn where the template's marks stand in it (conversations that were rendered before), else the rest
        behind its first half.
        """
        marked = text.rfind(self._turn_marker, begin, end) if self._turn_marker else -1
        if marked >= 0:
            start = marked + len(self._turn_marker)
            places = [(text.find(stop, start, end), len(stop)) for stop in self._stops]
            ends = [(at, at + length) for at, length in places if at >= 0]
            return start, *min(ends, default=(end, len(text)))
        half = begin + min((end - begin) // 2, MAX_OPENING_CHARACTERS)
        # At a space, so that no word is cut; but not far ahead of the middle, in scripts that have none.
        space = text.rfind(" ", (begin + half) // 2, half + 1)
        return (half if space < 0 else space), end, len(text)


def _last_trained_message_index(messages: list[Message]) -> int | None:
    """Index of the last assistant message that is trained; None without one."""
    for i in reversed(range(len(messages))):
        message = messages[i]
        is_trained = message.get("train", True) and message.get("weight", 1)
        if message.get("role") == "assistant" and is_trained:
            return i
    return None


def _remove_truetune_keys(message: Message) -> Message:
    """Without our keys (`train`, `weight`), which no template or server knows."""
    return {key: value for key, value in message.items() if key not in OWN_KEYS}


def _message_text(message: Message) -> str:
    """The text of a message, of one in parts those that are text."""
    content = message.get("content")
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def max_positions(config: Mapping[str, Any]) -> int | None:
    """How many tokens a model has places for, by its config.json; None where that does not tell."""
    # Models of text and images keep the language model's settings apart; GPT-2 has a name of its own.
    text_config = config.get("text_config")
    for part in (text_config if isinstance(text_config, dict) else {}, config):
        for name in ("max_position_embeddings", "n_positions"):
            if isinstance(part.get(name), int):
                return int(part[name])
    return None


def make_decoder(tokenizer: Tokenizer) -> Callable[[Iterable[int]], str]:
    """A function that decodes ids, control tokens shown."""
    return lambda ids: str(tokenizer.backend.decode(list(ids), skip_special_tokens=False))


def control_token_texts(tokenizer: Tokenizer) -> frozenset[str]:
    """The control tokens as text."""
    return frozenset(str(tokenizer.backend.id_to_token(id)) for id in tokenizer.control)
