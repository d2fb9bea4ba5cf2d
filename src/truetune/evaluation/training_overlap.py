"""Finds the prompts that a model was trained on, by comparing them with every training row.

Training rows are taken from files that the user names, else from the record of the run: its encoded rows, or its files
where they are unchanged. A row counts as trained on where a training example begins with the prompt and its answer, in
ids or in folded text. The trade-off: only whole rows are matched from their start; a paraphrase, or a question in the
middle of a longer training row, is not found.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from truetune.data.conversation import Conversation
from truetune.data.guard_output_folder import file_digest
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.encoding.encoded_folder_layout import DATA, read_manifest_or_none
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import (
    retry_without_shortcuts,
    stream_batches,
)
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.build_prompts import make_decoder
from truetune.render.template_probes import Probes

MatchKind = Literal["row", "near", "prompt"]
MATCH_KINDS: tuple[MatchKind, ...] = ("row", "near", "prompt")
"""From the surest on"""
IGNORED_CHARACTERS = re.compile(r"[\W_]+")
# Chosen, not measured: one call of the tokenizer decodes a chunk on all cores, and a chunk of long rows must fit
# into memory.
CHUNK_ROWS = 1024
"""Rows that are decoded at a time"""


@dataclass(frozen=True, slots=True)
class TrainingMatch:
    """A training row that a prompt stands in."""

    how: MatchKind
    """The same prompt and answer; the same but for case, space and punctuation; the same prompt, another answer"""
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class TrainingOverlap:
    """What some prompts were compared with, and what was found of them."""

    seen: tuple[TrainingMatch | None, ...]
    """One for each prompt"""
    rows: int
    """Training examples that were compared"""
    source: str
    """What they were taken from, for a reader"""

    def mark_prompts_as_seen_or_not(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts with `seen` as it was found; the same prompt with another answer does not count."""
        return [
            replace(prompt, seen=match is not None and match.how != "prompt")
            for prompt, match in zip(prompts, self.seen, strict=True)
        ]


class _TrainingExample(NamedTuple):
    """One example of the training."""

    ids: tuple[int, ...]
    file: str
    line: int


def find_training_overlap(
    model_source: ModelSource,
    prompts: Sequence[Prompt],
    probes: Probes,
    trained_on: Sequence[str] = (),
) -> TrainingOverlap | str:
    """Which prompts the model was trained on: by the files of `--trained-on`, else by the record of its run.

    Args:
        model_source: the model, with the record of its run.
        prompts: what is looked for.
        probes: tokenizer and template of the training.
        trained_on: files that the model was trained on.

    Returns:
        A str where that is not known, which says why: nothing is recorded, or what is recorded is not on this machine.

    Raises:
        TruetuneError: what reading `trained_on` raises.
    """
    # The fast path of rendering and encoding is proved on a sample, and all is done again without it where it fails.
    return retry_without_shortcuts(
        lambda only_reference: _find_overlap(
            model_source, prompts, replace(probes, only_reference=only_reference), trained_on
        )
    )


def _find_overlap(
    model_source: ModelSource, prompts: Sequence[Prompt], probes: Probes, trained_on: Sequence[str]
) -> TrainingOverlap | str:
    """As `find_training_overlap`, by the one path of encoding that `probes` says."""
    examples: Iterator[_TrainingExample]
    if trained_on:
        examples, source = _read_files(probes, trained_on), ", ".join(trained_on)
    else:
        opened = _recorded_examples_or_why_not(model_source, probes)
        if isinstance(opened, str):
            return opened
        examples, source = opened
    matches, rows = _match_prompts_and_count_examples(prompts, examples, probes)
    return TrainingOverlap(tuple(matches), rows, source)


def _recorded_examples_or_why_not(
    model_source: ModelSource, probes: Probes
) -> tuple[Iterator[_TrainingExample], str] | str:
    """What the run was trained on: its encoded rows, else its files, where they are as they were; else why not."""
    data = model_source.run.get("data")
    if not data:
        return "no run.json tells what it was trained on; name the files with --trained-on"
    held_out = frozenset(data.get("held_out") or ())
    folder = Path(str(data.get("folder") or ""))
    manifest = read_manifest_or_none(folder)
    # The key is a digest of rows and settings: another one is of other rows in the same folder.
    if manifest is not None and manifest.get("key") == data.get("key"):
        return _read_encoded_rows(folder, manifest, held_out), "the encoded rows of its run"
    names = _file_names_of_run(model_source.run)
    inputs = data.get("inputs") or {}
    files = _find_unchanged_files(model_source, names, inputs.get("data") or [])
    if files:
        return _read_files(probes, files, held_out), ", ".join(names)
    file_names = ", ".join(names) or "not named"
    return (
        f"the rows that it was trained on ({file_names}) are not on this machine as they were;"
        " name them with --trained-on"
    )


def _file_names_of_run(run: Mapping[str, Any]) -> list[str]:
    """The files of a run as its settings name them."""
    settings = run.get("settings") or {}
    return settings.get("data") or []


