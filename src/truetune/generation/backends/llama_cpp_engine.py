"""llama.cpp under its C interface, as the package llama_cpp has it: ids in, logits out.

The package's own class `Llama` is not used: it is made for texts. The C functions below it take ids, give all logits
and let a part of the cache be forgotten. What they hold is freed by `close`, in the order opposite to its making. The
trade-off: a new release of llama_cpp may change them, which tests/generation/test_engines.py would show.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.errors import UsageError

BATCH_TOKENS = 512
"""Tokens that are read at a time: llama.cpp's own default of n_ubatch"""
# Chosen, not measured: less makes more calls, more takes memory beside the weights.
MAX_LOGITS_BYTES = 1 << 26
"""Bytes of logits that are held at a time where every token's are wanted: 64 MB are 110 tokens of a vocabulary of
152,000"""
MIN_CONTEXT_TOKENS = 1024
"""Tokens of the smallest context. A context is made again where a longer prompt comes: a few sizes are enough."""
ERROR_LEVEL = 4
"""ggml's level of an error"""
INSTALL = "pip install llama-cpp-python (it compiles for some minutes, with a C++ compiler)"


def import_llama_cpp() -> ModuleType:
    """Import the package llama_cpp. Raises UsageError where it is not installed."""
    try:
        return importlib.import_module("llama_cpp")
    except ImportError as error:
        raise UsageError(
            f"a GGUF file is asked through the package llama_cpp ({error}): {INSTALL}"
        ) from None


@cache
def capture_error_log(api: Any) -> tuple[list[str], Any]:
    """What llama.cpp logs as an error from now on, and the callback that hears it, which must stay; all else is
    silent.

    Cached: the callback is set once for the process, as llama.cpp has one log.
    """
    messages: list[str] = []

    def keep_errors(level: int, text: bytes, _: Any) -> None:
        # A path in a message may be in any encoding.
        line = text.decode("utf-8", "replace").strip()
        if level == ERROR_LEVEL and line:
            messages.append(line)

    callback = api.llama_log_callback(keep_errors)
    api.llama_log_set(callback, ctypes.c_void_p(0))
    # The C side holds a bare pointer: were the callback freed, the next line that is logged would crash the process.
    return messages, callback


def thread_count() -> int:
    """How many threads llama.cpp computes with: as many as there are cores, or as OMP_NUM_THREADS
    allows. Its threads wait for each other busily.
    """
    setting = os.environ.get("OMP_NUM_THREADS", "")
    # A user who shares the machine has set OMP_NUM_THREADS for other packages already.
    return int(setting) if setting.isdigit() and int(setting) else os.cpu_count() or 1


class LlamaCppEngine:
    """One GGUF file, and a context for one sequence. Raises UsageError where llama.cpp does not take the file."""

    def __init__(self, path: Path, *, gpu: int | None) -> None:
        """`gpu` None: on the CPU alone."""
        self.api, self.path = import_llama_cpp(), path
        self.freed = contextlib.ExitStack()
        self.context: Any = None
        self.size = self.used = 0
        errors = capture_error_log(self.api)[0]
        errors.clear()
        self.api.llama_backend_init()
        settings = self.api.llama_model_default_params()
        settings.n_gpu_layers = 0 if gpu is None else -1
        if gpu is not None:
            settings.main_gpu, settings.split_mode = gpu, self.api.LLAMA_SPLIT_MODE_NONE
        self.model = self.api.llama_model_load_from_file(os.fsencode(path), settings)
        if not self.model:
            raise UsageError(
                f"{path}: llama.cpp does not load it:"
                f" {'; '.join(errors[-2:]) or 'it does not say why'}"
            )
        self.freed.callback(self.api.llama_model_free, self.model)
        self.vocab = self.api.llama_model_get_vocab(self.model)
        self.count = int(self.api.llama_vocab_n_tokens(self.vocab))
        self.positions = int(self.api.llama_model_n_ctx_train(self.model))
        self.batch = self.api.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.freed.callback(self.api.llama_batch_free, self.batch)

    @cached_property
    def token_texts(self) -> list[str]:
        """As the file spells its tokens, by id"""
        texts = (self.api.llama_vocab_get_text(self.vocab, id) for id in range(self.count))
        return [(text or b"").decode("utf-8", "replace") for text in texts]

    @cached_property
    def end_token_ids(self) -> frozenset[int]:
        """The ids at which llama.cpp ends an answer: those that the file names, and those it knows
        by their text.
        """
        return frozenset(
            id for id in range(self.count) if self.api.llama_vocab_is_eog(self.vocab, id)
        )

    def start(self, room: int) -> None:
        """Forget all tokens, and have a context for `room` of them."""
        if self.context is None or room > self.size:
            self._free_context()
            settings = self.api.llama_context_default_params()
            # A power of two, so that prompts that grow by a token do not each cost a new context.
            size = min(self.positions, max(MIN_CONTEXT_TOKENS, 1 << (room - 1).bit_length()))
            settings.n_ctx, settings.n_batch, settings.n_ubatch = size, BATCH_TOKENS, BATCH_TOKENS
            settings.n_threads = settings.n_threads_batch = thread_count()
            self.context = self.api.llama_init_from_model(self.model, settings)
            if not self.context:
                raise UsageError(
                    f"{self.path}: llama.cpp makes no context of {size:,} tokens for it: is there"
                    " memory?"
                )
            self.size = size
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        self.used = 0

    def forget_after(self, length: int) -> bool:
        """Forget all but the first tokens; False where this model can't."""
        memory = self.api.llama_get_memory(self.context)
        is_removed = bool(self.api.llama_memory_seq_rm(memory, 0, length, -1))
        self.used = length if is_removed else self.used
        return is_removed

    def read(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """(vocabulary,) the logits behind these further tokens"""
        for first in range(0, len(ids), BATCH_TOKENS):
            self._read_into_cache(ids[first : first + BATCH_TOKENS], every=False)
        logits = self.api.llama_get_logits_ith(self.context, -1)
        # A copy, for llama.cpp writes the next logits into the same memory.
        return np.ctypeslib.as_array(logits, shape=(self.count,)).copy()

    def logits_behind_each_token(self, ids: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """(tokens, vocabulary) the logits behind each, some tokens at a time; valid until the next"""
        # As many tokens as their logits have room for.
        step = max(1, min(BATCH_TOKENS, MAX_LOGITS_BYTES // (4 * self.count)))
        for first in range(0, len(ids), step):
            part = ids[first : first + step]
            self._read_into_cache(part, every=True)
            logits = self.api.llama_get_logits(self.context)
            flat = np.ctypeslib.as_array(logits, shape=(len(part) * self.count,))
            yield flat.reshape(len(part), self.count)

    def _read_into_cache(self, ids: Sequence[int], *, every: bool) -> None:
        """Read ids behind those in the cache; logits are made of the last, or of `every` one."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, id in enumerate(ids):
            batch.token[i] = id
            batch.pos[i] = self.used + i
            # All tokens are of one sequence, number 0.
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = every or i == len(ids) - 1
        code = self.api.llama_decode(self.context, batch)
        if code:
            raise UsageError(
                f"{self.path}: llama.cpp stopped at token {self.used:,} with code {code}"
            )
        self.used += len(ids)

    def _free_context(self) -> None:
        """Free the context alone; the model stays."""
        if self.context is not None:
            self.api.llama_free(self.context)
            self.context = None

    def close(self) -> None:
        """Free the context, then the batch and the model."""
        self._free_context()
        self.freed.close()
