"""Leaks: which rows a model has seen in its training."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from truetune.data.conversation import Conversation
from truetune.data.output_folder import file_digest
from truetune.data.rows import read_conversations
from truetune.encoding.encoder import Encoder
from truetune.encoding.folder_layout import DATA, manifest_in
from truetune.encoding.stream import batches, with_proof
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.build_prompts import make_decoder
from truetune.render.probes import Probes

How = Literal["row", "near", "prompt"]
SURE: tuple[How, ...] = ("row", "near", "prompt")
"""From the surest on"""
NOISE = re.compile(r"[\W_]+")
ROWS = 1024
"""Rows that are decoded at a time"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A training row that a prompt stands in."""

    how: How
    """The same prompt and answer; the same but for case, space and punctuation; the same prompt, another answer"""
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Leaks:
    """What some prompts were compared with, and what was found of them."""

    seen: tuple[Seen | None, ...]
    """One for each prompt"""
    rows: int
    """Training examples that were compared"""
    source: str
    """What they were taken from, for a reader"""

    def marked(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts with `seen` as it was found; the same prompt with another answer does not count."""
        return [
            replace(prompt, seen=found is not None and found.how != "prompt")
            for prompt, found in zip(prompts, self.seen, strict=True)
        ]


class _Example(NamedTuple):
    """One example of the training."""

    ids: tuple[int, ...]
    file: str
    line: int


def seen_rows(
    place: ModelSource, prompts: Sequence[Prompt], probes: Probes, trained_on: Sequence[str] = ()
) -> Leaks | str:
    """Which prompts the model was trained on: by the files of `--trained-on`, else by the record of its run.

    A str says why that is not known: nothing is recorded, or what is recorded is not on this machine. Raises what
    reading `trained_on` raises.
    """
    return with_proof(
        lambda only_reference: _seen_rows(
            place, prompts, replace(probes, only_reference=only_reference), trained_on
        )
    )


def _seen_rows(
    place: ModelSource, prompts: Sequence[Prompt], probes: Probes, trained_on: Sequence[str]
) -> Leaks | str:
    if trained_on:
        found: tuple[Iterator[_Example], str] | str = (
            _of_files(probes, trained_on),
            ", ".join(trained_on),
        )
    else:
        found = _recorded(place, probes)
    if isinstance(found, str):
        return found
    examples, source = found
    seen, rows = _compared(prompts, examples, probes)
    return Leaks(tuple(seen), rows, source)


def _recorded(place: ModelSource, probes: Probes) -> tuple[Iterator[_Example], str] | str:
    """What the run was trained on: its encoded rows, else its files, where they are as they were."""
    data = place.run.get("data") or {}
    if not data:
        return "no run.json tells what it was trained on; name the files with --trained-on"
    held = frozenset(data.get("held_out") or ())
    folder = Path(str(data.get("folder") or ""))
    manifest = manifest_in(folder)
    if manifest is not None and manifest.get("key") == data.get("key"):
        return _of_table(folder, manifest, held), "the encoded rows of its run"
    named = (place.run.get("settings") or {}).get("data") or []
    digests = {entry.get("digest") for entry in (data.get("inputs") or {}).get("data") or []}
    above = place.folder.resolve().parent if place.folder else Path()
    for root in (Path(), above):
        files = [root / name for name in named]
        if (
            files
            and all(path.is_file() for path in files)
            and {file_digest(path) for path in files} == digests
        ):
            return _of_files(probes, list(map(str, files)), held), ", ".join(named)
    return (
        f"the rows that it was trained on ({', '.join(named) or 'not named'}) are not on this"
        " machine as they were; name them with --trained-on"
    )


def _of_files(
    probes: Probes, files: Sequence[str], held: frozenset[int] = frozenset()
) -> Iterator[_Example]:
    rows = read_conversations(files, format=probes.spec.format, columns=probes.spec.map)
    kept: Iterable[Conversation] = (row for row in rows if row.origin.row not in held)
    encoder = Encoder(probes.tokenizer.backend, only_reference=probes.only_reference)
    for batch in batches(kept, probes.renderer(), encoder):
        for i, example in enumerate(batch.examples):
            ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]].tolist()
            yield _Example(tuple(ids), example.row.origin.file, example.row.origin.line)


def _of_table(
    folder: Path, manifest: Mapping[str, Any], held: frozenset[int]
) -> Iterator[_Example]:
    import pyarrow.dataset as arrow

    names = [str(folder / DATA / shard["file"]) for shard in manifest["shards"]]
    kind = "parquet" if names[0].endswith("parquet") else "arrow"
    table = arrow.dataset(names, format=kind)
    for batch in table.to_batches(columns=["input_ids", "file", "line", "row"], batch_size=ROWS):
        for entry in batch.to_pylist():
            if entry["row"] not in held:
                yield _Example(tuple(entry["input_ids"]), entry["file"], entry["line"])


def _compared(
    prompts: Sequence[Prompt], examples: Iterator[_Example], probes: Probes
) -> tuple[list[Seen | None], int]:
    """(the surest thing that is known of each prompt, examples that were read)

    An example holds a prompt where it begins with it, in ids or in folded text; the answer goes up to its stop token.
    """
    decode = make_decoder(probes.tokenizer)
    asked = [decode(prompt.ids) for prompt in prompts]
    whole = [decode((*prompt.ids, *prompt.reference_ids)) for prompt in prompts]
    rows_of = _Starts([(*prompt.ids, *prompt.reference_ids) for prompt in prompts])
    near, same = (
        _Starts([_folded(text) for text in whole]),
        _Starts([_folded(text) for text in asked]),
    )
    longest = 2 * max(map(len, whole), default=0) + 256
    found: list[Seen | None] = [None] * len(prompts)
    rows = 0
    while chunk := list(islice(examples, ROWS)):
        rows += len(chunk)
        texts = probes.tokenizer.backend.decode_batch(
            [list(example.ids[:longest]) for example in chunk], skip_special_tokens=False
        )
        for example, text in zip(chunk, texts, strict=True):
            folded = _folded(text[:longest])
            hits: dict[How, list[int]] = {
                "row": rows_of(example.ids),
                "near": near(folded),
                "prompt": same(folded),
            }
            for how, i in ((how, i) for how, places in hits.items() for i in places):
                before = found[i]
                if before is None or SURE.index(how) < SURE.index(before.how):
                    found[i] = Seen(how, example.file, example.line)
    return found, rows


class _Starts:
    """Finds which of some sequences another one begins with."""

    def __init__(self, starts: Sequence[Any]) -> None:
        self.places: dict[Any, list[int]] = defaultdict(list)
        for i, start in enumerate(starts):
            if start:
                self.places[start].append(i)
        self.lengths = sorted({len(start) for start in self.places})

    def __call__(self, sequence: Any) -> list[int]:
        fit = (length for length in self.lengths if length <= len(sequence))
        return [i for length in fit for i in self.places.get(sequence[:length], ())]


def _folded(text: str) -> str:
    return NOISE.sub("", text.casefold())
