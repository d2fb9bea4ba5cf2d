"""Compares the forms that an adapter takes from memory to server (the ladder), by how they score
the same answers.

Each stage is compared with the adapter on its base by what it does to the log-probabilities. The first stage on which
the effect is not there, in size and direction, names what lost it.

The trade-off: the answers are the adapter's own, where its effect is largest; each stage loads a model, one after the
other, so a ladder takes as many loads as it has stages and the memory of one (a quantized base aside).
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from truetune.errors import TruetuneError, UsageError
from truetune.generation.answer_samples import Answer
from truetune.generation.backends.backend import Backend, Decoding, Ids
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.backends.transformers_backend import TransformersBackend
from truetune.generation.prompts_to_compare_model_forms import prepare_proof_prompts
from truetune.lazy_report_drawers import load_drawer
from truetune.render.serving_contract import make_serving_contract, verify
from truetune.render.tokenizer import Tokenizer
from truetune.serving.measure_kept_adapter_effect import (
    AdapterEffect,
    SequenceLogprobs,
    measure_effect,
)

# Chosen, not measured: as in `measure_adapter_effect_on_server`, a hundred tokens over four prompts
# are enough for factor and cosine.
MAX_NEW_TOKENS = 32
Say = Callable[[str], object]

REMEDIES = {
    "saved and reloaded": (
        "saving: peft did not write, or did not read back, a part of the adapter (modules_to_save, "
        "new rows of the embedding, a scaling)"
    ),
    "merged": (
        "merging: another base than the one that was trained on, a scaling that is not applied, or"
        " a dtype that rounds the adapter away; truetune movement compares all values"
    ),
    "exported": "the export: its converter, the quantization, or weights from before the training",
    "served": (
        "the server: it serves the base or an older file, or scales the adapter otherwise; truetune"
        " serve-check looks closer"
    ),
}
"""By the first word of a stage's name, or all of it"""


@dataclass(frozen=True, slots=True)
class LadderStage:
    """One form of the model, with how much of the adapter's effect it has."""

    name: str
    effect: AdapterEffect | None = None
    note: str = ""
    """Why it could not be measured"""
    fault: str = ""
    """What else is not as with the adapter"""


@dataclass(frozen=True, slots=True, repr=False)
class Ladder:
    """All forms of the model, from the base up, with where the effect is lost."""

    adapter: str
    base: str
    prompts: int
    places: int
    """Tokens of the answers that were scored"""
    rungs: tuple[LadderStage, ...]
    seconds: float

    def __repr__(self) -> str:
        lost = f"lost at {self.culprit.name}" if self.culprit else "not lost"
        return f"<Ladder of {self.adapter}: {len(self.rungs)} stages, {lost}>"

    def __str__(self) -> str:
        """What the terminal shows."""
        text: str = load_drawer("ladder as text")(self)
        return text

    @property
    def culprit(self) -> LadderStage | None:
        """The first stage on which the effect is not there, or that is not the same model otherwise."""
        return next(
            (
                stage
                for stage in self.rungs
                if stage.fault or (stage.effect and stage.effect.is_lost_or_changed)
            ),
            None,
        )

    @property
    def unmeasured(self) -> tuple[LadderStage, ...]:
        """The stages that were asked for and could not be measured."""
        return tuple(stage for stage in self.rungs if stage.effect is None and not stage.fault)

    @property
    def remedy(self) -> str:
        """What to do about the stage that lost the effect; empty where none did."""
        stage = self.culprit
        if stage is None:
            return ""
        if stage.fault:
            return stage.fault
        # Exactly 0: B was never trained, or never read.
        if stage.effect is not None and stage.effect.size == 0:
            return "the adapter itself: it does not change a single log-probability"
        return next(
            (text for name, text in REMEDIES.items() if stage.name.startswith(name)),
            "the adapter itself",
        )

    def as_dict(self) -> dict[str, Any]:
        """The ladder as plain values."""
        culprit = self.culprit
        return asdict(self) | {"culprit": culprit.name if culprit else None, "remedy": self.remedy}


