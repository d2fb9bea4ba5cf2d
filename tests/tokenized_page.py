"""`python -m tests.tokenized_page` writes the table of docs/tokenized-rows.md.

Each cell is measured: rows of one shape are given to a real trainer with a tiny model, one step is trained, and an
audit that knows the rows as text tells which tokens reach the loss. What a trainer refuses, it refuses here.
"""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import click
import datasets
import transformers
import trl
from datasets import Dataset

import truetune
from tests.auditing import tiny
from truetune.checks.reports import AuditReport
from truetune.errors import TruetuneError
from truetune.render.rendering import Source
from truetune.settings.run_spec import RunSpec
from truetune.training.load_encoded_held_out_and_packed_rows import load_training_data
from truetune.training.preference_rows import load_preference_data
from truetune.training.preference_trainers import ORPOConfig, ORPOTrainer, make_preference_trainer
from truetune.training.prepare_model import prepare_model
from truetune.training.trainer_with_supervised_token_loss import make_supervised_trainer
from truetune.training.training_recipe import make_recipe

PAGE = Path(__file__).parents[1] / "docs" / "tokenized-rows.md"
BEGIN, END = "<!-- table: python -m tests.tokenized_page -->", "<!-- end of the table -->"
ROWS = 4
RAW, BARE, LABELS, MASK = "text", "ids, without labels", "ids, with labels", "ids, with a mask"
BESIDE = "text, and ids by another template"
SHOWN = 110
"""Characters of an error that a cell holds"""
COLLATORS = ("DataCollatorForLanguageModeling", "DataCollatorForSeq2Seq")
"""Of transformers. DataCollatorWithPadding makes no labels either, and pads none"""

Row = dict[str, Any]
Build = Callable[[list[Row]], Any]
"""Rows -> a trainer that is about to train them"""


@dataclass(frozen=True)
class Shape:
    """What the rows of one line of the table hold."""

    method: str
    kind: str
    """What they are, in words"""
    rows: tuple[Row, ...]
    raw: tuple[Row, ...]
    """The same rows as text"""
    settings: tuple[tuple[str, Any], ...] = ()
    """Of TRL's configuration, over its defaults"""

    @property
    def columns(self) -> str:
        """The columns of a row, and the settings."""
        names = ", ".join(f"`{name}`" for name in self.rows[0])
        settings = ", ".join(f"`{name}={value}`" for name, value in self.settings)
        return f"{names}; {settings}" if settings else names


def shapes() -> list[Shape]:
    """All lines of the table, in order."""
    return [*_of_chats(), *_of_pairs("dpo"), *_of_pairs("orpo"), *_of_verdicts()]


def _of_chats() -> Iterator[Shape]:
    chats = tiny.chats(ROWS)
    split = [{"prompt": row["messages"][:-1], "completion": row["messages"][-1:]} for row in chats]
    made = tiny.encoded(chats)
    masks = [[int(label >= 0) for label in row["labels"]] for row in made]

    def shape(kind: str, rows: list[Row], **settings: Any) -> Shape:
        return Shape("sft", kind, tuple(rows), tuple(chats), tuple(settings.items()))

    def masked(name: str) -> list[Row]:
        return [
            {"input_ids": row["input_ids"], name: mask}
            for row, mask in zip(made, masks, strict=True)
        ]

    bare = [{"input_ids": row["input_ids"]} for row in made]
    yield shape(RAW, chats)
    yield shape(RAW, split)
    yield shape(BESIDE, [{**row, "input_ids": _otherwise(row["messages"])} for row in chats])
    yield shape(BARE, bare)
    yield shape(BARE, bare, completion_only_loss=True)
    yield shape(BARE, bare, assistant_only_loss=True)
    yield shape(LABELS, made)
    yield shape(LABELS, made, dataset_kwargs={"skip_prepare_dataset": True})
    yield shape(MASK, masked("completion_mask"))
    yield shape(MASK, masked("completion_mask"), completion_only_loss=True)
    yield shape(MASK, masked("assistant_masks"))
    yield shape(MASK, masked("loss_mask"))


def _otherwise(messages: list[Row]) -> list[int]:
    """The ids of messages by a template that is not the tokenizer's."""
    text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
    ids: list[int] = tiny.tokenizer()(text)["input_ids"]
    return ids


def _ids(prompt: list[Row], answer: list[Row]) -> tuple[list[int], list[int]]:
    """The ids of a prompt as it is served, and those of an answer behind it."""
    tokenizer: Any = tiny.tokenizer()
    asked = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(prompt + answer, return_dict=False)
    return asked, whole[len(asked) :]


