"""Gathers evidence on why a model answers as it does: asks the model, its base, its files and its training record.

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

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.errors import TruetuneError
from truetune.generation.answer_samples import Answer, Prompt, Sample, SampledRun, SamplingPass
from truetune.generation.backends.backend import Backend, Decoding, Progress
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.build_prompts import control_token_texts
from truetune.generation.evidence_on_causes_of_answers import (
    ControlToken,
    DivergentAnswer,
    ModelEvidence,
    PromptGain,
    StopEstimate,
    TrainingEffect,
)
from truetune.generation.score_answer_by_prompt_and_reference import score_answer
from truetune.render.serving_contract import describe_breaches_of_serving_contract
from truetune.render.template_probes import Probes
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
    sampling_pass: SamplingPass,
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
        sampling_pass: what it answered.
        backend: the model, loaded.
        options: with which the base is opened, where it is not given and known.
        base: the base, loaded.
        limit: new tokens after which the answers were cut.
        temperature: at which they were drawn; 0: they are greedy.
        progress: is told how many questions are done, of how many.
    """
    inquiry = _Inquiry(
        model_source, probes, prompts, sampling_pass, backend, options or Options(), base, limit
    )
    return inquiry.ask_all(temperature, progress)


class _Inquiry:
    """The questions to one model. Each takes what is known, and gives it back with what it has brought.

    The arguments are those of `gather_evidence`.

    Attributes:
        served: ids at which serving ends an answer.
        asked_stops: ids whose probability is asked for. Where serving stops at other tokens than were trained, the
            answers of the sampling pass say nothing of the trained ones, which are asked for then.
        logprobs: those of the references under the model; None before they are asked for, and where they are not known.
    """

    def __init__(
        self,
        model_source: ModelSource,
        probes: Probes,
        prompts: Sequence[Prompt],
        sampling_pass: SamplingPass,
        backend: Backend,
        options: Options,
        base: Backend | None,
        limit: int,
    ) -> None:
        self.model_source, self.probes, self.tokenizer = model_source, probes, probes.tokenizer
        self.prompts, self.sampling_pass = prompts, sampling_pass
        self.backend, self.options, self.base, self.limit = backend, options, base, limit
        self.trained, self.recorded = _trained_stops_and_whether_recorded(
            model_source, probes, prompts
        )
        trained_ids = frozenset(token.id for token in self.trained)
        self.served = serving_stops(self.tokenizer)
        self.asked_stops = self.served if trained_ids <= self.served else trained_ids
        self.logprobs: _Logprobs | None = None
        self.notes: list[str] = []

    def ask_all(self, temperature: float, progress: Progress | None) -> ModelEvidence:
        """What all questions have brought; `temperature` is that of the answers, and `progress` counts questions."""
        evidence = ModelEvidence(
            SampledRun((self.sampling_pass,), limit=self.limit, finished=True),
            kind=self.model_source.kind,
            trained=self.trained,
            recorded=self.recorded,
            served=_control_tokens_of_ids(self.tokenizer, self.served),
            pad=_find_pad(self.tokenizer),
            contract=self.model_source.contract is not None,
            run=bool(self.model_source.run),
            folder=self.model_source.folder,
            base_folder=self.model_source.base,
            temperature=temperature,
        )
        # The name of a question stands in the note on why it was not answered.
        questions: dict[str, Callable[[ModelEvidence], ModelEvidence]] = {
            "the training record": self.compare_with_contract,
            "stopping": self.estimate_stopping,
            "the references": self.score_references,
            "the prompts alone": self.ask_unbatched,
            "the prompts greedily": self.ask_greedily,
            "the pace": self.measure_speed_at_short_and_long_text,
            "the base": self.ask_base,
        }
        for number, (what, question) in enumerate(questions.items(), 1):
            try:
                evidence = question(evidence)
            except EXPECTED_ERRORS as error:
                self.notes.append(f"{what}: {type(error).__name__}: {error}")
            if progress:
                progress(number, len(questions))
        if evidence.reference_loss is None:
            self.notes.append(
                f"the log-probabilities of the references are not known: {self.backend.name} tells none, or"
                " there are no references"
            )
        return replace(evidence, notes=tuple(self.notes))

    def compare_with_contract(self, evidence: ModelEvidence) -> ModelEvidence:
        """In what the prompts of today break the contract of the training; one that can't be read counts as none."""
        file = self.model_source.contract
        contract = read_json_object(file, []) if file else None
        if not contract:
            return replace(evidence, contract=False)
        return replace(
            evidence, prompts=tuple(describe_breaches_of_serving_contract(contract, self.probes))
        )

    def estimate_stopping(self, evidence: ModelEvidence) -> ModelEvidence:
        """P(stop) after the references."""
        return replace(evidence, stopping=self._stop_estimate(self.backend, self.sampling_pass))

    def score_references(self, evidence: ModelEvidence) -> ModelEvidence:
        """The log-probabilities of the references, which are kept for the comparison with the base."""
        self.logprobs = _score_references(self.backend, self.prompts)
        if self.logprobs is None:
            return evidence
        return replace(evidence, reference_loss=float(-self.logprobs.whole.mean()))

    def ask_unbatched(self, evidence: ModelEvidence) -> ModelEvidence:
        """The shortest prompts, which a batch pads most, once more, each alone."""
        samples = self.sampling_pass.samples
        # Drawn answers differ by chance, with and without a batch; a single prompt was alone before.
        if evidence.temperature or len(samples) < 2:
            return evidence
        shortest = sorted(samples, key=lambda sample: len(sample.prompt.ids))[:UNBATCHED_PROMPTS]
        divergences = [
            _find_divergence_alone_from_batch(self.backend, sample, self.served)
            for sample in shortest
        ]
        return replace(
            evidence,
            unbatched_prompts=len(shortest),
            divergent_answers=tuple(one for one in divergences if one is not None),
        )

    def ask_greedily(self, evidence: ModelEvidence) -> ModelEvidence:
        """Some of the prompts once more, greedily: is the way of drawing what makes the answers bad?"""
        if not evidence.temperature:
            return evidence
        return replace(
            evidence, greedy=self._sample_first_prompts_greedily(self.backend, GREEDY_PROMPTS)
        )

    def measure_speed_at_short_and_long_text(self, evidence: ModelEvidence) -> ModelEvidence:
        """What a token costs behind a short and behind a long text."""
        return replace(evidence, speed=self.backend.pace())

    def ask_base(self, evidence: ModelEvidence) -> ModelEvidence:
        """Answers, stops and log-probabilities of the base."""
        with _open_base(self.model_source, self.tokenizer, self.options, self.base) as base:
            if base is None:
                self.notes.append("the base was not asked: it is not known")
                return evidence
            sampled = self._sample_first_prompts_greedily(base, MAX_BASE_PROMPTS)
            stopping = self._stop_estimate(base, sampled.looks[-1])
            evidence = replace(evidence, base=sampled, base_stopping=stopping)
            # Both must be scored, or neither says anything.
            if self.logprobs is not None:
                base_logprobs = _score_references(base, self.prompts)
                evidence = replace(
                    evidence,
                    effect=_measure_logprob_shift_by_training(self.logprobs, base_logprobs),
                    prompt_gain=_measure_gain_on_prompts_and_references(
                        self.logprobs, base_logprobs
                    ),
                )
            return evidence

    def _stop_estimate(self, backend: Backend, sampling_pass: SamplingPass) -> StopEstimate | None:
        """P(stop) of a model behind the references: as its answers have noted it, else by asking for it."""
        if self.asked_stops == self.served:
            return _median_stop_estimate(sample.answer for sample in sampling_pass.samples)
        return _ask_for_stop_probability(backend, self.prompts, self.asked_stops)

    def _sample_first_prompts_greedily(self, backend: Backend, count: int) -> SampledRun:
        """What a model answers greedily to the first `count` prompts, in a few sentences."""
        limit = min(self.limit, MAX_BASE_TOKENS)
        sampling_pass = _sample_greedily(
            backend, self.prompts[:count], self.tokenizer, self.served, limit
        )
        return SampledRun((sampling_pass,), limit=limit, finished=True)