def compare_adapter_forms(
    adapter: str,
    *,
    base: str | None = None,
    tokenizer: str | None = None,
    merged: str | None = None,
    exported: Sequence[str] = (),
    endpoint: str | None = None,
    data: Sequence[str] = (),
    prompts: int = 4,
    options: Options | None = None,
    say: Say = str,
) -> Ladder:
    """Compare the forms of an adapter: on its base, saved and reloaded, merged in memory, the
    merged folder, exported files (a folder or .gguf each), a server.

    `data` gives the prompts, else built-in questions do; the adapter's own answers to them are scored everywhere.
    Raises UsageError where there is no adapter, or a part that is named is not there.
    """
    started = time.perf_counter()
    source = find_model_source(adapter, base=base, tokenizer=tokenizer)
    if source.kind != "adapter" or source.folder is None or source.base is None:
        raise UsageError(f"{adapter}: holds no adapter; expected the folder of adapter_config.json")
    # Before anything is loaded: a name that is wrong should not be found out after minutes.
    later_forms = _find_stored_and_served_forms(source, merged, exported, endpoint)
    questions = prepare_proof_prompts(source.tokenizer, source.base, count=prompts, data=data)
    tokenizer_facts, options = questions.probes.tokenizer, options or Options()
    with open_backend(source, tokenizer_facts, replace(options, backend=None)) as tuned:
        say("asking the adapter on its base")
        # Stops as served, for a form that runs on is no fault of its weights.
        stops = serving_stops(tokenizer_facts) or questions.stops
        answers = tuned.answers(questions.prompts, Decoding(stops, MAX_NEW_TOKENS))
        pairs = [
            (prompt.ids, _answer_ids_with_stop(answer))
            for prompt, answer in zip(questions.prompts, answers, strict=True)
        ]
        # An empty answer has no token to score.
        pairs = [(prompt_ids, answer_ids) for prompt_ids, answer_ids in pairs if answer_ids]
        scorer = _FormScorer(source, later_forms, tokenizer_facts, pairs, options, say)
        rungs = tuple(scorer.score_forms_one_after_another(tuned))
    places = max((stage.effect.places for stage in rungs if stage.effect), default=0)
    return Ladder(
        adapter, str(source.base), len(pairs), places, rungs, time.perf_counter() - started
    )


def _answer_ids_with_stop(answer: Answer | None) -> tuple[int, ...]:
    """The ids of an answer with its stop token, whose probability is what training most often changes."""
    if answer is None:
        return ()
    return answer.ids if answer.stop is None else (*answer.ids, answer.stop)


def _find_stored_and_served_forms(
    source: ModelSource, merged: str | None, exported: Sequence[str], endpoint: str | None
) -> dict[str, ModelSource]:
    """The forms that are on a disk or at a URL, all found before anything is loaded."""
    named = {f"merged, {merged}": merged} if merged else {}
    named |= {f"exported, {name}": name for name in exported}
    named |= {f"served, {endpoint}": endpoint} if endpoint else {}
    sources = {
        title: find_model_source(name, tokenizer=str(source.tokenizer))
        for title, name in named.items()
    }
    for title, form in sources.items():
        if form.kind == "adapter":
            raise UsageError(
                f"{form.name}: holds an adapter; {title.partition(',')[0]} is a whole model"
            )
    return sources