def _of_pairs(method: str) -> Iterator[Shape]:
    raw = tiny.pairs(ROWS)
    made = [
        (_ids(row["prompt"], row["chosen"]), _ids(row["prompt"], row["rejected"])) for row in raw
    ]

    def shape(kind: str, rows: list[Row]) -> Shape:
        return Shape(method, kind, tuple(rows), tuple(raw))

    yield shape(RAW, raw)
    ids = (
        ("chosen_ids", "rejected_ids")
        if method == "dpo"
        else ("chosen_input_ids", "rejected_input_ids")
    )
    yield shape(
        BESIDE,
        [
            {**row, ids[0]: _otherwise(row["chosen"]), ids[1]: _otherwise(row["rejected"])}
            for row in raw
        ],
    )
    yield shape(
        BARE, [{"prompt_ids": p, "chosen_ids": c, "rejected_ids": r} for (p, c), (_, r) in made]
    )
    yield shape(
        BARE, [{"chosen_input_ids": p + c, "rejected_input_ids": p + r} for (p, c), (_, r) in made]
    )
    yield shape(
        LABELS,
        [
            {**_with_labels("chosen", p, c), **_with_labels("rejected", p, r)}
            for (p, c), (_, r) in made
        ],
    )
    yield shape(
        MASK,
        [
            {**_with_mask("chosen_", p, c), **_with_mask("rejected_", p, r)}
            for (p, c), (_, r) in made
        ],
    )


def _with_labels(side: str, prompt: list[int], answer: list[int]) -> Row:
    return {f"{side}_input_ids": prompt + answer, f"{side}_labels": [-100] * len(prompt) + answer}


def _with_mask(prefix: str, prompt: list[int], answer: list[int]) -> Row:
    mask = [0] * len(prompt) + [1] * len(answer)
    return {f"{prefix}input_ids": prompt + answer, f"{prefix}completion_mask": mask}


def _of_verdicts() -> Iterator[Shape]:
    raw = [
        {
            "prompt": row["prompt"],
            "completion": row["chosen" if i % 2 else "rejected"],
            "label": bool(i % 2),
        }
        for i, row in enumerate(tiny.pairs(ROWS))
    ]
    made = [(*_ids(row["prompt"], row["completion"]), row["label"]) for row in raw]

    def shape(kind: str, rows: list[Row]) -> Shape:
        return Shape("kto", kind, tuple(rows), tuple(raw))

    yield shape(RAW, raw)
    yield shape(BESIDE, [{**row, "completion_ids": _otherwise(row["completion"])} for row in raw])
    yield shape(
        BARE, [{"prompt_ids": p, "completion_ids": a, "label": good} for p, a, good in made]
    )
    yield shape(BARE, [{"input_ids": p + a, "label": good} for p, a, good in made])
    yield shape(
        LABELS,
        [{"input_ids": p + a, "labels": [-100] * len(p) + a, "label": g} for p, a, g in made],
    )
    yield shape(MASK, [{**_with_mask("", p, a), "label": good} for p, a, good in made])


# The trainers ---------------------------------------------------------------------------------------------------------


def by_trl(method: str, **settings: Any) -> Build:
    """TRL's trainer of a method, with its defaults but for `settings`."""
    kinds = {
        "sft": (trl.SFTTrainer, trl.SFTConfig),
        "dpo": (trl.DPOTrainer, trl.DPOConfig),
        "orpo": (ORPOTrainer, ORPOConfig),
        "kto": (trl.KTOTrainer, trl.KTOConfig),
    }
    kind, config = kinds[method]

    def build(rows: list[Row]) -> Any:
        policy = tiny.model()
        reference = {"ref_model": deepcopy(policy)} if method in ("dpo", "kto") else {}
        return kind(
            policy,
            args=tiny.arguments(config, max_steps=1, **settings),
            train_dataset=Dataset.from_list(rows),
            processing_class=tiny.tokenizer(),
            **reference,
        )

    return build


def by_transformers(collator: str) -> Build:
    """transformers' Trainer with one of its collators."""

    def build(rows: list[Row]) -> Any:
        tokenizer = tiny.tokenizer()
        settings = {"mlm": False} if collator == "DataCollatorForLanguageModeling" else {}
        made = getattr(transformers, collator)(tokenizer, **settings)
        return transformers.Trainer(
            tiny.model(),
            tiny.arguments(max_steps=1),
            made,
            Dataset.from_list(rows),
            processing_class=tokenizer,
        )

    return build


