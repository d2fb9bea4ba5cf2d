"""A model in this process, through transformers: a folder, an adapter on its base, or a GGUF file.

The reference of all backends: it can tell everything, and the others are held against it on the same weights
(tests/generation/test_engines.py). What it asks is in `generate_answers`, `log_probabilities_of_given_ids` and
`measure_speed_by_text_length`; here is what belongs to a saved model: its device, and ids that are not among its
rows.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import (
    Backend,
    Decoding,
    GenerationSpeed,
    Ids,
    Progress,
    ScoredIds,
)
from truetune.generation.backends.model_source import ModelSource
from truetune.generation.backends.open_backend import Options
from truetune.generation.build_prompts import make_decoder
from truetune.generation.generate_answers import (
    generate_answers,
    restore_modules,
    unwrap_to_model_with_generate,
)
from truetune.generation.generate_batch_with_transformers import SamplingParams, next_logits
from truetune.generation.load_model_refusing_missing_weights import load_adapter, load_model
from truetune.generation.log_probabilities_of_given_ids import score_sequences
from truetune.generation.measure_speed_by_text_length import measure_speed
from truetune.probe.restore_state_changed_by_observing_run import preserve_state
from truetune.render.tokenizer import Tokenizer

# Chosen, not measured: at half, batches of a small model are small on a GPU; at double, a machine of 16 GB that holds
# a 7B model in 8 bits has no room left.
MAX_CACHE_BYTES = 2 << 30
"""Bytes of a batch's cache, at most"""
MIN_BATCH_TOKENS = 1024
"""Tokens of a batch that are always allowed: one prompt must be answered, however much memory it takes"""
DTYPES = ("auto", "float32", "bfloat16", "float16")


def open_backend(
    source: ModelSource, options: Options, tokenizer: Tokenizer
) -> TransformersBackend:
    """Load a model with transformers in this process. Raises UsageError where that can't be done."""
    device = choose_device(options.device)
    # float32 on a CPU: many compute bfloat16 by way of float32, which takes time and no less memory while it lasts.
    dtype = options.dtype or ("float32" if device == "cpu" else "auto")
    if dtype not in DTYPES:
        raise UsageError(f"--dtype {dtype}: expected one of {', '.join(DTYPES)}")
    weights = source.base if source.kind == "adapter" else source.folder
    if weights is None or source.folder is None:
        raise UsageError(
            f"{source.name}: is not a model on this machine; the transformers backend needs its files"
        )
    model = load_model(
        weights, device=device, dtype=dtype, trust_remote_code=options.trust_remote_code
    )
    if source.kind == "adapter":
        model = load_adapter(model, source.folder, weights)
    backend = TransformersBackend(source.name, model, tokenizer)
    # Dequantised weights are those of the file; the arithmetic is not that of llama.cpp.
    if source.kind == "gguf":
        backend.notes.append(
            f"{source.name}: its weights are unpacked for transformers; llama.cpp computes with them"
            " as they are stored, and may answer otherwise"
        )
    return backend


