"""inquire: ask a model, its base, its files and its training record why it answers as it does."""

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

ASKED = 8
"""Prompts that the base is asked"""
LONGEST = 64
"""New tokens of the base's answers"""
SCORED, ROOM = 8, 2048
"""References whose log-probabilities are compared, and how many tokens they may have with their prompts"""
COOLER = 4
"""Prompts that are asked once more, greedily"""
ALONE, FIRST = 2, 32
"""Prompts that are asked once more, alone, and the tokens that are compared"""
UNABLE = (TruetuneError, OSError, RuntimeError, ValueError)
"""What keeps a question from being answered: no such folder, no memory, no answer of a server"""


def inquire(
    place: ModelSource,
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
    """Of a model that gave the answers of `look`, cut at `limit` new tokens.

    `base` is opened with `options` where it is not given and known. `temperature` is that at which the
    answers were drawn; 0: they are greedy.
    What can't be asked is a note, and no error.
    """
    tokenizer, notes = probes.tokenizer, list[str]()
    served = serving_stops(tokenizer)
    trained, recorded = _trained(place, probes, prompts)
    asked = (
        served
        if {token.id for token in trained} <= served
        else frozenset(token.id for token in trained)
    )
    watched = SampledRun((look,), limit=limit, finished=True)
    found = ModelEvidence(
        watched,
        kind=place.kind,
        trained=trained,
        recorded=recorded,
        served=_tokens(tokenizer, served),
        pad=_pad(tokenizer),
        contract=place.contract is not None,
        run=bool(place.run),
        folder=place.folder,
        base_folder=place.base,
        temperature=temperature,
    )
    told, mine = _telling(progress, 7), list[_Logprobs | None]()

    def ask(what: str, question: Callable[[], dict[str, Any]]) -> None:
        nonlocal found
        try:
            found = replace(found, **question())
        except UNABLE as error:
            notes.append(f"{what}: {type(error).__name__}: {error}")
        told()

    def of_references() -> dict[str, Any]:
        mine.append(_references(backend, prompts))
        return {"surprise": None if mine[0] is None else float(-mine[0].whole.mean())}

    ask("the training record", lambda: _prompts(place, probes))
    ask(
        "stopping",
        lambda: {
            "stopping": _of_look(look) if asked == served else _stopping(backend, prompts, asked)
        },
    )
    ask("the references", of_references)
    ask("the prompts alone", lambda: _alone(backend, look, served) if not temperature else {})
    ask(
        "the prompts greedily",
        lambda: _cooler(backend, prompts, tokenizer, served, limit) if temperature else {},
    )
    ask("the pace", lambda: {"pace": backend.pace()})

    def of_base() -> dict[str, Any]:
        with _base(place, tokenizer, options or Options(), base) as under:
            if under is None:
                notes.append("the base was not asked: it is not known")
                return {}
            seen = _look(under, prompts, tokenizer, served, min(limit, LONGEST))
            stopping = _of_look(seen) if asked == served else _stopping(under, prompts, asked)
            theirs = _references(under, prompts) if mine else None
            return {
                "base": SampledRun((seen,), limit=min(limit, LONGEST), finished=True),
                "base_stopping": stopping,
                "effect": _effect(mine[0], theirs) if mine else None,
                "gain": _gain(mine[0], theirs) if mine else None,
            }

    ask("the base", of_base)
    if found.surprise is None:
        notes.append(
            f"the log-probabilities of the references are not known: {backend.name} tells none, or"
            " there are no references"
        )
    return replace(found, notes=tuple(notes))


def _telling(progress: Progress | None, of: int) -> Callable[[], None]:
    done = iter(range(1, of + 1))
    return lambda: progress(next(done), of) if progress else None


def _trained(
    place: ModelSource, probes: Probes, prompts: Iterable[Prompt]
) -> tuple[tuple[ControlToken, ...], bool]:
    """The stop tokens that answers are trained to end with, and whether the training record says so."""
    listed = place.run.get("stops")
    stops = [stop for stop in listed if isinstance(stop, dict)] if isinstance(listed, list) else []
    trained = [stop.get("id") for stop in stops if stop.get("trained") is True]
    if ids := [id for id in trained if type(id) is int]:
        return _tokens(probes.tokenizer, ids), True
    last = Counter(prompt.reference_ids[-1] for prompt in prompts if prompt.reference_ids)
    common = next((id for id, _ in last.most_common(1) if id in probes.tokenizer.control), None)
    if common is None and last and all(prompt.chat is None for prompt in prompts):
        return (), False
    terminator = probes.terminator.token if probes.terminator else None
    id = common if common is not None else terminator.id if terminator else None
    return (_tokens(probes.tokenizer, [id]) if id is not None else ()), False


def _tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[ControlToken, ...]:
    return tuple(ControlToken(str(tokenizer.backend.id_to_token(id)), id) for id in sorted(ids))


def _pad(tokenizer: Tokenizer) -> ControlToken | None:
    pad = tokenizer.special.get("pad")
    return ControlToken(pad.token, pad.id) if pad else None


def _prompts(place: ModelSource, probes: Probes) -> dict[str, Any]:
    contract = read_object(place.contract, []) if place.contract else None
    return (
        {"prompts": tuple(contract_breaks(contract, probes))} if contract else {"contract": False}
    )


def _of_look(look: SamplingPass) -> StopEstimate | None:
    return _summary(sample.answer for sample in look.samples)


def _stopping(
    backend: Backend, prompts: Sequence[Prompt], stops: frozenset[int]
) -> StopEstimate | None:
    """Behind the references, of stops at which serving need not end."""
    taught = [prompt for prompt in prompts if prompt.reference_ids][:ASKED]
    return (
        _summary(backend.answers(taught, Decoding(stops, max_new_tokens=1)))
        if taught and stops
        else None
    )


def _summary(answers: Iterable[Answer | None]) -> StopEstimate | None:
    known = [
        answer for answer in answers if answer is not None and answer.stop_probability is not None
    ]
    if not known:
        return None
    ranks = [answer.stop_rank for answer in known if answer.stop_rank is not None]
    probability = median(
        answer.stop_probability for answer in known if answer.stop_probability is not None
    )
    return StopEstimate(probability, median_low(ranks) if ranks else -1, len(known))


def _alone(backend: Backend, look: SamplingPass, stops: frozenset[int]) -> dict[str, Any]:
    """The shortest prompts, which a batch pads most, once more."""
    if len(look.samples) < 2:
        return {}
    shortest = sorted(look.samples, key=lambda sample: len(sample.prompt.ids))[:ALONE]
    parted = [_parted(backend, sample, stops) for sample in shortest]
    return {"alone": len(shortest), "parted": tuple(one for one in parted if one is not None)}


def _cooler(
    backend: Backend,
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    stops: frozenset[int],
    limit: int,
) -> dict[str, Any]:
    """Some of the prompts once more, greedily: is the way of drawing what makes the answers bad?"""
    few = min(limit, LONGEST)
    look = _look(backend, prompts[:COOLER], tokenizer, stops, few)
    return {"cooler": SampledRun((look,), limit=few, finished=True)}


def _parted(backend: Backend, sample: Sample, stops: frozenset[int]) -> DivergentAnswer | None:
    (alone,) = backend.answers([sample.prompt], Decoding(stops, max_new_tokens=FIRST))
    if alone is None:
        return None
    mine, other = (_said(answer)[:FIRST] for answer in (alone, sample.answer))
    at = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), None)
    if at is None:
        return None
    before = [*sample.prompt.ids, *mine[:at]]
    scored = [backend.score([[*before, token]]) for token in (mine[at], other[at])]
    own, theirs = (float(made[0].logprobs[-1]) if made else None for made in scored)
    nats = own - theirs if own is not None and theirs is not None else None
    return DivergentAnswer(sample.prompt.question, sample.answer.text, alone.text, at, nats)


