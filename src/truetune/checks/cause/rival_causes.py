"""Lists rival causes: what else may make a model answer badly, and which of it was tried before a
cause was named.

A cause is only as good as what was ruled out. So each finding on causes lists the rivals that were looked at, and those
that were not, with what would let them be looked at. The trade-off: two more lines in every such finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.cause.count_endless_or_garbage_answers import (
    FAILING_SHARE,
    count_garbage_or_empty_answers,
)
from truetune.generation.answer_samples import SampledRun
from truetune.generation.evidence_on_causes_of_answers import ModelEvidence

# Nats a token of the reference answers up to which a model has learned them, more or less: sound text that it was not
# trained on has 1 to 4. At 1.5 half-trained models would count as ones that know nothing; at 6 random weights nearly
# would count as trained.
MAX_NATS_OF_LEARNED = 3.0


def list_tried_rivals(evidence: ModelEvidence) -> Iterator[str]:
    """Rivals that were looked at."""
    if evidence.base is not None:
        yield "the base's own answers"
    if evidence.base_stopping is not None:
        yield "stopping under the base"
    if evidence.contract:
        yield "the prompts compared with those of the training"
    if evidence.effect is not None:
        yield "the references with and without the training"
    # With and without the training is the stronger comparison, and includes this one.
    elif evidence.reference_loss is not None:
        yield "the references under the model"
    if evidence.greedy is not None:
        yield "the same prompts with greedy decoding"
    if evidence.unbatched_prompts:
        yield "prompts on their own, without a batch"
    if evidence.folder is not None:
        yield "the files"


def list_untried_rivals(evidence: ModelEvidence) -> Iterator[str]:
    """Rivals that were not, each with what would let them be."""
    if evidence.base is None and evidence.base_stopping is None:
        yield "the base (name it with --base)"
    if not evidence.contract:
        yield "the prompts of the training (there is no record of it)"
    if evidence.reference_loss is None:
        yield "the references under the model (its log-probabilities are not known)"


def list_tried_and_untried_rivals(evidence: ModelEvidence) -> tuple[str, ...]:
    """Lines of evidence for a cause: the rivals that were tried, and those that were not."""
    lines = (
        ("tried", list(list_tried_rivals(evidence))),
        ("not tried", list(list_untried_rivals(evidence))),
    )
    return tuple(f"{word}: {'; '.join(rivals)}" for word, rivals in lines if rivals)


def is_babbling(watched: SampledRun | None) -> bool:
    """Are half of the answers garbage or empty? False where there are none."""
    garbage = count_garbage_or_empty_answers(watched) if watched is not None else None
    return garbage is not None and garbage.of > 0 and garbage.share >= FAILING_SHARE


def babbles_and_finds_references_unlikely(evidence: ModelEvidence) -> bool:
    """Does the model babble, and find the reference answers unlikely, or babble as its base does?

    Then no single token is what it lacks. A loss that is not known counts as unlikely.
    """
    if not is_babbling(evidence.watched):
        return False
    if is_babbling(evidence.base) or evidence.reference_loss is None:
        return True
    return evidence.reference_loss > MAX_NATS_OF_LEARNED