def choose_device(name: str | None) -> str:
    """The device to compute on: that of a name, else a GPU where there is one. Raises UsageError."""
    if name is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = name.partition(":")
    counts = {
        "cpu": 1,
        "auto": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if kind not in counts or (number and not number.isdigit()):
        raise UsageError(f"--device {name}: expected cpu, cuda, cuda:1, mps or auto")
    if int(number or 0) >= counts[kind]:
        raise UsageError(
            f"--device {name}: this machine has {counts[kind]} {kind} devices; leave it out, or"
            " use cpu"
        )
    return name


class TransformersBackend(Backend):
    """A model of transformers, be it in PEFT's wrapper.

    Attributes:
        model: ready to be asked; None after `close`.
        tokenizer: that of the prompts.
    """

    kind = "transformers"
    takes_min_p = True

    def __init__(self, name: str, model: Any, tokenizer: Tokenizer) -> None:
        super().__init__(name)
        self.model = model
        self.tokenizer = tokenizer

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        """Answer prompts in batches, with how likely a stop is behind each reference."""
        self._refuse_ids_without_row(prompt.ids for prompt in prompts)
        # Ids of added tokens that the embedding has no row for would raise in `generate`.
        stops = self._known_stops(decoding.stops)
        with self._memory_errors_explained():
            answers = generate_answers(
                self.model,
                prompts,
                stops=stops,
                pad=self._id_for_padding(stops),
                max_new_tokens=decoding.max_new_tokens,
                decode=make_decoder(self.tokenizer),
                batch_tokens=batch_tokens_that_fit_memory(self.model),
                sampling=SamplingParams(
                    temperature=decoding.temperature,
                    top_p=decoding.top_p,
                    min_p=decoding.min_p,
                    seed=decoding.seed,
                ),
                progress=progress,
            )
        unanswered = answers.count(None)
        if unanswered:
            self._add_note(
                f"{unanswered} of {len(prompts)} prompts got no answer: they are empty, or leave no"
                " room in the model's positions"
            )
        return answers

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Score given ids, teacher-forced, in batches."""
        self._refuse_ids_without_row(sequences)
        with self._memory_errors_explained():
            return score_sequences(self.model, sequences, self._known_stops(stops), progress)

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        """The `count` likeliest next tokens behind each prefix: id -> log-probability in nats."""
        self._refuse_ids_without_row(prefixes)
        likeliest: list[dict[int, float]] = []
        with restore_modules(self.model), preserve_state(), torch.no_grad():
            for prefix in prefixes:
                logprobs = next_logits(unwrap_to_model_with_generate(self.model), [prefix], 0)[
                    0
                ].log_softmax(-1)
                best = logprobs.topk(min(count, len(logprobs)))
                likeliest.append(
                    dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
                )
        return likeliest

    def pace(self) -> GenerationSpeed | None:
        """What a token costs behind a short and behind a long text; None where the model has not
        the room for the longer one.
        """
        return measure_speed(self.model, batch_tokens_that_fit_memory(self.model))

    def close(self) -> None:
        """Free the model and its memory."""
        self.model = None
        # The model and its modules point to each other: without a collection the memory stays taken.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @property
    def rows(self) -> int:
        """How many tokens the model's embedding has."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    @contextmanager
    def _memory_errors_explained(self) -> Iterator[None]:
        """Raises UsageError where the memory does not hold one row: batches were halved until then."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise UsageError(
                f"{self.name}: the memory of {self.model.device} does not hold a single row; name"
                " another --device, or shorter rows and answers"
            ) from None

    def _refuse_ids_without_row(self, sequences: Iterable[Ids]) -> None:
        """Raises UsageError for ids without a row, which on a GPU would end the process with an assertion of CUDA."""
        highest = max((id for ids in sequences for id in ids), default=-1)
        if highest >= self.rows:
            raise UsageError(
                f"{self.name}: id {highest} is not among the {self.rows} rows of the model's"
                " embedding; the tokenizer is of another model"
            )

    def _known_stops(self, stops: frozenset[int]) -> frozenset[int]:
        """Those of the stop ids that have a row in the embedding; a note where others were asked
        for.
        """
        known = frozenset(id for id in stops if 0 <= id < self.rows)
        if known != stops:
            self._add_note(
                f"stop ids {sorted(stops - known)} are not among the {self.rows} rows of the"
                " model's embedding: they never come"
            )
        return known

    def _id_for_padding(self, stops: frozenset[int]) -> int:
        """An id to fill batches with. Any will do, as pads are masked by position; it must have a row."""
        pad = self.tokenizer.special.get("pad")
        return pad.id if pad and pad.id < self.rows else min(stops, default=0)

    def _add_note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)


def batch_tokens_that_fit_memory(model: Any) -> int:
    """How many tokens a batch may have: those whose cache takes 2 GiB, or a quarter of what the GPU
    has left.
    """
    config = model.config.get_text_config()
    room = MAX_CACHE_BYTES
    if model.device.type == "cuda":
        # A quarter: the rest is for logits and activations, and for who else is on the GPU.
        room = min(room, torch.cuda.mem_get_info(model.device)[0] // 4)
    heads = getattr(config, "num_attention_heads", None) or 1
    groups = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    # Keys and values of one token, over all layers.
    token = 2 * config.num_hidden_layers * groups * width * model.dtype.itemsize
    return int(max(MIN_BATCH_TOKENS, room // token))
