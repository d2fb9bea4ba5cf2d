"""Finds the other model of a paired comparison, which must know the same ids, and tells prompt by prompt which of two
models' answers are right.

Both models are given the very same ids, so that a difference is the models' and no tokenizer's. The trade-off: models
with other tokenizers can't be compared on losses at all, and are refused before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from truetune.errors import TokenizerError, UsageError
from truetune.evaluation.confidence_intervals_over_rows import mcnemar_p
from truetune.evaluation.divide_evaluation_rows_by_trained_on import EvaluationRows
from truetune.generation.answer_samples import Sample
from truetune.generation.answer_verdicts import is_good_answer
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.evaluation_loss_and_score_types import Agreement
from truetune.render.template_probes import Probes
from truetune.render.tokenizer import load_tokenizer

# Nobody wants to look up the folder that an adapter already names.
BASE = "base"
"""Names the base of an adapter"""


def find_other_model(
    name: str, model_source: ModelSource, base: str | None, probes: Probes, rows: EvaluationRows
) -> ModelSource:
    """The model to compare with, which is given the same ids.

    Args:
        name: what `find_model_source` takes, or `base`: that of the adapter.
        model_source: the model that is measured.
        base: the base of an adapter that is named.
        probes: tokenizer and template of the measured model.
        rows: what both are measured on.

    Raises:
        UsageError: the other model knows an id of the rows as another token, or not at all.
    """
    if name == BASE and model_source.base is None:
        raise UsageError(f"--against base: {model_source.name} names no base; give its folder")
    given_path = str(model_source.base) if name == BASE else name
    other = find_model_source(given_path, base=base, tokenizer=str(model_source.tokenizer))
    other = replace(other, name=name)
    used_ids = np.unique(
        np.concatenate([document.ids for document in (*rows.fresh, *rows.known)])
    ).tolist()
    model_folder = str(other.model) if other.model else None
    size = load_tokenizer(str(other.tokenizer), model=model_folder).embedding_rows
    # Such an id would fail deep in the model, on a GPU without a word of why.
    if size is not None and used_ids[-1] >= size:
        raise UsageError(
            f"--against {name}: the rows have a token of id {used_ids[-1]:,}, and its embedding has"
            f" {size:,} rows: it can't be compared on them"
        )
    if other.folder is not None and other.kind == "model":
        _refuse_tokenizer_reading_ids_otherwise(name, str(other.folder), probes, used_ids)
    return other


def _refuse_tokenizer_reading_ids_otherwise(
    name: str, folder: str, probes: Probes, used_ids: list[int]
) -> None:
    """Raise UsageError where the model's own tokenizer gives another text to an id that is used."""
    try:
        other_token = load_tokenizer(folder).backend.id_to_token
    except TokenizerError:
        # A folder of weights alone has no tokenizer that could contradict.
        return
    own_token = probes.tokenizer.backend.id_to_token
    # None: an id that only the measured model's tokenizer has, as a special token that was added.
    differing = [id for id in used_ids if other_token(id) not in (None, own_token(id))]
    if differing:
        raise UsageError(
            f"--against {name}: its tokenizer is another one: id {differing[0]} is"
            f" {own_token(differing[0])!r} here and {other_token(differing[0])!r} there; losses of other tokens"
            " can't be compared"
        )


def is_base_of(other: ModelSource, model_source: ModelSource) -> bool:
    """Is it what the model was made of, as far as that is known (its adapter's config, `--base`)?"""
    # Resolved: one of the two is often a link into the hub's cache.
    folder = other.folder if other.kind == "model" and model_source.base is not None else None
    return (
        folder is not None
        and model_source.base is not None
        and folder.resolve() == model_source.base.resolve()
    )


def compare_right_answers(
    samples: Sequence[Sample], other_samples: Sequence[Sample], limit: int
) -> list[Agreement]:
    """Which of two models' answers to the same prompts are good, and read as the reference is.

    Args:
        samples: the answers of the measured model.
        other_samples: those of the other.
        limit: new tokens after which answers were cut.
    """
    others = {sample.prompt.ids: sample for sample in other_samples}
    pairs = [
        (sample, others[sample.prompt.ids]) for sample in samples if sample.prompt.ids in others
    ]
    measures: tuple[tuple[str, Callable[[Sample], bool | None]], ...] = (
        ("stops without a fault", lambda sample: is_good_answer(sample, limit)),
        ("the parser reads the reference's value", lambda sample: sample.scores.agrees),
    )
    agreements = []
    for measure, is_right in measures:
        verdicts = [(is_right(sample), is_right(other)) for sample, other in pairs]
        # What can't be told of one of the two says nothing of which is better.
        known = [verdict for verdict in verdicts if None not in verdict]
        if known:
            only_this, only_other = known.count((True, False)), known.count((False, True))
            agreements.append(
                Agreement(
                    measure=measure,
                    both=known.count((True, True)),
                    only_this=only_this,
                    only_other=only_other,
                    neither=known.count((False, False)),
                    p=mcnemar_p(only_this, only_other),
                )
            )
    return agreements
