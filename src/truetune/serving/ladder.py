"""The ladder: the same answers, scored by each form that an adapter takes from memory to server.

Each rung is compared with the adapter on its base by what it does to the log-probabilities. The first rung on which the
effect is not there, in size and direction, names what lost it.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from truetune.drawers import drawer
from truetune.errors import TruetuneError, UsageError
from truetune.generation.answer_samples import Answer
from truetune.generation.backends.backend import Backend, Decoding, Ids
from truetune.generation.backends.model_source import ModelSource, find_model_source, serving_stops
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.backends.transformers_backend import TransformersBackend
from truetune.render.serving_contract import contract_of, verify
from truetune.render.tokenizer import Tokenizer
from truetune.serving.effect import Effect, Places, effect
from truetune.training.fidelity_proof import prepare_prompts

NEW_TOKENS = 32
Say = Callable[[str], object]

CULPRITS = {
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
"""By the first word of a rung's name, or all of it"""


@dataclass(frozen=True, slots=True)
class Rung:
    """One form of the model."""

    name: str
    effect: Effect | None = None
    note: str = ""
    """Why it could not be measured"""
    fault: str = ""
    """What else is not as with the adapter"""


@dataclass(frozen=True, slots=True, repr=False)
class Ladder:
    """All rungs, from the base up."""

    adapter: str
    base: str
    prompts: int
    places: int
    """Tokens of the answers that were scored"""
    rungs: tuple[Rung, ...]
    seconds: float

    def __repr__(self) -> str:
        lost = f"lost at {self.culprit.name}" if self.culprit else "not lost"
        return f"<Ladder of {self.adapter}: {len(self.rungs)} rungs, {lost}>"

    def __str__(self) -> str:
        """What the terminal shows."""
        text: str = drawer("ladder as text")(self)
        return text

    @property
    def culprit(self) -> Rung | None:
        """The first rung on which the effect is not there, or that is not the same model otherwise."""
        return next(
            (rung for rung in self.rungs if rung.fault or (rung.effect and rung.effect.lost)), None
        )

    @property
    def unmeasured(self) -> tuple[Rung, ...]:
        """Rungs that were asked for and tell nothing"""
        return tuple(rung for rung in self.rungs if rung.effect is None and not rung.fault)

    @property
    def remedy(self) -> str:
        """What lost it; empty where nothing did"""
        rung = self.culprit
        if rung is None:
            return ""
        if rung.fault:
            return rung.fault
        if rung.effect is not None and rung.effect.size == 0:
            return "the adapter itself: it does not change a single log-probability"
        return next(
            (text for name, text in CULPRITS.items() if rung.name.startswith(name)),
            "the adapter itself",
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        culprit = self.culprit
        return asdict(self) | {"culprit": culprit.name if culprit else None, "remedy": self.remedy}


def ladder(
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
    """Climb from the adapter on its base: saved and reloaded, merged in memory, the merged folder, exported files (a
    folder or .gguf each), a server.

    `data` gives the prompts, else built-in questions do; the adapter's own answers to them are scored everywhere.
    Raises UsageError where there is no adapter, or a part that is named is not there.
    """
    started = time.perf_counter()
    place = find_model_source(adapter, base=base, tokenizer=tokenizer)
    if place.kind != "adapter" or place.folder is None or place.base is None:
        raise UsageError(f"{adapter}: holds no adapter; expected the folder of adapter_config.json")
    later = _later(place, merged, exported, endpoint)
    asked = prepare_prompts(place.tokenizer, place.base, count=prompts, data=data)
    words, options = asked.probes.tokenizer, options or Options()
    with open_backend(place, words, replace(options, backend=None)) as tuned:
        say("asking the adapter on its base")
        stops = serving_stops(words) or asked.stops
        said = tuned.answers(asked.prompts, Decoding(stops, NEW_TOKENS))
        pairs = [
            (prompt.ids, ids)
            for prompt, answer in zip(asked.prompts, said, strict=True)
            if (ids := _ids(answer))
        ]
        rungs = tuple(_Climb(place, later, words, pairs, options, say).rungs(tuned))
    places = max((rung.effect.places for rung in rungs if rung.effect), default=0)
    return Ladder(
        adapter, str(place.base), len(pairs), places, rungs, time.perf_counter() - started
    )


def _ids(answer: Answer | None) -> tuple[int, ...]:
    return () if answer is None else (*answer.ids, *([] if answer.stop is None else [answer.stop]))


def _later(
    place: ModelSource, merged: str | None, exported: Sequence[str], endpoint: str | None
) -> dict[str, ModelSource]:
    """The rungs that lie on a disk or behind a URL, all found before anything is loaded."""
    named = {f"merged, {merged}": merged} if merged else {}
    named |= {f"exported, {name}": name for name in exported}
    named |= {f"served, {endpoint}": endpoint} if endpoint else {}
    found = {
        title: find_model_source(name, tokenizer=str(place.tokenizer))
        for title, name in named.items()
    }
    for title, there in found.items():
        if there.kind == "adapter":
            raise UsageError(
                f"{there.name}: holds an adapter; {title.partition(',')[0]} is a whole model"
            )
    return found


@dataclass(frozen=True)
class _Climb:
    place: ModelSource
    later: Mapping[str, ModelSource]
    tokenizer: Tokenizer
    pairs: Sequence[tuple[Ids, Ids]]
    """Prompt and answer"""
    options: Options
    say: Say

    def rungs(self, tuned: Backend) -> Iterator[Rung]:
        """One after the other; a model is freed before the next is loaded where that can be."""
        assert isinstance(tuned, TransformersBackend)
        on, off = (
            self._told(tuned),
            self._asked("the base", replace(self.place, kind="model", folder=self.place.base)),
        )
        assert on is not None
        assert off is not None
        yield Rung("adapter on its base", effect(off, on, on))
        with tempfile.TemporaryDirectory(prefix="truetune-") as folder:
            tuned.model.active_peft_config.base_model_name_or_path = str(self.place.base)
            tuned.model.save_pretrained(folder)
            again = self._asked(
                "the adapter, saved and reloaded", replace(self.place, folder=Path(folder))
            )
        yield _rung("saved and reloaded", off, on, again)
        self.say("asking base and adapter, merged in memory")
        tuned.model = tuned.model.merge_and_unload(safe_merge=True)
        yield _rung("merged in memory", off, on, self._told(tuned))
        tuned.close()
        for title, place in self.later.items():
            try:
                rung = _rung(title, off, on, self._asked(f"what is {title}", place))
            except TruetuneError as error:
                rung = Rung(title, fault=str(error))
            yield replace(rung, fault=rung.fault or self._other_words(place))

    def _other_words(self, place: ModelSource) -> str:
        """How the tokenizer and template beside the weights are not the adapter's."""
        if (
            place.kind != "model"
            or place.folder is None
            or place.folder.resolve() == self.place.tokenizer.resolve()
        ):
            return ""
        try:
            differ = verify(contract_of(self.place.prepared()), place.folder)
        except TruetuneError as error:
            return f"its tokenizer or template can't be read: {error}"
        return f"its tokenizer or template is not the adapter's: {differ[0]}" if differ else ""

    def _asked(self, what: str, place: ModelSource) -> Places | None:
        self.say(f"asking {what}")
        gguf = place.kind == "gguf" and importlib.util.find_spec("llama_cpp") is None
        with open_backend(
            place, self.tokenizer, replace(self.options, backend="transformers" if gguf else None)
        ) as backend:
            return self._told(backend)

    def _told(self, backend: Backend) -> Places | None:
        """Log-probabilities of the answers' tokens; None where they can't be told."""
        found = backend.score([[*prompt, *answer] for prompt, answer in self.pairs])
        if found is None:
            return None
        return [
            one.logprobs[len(prompt) :] for one, (prompt, _) in zip(found, self.pairs, strict=True)
        ]


def _rung(name: str, off: Places, on: Places, seen: Places | None) -> Rung:
    if seen is None:
        return Rung(name, note="it tells no log-probabilities of given tokens: not measured")
    return Rung(name, effect(off, on, seen))
