"""Proves a merge or an export: the same prompts are put to every form of the model, from adapter to
file, and the logits compared.

What the adapter does to the logits (with it minus without it, in float32) must be there in each form, in size and
direction. Greedy answers are counted, not judged: two tokens that are nearly as likely change places with any rounding.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from truetune.generation.build_prompts import make_decoder
from truetune.generation.generate_answers import generate_answers
from truetune.generation.prompts_to_compare_model_forms import ProofPrompts, ServingFacts
from truetune.probe.restore_state_changed_by_observing_run import preserve_state

# Chosen, not measured: 8 questions of 32 tokens are 256 positions, and a lost adapter shows at the
# first. Twice as many double the time of a merge on a CPU.
MAX_NEW_TOKENS = 32
# Chosen, not measured: rounding keeps nearly all of an ordinary effect, a lost or doubled adapter
# gives 0 or 2. At 0.25 a tiny adapter that rounding disturbs would be refused; at 1 a lost one
# would pass.
EFFECT_TOLERANCE = 0.5
"""How much more or less of the effect than all of it is still the adapter's"""
# Chosen, not measured: between an effect that rounding blurs (near 1) and an unrelated one (near
# 0). It bounds the noise to about the size of the effect.
MIN_COSINE = 0.7
"""Cosine between an effect and the adapter's"""


@dataclass(frozen=True)
class FormComparison:
    """How one form of the model compares with the adapter on its base."""

    name: str
    kept: float
    """Least-squares factor of the effect: 1 where it is all there"""
    cosine: float
    """Between its effect and the adapter's"""
    difference: float
    """Largest of all logits"""
    answers: int
    """Greedy answers that are the same, token by token"""
    template: bool | None = None
    special: bool | None = None
    """Special ids and stop ids are equal; None where there are none to compare"""

    @property
    def faults(self) -> tuple[str, ...]:
        """What this form of the model has lost, in sentences."""
        lost = []
        if not abs(self.kept - 1) <= EFFECT_TOLERANCE or not self.cosine >= MIN_COSINE:
            lost.append(f"{self.kept:.2f} of the effect is there, cosine {self.cosine:.2f}")
        if self.template is False:
            lost.append("another chat template")
        if self.special is False:
            lost.append("other special or stop ids")
        return tuple(lost)


@dataclass(frozen=True)
class Proof:
    """The comparisons of all forms of a model, and the size of the effect that they are compared
    by.
    """

    prompts: int
    tokens: int
    """Places whose logits were compared"""
    effect: float
    """Root mean square of what is compared: what the adapter does to the logits; without a base, the logits"""
    against_base: bool
    rungs: tuple[FormComparison, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """What any form has lost, one text for each; empty where the proof holds."""
        # An adapter that does nothing is kept perfectly by any merge: that is no proof, but a fault
        # of its own.
        nothing = [] if self.effect > 0 else ["the adapter does not change a single logit"]
        return (
            *nothing,
            *(f"{stage.name}: {text}" for stage in self.rungs for text in stage.faults),
        )


@dataclass(frozen=True)
class ModelObservation:
    """The greedy answers of one form of the model, and its logits along them."""

    logits: tuple[torch.Tensor, ...]
    """(places, vocabulary) of each prompt: behind it, and behind each token of the answer that is followed"""
    answers: tuple[tuple[int, ...], ...]
    """Ids, with the stop token where there is one"""


def observe_greedy_answers_and_logits(
    model: Any, prompts: ProofPrompts, follow: ModelObservation | None = None
) -> ModelObservation:
    """Answer the prompts greedily, and read the logits along an answer to each.

    Args:
        model: in evaluation mode; left as it is.
        prompts: what is asked.
        follow: whose answers the logits are read along; the model's own where None.
    """
    answers = generate_answers(
        model,
        prompts.prompts,
        stops=prompts.stops,
        pad=_any_valid_id_as_pad(prompts),
        max_new_tokens=MAX_NEW_TOKENS,
        decode=make_decoder(prompts.probes.tokenizer),
    )
    ids = tuple(
        () if a is None else (*a.ids, *([] if a.stop is None else [a.stop])) for a in answers
    )
    # All forms read the same ids, so that their logits can be subtracted position by position.
    paths = follow.answers if follow else ids
    logits = [
        _logits_along_answer(model, prompt.ids, path)
        for prompt, path in zip(prompts.prompts, paths, strict=True)
    ]
    return ModelObservation(tuple(logits), ids)


def _any_valid_id_as_pad(prompts: ProofPrompts) -> int:
    """A valid id to pad with; any would do, since pads are masked by their position."""
    special = prompts.probes.tokenizer.special
    return special["pad"].id if "pad" in special else min(prompts.stops, default=0)


def _logits_along_answer(
    model: Any, prompt: tuple[int, ...], path: tuple[int, ...]
) -> torch.Tensor:
    """The logits at the tokens of an answer: (tokens, vocabulary), float32."""
    ids = torch.tensor([[*prompt, *path]], device=model.device)
    # A run's state of random numbers and modules is not ours to move.
    with preserve_state(), torch.no_grad():
        logits: torch.Tensor = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
        ).logits[0]
    # On the CPU in float32: of several forms of the model only one is on the device at a time.
    return logits[len(prompt) - 1 :].float().cpu()


