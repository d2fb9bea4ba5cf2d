"""lm-eval: its tasks through its own package, on the prompts that a model was trained to be asked."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truetune.encoding.encoder import Encoder
from truetune.errors import TemplateError, UsageError
from truetune.generation.backends.model_source import ModelSource, serving_stops
from truetune.generation.backends.open_backend import Options
from truetune.generation.build_prompts import make_decoder
from truetune.render.probes import Probes
from truetune.render.traced_string import parts

SHOWN_TOKENS = 12
"""Tokens that are shown where prompts differ"""
Ids = Sequence[int]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The outcome of one task."""

    name: str
    rows: int
    metrics: Mapping[str, float]
    """`acc,none`, `exact_match,strict-match`, ...: as lm-eval names them"""
    errors: Mapping[str, float]
    """Standard errors of the same names, as far as there are some"""


@dataclass(frozen=True, slots=True)
class LmEvalResult:
    """What lm-eval measured, and what it asked the model."""

    tasks: tuple[TaskResult, ...]
    flags: Mapping[str, str]
    """What was set for this model"""
    notes: tuple[str, ...]
    """How the prompt ids that reached the model differ from those that were trained, one sentence each"""
    compared: int = 0
    """Prompts whose ids were compared"""


@dataclass
class PromptLog:
    """The prompts of a run of lm-eval, as they reach the model."""

    chats: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What the template made -> of which messages"""
    prompts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Text -> ids; of likelihoods with the continuation"""


def run_tasks(
    place: ModelSource,
    names: Sequence[str],
    options: Options | None = None,
    *,
    include: str | None = None,
    limit: int | None = None,
    fewshot: int | None = None,
    system: str | None = None,
    batch: int = 8,
) -> LmEvalResult:
    """Run tasks by name; `include` is a folder of task files of the user's own.

    Raises UsageError where lm-eval is not installed, a task is not known, its data are not at hand, or the place is no
    model or adapter; SpecError, TokenizerError or TemplateError as `ModelSource.prepared`.
    """
    if importlib.util.find_spec("lm_eval") is None:
        raise UsageError("tasks are run by lm-eval, which is not installed: pip install lm-eval")
    if place.model is None or place.kind not in ("model", "adapter"):
        raise UsageError(
            f"{place.name}: tasks need a model or an adapter in a folder; of a server, lm-eval's"
            " own `local-chat-completions` asks"
        )
    manager = importlib.import_module("lm_eval.tasks").TaskManager(include_path=include)
    for name in names:
        if not manager.match_tasks([name]):
            near = ", ".join(difflib.get_close_matches(name, manager.all_tasks, 3))
            raise UsageError(f"lm-eval knows no task {name}{f'; it knows {near}' if near else ''}")
    probes = place.prepared()
    asked = PromptLog()
    model, flags = _open_model(place, probes, asked, options or Options(), batch)
    chat = probes.renderer().template is not None
    given = {
        "apply_chat_template": chat,
        "fewshot_as_multiturn": chat,
        "num_fewshot": fewshot,
        "limit": limit,
        "system_instruction": system,
    }
    try:
        made = importlib.import_module("lm_eval").simple_evaluate(
            model, tasks=list(names), task_manager=manager, log_samples=False, **given
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"lm-eval could not run {', '.join(names)}: {_first_line(error)}; where the data of a task"
            " must be downloaded, do so first (or name task files of your own)"
        ) from error
    flags = {name: str(value) for name, value in {**given, **flags}.items() if value is not None}
    return LmEvalResult(
        tuple(_read_result(made, name) for name in made["results"]),
        flags,
        describe_prompt_differences(asked, probes),
        len(asked.prompts),
    )


def _open_model(
    place: ModelSource, probes: Probes, asked: PromptLog, options: Options, batch: int
) -> tuple[Any, dict[str, Any]]:
    """The model in lm-eval, watched; and what was set for it."""
    import torch
    from transformers import GenerationConfig

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    flags = {
        "add_bos_token": adds_bos(probes),
        "dtype": options.dtype or ("float32" if device == "cpu" else "auto"),
        "chat_template_args": dict(probes.spec.template_kwargs) or None,
    }
    kind = importlib.import_module("lm_eval.models.huggingface").HFLM
    adapter = {"peft": str(place.folder)} if place.kind == "adapter" else {}
    model = recording_model(kind, asked)(
        str(place.model),
        tokenizer=str(place.tokenizer),
        device=device,
        batch_size=batch,
        backend="causal",
        trust_remote_code=options.trust_remote_code,
        **adapter,
        **flags,
    )
    stops = sorted(serving_stops(probes.tokenizer))
    model.model.generation_config = GenerationConfig(eos_token_id=stops or None)  # type: ignore[no-untyped-call]
    return model, flags | {"eos_token_id": stops}


