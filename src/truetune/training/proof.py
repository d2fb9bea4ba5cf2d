"""The proof of a merge or an export: the same prompts on every rung of the ladder from adapter to file.

What the adapter does to the logits (with it minus without it, in float32) must be there on each rung, in size and
direction. Greedy answers are counted, not judged: two tokens that are nearly as likely change places with any rounding.
"""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers

from truetune.data.conversation import Conversation, Origin
from truetune.data.rows import read_conversations
from truetune.errors import UsageError
from truetune.generation.answer_samples import Prompt
from truetune.generation.build_prompts import build_prompts, make_decoder
from truetune.generation.generate_answers import generate_answers
from truetune.probe.preserve_state import preserve_state
from truetune.render.probes import Probes, prepared
from truetune.render.tokenizer import Tokenizer, load
from truetune.spec.run import RunSpec

QUESTIONS = (
    ("What is the capital of France?", "The capital of France is Paris."),
    ("Who are you?", "I am an assistant."),
    ("Name three primary colours.", "Red, yellow and blue."),
    ("Write one sentence about the sea.", "The sea is wide and never still."),
    ("What is 12 plus 30?", "12 plus 30 is 42."),
    ("Translate 'good morning' into German.", "Guten Morgen."),
    (
        "Explain in one sentence why the sky is blue.",
        "Air scatters blue light more than red light.",
    ),
    ("Give me a short list of fruits.", "Apples, pears and plums."),
)
NAMES = ("bos", "eos", "pad", "unk")
NEW_TOKENS = 32
OFF = 0.5
"""How much more or less of the effect than all of it is still the adapter's"""
ALIKE = 0.7
"""Cosine between an effect and the adapter's"""


@dataclass(frozen=True)
class Facts:
    """What decides how a model is asked, and where it stops."""

    template: str
    """Digest of the chat templates"""
    special: tuple[tuple[str, int], ...]
    """bos, eos, pad, unk"""
    stops: frozenset[int]
    """Of generation_config; else of config"""


@dataclass(frozen=True)
class Rung:
    """One form of the model, against the adapter on its base."""

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
        """What was lost on this rung"""
        found = []
        if not abs(self.kept - 1) <= OFF or not self.cosine >= ALIKE:
            found.append(f"{self.kept:.2f} of the effect is there, cosine {self.cosine:.2f}")
        if self.template is False:
            found.append("another chat template")
        if self.special is False:
            found.append("other special or stop ids")
        return tuple(found)


