"""Against: the other model of a paired comparison, and which of two models' answers are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from truetune.errors import TokenizerError, UsageError
from truetune.evaluation.row_statistics import mcnemar
from truetune.evaluation.select_rows import Rows
from truetune.generation.answer_samples import Sample
from truetune.generation.answer_verdicts import good
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.evaluation_results import Agreement
from truetune.render.probes import Probes
from truetune.render.tokenizer import load

BASE = "base"
"""Names the base of an adapter"""


def other_of(
    name: str, place: ModelSource, base: str | None, probes: Probes, rows: Rows
) -> ModelSource:
    """The model to compare with, which is given the same ids. Raises UsageError where it knows them as other tokens."""
    if name == BASE and place.base is None:
        raise UsageError(f"--against base: {place.name} names no base; give its folder")
    given = str(place.base) if name == BASE else name
    made = find_model_source(given, base=base, tokenizer=str(place.tokenizer))
    made = replace(made, name=name)
    used = np.unique(
        np.concatenate([document.ids for document in (*rows.fresh, *rows.known)])
    ).tolist()
    size = load(str(made.tokenizer), model=str(made.model) if made.model else None).embedding_rows
    if size is not None and used[-1] >= size:
        raise UsageError(
            f"--against {name}: the rows have a token of id {used[-1]:,}, and its embedding has"
            f" {size:,} rows: it can't be compared on them"
        )
    if made.folder is not None and made.kind == "model":
        try:
            theirs = load(str(made.folder)).backend.id_to_token
        except TokenizerError:
            return made
        ours = probes.tokenizer.backend.id_to_token
        if differ := [id for id in used if theirs(id) not in (None, ours(id))]:
            raise UsageError(
                f"--against {name}: its tokenizer is another one: id {differ[0]} is"
                f" {ours(differ[0])!r} here and {theirs(differ[0])!r} there; losses of other tokens"
                " can't be compared"
            )
    return made


def is_base(other: ModelSource, place: ModelSource) -> bool:
    """Is it what the model was made of, as far as that is known (its adapter's config, `--base`)?"""
    folder = other.folder if other.kind == "model" and place.base is not None else None
    return (
        folder is not None and place.base is not None and folder.resolve() == place.base.resolve()
    )


def agreements(mine: Sequence[Sample], theirs: Sequence[Sample], limit: int) -> list[Agreement]:
    """Which of two models' answers to the same prompts are good, and read as the reference is."""
    others = {sample.prompt.ids: sample for sample in theirs}
    both = [(sample, others[sample.prompt.ids]) for sample in mine if sample.prompt.ids in others]
    found = []
    for measure, judge in (
        ("stops without a fault", lambda sample: good(sample, limit)),
        ("the parser reads the reference's value", lambda sample: sample.scores.agrees),
    ):
        right = [pair for pair in ((judge(a), judge(b)) for a, b in both) if None not in pair]
        if right:
            mine_alone, other_alone = right.count((True, False)), right.count((False, True))
            found.append(
                Agreement(
                    measure=measure,
                    both=right.count((True, True)),
                    only_this=mine_alone,
                    only_other=other_alone,
                    neither=right.count((False, False)),
                    p=mcnemar(mine_alone, other_alone),
                )
            )
    return found
