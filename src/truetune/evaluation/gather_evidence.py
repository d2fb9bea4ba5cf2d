"""Ask a model, its base, its files and its training record why it answers as it does.

Each question is small: eight prompts to the base, eight references that both score, two prompts without a batch. What
comes back is evidence for the rules on causes, which decide. The trade-off: no question may fail the report that it
explains, so one that can't be asked becomes a note, and its rule judges without it or not at all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, median_low
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.weight_files import read_object
from truetune.errors import TruetuneError
from truetune.generation.answer_samples import Answer, Prompt, Sample, SampledRun, SamplingPass
from truetune.generation.backends.backend import Backend, Decoding, Progress
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.build_prompts import control_token_texts
from truetune.generation.model_evidence import (
    ControlToken,
    DivergentAnswer,
    ModelEvidence,
    PromptGain,
    StopEstimate,
    TrainingEffect,
)
from truetune.generation.score_answer import score_answer
from truetune.render.probes import Probes
from truetune.render.serving_contract import contract_breaks
from truetune.render.tokenizer import Tokenizer

# Chosen, not measured: of eight prompts a fault of all answers shows in each, and a fault of half of them in four.
# Twice as many would double the time of a base on a CPU.
MAX_BASE_PROMPTS = 8
"""Prompts that the base is asked"""
# Chosen, not measured: whether a base rambles or stops shows in a few sentences.
MAX_BASE_TOKENS = 64
"""New tokens of the base's answers"""
# Chosen, not measured: eight references have a few hundred tokens, whose mean difference has a small error; 2,048
# tokens each keep one long row from filling a GPU.
MAX_REFERENCES, MAX_REFERENCE_TOKENS = 8, 2048
"""References whose log-probabilities are compared, and how many tokens they may have with their prompts"""
# Chosen, not measured: drawing that spoils answers spoils most of them, so that four greedy ones show it.
GREEDY_PROMPTS = 4
"""Prompts that are asked once more, greedily"""
# Chosen, not measured: wrong padding changes the first tokens of the shortest prompts, which are padded most.
UNBATCHED_PROMPTS, UNBATCHED_TOKENS = 2, 32
"""Prompts that are asked once more, alone, and the tokens that are compared"""
# RuntimeError is what torch raises for a GPU without memory; a programming error (TypeError, KeyError) is not hidden.
EXPECTED_ERRORS = (TruetuneError, OSError, RuntimeError, ValueError)
"""What keeps a question from being answered: no such folder, no memory, no answer of a server"""


