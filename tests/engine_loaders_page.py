"""`python -m tests.engine_loaders_page` writes the tables of docs/serve-static.md: what loaders of engines do."""

from __future__ import annotations

from pathlib import Path

import click

from truetune.checkpoint.engine_adapter_loaders.predict_adapter_loading import SETTING_OF_PROPERTY
from truetune.checkpoint.engine_adapter_loaders.read_engine_loaders import (
    ENGINES,
    EngineLoader,
    known_releases,
    read_engine_loader,
)

PAGE = Path(__file__).parents[1] / "docs" / "serve-static.md"
BEGIN = "<!-- written by python -m tests.engine_loaders_page -->"
TITLES = {
    **{name: f"`{setting}`" for name, setting in SETTING_OF_PROPERTY.items()},
    "rslora": "`use_rslora`",
    "alpha_pattern": "`alpha_pattern`",
    "rank_pattern": "`rank_pattern`, in the scale",
    "target_modules_pattern": "`target_modules` as a pattern",
    "whole_tensors": "tensors that are no factors",
    "base_copies": "copies of the base's embeddings",
    "names_without_prefix": "names without `base_model.model.`",
    "unknown_name": "a module that no class has",
    "unknown_place": "a module under another prefix",
    "tied_head": "`lm_head` of a base that ties it",
    "missing_layers": "a kind of module that some layers lack",
    "missing_partner": "`q_proj` without `v_proj`, `up_proj` without `gate_proj`",
}
"""Property -> how the page names it"""


def loaders_of(engine: str) -> list[EngineLoader]:
    """The loaders of all releases of an engine, the newest first."""
    loaders = (read_engine_loader(engine, release) for release in known_releases(engine))
    return [loader for loader in loaders if loader is not None]


def property_table() -> str:
    """What the newest release of each engine does with each property, with file and line."""
    newest = [loaders_of(engine)[0] for engine in ENGINES]
    heads = " | ".join(f"{loader.engine} {loader.release}" for loader in newest)
    lines = [f"| | {heads} |", "| --- |" + " --- |" * len(newest)]
    for name, title in TITLES.items():
        cells = []
        for loader in newest:
            fact = loader.facts.get(name)
            cells.append(f"{fact.effect} ({fact.source.rpartition('/')[2]})" if fact else "-")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def release_table() -> str:
    """The releases that are known, each with the number of its architectures."""
    lines = ["| engine | releases, with the number of architectures |", "| --- | --- |"]
    for engine in ENGINES:
        counts = (f"{one.release} ({len(one.architectures)})" for one in loaders_of(engine))
        lines.append(f"| {engine} | {', '.join(counts)} |")
    return "\n".join(lines)


def page() -> str:
    """The page, with its generated part written again."""
    head = PAGE.read_text("utf-8").partition(BEGIN)[0]
    return f"{head}{BEGIN}\n\n{property_table()}\n\n{release_table()}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    click.echo(f"wrote {PAGE}")