def _said(answer: Answer) -> list[int]:
    return [*answer.ids, *([] if answer.stop is None else [answer.stop])]


@contextmanager
def _base(
    place: ModelSource, tokenizer: Tokenizer, options: Options, given: Backend | None
) -> Iterator[Backend | None]:
    if given is not None or place.base is None or _same(place.base, place.folder):
        yield given
        return
    kept = (
        options.backend
        if place.kind in ("model", "adapter") and options.backend != "server"
        else None
    )
    with open_backend(
        find_model_source(str(place.base)),
        tokenizer,
        replace(options, backend=kept, served_model=None),
    ) as under:
        yield under


def _same(one: Path, other: Path | None) -> bool:
    return other is not None and one.resolve() == other.resolve()


def _look(
    backend: Backend,
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    stops: frozenset[int],
    limit: int,
) -> SamplingPass:
    """What it answers to some of the prompts."""
    began, control, some = time.perf_counter(), control_token_texts(tokenizer), prompts[:ASKED]
    said = backend.answers(some, Decoding(stops, max_new_tokens=limit))
    samples = tuple(
        Sample(prompt, answer, score_answer(prompt, answer, control=control))
        for prompt, answer in zip(some, said, strict=True)
        if answer is not None
    )
    return SamplingPass(0, samples, time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _Logprobs:
    """Log-probabilities of the tokens of some prompts, without the first of each, and of the references behind them."""

    prompts: tuple[NDArray[np.float64], ...]
    references: tuple[NDArray[np.float64], ...]

    @property
    def whole(self) -> NDArray[np.float64]:
        """Of all references together."""
        return np.concatenate(self.references)


def _references(backend: Backend, prompts: Sequence[Prompt]) -> _Logprobs | None:
    """Of some references, with their prompts; None where the backend can't tell."""
    taught = [p for p in prompts if p.reference_ids and len(p.ids) + len(p.reference_ids) <= ROOM][
        :SCORED
    ]
    scored = (
        backend.score([[*prompt.ids, *prompt.reference_ids] for prompt in taught])
        if taught
        else None
    )
    if scored is None:
        return None
    pairs = [
        (one.logprobs.astype(np.float64), len(prompt.ids))
        for prompt, one in zip(taught, scored, strict=True)
    ]
    return _Logprobs(
        tuple(logprobs[1:length] for logprobs, length in pairs),
        tuple(logprobs[length:] for logprobs, length in pairs),
    )


def _gain(model: _Logprobs | None, base: _Logprobs | None) -> PromptGain | None:
    """Means over all tokens; the error is over prompts, whose tokens depend on each other."""
    if model is None or base is None:
        return None
    pairs = list(zip(model.prompts, base.prompts, strict=True))
    means = [float((mine - theirs).mean()) for mine, theirs in pairs if len(mine)]
    if len(means) < 2:
        return None
    gained = np.concatenate([mine - theirs for mine, theirs in pairs])
    error = float(np.std(means, ddof=1) / len(means) ** 0.5)
    reference = float((model.whole - base.whole).mean())
    return PromptGain(float(gained.mean()), reference, error, len(gained), len(means))


def _effect(mine: _Logprobs | None, theirs: _Logprobs | None) -> TrainingEffect | None:
    if mine is None or theirs is None:
        return None
    model, base = mine.whole, theirs.whole
    apart = model - base
    error = float(apart.std(ddof=1) / len(apart) ** 0.5) if len(apart) > 1 else float("inf")
    return TrainingEffect(
        float(np.abs(apart).mean()), float(model.mean()), float(base.mean()), len(model), error
    )
