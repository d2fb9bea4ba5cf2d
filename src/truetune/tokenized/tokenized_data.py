"""The tokenized rows that rules judge: a cache, read once, with its tokens placed by the
tokenizer's template.

All rows pass once through `find_token_sources`, a summary counts them, and a sample goes through a round trip. Rules
then ask this object; none reads the rows again but for a single one that a finding shows.
"""

from __future__ import annotations

from dataclasses import dataclass

from truetune.errors import DataError
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec
from truetune.tokenized.compare_ids_with_retokenized_text import RoundTrip, RoundTripSampler
from truetune.tokenized.find_token_sources import PlacedChunk, TokenPlacer
from truetune.tokenized.open_token_cache import CacheDifference, TokenCache, find_cache_differences
from truetune.tokenized.read_tokenized_rows_in_chunks import Chunk, Progress, read_chunks
from truetune.tokenized.tokenized_summary import TokenizedSummary
from truetune.trainers import TrainerFacts

MIN_STRANGE_SHARE = 0.1
"""Share of rows that mean nothing under the tokenizer, from which on it is said to be another one: measured on five
public data sets in English and Chinese with ten tokenizers, none of 800 rows that a tokenizer made itself spells no
text under it. Of the rows of another one it is mostly more, but 0.06 for a few pairs that have many tokens alike, and 0
where they share their ids (Llama 2 and Phi-3): there only the headers tell"""
# One row alone may be base64 or another script; two of them at that share are no accident.
MIN_STRANGE_ROWS = 2
"""... and how many rows at least"""


def _do_strange_rows_show_other_tokenizer(strange: int, read: int) -> bool:
    """Are so many of the rows that were read strange that another tokenizer must have made them?"""
    return strange >= MIN_STRANGE_ROWS and strange >= MIN_STRANGE_SHARE * read


@dataclass(frozen=True)
class TokenizedData:
    """Rows that are token ids already, with the counts and samples that rules ask for."""

    cache: TokenCache
    spec: RunSpec
    probes: Probes
    placer: TokenPlacer
    summary: TokenizedSummary
    round_trip: RoundTrip
    trainer: TrainerFacts
    differences: tuple[CacheDifference, ...]
    """What the cache was made with, and is another one now"""

    @property
    def do_settings_train_on_prompts(self) -> bool:
        """Do the settings ask for prompts in the loss?"""
        return self.spec.learn.what == "all" or self.spec.training.method == "pretrain"

    @property
    def is_plain_text(self) -> bool:
        """Is no row a chat, and none masked in part, as text is that a model is pretrained on?"""
        summary = self.summary
        # Labels that equal the ids everywhere say no more than no labels: so a text for pretraining
        # is stored.
        masked = (
            summary.do_rows_say_which_tokens_are_learned
            and summary.all_supervised.count < summary.rows
        )
        return not summary.chats and not masked

    def unexplained_control_tokens(self) -> list[str]:
        """Control tokens in the rows that neither the template nor the tokenizer's settings name."""
        tokenizer, template = self.probes.tokenizer, self.probes.template
        source = template.source if template else ""
        named = {token.id for token in tokenizer.special.values()} | self.placer.stops
        seen = (
            (id, tokenizer.backend.id_to_token(id) or str(id))
            for id in sorted(self.summary.control_seen)
        )
        return [token for id, token in seen if id not in named and token not in source]

    def why_ids_mean_nothing(self) -> str:
        """Why it can't be told what the ids mean: another tokenizer or template made them; empty
        where it can.
        """
        summary, trip = self.summary, self.round_trip
        # Ids beyond the vocabulary prove it without reading any text.
        if (
            summary.beyond.count >= MIN_STRANGE_SHARE * summary.rows > 0
            or _do_strange_rows_show_other_tokenizer(len(trip.strange), trip.read)
        ):
            return "another tokenizer made the rows"
        headers_missing = bool(self.placer.layout.headers) and not summary.chats
        if (
            headers_missing
            and not self.is_plain_text
            and (summary.headers_as_text or self.unexplained_control_tokens())
        ):
            return "another template made the rows"
        return ""


def read_tokenized(
    cache: TokenCache,
    spec: RunSpec,
    probes: Probes,
    trainer: TrainerFacts,
    progress: Progress | None = None,
) -> TokenizedData:
    """Read all rows of a cache once, in bulk.

    Args:
        cache: its files.
        spec: the settings that it is judged by.
        probes: the tokenizer and template that it is read with.
        trainer: what will train on it.
        progress: told rows done, bytes read, and bytes in all.

    Raises DataError.
    """
    placer = TokenPlacer(probes)
    summary, trips = TokenizedSummary(placer), RoundTripSampler(probes)
    for chunk in read_chunks(cache.sources, progress):
        placed = placer.place(chunk)
        summary.add(placed)
        trips.add(placed)
    # Nothing could be read: that is an error, and no cache without findings.
    if not summary.rows and summary.broken_rows:
        origin, reason = summary.broken_rows[0]
        raise DataError(reason if reason.startswith(origin.file) else f"{origin}: {reason}")
    return TokenizedData(
        cache,
        spec,
        probes,
        placer,
        summary,
        trips.found,
        trainer,
        tuple(find_cache_differences(cache, spec, probes)),
    )


def find_row_and_its_chunk(
    cache: TokenCache, probes: Probes, *, row: int = 0, line: int | None = None
) -> tuple[PlacedChunk, int]:
    """Find one row of a cache: the chunk that holds it, and its place in that.

    Args:
        cache: its files.
        probes: the tokenizer and template that it is read with.
        row: its number over all files, from 0; not asked for where `line` is given.
        line: its line in its file, from 1.

    Raises DataError where there is no such row, or it can't be read.
    """
    placer, last = TokenPlacer(probes), -1
    for chunk in read_chunks(cache.sources):
        at = _place_of_row_in_chunk(chunk, row, line)
        if at is not None:
            return placer.place(chunk), at
        reason = next(
            (why for origin, why in chunk.broken if origin.row == row and line is None), None
        )
        if reason:
            raise DataError(f"{cache.path}: row {row}: {reason}")
        last = int(chunk.rows[-1]) if len(chunk.rows) else last
    where = f"row {row}" if line is None else f"row at line {line}"
    raise DataError(
        f"{cache.path}: there is no {where} with ids; rows are numbered from 0 to {last}"
    )


def _place_of_row_in_chunk(chunk: Chunk, row: int, line: int | None) -> int | None:
    """The place of a row in a chunk, by its number or line; None where it is not in it."""
    wanted = chunk.rows == row if line is None else chunk.lines == line
    places = wanted.nonzero()[0]
    return int(places[0]) if len(places) else None
