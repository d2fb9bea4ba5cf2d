"""Makes the places of a training of an embedding model or a reranker, and of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from truetune.checks.findings import Case
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.embedding_trainings import (
    EmbeddingTraining,
    TrainedRow,
    describe_row,
)
from truetune.source.parsed_source_file import Module

MAX_SHOWN_ROWS = 3
"""Rows that a finding shows beside the place in the script"""


def cases_of_training(
    module: Module, training: EmbeddingTraining, rows: Sequence[TrainedRow] = ()
) -> list[Case]:
    """The loss of a training, and the places of some of its rows."""
    cases = [case_of_node(module, training.loss_call.node)]
    for row in rows[:MAX_SHOWN_ROWS]:
        text = describe_row(row, training.columns)
        if row.place is None:
            cases.append(Case(text))
        else:
            cases.append(Case(text, file=str(row.place.file), line=row.place.line))
    return cases
