"""`python -m tests.recipes_page` writes the generated parts of docs/recipes.md."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml

from truetune.demo import TOKENIZER
from truetune.settings import settings_schema
from truetune.settings.read_truetune_settings import validate_settings
from truetune.training.default_settings import (
    DEFAULTS,
    EFFECTIVE_BATCH,
    GROUP_SIZE,
    GROUPS_PER_STEP,
)
from truetune.training.propose_settings import (
    RECIPE_MEANINGS,
    RECIPES,
    StartingSettings,
    propose_settings,
)
from truetune.training.settings_as_explained_yaml import render_settings_yaml
from truetune.training.survey_data_and_model_for_init import survey_data_and_model_config

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"
SHAPE = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 4096,
}  # fmt: skip
"""Of a model that is small enough for any machine"""
ANSWER = "There are three of them. " * 50
DATA = {
    "dpo": "pairs.jsonl",
    "orpo": "pairs.jsonl",
    "kto": "judged.jsonl",
    "grpo": "problems.jsonl",
}


def rows(name: str, count: int) -> list[dict[str, Any]]:
    """Rows of one kind, by the name of their file."""
    question = [{"role": "user", "content": "How many apples are in the box?"}]
    good, bad = ([{"role": "assistant", "content": text}] for text in (ANSWER, "Who knows."))
    if name == "pairs.jsonl":
        return [{"prompt": question, "chosen": good, "rejected": bad}] * count
    if name == "judged.jsonl":
        return [
            {"prompt": question, "completion": good if i % 2 else bad, "label": bool(i % 2)}
            for i in range(count)
        ]
    if name == "problems.jsonl":
        return [{"prompt": question, "answer": "3"}] * count
    return [{"messages": question + good}] * count


def furnish(folder: Path, count: int) -> None:
    """A model and data for each recipe."""
    (folder / "model").mkdir()
    for file in TOKENIZER.iterdir():
        (folder / "model" / file.name).write_bytes(file.read_bytes())
    (folder / "model" / "config.json").write_text(json.dumps(SHAPE))
    for name in ("chats.jsonl", "pairs.jsonl", "judged.jsonl", "problems.jsonl"):
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows(name, count)))


@contextmanager
def workshop() -> Iterator[None]:
    """Be in a folder with a model and data."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        furnish(Path(folder), 900)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def starts() -> dict[str, StartingSettings]:
    """What `truetune init` proposes, by recipe, on a machine without a GPU."""
    made = {}
    for name in RECIPES:
        spec = validate_settings(
            {"model": "model", "tokenizer": "model", "data": DATA.get(name, "chats.jsonl")}, "test"
        )
        made[name] = propose_settings(spec, survey_data_and_model_config(spec), name, gpu=False)
    return made


def parts() -> dict[str, str]:
    """The generated parts of the page, by name."""
    with workshop():
        made = starts()
        sheets = {
            name: render_settings_yaml(found, Path(), settings_schema.SCHEMA_NAME)
            for name, found in made.items()
        }
    others = []
    for name, text in sheets.items():
        settings = yaml.safe_load(text)
        shown = {key: settings[key] for key in ("max_length", "encode", "training")}
        body = yaml.safe_dump(shown, sort_keys=False)
        others.append(f"### {name}\n\nTrains {RECIPE_MEANINGS[name]}.\n\n```yaml\n{body}```\n")
    said = (
        "$ truetune init --recipe lora --model model --data chats.jsonl --yes",
        *made["lora"].summary_lines,
    )
    return {
        "told": "```console\n" + "\n".join(said) + "\n```",
        "recipes": "\n".join(others),
        "defaults": "\n".join(_defaults()),
        "sheet": f"```yaml\n{sheets['lora']}```",
    }


def _defaults() -> Iterator[str]:
    yield "| method | learning rate, all weights | an adapter | epochs | warmup | rows a step |"
    yield "|---|---|---|---|---|---|"
    for method, found in DEFAULTS.items():
        least = (
            ""
            if found.fewest == EFFECTIVE_BATCH
            else f", down to {found.fewest} where rows are few"
        )
        rates = f"{found.full:.0e} | {found.adapter:.0e}".replace("e-0", "e-")
        rows = f"{EFFECTIVE_BATCH}{least}"
        if method == "grpo":
            rows = f"{GROUPS_PER_STEP} prompts of {GROUP_SIZE} answers"
        yield f"| {method} | {rates} | {found.epochs} | {found.warmup:.0%} | {rows} |"


def page(text: str) -> str:
    """The page with its generated parts renewed."""
    for name, part in parts().items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        head, found, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        assert found, f"{begin!r} is missing"
        assert closed, f"{end!r} is missing"
        text = head + begin + part + "\n" + end + tail
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    click.echo(f"wrote {PAGE}")