def gather_evidence(
    model_source: ModelSource,
    probes: Probes,
    prompts: Sequence[Prompt],
    look: SamplingPass,
    backend: Backend,
    *,
    options: Options | None = None,
    base: Backend | None = None,
    limit: int,
    temperature: float = 0.0,
    progress: Progress | None = None,
) -> ModelEvidence:
    """The evidence on a model that gave some answers; what can't be asked is a note, and no error.

    Args:
        model_source: the model, with its files and the record of its run.
        probes: its tokenizer and template.
        prompts: what it was asked.
        look: what it answered.
        backend: the model, loaded.
        options: with which the base is opened, where it is not given and known.
        base: the base, loaded.
        limit: new tokens after which the answers were cut.
        temperature: at which they were drawn; 0: they are greedy.
        progress: is told how many questions are done, of how many.
    """
    tokenizer = probes.tokenizer
    served = serving_stops(tokenizer)
    trained, recorded = _find_trained_stops(model_source, probes, prompts)
    trained_ids = frozenset(token.id for token in trained)
    # Where serving stops at other tokens than were trained, the answers of `look` say nothing of the trained ones.
    asked_stops = served if trained_ids <= served else trained_ids
    evidence = ModelEvidence(
        SampledRun((look,), limit=limit, finished=True),
        kind=model_source.kind,
        trained=trained,
        recorded=recorded,
        served=_name_tokens(tokenizer, served),
        pad=_find_pad(tokenizer),
        contract=model_source.contract is not None,
        run=bool(model_source.run),
        folder=model_source.folder,
        base_folder=model_source.base,
        temperature=temperature,
    )
    inquiry = _Inquiry(evidence, progress)
    inquiry.ask("the training record", lambda: _check_contract(model_source, probes))
    inquiry.ask(
        "stopping",
        lambda: {
            "stopping": _estimate_stopping(look)
            if asked_stops == served
            else _ask_for_stops(backend, prompts, asked_stops)
        },
    )
    logprobs: list[_Logprobs | None] = []

    def score_references() -> dict[str, Any]:
        scored = _score_references(backend, prompts)
        # Kept for the base: both must be scored, or neither says anything.
        logprobs.append(scored)
        return {"surprise": None if scored is None else float(-scored.whole.mean())}

    inquiry.ask("the references", score_references)
    # Drawn answers differ by chance, with and without a batch.
    inquiry.ask(
        "the prompts alone",
        lambda: {} if temperature else _ask_unbatched(backend, look, served),
    )
    inquiry.ask(
        "the prompts greedily",
        lambda: _ask_greedily(backend, prompts, tokenizer, served, limit) if temperature else {},
    )
    inquiry.ask("the pace", lambda: {"pace": backend.pace()})

    def ask_base() -> dict[str, Any]:
        with _open_base(model_source, tokenizer, options or Options(), base) as base_backend:
            if base_backend is None:
                inquiry.notes.append("the base was not asked: it is not known")
                return {}
            base_limit = min(limit, MAX_BASE_TOKENS)
            base_look = _sample_some(base_backend, prompts, tokenizer, served, base_limit)
            answers: dict[str, Any] = {
                "base": SampledRun((base_look,), limit=base_limit, finished=True),
                "base_stopping": _estimate_stopping(base_look)
                if asked_stops == served
                else _ask_for_stops(base_backend, prompts, asked_stops),
            }
            # Empty where scoring the model itself has failed.
            if logprobs:
                base_logprobs = _score_references(base_backend, prompts)
                answers["effect"] = _measure_effect(logprobs[0], base_logprobs)
                answers["gain"] = _measure_gain(logprobs[0], base_logprobs)
            return answers

    inquiry.ask("the base", ask_base)
    if inquiry.evidence.surprise is None:
        inquiry.notes.append(
            f"the log-probabilities of the references are not known: {backend.name} tells none, or"
            " there are no references"
        )
    return replace(inquiry.evidence, notes=tuple(inquiry.notes))


QUESTION_COUNT = 7
"""Of `gather_evidence`, for the bar of progress"""


class _Inquiry:
    """The questions that are asked one after the other, and what they have brought."""

    def __init__(self, evidence: ModelEvidence, progress: Progress | None) -> None:
        self.evidence, self.progress = evidence, progress
        self.notes: list[str] = []
        self.done = 0

    def ask(self, what: str, question: Callable[[], dict[str, Any]]) -> None:
        """Add the fields of ModelEvidence that a question gives; one that can't be answered is a note."""
        try:
            self.evidence = replace(self.evidence, **question())
        except EXPECTED_ERRORS as error:
            self.notes.append(f"{what}: {type(error).__name__}: {error}")
        self.done += 1
        if self.progress:
            self.progress(self.done, QUESTION_COUNT)


def _find_trained_stops(
    model_source: ModelSource, probes: Probes, prompts: Iterable[Prompt]
) -> tuple[tuple[ControlToken, ...], bool]:
    """The stop tokens that answers are trained to end with, and whether the training record says so.

    Without a record: the token that most references end with, else the one that ends a turn of the template.
    """
    recorded_ids = _recorded_stops(model_source)
    if recorded_ids:
        return _name_tokens(probes.tokenizer, recorded_ids), True
    prompts = list(prompts)
    last_ids = Counter(prompt.reference_ids[-1] for prompt in prompts if prompt.reference_ids)
    most_common = last_ids.most_common(1)
    # An ordinary token at the end is a reference without a stop.
    if most_common and most_common[0][0] in probes.tokenizer.control:
        return _name_tokens(probes.tokenizer, [most_common[0][0]]), False
    # Plain texts without a chat have no turns: the template's end of turn is none of theirs.
    if last_ids and all(prompt.chat is None for prompt in prompts):
        return (), False
    terminator = probes.terminator.token if probes.terminator else None
    return (_name_tokens(probes.tokenizer, [terminator.id]) if terminator else ()), False


def _recorded_stops(model_source: ModelSource) -> list[int]:
    """The ids that run.json calls trained stops; anything may stand in such a file."""
    listed = model_source.run.get("stops")
    stops = [stop for stop in listed if isinstance(stop, dict)] if isinstance(listed, list) else []
    ids = [stop.get("id") for stop in stops if stop.get("trained") is True]
    # `type`, for True is an int as well.
    return [id for id in ids if type(id) is int]