def recording_model(kind: Any, asked: PromptLog) -> Any:
    """lm-eval's model of transformers, that tells which ids it gives to the model."""

    class Watched(kind):  # type: ignore[misc]
        def apply_chat_template(
            self, chat_history: list[dict[str, Any]], *args: Any, **settings: Any
        ) -> str:
            text: str = super().apply_chat_template(chat_history, *args, **settings)
            asked.chats[text] = chat_history
            return text

        def tok_batch_encode(self, strings: list[str], *args: Any, **settings: Any) -> Any:
            ids, mask = super().tok_batch_encode(strings, *args, **settings)
            rows = zip(strings, ids.tolist(), mask.tolist(), strict=True)
            asked.prompts |= {
                text: tuple(id for id, kept in zip(row, keep, strict=True) if kept)
                for text, row, keep in rows
            }
            return ids, mask

        def _loglikelihood_tokens(self, requests: list[Any], *args: Any, **settings: Any) -> Any:
            asked.prompts |= {context: (*ids, *more) for (context, _), ids, more in requests}
            return super()._loglikelihood_tokens(requests, *args, **settings)

    return Watched


def adds_bos(probes: Probes) -> bool:
    """Does the tokenizer begin what is trained with a BOS that the template does not write?"""
    bos = probes.tokenizer.special.get("bos")
    ids = Encoder(probes.tokenizer.backend, only_reference=True).encode(["a"]).ids.tolist()
    first = (
        _make_renderer(probes)([{"role": "user", "content": "a"}])
        if probes.renderer().template
        else ""
    )
    return bos is not None and ids[:1] == [bos.id] and not first.startswith(str(bos.token))


def describe_prompt_differences(asked: PromptLog, probes: Probes) -> tuple[str, ...]:
    """Compare what reached the model with what is trained: the template's prompt, encoded as the training rows are."""
    encoder, decode = (
        Encoder(probes.tokenizer.backend, only_reference=True),
        make_decoder(probes.tokenizer),
    )
    render = _make_renderer(probes) if probes.renderer().template else None
    counted: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for text, ids in asked.prompts.items():
        chat = asked.chats.get(text)
        try:
            wanted = encoder.encode([render(chat) if render and chat else text]).ids.tolist()
        except TemplateError as error:
            counted[f"have messages that the template refuses ({error})"] += 1
            continue
        if render is not None and chat is None:
            counted["are not in the chat template"] += 1
        elif list(ids[: len(wanted)]) != wanted:
            bare = encoder.encode([render(chat, False) if render and chat else text]).ids.tolist()
            what = _describe_difference(list(ids), wanted, bare, probes)
            counted[what] += 1
            examples.setdefault(
                what,
                f": {decode(wanted[-SHOWN_TOKENS:])!r} is trained, {decode(ids[-SHOWN_TOKENS:])!r} was asked",
            )
    return tuple(
        f"{count:,} of {len(asked.prompts):,} prompts {what}{examples.get(what, '')}"
        for what, count in counted.most_common()
    )


def _describe_difference(ids: list[int], wanted: list[int], bare: list[int], probes: Probes) -> str:
    """`bare` is what is wanted without its generation prompt."""
    special = probes.tokenizer.special.get("bos")
    bos = [special.id] if special else [-1]
    if ids[: len(wanted) + 1] == bos + wanted:
        return "begin with one BOS more than in training"
    if bos + ids[: len(wanted) - 1] == wanted:
        return "lack the BOS of the training"
    if len(ids) < len(wanted) and wanted[-len(ids) :] == ids:
        return "were cut on the left: they are too long for the model and the tokens to be made"
    if ids[: len(wanted) - 1] == wanted[:-1]:
        return "end in a token that merges with the answer"
    if ids[: len(bare)] == bare:
        return "lack the generation prompt"
    return "have other ids than in training"


def _make_renderer(probes: Probes) -> Callable[..., str]:
    template = probes.renderer().template
    assert template is not None

    def render(messages: list[dict[str, Any]], generation: bool = True) -> str:
        made = template.render(
            messages,
            tools=None,
            documents=None,
            add_generation_prompt=generation,
            **probes.spec.template_kwargs,
        )
        return "".join(parts(made))

    return render


def _read_result(made: Mapping[str, Any], name: str) -> TaskResult:
    found = {
        key: value for key, value in made["results"][name].items() if isinstance(value, int | float)
    }
    errors = {
        key.replace("_stderr,", ","): float(value)
        for key, value in found.items()
        if "_stderr," in key
    }
    metrics = {
        key: float(value) for key, value in found.items() if "," in key and "_stderr," not in key
    }
    rows = (made.get("n-samples") or {}).get(name) or {}
    return TaskResult(name, int(rows.get("effective", 0)), metrics, errors)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