def _trained_stops_and_whether_recorded(
    model_source: ModelSource, probes: Probes, prompts: Iterable[Prompt]
) -> tuple[tuple[ControlToken, ...], bool]:
    """The stop tokens that answers are trained to end with, and whether the training record says so.

    Without a record: the token that most references end with, else the one that ends a turn of the template.
    """
    recorded_ids = _recorded_stops(model_source)
    if recorded_ids:
        return _control_tokens_of_ids(probes.tokenizer, recorded_ids), True
    prompts = list(prompts)
    last_ids = Counter(prompt.reference_ids[-1] for prompt in prompts if prompt.reference_ids)
    most_common = last_ids.most_common(1)
    # An ordinary token at the end is a reference without a stop.
    if most_common and most_common[0][0] in probes.tokenizer.control:
        return _control_tokens_of_ids(probes.tokenizer, [most_common[0][0]]), False
    # Plain texts without a chat have no turns: the template's end of turn is none of theirs.
    if last_ids and all(prompt.chat is None for prompt in prompts):
        return (), False
    terminator = probes.terminator.token if probes.terminator else None
    return (_control_tokens_of_ids(probes.tokenizer, [terminator.id]) if terminator else ()), False


def _recorded_stops(model_source: ModelSource) -> list[int]:
    """The ids that run.json calls trained stops; anything may stand in such a file."""
    listed = model_source.run.get("stops")
    stops = [stop for stop in listed if isinstance(stop, dict)] if isinstance(listed, list) else []
    ids = [stop.get("id") for stop in stops if stop.get("trained") is True]
    # `type`, for True is an int as well.
    return [id for id in ids if type(id) is int]