def _name_tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[ControlToken, ...]:
    """Ids with their texts, in order."""
    return tuple(ControlToken(str(tokenizer.backend.id_to_token(id)), id) for id in sorted(ids))


def _find_pad(tokenizer: Tokenizer) -> ControlToken | None:
    """The pad token, where the tokenizer names one."""
    pad = tokenizer.special.get("pad")
    return ControlToken(pad.token, pad.id) if pad else None


def _check_contract(model_source: ModelSource, probes: Probes) -> dict[str, Any]:
    """`prompts`: in what the prompts of today break the contract of the training; without one, `contract` False."""
    contract = read_object(model_source.contract, []) if model_source.contract else None
    if not contract:
        return {"contract": False}
    return {"prompts": tuple(contract_breaks(contract, probes))}


def _estimate_stopping(look: SamplingPass) -> StopEstimate | None:
    """P(stop) behind the references, as the pass has noted it."""
    return _summarize_stops(sample.answer for sample in look.samples)


def _ask_for_stops(
    backend: Backend, prompts: Sequence[Prompt], stops: frozenset[int]
) -> StopEstimate | None:
    """P(stop) behind the references, of stops at which serving need not end."""
    with_reference = [prompt for prompt in prompts if prompt.reference_ids][:MAX_BASE_PROMPTS]
    if not with_reference or not stops:
        return None
    # One new token: the backend reads P(stop) along the reference, and the answer itself is not needed.
    return _summarize_stops(backend.answers(with_reference, Decoding(stops, max_new_tokens=1)))


def _summarize_stops(answers: Iterable[Answer | None]) -> StopEstimate | None:
    """Medians: one reference that should not end where it does would move a mean."""
    known = [
        (answer.stop_probability, answer.stop_rank)
        for answer in answers
        if answer is not None and answer.stop_probability is not None
    ]
    if not known:
        return None
    ranks = [rank for _, rank in known if rank is not None]
    probability = median(probability for probability, _ in known)
    return StopEstimate(probability, median_low(ranks) if ranks else -1, len(known))


def _ask_unbatched(backend: Backend, look: SamplingPass, stops: frozenset[int]) -> dict[str, Any]:
    """The shortest prompts, which a batch pads most, once more, each alone: `alone` and `parted`."""
    # A single prompt was alone before.
    if len(look.samples) < 2:
        return {}
    shortest = sorted(look.samples, key=lambda sample: len(sample.prompt.ids))
    shortest = shortest[:UNBATCHED_PROMPTS]
    divergences = [_find_divergence(backend, sample, stops) for sample in shortest]
    return {
        "alone": len(shortest),
        "parted": tuple(one for one in divergences if one is not None),
    }


def _ask_greedily(
    backend: Backend,
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    stops: frozenset[int],
    limit: int,
) -> dict[str, Any]:
    """Some of the prompts once more, greedily: is the way of drawing what makes the answers bad?"""
    max_tokens = min(limit, MAX_BASE_TOKENS)
    look = _sample_some(backend, prompts[:GREEDY_PROMPTS], tokenizer, stops, max_tokens)
    return {"cooler": SampledRun((look,), limit=max_tokens, finished=True)}


def _find_divergence(
    backend: Backend, sample: Sample, stops: frozenset[int]
) -> DivergentAnswer | None:
    """Where the answer to a prompt alone parts from that in a batch; None where it does not."""
    (alone,) = backend.answers([sample.prompt], Decoding(stops, max_new_tokens=UNBATCHED_TOKENS))
    if alone is None:
        return None
    alone_ids = _ids_with_stop(alone)[:UNBATCHED_TOKENS]
    batch_ids = _ids_with_stop(sample.answer)[:UNBATCHED_TOKENS]
    pairs = enumerate(zip(alone_ids, batch_ids, strict=False))
    position = next((i for i, (a, b) in pairs if a != b), None)
    if position is None:
        return None
    # Two tokens that are nearly as likely change places with any rounding: how far apart are they?
    before = [*sample.prompt.ids, *alone_ids[:position]]
    scored = [backend.score([[*before, ids[position]]]) for ids in (alone_ids, batch_ids)]
    logprobs = [float(one[0].logprobs[-1]) if one else None for one in scored]
    alone_logprob, batch_logprob = logprobs
    nats = None
    if alone_logprob is not None and batch_logprob is not None:
        nats = alone_logprob - batch_logprob
    return DivergentAnswer(sample.prompt.question, sample.answer.text, alone.text, position, nats)