@dataclass(frozen=True)
class _FormScorer:
    """Loads each form in turn, and scores the adapter's answers by it."""

    source: ModelSource
    later_forms: Mapping[str, ModelSource]
    tokenizer: Tokenizer
    pairs: Sequence[tuple[Ids, Ids]]
    """Prompt and answer"""
    options: Options
    say: Say

    def score_forms_one_after_another(self, tuned: Backend) -> Iterator[LadderStage]:
        """Score each form in turn; a model is freed before the next is loaded where that can be."""
        assert isinstance(tuned, TransformersBackend)
        base = replace(self.source, kind="model", folder=self.source.base)
        tuned_logprobs = self._score_answers(tuned)
        base_logprobs = self._score_loaded_or_served_form("the base", base)
        assert tuned_logprobs is not None
        assert base_logprobs is not None
        yield LadderStage(
            "adapter on its base", measure_effect(base_logprobs, tuned_logprobs, tuned_logprobs)
        )
        with tempfile.TemporaryDirectory(prefix="truetune-") as folder:
            # peft writes this name beside the weights, and it may be one of the machine that trained.
            tuned.model.active_peft_config.base_model_name_or_path = str(self.source.base)
            tuned.model.save_pretrained(folder)
            reloaded = self._score_loaded_or_served_form(
                "the adapter, saved and reloaded", replace(self.source, folder=Path(folder))
            )
        yield _make_stage("saved and reloaded", base_logprobs, tuned_logprobs, reloaded)
        self.say("asking base and adapter, merged in memory")
        # safe_merge: a merge that gives nan or infinity raises, and does not become the reference of a stage.
        tuned.model = tuned.model.merge_and_unload(safe_merge=True)
        merged = self._score_answers(tuned)
        yield _make_stage("merged in memory", base_logprobs, tuned_logprobs, merged)
        tuned.close()
        for title, source in self.later_forms.items():
            # One form that can't be loaded is a fault of that stage: the others are still worth knowing.
            try:
                measured = self._score_loaded_or_served_form(f"what is {title}", source)
                stage = _make_stage(title, base_logprobs, tuned_logprobs, measured)
            except TruetuneError as error:
                stage = LadderStage(title, fault=str(error))
            yield replace(stage, fault=stage.fault or self._describe_tokenizer_difference(source))

    def _describe_tokenizer_difference(self, source: ModelSource) -> str:
        """How the tokenizer and template beside a form's weights differ from the adapter's."""
        if (
            source.kind != "model"
            or source.folder is None
            or source.folder.resolve() == self.source.tokenizer.resolve()
        ):
            return ""
        try:
            # The weights may be right and the answers wrong: exports often come with the base's template.
            differences = verify(make_serving_contract(self.source.prepared()), source.folder)
        except TruetuneError as error:
            return f"its tokenizer or template can't be read: {error}"
        return (
            f"its tokenizer or template is not the adapter's: {differences[0]}"
            if differences
            else ""
        )

    def _score_loaded_or_served_form(
        self, form_name: str, source: ModelSource
    ) -> SequenceLogprobs | None:
        """Log-probabilities by a form that has to be loaded, or asked."""
        self.say(f"asking {form_name}")
        # Transformers reads GGUF files too: slower, but a file can be scored where llama.cpp is not installed.
        gguf = source.kind == "gguf" and importlib.util.find_spec("llama_cpp") is None
        with open_backend(
            source, self.tokenizer, replace(self.options, backend="transformers" if gguf else None)
        ) as backend:
            return self._score_answers(backend)

    def _score_answers(self, backend: Backend) -> SequenceLogprobs | None:
        """Log-probabilities of the answers' tokens; None where they can't be told."""
        scores = backend.score([[*prompt, *answer] for prompt, answer in self.pairs])
        if scores is None:
            return None
        return [
            scored.logprobs[len(prompt) :]
            for scored, (prompt, _) in zip(scores, self.pairs, strict=True)
        ]


def _make_stage(
    name: str,
    base_logprobs: SequenceLogprobs,
    tuned_logprobs: SequenceLogprobs,
    measured: SequenceLogprobs | None,
) -> LadderStage:
    """The stage of a form, with how much of the effect it has; `measured` is None where the form
    gives no log-probabilities.
    """
    if measured is None:
        return LadderStage(name, note="it tells no log-probabilities of given tokens: not measured")
    return LadderStage(name, measure_effect(base_logprobs, tuned_logprobs, measured))
