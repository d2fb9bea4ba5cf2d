"""Runs tasks of lm-eval by its own package, and compares each of its prompts with what training would have made of it.

lm-eval builds prompts in its own way: with or without the chat template, with a second BOS, cut on the left. Its model
class is wrapped, so that every prompt is compared with what training would have made of it. The trade-off: scores are
lm-eval's as they are, and a difference of prompts is told and not repaired.
"""

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
from truetune.render.template_probes import Probes
from truetune.render.traced_string import plain_text

# Chosen, not measured: prompts differ at their ends, in the generation prompt, which has five to ten tokens.
MAX_SHOWN_TOKENS = 12
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
    model_source: ModelSource,
    names: Sequence[str],
    options: Options | None = None,
    *,
    include: str | None = None,
    limit: int | None = None,
    fewshot: int | None = None,
    system: str | None = None,
    batch: int = 8,
) -> LmEvalResult:
    """Run tasks by name.

    Args:
        model_source: a model or an adapter in a folder.
        names: of tasks.
        options: of the backend; device and dtype count.
        include: a folder of task files of the user's own.
        limit: rows of each task at most.
        fewshot: examples before each question.
        system: the text of a system message.
        batch: prompts that are computed together.

    Raises:
        UsageError: lm-eval is not installed, a task is not known, its data are not on this machine, or
            the source is no model or adapter.
        SpecError, TokenizerError, TemplateError: as `ModelSource.prepared`.
    """
    if importlib.util.find_spec("lm_eval") is None:
        raise UsageError("tasks are run by lm-eval, which is not installed: pip install lm-eval")
    if model_source.model is None or model_source.kind not in ("model", "adapter"):
        raise UsageError(
            f"{model_source.name}: tasks need a model or an adapter in a folder; of a server, lm-eval's"
            " own `local-chat-completions` asks"
        )
    # By name and not as an import: lm-eval is heavy, and installed by few.
    manager = importlib.import_module("lm_eval.tasks").TaskManager(include_path=include)
    for name in names:
        if not manager.match_tasks([name]):
            near = ", ".join(difflib.get_close_matches(name, manager.all_tasks, 3))
            raise UsageError(f"lm-eval knows no task {name}{f'; it knows {near}' if near else ''}")
    probes = model_source.prepared()
    log = PromptLog()
    model, model_flags = _open_model(model_source, probes, log, options or Options(), batch)
    has_template = probes.renderer().template is not None
    settings = {
        "apply_chat_template": has_template,
        # Examples as turns: as one text in a user's message they would be another prompt than any of the training.
        "fewshot_as_multiturn": has_template,
        "num_fewshot": fewshot,
        "limit": limit,
        "system_instruction": system,
    }
    try:
        results = importlib.import_module("lm_eval").simple_evaluate(
            model, tasks=list(names), task_manager=manager, log_samples=False, **settings
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"lm-eval could not run {', '.join(names)}: {_kind_and_first_line_of_error(error)}; where the data"
            " of a task must be downloaded, do so first (or name task files of your own)"
        ) from error
    all_flags = {**settings, **model_flags}
    return LmEvalResult(
        tasks=tuple(_read_result(results, name) for name in results["results"]),
        flags={name: str(value) for name, value in all_flags.items() if value is not None},
        notes=describe_prompt_differences(log, probes),
        compared=len(log.prompts),
    )


def _open_model(
    model_source: ModelSource, probes: Probes, log: PromptLog, options: Options, batch: int
) -> tuple[Any, dict[str, Any]]:
    """(the model in lm-eval, which records its prompts; what was set for it)."""
    import torch
    from transformers import GenerationConfig

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    flags = {
        "add_bos_token": does_tokenizer_add_bos_beside_template(probes),
        # Half precision on a CPU is slow, and some operations of it are missing.
        "dtype": options.dtype or ("float32" if device == "cpu" else "auto"),
        "chat_template_args": dict(probes.spec.template_kwargs) or None,
    }
    model_class = importlib.import_module("lm_eval.models.huggingface").HFLM
    adapter = {"peft": str(model_source.folder)} if model_source.kind == "adapter" else {}
    model = model_class_that_records_prompts(model_class, log)(
        str(model_source.model),
        tokenizer=str(model_source.tokenizer),
        device=device,
        batch_size=batch,
        backend="causal",
        trust_remote_code=options.trust_remote_code,
        **adapter,
        **flags,
    )
    stops = sorted(serving_stops(probes.tokenizer))
    # A whole new one: sampling settings of the model's own file would make greedy tasks random.
    model.model.generation_config = GenerationConfig(eos_token_id=stops or None)  # type: ignore[no-untyped-call]
    return model, flags | {"eos_token_id": stops}