def _find_unchanged_files(
    model_source: ModelSource, names: Sequence[str], entries: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The paths of the run's files, where all of them have the content that was trained on; else none.

    Args:
        model_source: the model, whose folder is beside its run's files perhaps.
        names: of the files, as the run was given them.
        entries: with their digests.
    """
    digests = {entry.get("digest") for entry in entries}
    # Names in a record are relative to where the run was started: mostly here, or beside its output folder.
    beside_run = model_source.folder.resolve().parent if model_source.folder else Path()
    for root in (Path(), beside_run):
        files = [root / name for name in names]
        if not files or not all(path.is_file() for path in files):
            continue
        if {file_digest(path) for path in files} == digests:
            return list(map(str, files))
    return []


def _read_files(
    probes: Probes, files: Sequence[str], held: frozenset[int] = frozenset()
) -> Iterator[_TrainingExample]:
    """The examples of files, without the rows that were held out."""
    rows = read_conversations(files, format=probes.spec.format, columns=probes.spec.map)
    kept: Iterable[Conversation] = (row for row in rows if row.origin.row not in held)
    encoder = Encoder(probes.tokenizer.backend, only_reference=probes.only_reference)
    for batch in stream_batches(kept, probes.renderer(), encoder):
        for i, example in enumerate(batch.examples):
            ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]].tolist()
            yield _TrainingExample(tuple(ids), example.row.origin.file, example.row.origin.line)


def _read_encoded_rows(
    folder: Path, manifest: Mapping[str, Any], held: frozenset[int]
) -> Iterator[_TrainingExample]:
    """The examples of a folder that `truetune encode` or `truetune train` wrote, without the held-out rows."""
    import pyarrow.dataset as arrow

    names = [str(folder / DATA / shard["file"]) for shard in manifest["shards"]]
    kind = "parquet" if names[0].endswith("parquet") else "arrow"
    table = arrow.dataset(names, format=kind)
    columns = ["input_ids", "file", "line", "row"]
    # In batches: the encoded rows of a run may be larger than the memory.
    for batch in table.to_batches(columns=columns, batch_size=CHUNK_ROWS):
        for entry in batch.to_pylist():
            if entry["row"] not in held:
                yield _TrainingExample(tuple(entry["input_ids"]), entry["file"], entry["line"])


def _match_prompts_and_count_examples(
    prompts: Sequence[Prompt], examples: Iterator[_TrainingExample], probes: Probes
) -> tuple[list[TrainingMatch | None], int]:
    """(the surest thing that is known of each prompt, examples that were read)

    An example holds a prompt where it begins with it, in ids or in folded text; the answer goes up to its stop token.
    """
    decode = make_decoder(probes.tokenizer)
    prompt_texts = [decode(prompt.ids) for prompt in prompts]
    whole_texts = [decode((*prompt.ids, *prompt.reference_ids)) for prompt in prompts]
    by_ids = _PrefixIndex([(*prompt.ids, *prompt.reference_ids) for prompt in prompts])
    by_folded_text = _PrefixIndex([_letters_and_digits_without_case(text) for text in whole_texts])
    by_folded_prompt = _PrefixIndex(
        [_letters_and_digits_without_case(text) for text in prompt_texts]
    )
    # Only the beginning of an example is compared. Twice, for spaces and punctuation that folding drops: a training
    # row may have more of them than the prompt.
    longest = 2 * max(map(len, whole_texts), default=0) + 256
    matches: list[TrainingMatch | None] = [None] * len(prompts)
    rows = 0
    for chunk in iter(lambda: list(islice(examples, CHUNK_ROWS)), []):
        rows += len(chunk)
        # Nearly every token has a character or more, so that so many ids are enough.
        texts = probes.tokenizer.backend.decode_batch(
            [list(example.ids[:longest]) for example in chunk], skip_special_tokens=False
        )
        for example, text in zip(chunk, texts, strict=True):
            folded = _letters_and_digits_without_case(text[:longest])
            hits: dict[MatchKind, list[int]] = {
                "row": by_ids.numbers_of_prefixes_of(example.ids),
                "near": by_folded_text.numbers_of_prefixes_of(folded),
                "prompt": by_folded_prompt.numbers_of_prefixes_of(folded),
            }
            _note_surest_match_of_each_prompt(matches, hits, example)
    return matches, rows


def _note_surest_match_of_each_prompt(
    matches: list[TrainingMatch | None],
    hits: Mapping[MatchKind, Sequence[int]],
    example: _TrainingExample,
) -> None:
    """Note the hits of an example where nothing surer is known of a prompt; the first example of a kind stays."""
    for how, prompt_numbers in hits.items():
        for number in prompt_numbers:
            before = matches[number]
            if before is None or MATCH_KINDS.index(how) < MATCH_KINDS.index(before.how):
                matches[number] = TrainingMatch(how, example.file, example.line)


class _PrefixIndex:
    """Finds which of some sequences another one begins with.

    One look-up for each length that there is, and not a comparison of each training row with each prompt.
    """

    def __init__(self, starts: Sequence[Any]) -> None:
        self.numbers: dict[Any, list[int]] = defaultdict(list)
        for number, start in enumerate(starts):
            # Everything begins with an empty sequence.
            if start:
                self.numbers[start].append(number)
        self.lengths = sorted({len(start) for start in self.numbers})

    def numbers_of_prefixes_of(self, sequence: Any) -> list[int]:
        """The numbers of the sequences that this one begins with."""
        numbers: list[int] = []
        for length in self.lengths:
            if length > len(sequence):
                break
            numbers += self.numbers.get(sequence[:length], ())
        return numbers


def _letters_and_digits_without_case(text: str) -> str:
    """Letters and digits alone, without case: what is left the same by reformatting."""
    return IGNORED_CHARACTERS.sub("", text.casefold())