def compare_form_with_adapter_on_base(
    name: str,
    on: ModelObservation,
    off: ModelObservation | None,
    other: ModelObservation,
    *,
    facts: ServingFacts | None = None,
    prompts: ProofPrompts,
) -> FormComparison:
    """Compare another form of the model with the adapter on its base.

    Args:
        name: of the form, for people.
        on: the base with its adapter (or the model that is exported).
        off: the base alone; None where it is not known.
        other: the form, read along the answers of `on`.
        facts: of the form's folder; None where it has none.
        prompts: what was asked, with the facts to compare `facts` with.
    """
    change = other_change = along = 0.0
    largest = 0.0
    for i, reference in enumerate(on.logits):
        # An export may pad the vocabulary, and a merge enlarge it: the common columns are compared.
        width = min(reference.shape[-1], other.logits[i].shape[-1])
        a, o = reference[:, :width], other.logits[i][:, :width]
        # Without a base, logits are compared with their own mean: softmax does not see a constant
        # that is added to all.
        b = off.logits[i][:, :width] if off else a.mean(-1, keepdim=True)
        largest = max(largest, float((o - a).abs().max()))
        effect, there = (a - b).double(), (o - b).double()
        change += float(effect.square().sum())
        other_change += float(there.square().sum())
        along += float((effect * there).sum())
    # Least squares: the factor by which the adapter's effect has to be multiplied to come nearest
    # to what is there.
    kept = along / change if change else math.nan
    cosine = along / math.sqrt(change * other_change) if change and other_change else 0.0
    same = sum(a == b for a, b in zip(on.answers, other.answers, strict=True))
    return FormComparison(
        name,
        kept,
        cosine,
        largest,
        same,
        template=None if facts is None else facts.template == prompts.facts.template,
        special=(
            None
            if facts is None
            else (facts.special, facts.stops) == (prompts.facts.special, prompts.facts.stops)
        ),
    )


def make_proof_of_form_comparisons(
    on: ModelObservation, off: ModelObservation | None, rungs: Sequence[FormComparison]
) -> Proof:
    """A proof of the comparisons of all forms, with the size of the effect that they are compared
    by.
    """
    total, places, items = 0.0, 0, 0
    for i, reference in enumerate(on.logits):
        base = off.logits[i][:, : reference.shape[-1]] if off else reference.mean(-1, keepdim=True)
        width = min(reference.shape[-1], base.shape[-1]) if off else reference.shape[-1]
        total += float((reference[:, :width] - base).double().square().sum())
        places += len(reference)
        items += reference.shape[0] * width
    return Proof(
        len(on.logits), places, math.sqrt(total / max(1, items)), off is not None, tuple(rungs)
    )


def load_model_float32(folder: Path, model_class: Any, device: str, **settings: Any) -> Any:
    """A saved model, in float32. No code of the folder is run."""
    model = model_class.from_pretrained(
        # Float32 on each side, so that what differs is the file and not the arithmetic.
        str(folder),
        dtype=torch.float32,
        trust_remote_code=False,
        **settings,
    )
    return model.to(device).eval()


def quiet_transformers_bars_and_warnings() -> None:
    """Show progress bars of transformers on a terminal alone, and none of its warnings to
    developers.
    """
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    # In a log each state of a bar is a line of its own.
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