def _ids_with_stop(answer: Answer) -> list[int]:
    """What the model generated, with the stop token, which `ids` leaves out."""
    return [*answer.ids, *([] if answer.stop is None else [answer.stop])]


@contextmanager
def _open_base(
    model_source: ModelSource, tokenizer: Tokenizer, options: Options, loaded: Backend | None
) -> Iterator[Backend | None]:
    """The base of a model; None where it is not known, or is the model itself."""
    if (
        loaded is not None
        or model_source.base is None
        or _is_same_folder(model_source.base, model_source.folder)
    ):
        yield loaded
        return
    # A base is a folder: the backend of a server or of a GGUF file can't open it.
    can_open = model_source.kind in ("model", "adapter") and options.backend != "server"
    options = replace(options, backend=options.backend if can_open else None, served_model=None)
    with open_backend(find_model_source(str(model_source.base)), tokenizer, options) as backend:
        yield backend


def _is_same_folder(one: Path, other: Path | None) -> bool:
    """Do two paths lead to one folder?"""
    return other is not None and one.resolve() == other.resolve()


def _sample_some(
    backend: Backend,
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    stops: frozenset[int],
    limit: int,
) -> SamplingPass:
    """What a model answers greedily to the first of the prompts, in at most `limit` tokens."""
    started = time.perf_counter()
    control = control_token_texts(tokenizer)
    some = prompts[:MAX_BASE_PROMPTS]
    answers = backend.answers(some, Decoding(stops, max_new_tokens=limit))
    samples = tuple(
        Sample(prompt, answer, score_answer(prompt, answer, control=control))
        for prompt, answer in zip(some, answers, strict=True)
        if answer is not None
    )
    return SamplingPass(0, samples, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Logprobs:
    """Log-probabilities of the tokens of some prompts, without the first of each, and of the references behind them."""

    prompts: tuple[NDArray[np.float64], ...]
    references: tuple[NDArray[np.float64], ...]

    @property
    def whole(self) -> NDArray[np.float64]:
        """Of all references together."""
        return np.concatenate(self.references)


def _score_references(backend: Backend, prompts: Sequence[Prompt]) -> _Logprobs | None:
    """Log-probabilities of some references, with their prompts; None where the backend can't tell."""
    with_reference = [
        prompt
        for prompt in prompts
        if prompt.reference_ids
        and len(prompt.ids) + len(prompt.reference_ids) <= MAX_REFERENCE_TOKENS
    ][:MAX_REFERENCES]
    if not with_reference:
        return None
    scored = backend.score([[*prompt.ids, *prompt.reference_ids] for prompt in with_reference])
    if scored is None:
        return None
    of_prompts, of_references = [], []
    for prompt, one in zip(with_reference, scored, strict=True):
        logprobs = one.logprobs.astype(np.float64)
        # Nothing predicts the first token.
        of_prompts.append(logprobs[1 : len(prompt.ids)])
        of_references.append(logprobs[len(prompt.ids) :])
    return _Logprobs(tuple(of_prompts), tuple(of_references))


def _measure_gain(model: _Logprobs | None, base: _Logprobs | None) -> PromptGain | None:
    """What the training has gained on prompts and references, in nats a token; None of fewer than two prompts.

    Means over all tokens; the error is over prompts, whose tokens depend on each other.
    """
    if model is None or base is None:
        return None
    gains = [
        of_model - of_base for of_model, of_base in zip(model.prompts, base.prompts, strict=True)
    ]
    means = [float(gain.mean()) for gain in gains if len(gain)]
    if len(means) < 2:
        return None
    all_gains = np.concatenate(gains)
    error = float(np.std(means, ddof=1) / len(means) ** 0.5)
    reference = float((model.whole - base.whole).mean())
    return PromptGain(float(all_gains.mean()), reference, error, len(all_gains), len(means))


def _measure_effect(model: _Logprobs | None, base: _Logprobs | None) -> TrainingEffect | None:
    """How far the training has moved the log-probabilities of the references; None where either is not known."""
    if model is None or base is None:
        return None
    of_model, of_base = model.whole, base.whole
    difference = of_model - of_base
    # One token tells nothing of how much the others differ.
    error = (
        float(difference.std(ddof=1) / len(difference) ** 0.5)
        if len(difference) > 1
        else float("inf")
    )
    return TrainingEffect(
        float(np.abs(difference).mean()),
        float(of_model.mean()),
        float(of_base.mean()),
        len(of_model),
        error,
    )