def by_truetune(method: str) -> Build:
    """The trainer of `truetune train`, behind its reading and encoding."""

    def build(rows: list[Row]) -> Any:
        folder = tiny.scratch()
        Dataset.from_list(rows).to_json(str(folder / "rows.jsonl"))
        tiny.model().save_pretrained(folder / "model")
        tiny.tokenizer().save_pretrained(folder / "model")
        training = {
            "method": method,
            "output_dir": str(folder / "out"),
            "max_steps": 1,
            "val_size": 0,
            "per_device_train_batch_size": 2,
            "save_strategy": "no",
        }
        spec = RunSpec.model_validate(
            {"data": [str(folder / "rows.jsonl")], "tokenizer": str(folder / "model"), "max_length": 256,
             "training": training, "trainer": {"report_to": "none", "disable_tqdm": True}}
        )  # fmt: skip
        made = make_recipe(spec, rows=None, gpu=False, bf16=False)
        load = load_training_data if method == "sft" else load_preference_data
        data = load(made.spec)
        trainer = make_supervised_trainer if method == "sft" else make_preference_trainer
        return trainer(made, prepare_model(made.spec, made.training), data)

    return build


# What reaches the loss ------------------------------------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars and warnings, and with a cache of its own."""
    before = os.environ.get("TRUETUNE_CACHE")
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        redirect_stderr(StringIO()),
    ):
        warnings.simplefilter("ignore")
        datasets.disable_progress_bars()
        os.environ["TRUETUNE_CACHE"] = folder
        try:
            with redirect_stdout(StringIO()):
                yield
        finally:
            datasets.enable_progress_bars()
            os.environ.pop("TRUETUNE_CACHE")
            if before is not None:
                os.environ["TRUETUNE_CACHE"] = before


def measured(shape: Shape, build: Build) -> str:
    """A cell: which tokens reach the loss, and what `truetune run` says; or how the trainer refuses the rows."""
    rows = list(shape.rows)
    try:
        with _quiet():
            trainer = build(rows)
            placed = truetune.audit(trainer, given=Dataset.from_list(list(shape.raw)), laws="none")
            judged = truetune.audit(trainer, given=Dataset.from_list(rows), laws=["loss-targets"])
            trainer.train()
    except (
        TruetuneError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        AttributeError,
        IndexError,
    ) as error:
        return f"refused: {_as_text(error)}"
    return f"{learned(placed)}{_said(judged)}"


def learned(report: AuditReport) -> str:
    """The sources of the tokens that are in the loss, as words."""
    found = {source: (supervised, context) for source, supervised, context in report.ledger.rows()}
    whole = {
        source for source, (supervised, context) in found.items() if supervised and not context
    }
    part = {source for source, (supervised, context) in found.items() if supervised and context}
    if not whole | part:
        return "nothing"
    if whole == set(found):
        return "**everything, prompts too**"
    names = [source.label for source in Source if source in whole]
    names += [f"part of the {source.label}" for source in Source if source in part]
    return ", ".join(names)


def _said(report: AuditReport) -> str:
    codes = [f"{finding.severity} {finding.code}" for finding in report.findings]
    return f" ({', '.join(dict.fromkeys(codes))})" if codes else ""


def _as_text(error: BaseException) -> str:
    text = re.sub(r"\S*[/\\](?=[\w.-]+:\d)", "", " ".join(str(error).replace("`", "").split()))
    text = text if len(text) <= SHOWN else text[:SHOWN].rpartition(" ")[0] + " ..."
    return f"`{type(error).__name__}: {text}`".replace("|", "\\|")


# The page -------------------------------------------------------------------------------------------------------------


def cells(shape: Shape) -> tuple[str, str, str]:
    """What becomes of rows of this shape under TRL, transformers and `truetune train`."""
    trl_cell = measured(shape, by_trl(shape.method, **dict(shape.settings)))
    if shape.settings:
        return trl_cell, "a setting of TRL", "a setting of TRL"
    return trl_cell, _by_collators(shape), measured(shape, by_truetune(shape.method))


def _by_collators(shape: Shape) -> str:
    if shape.method != "sft":
        return "impossible: it has no trainer of preferences"
    found = {name: measured(shape, by_transformers(name)) for name in COLLATORS}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"`{name}`: {cell}" for name, cell in found.items())


def versions() -> str:
    """What was measured with."""
    return f"TRL {trl.__version__}, transformers {transformers.__version__}"


def table() -> str:
    """The table in Markdown, with the releases that it was measured with."""
    lines = [
        f"Measured with {versions()}.",
        "",
        "| method | the rows hold | TRL | transformers | `truetune train` |",
    ]
    lines.append("|---|---|---|---|---|")
    lines += [
        f"| {shape.method} | {shape.kind}: {shape.columns} | {' | '.join(cells(shape))} |"
        for shape in shapes()
    ]
    return "\n".join(lines)


def written() -> str:
    """The table as it stands on the page."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return rest.partition(END)[0].strip()


def page() -> str:
    """The page with the table of today."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    click.echo(f"wrote {PAGE}")