@dataclass(frozen=True)
class Proof:
    """All rungs."""

    prompts: int
    tokens: int
    """Places whose logits were compared"""
    effect: float
    """Root mean square of what is compared: what the adapter does to the logits; without a base, the logits"""
    against_base: bool
    rungs: tuple[Rung, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """One text for each; empty where the proof holds"""
        nothing = [] if self.effect > 0 else ["the adapter does not change a single logit"]
        return (*nothing, *(f"{rung.name}: {text}" for rung in self.rungs for text in rung.faults))


@dataclass(frozen=True)
class Asked:
    """Prompts, and what is needed to ask them."""

    prompts: tuple[Prompt, ...]
    probes: Probes
    facts: Facts

    @property
    def stops(self) -> frozenset[int]:
        return self.facts.stops | {stop.id for stop in self.probes.stops}


@dataclass(frozen=True)
class Seen:
    """What one form of the model said."""

    logits: tuple[torch.Tensor, ...]
    """(places, vocabulary) of each prompt: behind it, and behind each token of the answer that is followed"""
    answers: tuple[tuple[int, ...], ...]
    """Ids, with the stop token where there is one"""


def asked_of(
    tokenizer: Path,
    model: Path,
    *,
    count: int = 4,
    data: Sequence[str] = (),
    generation: Mapping[str, Any] | None = None,
) -> Asked:
    """Built-in questions, or those of `data`, as they will be served; `generation` in place of the model's
    generation_config.json.

    Raises UsageError where no row gives a prompt, and what the reading of the files raises.
    """
    spec = RunSpec(tokenizer=str(tokenizer), model=str(model), data=tuple(data))
    probes = prepared(spec)
    if generation is not None:
        probes = replace(
            probes, tokenizer=replace(probes.tokenizer, generation_config=dict(generation))
        )
    rows = (
        read_conversations(spec.data)
        if data
        else iter(_built_in(chat=bool(probes.tokenizer.templates)))
    )
    prompts = build_prompts(spec, rows, count, probes=probes)
    if not prompts:
        raise UsageError(
            f"{', '.join(data) or 'the built-in questions'}: no row gives a prompt; name another"
            " --data"
        )
    return Asked(tuple(prompts), probes, facts_of(probes.tokenizer))


def _built_in(*, chat: bool) -> list[Conversation]:
    made = []
    for i, (question, answer) in enumerate(QUESTIONS):
        origin = Origin("built-in questions", i + 1, i)
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        made.append(
            Conversation(origin, "messages", messages=messages)
            if chat
            else Conversation(
                origin, "prompt-completion", prompt=f"{question}\n", completion=answer
            )
        )
    return made


def facts_of(tokenizer: Tokenizer) -> Facts:
    """Of a folder with a tokenizer and a model."""
    text = "\0".join(
        f"{name}\0{template}" for name, template in sorted(tokenizer.templates.items())
    )
    special = tuple(
        sorted((name, tokenizer.special[name].id) for name in NAMES if name in tokenizer.special)
    )
    ends = (tokenizer.generation_config or {}).get(
        "eos_token_id", tokenizer.model_config.get("eos_token_id")
    )
    listed = ends if isinstance(ends, list) else [ends]
    return Facts(
        hashlib.sha256(text.encode()).hexdigest(),
        special,
        frozenset(id for id in listed if type(id) is int),
    )


def look(model: Any, asked: Asked, follow: Seen | None = None) -> Seen:
    """Answers, and logits behind the prompts and the answers of `follow` (its own where that is None)."""
    said = generate_answers(
        model,
        asked.prompts,
        stops=asked.stops,
        pad=_pad(asked),
        max_new_tokens=NEW_TOKENS,
        decode=make_decoder(asked.probes.tokenizer),
    )
    ids = tuple(() if a is None else (*a.ids, *([] if a.stop is None else [a.stop])) for a in said)
    paths = follow.answers if follow else ids
    logits = [
        _logits(model, prompt.ids, path) for prompt, path in zip(asked.prompts, paths, strict=True)
    ]
    return Seen(tuple(logits), ids)


def _pad(asked: Asked) -> int:
    special = asked.probes.tokenizer.special
    return special["pad"].id if "pad" in special else min(asked.stops, default=0)


def _logits(model: Any, prompt: tuple[int, ...], path: tuple[int, ...]) -> torch.Tensor:
    """(places, vocabulary), float32"""
    ids = torch.tensor([[*prompt, *path]], device=model.device)
    with preserve_state(), torch.no_grad():
        logits: torch.Tensor = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
        ).logits[0]
    return logits[len(prompt) - 1 :].float().cpu()


def rung(
    name: str, on: Seen, off: Seen | None, other: Seen, *, facts: Facts | None = None, asked: Asked
) -> Rung:
    """Compare another form of the model with the adapter on its base (`on`) and the base alone (`off`)."""
    change = other_change = along = 0.0
    largest = 0.0
    for i, reference in enumerate(on.logits):
        width = min(reference.shape[-1], other.logits[i].shape[-1])
        a, o = reference[:, :width], other.logits[i][:, :width]
        b = off.logits[i][:, :width] if off else a.mean(-1, keepdim=True)
        largest = max(largest, float((o - a).abs().max()))
        effect, there = (a - b).double(), (o - b).double()
        change += float(effect.square().sum())
        other_change += float(there.square().sum())
        along += float((effect * there).sum())
    kept = along / change if change else math.nan
    cosine = along / math.sqrt(change * other_change) if change and other_change else 0.0
    same = sum(a == b for a, b in zip(on.answers, other.answers, strict=True))
    return Rung(
        name,
        kept,
        cosine,
        largest,
        same,
        template=None if facts is None else facts.template == asked.facts.template,
        special=(
            None
            if facts is None
            else (facts.special, facts.stops) == (asked.facts.special, asked.facts.stops)
        ),
    )


def proved(on: Seen, off: Seen | None, rungs: Sequence[Rung]) -> Proof:
    """All rungs, and the size of what they are compared by."""
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


def loaded(folder: Path, model_class: Any, device: str, **settings: Any) -> Any:
    """A saved model, in float32. No code of the folder is run."""
    model = model_class.from_pretrained(
        str(folder), dtype=torch.float32, trust_remote_code=False, **settings
    )
    return model.to(device).eval()


def facts_in(folder: Path) -> Facts:
    """Of a folder on disk. Raises TokenizerError."""
    return facts_of(load(str(folder), model=str(folder)))


def quiet() -> None:
    """The bars of transformers on a terminal alone, and none of its warnings to developers."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