def _control_tokens_of_ids(tokenizer: Tokenizer, ids: Iterable[int]) -> tuple[ControlToken, ...]:
    """Ids with their texts, in order."""
    return tuple(ControlToken(str(tokenizer.backend.id_to_token(id)), id) for id in sorted(ids))


def _find_pad(tokenizer: Tokenizer) -> ControlToken | None:
    """The pad token, where the tokenizer names one."""
    pad = tokenizer.special.get("pad")
    return ControlToken(pad.token, pad.id) if pad else None


def _ask_for_stop_probability(
    backend: Backend, prompts: Sequence[Prompt], stops: frozenset[int]
) -> StopEstimate | None:
    """P(stop) after the references, of stops at which serving need not end."""
    with_reference = [prompt for prompt in prompts if prompt.reference_ids][:MAX_BASE_PROMPTS]
    if not with_reference or not stops:
        return None
    # One new token: the backend reads P(stop) along the reference, and the answer itself is not needed.
    return _median_stop_estimate(backend.answers(with_reference, Decoding(stops, max_new_tokens=1)))


def _median_stop_estimate(answers: Iterable[Answer | None]) -> StopEstimate | None:
    """The medians of P(stop) and of the rank over some answers; None where no answer has them. A
    single reference that should not end where it does would move a mean.
    """
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


def _find_divergence_alone_from_batch(
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
    """The base of a model; None where it is not known, or is the model itself.

    Args:
        model_source: the model.
        tokenizer: that of the prompts.
        options: with which the model was opened.
        loaded: the base, where the caller has it; it is not closed then.
    """
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


def _sample_greedily(
    backend: Backend,
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    stops: frozenset[int],
    limit: int,
) -> SamplingPass:
    """What a model answers greedily to prompts, each until one of `stops` or `limit` tokens."""
    started = time.perf_counter()
    control = control_token_texts(tokenizer)
    answers = backend.answers(prompts, Decoding(stops, max_new_tokens=limit))
    samples = tuple(
        Sample(prompt, answer, score_answer(prompt, answer, control=control))
        for prompt, answer in zip(prompts, answers, strict=True)
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
        """The log-probabilities of all references, one after the other."""
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


def _measure_gain_on_prompts_and_references(
    model: _Logprobs, base: _Logprobs | None
) -> PromptGain | None:
    """What the training has gained on prompts and references, in nats/token; None of fewer than two prompts.

    Means over all tokens; the error is over prompts, whose tokens depend on each other.
    """
    if base is None:
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


def _measure_logprob_shift_by_training(
    model: _Logprobs, base: _Logprobs | None
) -> TrainingEffect | None:
    """How far the training has moved the log-probabilities of the references; None where either is not known."""
    if base is None:
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