def model_class_that_records_prompts(model_class: Any, log: PromptLog) -> Any:
    """lm-eval's class of models of transformers, which writes into `log` the ids that it gives to the model.

    A subclass and not a patch: other users of lm-eval in this process are left alone.
    """

    class RecordingModel(model_class):  # type: ignore[misc]
        """Takes its prompts as ever, and notes them."""

        def apply_chat_template(
            self, chat_history: list[dict[str, Any]], *args: Any, **settings: Any
        ) -> str:
            text: str = super().apply_chat_template(chat_history, *args, **settings)
            log.chats[text] = chat_history
            return text

        def tok_batch_encode(self, strings: list[str], *args: Any, **settings: Any) -> Any:
            ids, mask = super().tok_batch_encode(strings, *args, **settings)
            for text, row, keep in zip(strings, ids.tolist(), mask.tolist(), strict=True):
                # Without the padding of the batch.
                log.prompts[text] = tuple(
                    id for id, is_kept in zip(row, keep, strict=True) if is_kept
                )
            return ids, mask

        def _loglikelihood_tokens(self, requests: list[Any], *args: Any, **settings: Any) -> Any:
            log.prompts |= {context: (*ids, *more) for (context, _), ids, more in requests}
            return super()._loglikelihood_tokens(requests, *args, **settings)

    return RecordingModel


def does_tokenizer_add_bos_beside_template(probes: Probes) -> bool:
    """Does the tokenizer begin what is trained with a BOS that the template does not write?

    lm-eval adds one by itself unless told not to; two of them are a prompt that was never trained.
    """
    bos = probes.tokenizer.special.get("bos")
    ids = Encoder(probes.tokenizer.backend, only_reference=True).encode(["a"]).ids.tolist()
    rendered = ""
    if probes.renderer().template:
        rendered = _make_renderer(probes)([{"role": "user", "content": "a"}])
    return bos is not None and ids[:1] == [bos.id] and not rendered.startswith(str(bos.token))


def describe_prompt_differences(log: PromptLog, probes: Probes) -> tuple[str, ...]:
    """How prompts that reached the model differ from the template's, encoded as the training rows are.

    Args:
        log: the prompts of lm-eval.
        probes: tokenizer and template of the training.

    Returns:
        A sentence for each way in which some differ, the most frequent first.
    """
    encoder = Encoder(probes.tokenizer.backend, only_reference=True)
    decode = make_decoder(probes.tokenizer)
    render = _make_renderer(probes) if probes.renderer().template else None
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for text, ids in log.prompts.items():
        chat = log.chats.get(text)
        try:
            wanted_text = render(chat) if render and chat else text
        except TemplateError as error:
            counts[f"have messages on which the template raises ({error})"] += 1
            continue
        wanted = encoder.encode([wanted_text]).ids.tolist()
        if render is not None and chat is None:
            counts["are not in the chat template"] += 1
        # The continuation of a likelihood stands behind the prompt.
        elif list(ids[: len(wanted)]) != wanted:
            bare_text = render(chat, False) if render and chat else text
            bare = encoder.encode([bare_text]).ids.tolist()
            what = _describe_difference(list(ids), wanted, bare, probes)
            counts[what] += 1
            example = (
                f": {decode(wanted[-MAX_SHOWN_TOKENS:])!r} is trained,"
                f" {decode(ids[-MAX_SHOWN_TOKENS:])!r} was asked"
            )
            examples.setdefault(what, example)
    return tuple(
        f"{count:,} of {len(log.prompts):,} prompts {what}{examples.get(what, '')}"
        for what, count in counts.most_common()
    )


def _describe_difference(ids: list[int], wanted: list[int], bare: list[int], probes: Probes) -> str:
    """What is different in one prompt, the most particular difference first.

    Args:
        ids: what reached the model.
        wanted: what is trained.
        bare: the same without its generation prompt.
        probes: tokenizer and template of the training.
    """
    special = probes.tokenizer.special.get("bos")
    # -1 is no id: without a BOS neither of the first two can be.
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
    """A function that renders messages by the template, with or without generation prompt."""
    template = probes.renderer().template
    assert template is not None

    def render(messages: list[dict[str, Any]], generation: bool = True) -> str:
        rendered = template.render(
            messages,
            tools=None,
            documents=None,
            add_generation_prompt=generation,
            **probes.spec.template_kwargs,
        )
        return plain_text(rendered)

    return render


def _read_result(results: Mapping[str, Any], name: str) -> TaskResult:
    """The figures of one task out of lm-eval's own dictionary.

    Its keys are `acc,none` and `acc_stderr,none`: the metric, then the filter of the answers.
    """
    numbers = {
        key: float(value)
        for key, value in results["results"][name].items()
        if isinstance(value, int | float)
    }
    errors = {
        key.replace("_stderr,", ","): value for key, value in numbers.items() if "_stderr," in key
    }
    metrics = {key: value for key, value in numbers.items() if "," in key and "_stderr," not in key}
    rows = (results.get("n-samples") or {}).get(name) or {}
    return TaskResult(name, int(rows.get("effective", 0)), metrics, errors)


def _kind_and_first_line_of_error(error: BaseException) -> str:
    """The kind and the first line of an error; those of data sets continue for pages."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
