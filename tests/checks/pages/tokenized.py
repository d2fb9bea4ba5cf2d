"""Blocks that are tokenized rows: healthy chats of a real tokenizer, and what is done to them.

`make: [healthy, {labels: copy}]` changes the labels (copy, none, no-stop, early, shifted), the ids (two-bos, cut,
beyond, of-another-tokenizer, of-another-template), packs them (`pack: joined`, `parted`), pads them (`pad: learned`),
drops columns or writes a mask. `tokenizer` is `demo` (ChatML) or `bos` (Llama 3), `trainer` who reads the rows,
`settings` the rest of the run's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.tokenized import make
from truetune.checks.detect_trainer_and_apply_facts import trainer_facts_of_run
from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.data.teacher_predictions import read_teacher_file
from truetune.report.rule_pages.examples_of_rows import example_of_retrieval_rows
from truetune.tokenized.open_token_cache import open_token_cache
from truetune.tokenized.tokenized_data import read_tokenized

NAMES = {"demo": "demo", "bos": "llama3-instruct"}


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """What the rule says about the rows that a block describes."""
    block = yaml.safe_load(text)
    if "data" in block:
        return _findings_on_teacher(rule, block, folder)
    trainer = {"trained_by": block["trainer"]} if "trainer" in block else {}
    made = make.probes_of(
        NAMES[block.get("tokenizer", "demo")], **trainer, **block.get("settings", {})
    )
    rows = make.healthy(made)
    written: dict[str, Any] = {}
    for step in block["make"][1:]:
        ((what, how),) = step.items()
        if what == "drop":
            written["labels"] = "labels" not in how
        elif what == "mask":
            written["mask"] = how
        elif how == "of-another-template":
            other = folder / "other.jinja"
            other.write_text(make.OTHER_TEMPLATE, encoding="utf-8")
            rows = make.healthy(
                make.probes_of(NAMES[block.get("tokenizer", "demo")], template=str(other))
            )
        else:
            rows = _changed(made, rows, what, how)
    path = make.write(rows, folder / "rows.parquet", **written)
    data = read_tokenized(
        open_token_cache(str(path)), made.spec, made, trainer_facts_of_run(made.spec)
    )
    return tuple(rule(data).findings())


def _findings_on_teacher(
    rule: type[Rule[Any]], block: dict[str, Any], folder: Path
) -> tuple[Finding, ...]:
    """What the rule says about rows with predictions of a teacher."""
    (file,) = example_of_retrieval_rows(block).files
    path = folder / file.name
    path.write_text(file.text, encoding="utf-8")
    return tuple(rule(read_teacher_file(str(path))).findings())


def _changed(made: Any, rows: list[make.Row], what: str, how: str) -> list[make.Row]:
    if what == "labels":
        ways = {
            "copy": make.copied,
            "none": make.none,
            "shifted": make.shifted,
            "early": make.early,
        }
        return make.with_labels(rows, ways.get(how) or make.without_stops(made))
    if what == "pack":
        return make.packed(rows, parted=how == "parted")
    if what == "pad":
        return make.padded(rows, made.tokenizer.special["pad"].id, learned=True)
    size = made.tokenizer.vocabulary
    if how == "of-another-tokenizer":
        return make.healthy(make.probes_of("smollm2"))
    if how == "two-bos":
        return make.with_ids(rows, lambda ids: [ids[0], *ids])
    if how == "beyond":
        return make.with_ids(rows, lambda ids: [*ids, size + 3])
    assert how == "cut"
    return make.with_ids(rows, lambda ids: ids[:30])
