"""The prompts that every form of a model is asked: built-in questions or the user's rows, as they will be served.

Merging, exporting and the comparison of adapter forms ask the same prompts of each form, so that what differs is the
form's doing. The trade-off: a few questions show a lost adapter at once, but not a fault of one rare token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truetune.data.conversation import Conversation, Origin
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import UsageError
from truetune.generation.answer_samples import Prompt
from truetune.generation.build_prompts import build_prompts
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.render.tokenizer import Tokenizer, load_tokenizer
from truetune.settings.run_spec import RunSpec

BUILT_IN_QUESTIONS = (
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
SPECIAL_TOKEN_NAMES = ("bos", "eos", "pad", "unk")


@dataclass(frozen=True)
class ServingFacts:
    """What decides how a model is asked, and where it stops."""

    template: str
    """Digest of the chat templates"""
    special: tuple[tuple[str, int], ...]
    """bos, eos, pad, unk"""
    stops: frozenset[int]
    """Of generation_config; else of config"""


@dataclass(frozen=True)
class ProofPrompts:
    """Prompts, and what is needed to ask them."""

    prompts: tuple[Prompt, ...]
    probes: Probes
    facts: ServingFacts

    @property
    def stops(self) -> frozenset[int]:
        """Ids that end an answer: those of the model's files, and those that the template trains."""
        return self.facts.stops | {stop.id for stop in self.probes.stops}


def prepare_proof_prompts(
    tokenizer: Path,
    model: Path,
    *,
    count: int = 4,
    data: Sequence[str] = (),
    generation: Mapping[str, Any] | None = None,
) -> ProofPrompts:
    """Built-in questions, or those of `data`, as they will be served.

    Args:
        tokenizer: the folder of the tokenizer.
        model: the folder with config.json.
        count: prompts at most.
        data: files with rows; built-in questions where there are none.
        generation: stands instead of the model's generation_config.json.

    Raises:
        UsageError: no row gives a prompt; and what the reading of the files raises.
    """
    spec = RunSpec(tokenizer=str(tokenizer), model=str(model), data=tuple(data))
    probes = load_tokenizer_and_template_of_run(spec)
    if generation is not None:
        probes = replace(
            probes, tokenizer=replace(probes.tokenizer, generation_config=dict(generation))
        )
    # Built-in questions need no file, and any adapter moves their logits; the user's own rows are
    # nearer to what it was trained for.
    rows = (
        read_conversations(spec.data)
        if data
        else iter(_built_in_question_rows(chat=bool(probes.tokenizer.templates)))
    )
    prompts = build_prompts(spec, rows, count, probes=probes)
    if not prompts:
        raise UsageError(
            f"{', '.join(data) or 'the built-in questions'}: no row gives a prompt; name another"
            " --data"
        )
    return ProofPrompts(tuple(prompts), probes, template_and_stop_facts(probes.tokenizer))


def _built_in_question_rows(*, chat: bool) -> list[Conversation]:
    """The built-in questions, as chats or, for a model without a template, as prompts."""
    conversations = []
    for i, (question, answer) in enumerate(BUILT_IN_QUESTIONS):
        origin = Origin("built-in questions", i + 1, i)
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        conversations.append(
            Conversation(origin, "messages", messages=messages)
            if chat
            else Conversation(
                origin, "prompt-completion", prompt=f"{question}\n", completion=answer
            )
        )
    return conversations


def template_and_stop_facts(tokenizer: Tokenizer) -> ServingFacts:
    """What decides how a model is asked and where it stops, by its tokenizer and configs."""
    text = "\0".join(
        f"{name}\0{template}" for name, template in sorted(tokenizer.templates.items())
    )
    special = tuple(
        sorted(
            (name, tokenizer.special[name].id)
            for name in SPECIAL_TOKEN_NAMES
            if name in tokenizer.special
        )
    )
    ends = (tokenizer.generation_config or {}).get(
        "eos_token_id", tokenizer.model_config.get("eos_token_id")
    )
    listed = ends if isinstance(ends, list) else [ends]
    return ServingFacts(
        hashlib.sha256(text.encode()).hexdigest(),
        special,
        frozenset(id for id in listed if type(id) is int),
    )


def read_template_and_stop_facts(folder: Path) -> ServingFacts:
    """What decides how a model is asked and where it stops, read from its folder. Raises
    TokenizerError.
    """
    return template_and_stop_facts(load_tokenizer(str(folder), model=str(folder)))
