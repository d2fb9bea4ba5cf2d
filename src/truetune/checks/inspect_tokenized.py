"""Inspects rows that are token ids already: what a trainer learns of them, and what the rules find
in them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truetune.checks.detect_trainer_and_apply_facts import trainer_facts_of_run
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Report, Subject, TokenView
from truetune.checks.rule import TokenizedRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Example
from truetune.encoding.token_bytes import TokenBytes
from truetune.encoding.token_counts import Ledger
from truetune.errors import TruetuneError
from truetune.render.rendering import Rendering
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.config import Config
from truetune.settings.recognise_input_kind import recognise_kinds
from truetune.settings.run_spec import RunSpec
from truetune.tokenized.open_token_cache import (
    TokenCache,
    open_token_cache,
    tokenizer_named_by_cache,
)
from truetune.tokenized.read_tokenized_rows_in_chunks import Progress
from truetune.tokenized.recognise_token_columns import does_first_file_hold_token_ids
from truetune.tokenized.tokenized_data import TokenizedData, find_row_and_its_chunk, read_tokenized
from truetune.tokenized.tokenized_summary import TokenizedSummary

TOKENIZED_KIND = "tokenized data"


@dataclass(frozen=True, kw_only=True, repr=False)
class TokenizedReport(Report):
    """What stands in tokenized rows, by source, and the findings."""

    ledger: Ledger
    """Tokens by source, without padding"""
    rows: int
    padding: int
    says_what_is_learned: bool
    """Is there a column of labels or a mask?"""
    verdict: str
    """What of each source is learned, in one sentence"""

    def more(self) -> dict[str, Any]:
        """The counts of tokens by source, as the JSON of the report has them besides."""
        sources = {
            source.name.lower(): {"supervised": supervised, "context": context}
            for source, supervised, context in self.ledger.rows()
        }
        return {
            "tokenized": {"rows": self.rows, "padding": self.padding, "ledger": sources},
            "verdict": self.verdict,
        }


def inspect_tokenized(
    path: str, spec: RunSpec, progress: Progress | None = None
) -> TokenizedReport:
    """Look at rows that are token ids already: a file, a folder of `save_to_disk`, a cache of a trainer.

    Args:
        path: as `open_token_cache` takes it.
        spec: names the tokenizer, and the template and limit of the run where they are set.
        progress: called with rows done, bytes read, bytes in all.

    Raises SpecError, TokenizerError, TemplateError or DataError.
    """
    started = time.perf_counter()
    cache = open_token_cache(path)
    data = read_tokenized(
        cache, spec, load_tokenizer_and_template_of_run(spec), trainer_facts_of_run(spec), progress
    )
    judgement = _judge_token_rules(choose_rules(spec, TokenizedRule), data)
    summary = data.summary
    sentence = describe_supervised_sources(data)
    return TokenizedReport(
        spec=spec,
        subjects=(Subject(TOKENIZED_KIND, cache.path, tuple(_tokenized_facts(data))),),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=(*_rows_and_caches_left_out(cache, summary), *judgement.not_judged),
        ledger=summary.ledger(),
        rows=summary.rows,
        padding=summary.padding,
        says_what_is_learned=summary.do_rows_say_which_tokens_are_learned,
        verdict=sentence,
        seconds=time.perf_counter() - started,
    )


def _judge_token_rules(chosen: list[type[TokenizedRule]], data: TokenizedData) -> Judgement:
    """The judgement of these rules on token rows; those that read what the ids mean are left out if
    they mean nothing.
    """
    why = data.why_ids_mean_nothing()
    out = [rule for rule in chosen if why and rule.needs_right_tokenizer]
    judgement = run_rules(data, [rule for rule in chosen if rule not in out])
    left = (
        NotJudged(rule.name(), why, rule.code, unlock="name the right one", asked=False)
        for rule in out
    )
    return Judgement(judgement.findings, judgement.examined, (*judgement.not_judged, *left))


def is_tokenized(path: str, spec: RunSpec) -> bool:
    """Are the rows of this path token ids? A `format` that is named says that they are not."""
    if spec.format is not None or "://" in path:
        return False
    try:
        if Path(path).is_dir() and recognise_kinds(path)[0] == "encoded":
            return True
        return does_first_file_hold_token_ids(open_token_cache(path).sources)
    except (TruetuneError, OSError):
        return False


def find_folder_of_tokenized_rows(config: Config) -> tuple[str, ...]:
    """The folder of tokenized rows that a configuration names, where it is here."""
    name = config.spec.training.prepared_path
    if name is None:
        return ()
    folders = [base / Path(name).expanduser() for base in (Path(), Path(config.path).parent)]
    here = [str(path) for path in folders if path.is_dir() and is_tokenized(str(path), RunSpec())]
    # Relative to where the command runs, as the trainer reads it; else to the settings.
    return tuple(here[:1])


def describe_supervised_sources(data: TokenizedData) -> str:
    """Which sources of tokens are in the loss, with their counts, in one sentence."""
    summary = data.summary
    if not summary.rows:
        return "no row with token ids was read"
    if not summary.do_rows_say_which_tokens_are_learned:
        return f"{_name_rows(summary)}, {summary.tokens:,} tokens, and neither labels nor a mask"
    return f"the loss is on {_count_supervised_tokens_by_source(summary)}"


def _count_supervised_tokens_by_source(summary: TokenizedSummary) -> str:
    """How many tokens are in the loss, and of which sources: `3 of 9 tokens of 1 row: stop token 3`."""
    counts = summary.ledger()
    total = f"{counts.supervised:,} of {summary.tokens:,} tokens of {_name_rows(summary)}"
    sources = ", ".join(
        f"{source.label} {supervised:,}" for source, supervised, _ in counts.rows() if supervised
    )
    return f"{total}: {sources}" if sources else total


def _name_rows(summary: TokenizedSummary) -> str:
    return f"{summary.rows:,} row{'s' * (summary.rows != 1)}"


def _tokenized_facts(data: TokenizedData) -> Iterator[tuple[str, str]]:
    """Short facts on tokenized rows, by name."""
    summary, answers = data.summary, data.summary.answers
    if not summary.do_rows_say_which_tokens_are_learned:
        yield "rows", f"{summary.rows:,} of {summary.tokens:,} tokens, neither labels nor a mask"
    elif summary.rows:
        yield "in the loss", _count_supervised_tokens_by_source(summary)
    yield (
        "labels or masks",
        ", ".join([*(["labels"] if summary.labels else []), *sorted(summary.masks)]) or "nothing",
    )
    yield "tokenizer", str(data.probes.tokenizer.folder)
    name = tokenizer_named_by_cache(data.cache)
    if name:
        yield "made with", name
    yield "chats", f"{summary.chats:,} rows with turns of the template"
    if answers.closed:
        yield "stop tokens in the loss", f"{answers.stops_learned:,} of {answers.closed:,}"
    if "bos" in data.probes.tokenizer.special and not data.placer.layout.bos_opens_turns:
        yield "begin with BOS", f"{summary.begins_with_bos:,} of {summary.rows:,}"
    # Capped at a million rows of one length: the median does not need more, and an array of all would not fit in
    # memory.
    lengths = np.repeat(np.arange(len(summary.lengths)), np.minimum(summary.lengths, 1 << 20))
    if len(lengths):
        yield (
            "tokens a row",
            f"median {int(np.median(lengths)):,}, longest {len(summary.lengths) - 1:,}",
        )
    yield "documents", f"{summary.documents:,}"
    if summary.padding:
        yield "stored padding", f"{summary.padding:,} places"
    if data.trainer.name:
        yield "read by", data.trainer.name_in_reports


def _rows_and_caches_left_out(cache: TokenCache, summary: TokenizedSummary) -> Iterator[NotJudged]:
    """Rows that are broken, and other caches of the folder."""
    if summary.broken:
        origin, reason = summary.broken_rows[0]
        yield NotJudged(
            f"{summary.broken:,} broken row{'s' * (summary.broken != 1)}",
            reason.removeprefix(f"{origin}: "),
            place=f"{origin.file}:{origin.line}",
            unlock="write the cache again",
        )
    for other in cache.others:
        yield NotJudged(
            other, "it is another cache in the same folder", unlock="name it by itself", asked=False
        )


def view_tokenized_row(
    spec: RunSpec, path: str, row: int = 0, *, line: int | None = None
) -> TokenView:
    """The token view of one tokenized row, with the source of each token as the template tells it.

    Raises SpecError, TokenizerError, TemplateError or DataError.
    """
    probes = load_tokenizer_and_template_of_run(spec)
    placed, at = find_row_and_its_chunk(open_token_cache(path), probes, row=row, line=line)
    chunk = placed.chunk
    part = slice(int(chunk.offsets[at]), int(chunk.offsets[at + 1]))
    ids, valid = chunk.ids[part], placed.valid[part]
    vocabulary = TokenBytes(probes.tokenizer.backend)
    pieces = tuple(
        # surrogateescape: a token may hold half of a character, which the page draws as its bytes.
        vocabulary.spell(id).decode("utf-8", "surrogateescape") if known else f"<id {id}>"
        for id, known in zip(ids.tolist(), valid.tolist(), strict=True)
    )
    text = "".join(pieces)
    starts = np.cumsum([0, *map(len, pieces)])[:-1].astype(np.int32)
    conversation = Conversation(chunk.origin(at), "token ids", text=text)
    rendering = Rendering(text, [0, len(text)], (), (), [], [])
    return TokenView(
        Example(conversation, rendering),
        ids.astype(np.int32),
        placed.source[part],
        chunk.supervised[part],
        starts,
        pieces,
    )
