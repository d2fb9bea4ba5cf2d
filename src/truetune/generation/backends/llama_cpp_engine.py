"""llama.cpp under its C interface, as the package llama_cpp has it: ids in, logits out."""

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
"""Tokens that are read at a time"""
MAX_LOGITS_BYTES = 1 << 26
"""Bytes of logits that are held at a time where every token's are wanted"""
MIN_CONTEXT_TOKENS = 1024
"""Tokens of the smallest context"""
ERROR_LEVEL = 4
"""ggml's level of an error"""
INSTALL = "pip install llama-cpp-python (it compiles for some minutes, with a C++ compiler)"


def import_llama_cpp() -> ModuleType:
    """Raises UsageError where it is not installed."""
    try:
        return importlib.import_module("llama_cpp")
    except ImportError as error:
        raise UsageError(
            f"a GGUF file is asked through the package llama_cpp ({error}): {INSTALL}"
        ) from None


@cache
def capture_errors(api: Any) -> tuple[list[str], Any]:
    """What llama.cpp logs as an error from now on, and the callback that hears it, which must stay; all else is
    silent."""
    said: list[str] = []

    def hear(level: int, text: bytes, _: Any) -> None:
        if level == ERROR_LEVEL and (line := text.decode("utf-8", "replace").strip()):
            said.append(line)

    heard = api.llama_log_callback(hear)
    api.llama_log_set(heard, ctypes.c_void_p(0))
    return said, heard


def thread_count() -> int:
    """As many as there are cores, or as OMP_NUM_THREADS allows: they wait for each other busily."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return int(named) if named.isdigit() and int(named) else os.cpu_count() or 1


class LlamaCppEngine:
    """One GGUF file, and a context for one sequence. Raises UsageError where llama.cpp does not take the file."""

    def __init__(self, path: Path, *, gpu: int | None) -> None:
        """`gpu` None: on the CPU alone."""
        self.api, self.path = import_llama_cpp(), path
        self.freed = contextlib.ExitStack()
        self.context: Any = None
        self.size = self.used = 0
        said = capture_errors(self.api)[0]
        said.clear()
        self.api.llama_backend_init()
        settings = self.api.llama_model_default_params()
        settings.n_gpu_layers = 0 if gpu is None else -1
        if gpu is not None:
            settings.main_gpu, settings.split_mode = gpu, self.api.LLAMA_SPLIT_MODE_NONE
        self.model = self.api.llama_model_load_from_file(os.fsencode(path), settings)
        if not self.model:
            raise UsageError(
                f"{path}: llama.cpp does not load it:"
                f" {'; '.join(said[-2:]) or 'it does not say why'}"
            )
        self.freed.callback(self.api.llama_model_free, self.model)
        self.vocab = self.api.llama_model_get_vocab(self.model)
        self.count = int(self.api.llama_vocab_n_tokens(self.vocab))
        self.positions = int(self.api.llama_model_n_ctx_train(self.model))
        self.batch = self.api.llama_batch_init(BATCH_TOKENS, 0, 1)
        self.freed.callback(self.api.llama_batch_free, self.batch)

    @cached_property
    def words(self) -> list[str]:
        """As the file spells its tokens"""
        spelled = (self.api.llama_vocab_get_text(self.vocab, id) for id in range(self.count))
        return [(word or b"").decode("utf-8", "replace") for word in spelled]

    @cached_property
    def ends(self) -> frozenset[int]:
        """The ids at which llama.cpp ends an answer: those that the file names, and those it knows by their text"""
        return frozenset(
            id for id in range(self.count) if self.api.llama_vocab_is_eog(self.vocab, id)
        )

    def start(self, room: int) -> None:
        """Forget all tokens, and have a context for `room` of them."""
        if self.context is None or room > self.size:
            self._free()
            settings = self.api.llama_context_default_params()
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

    def back(self, length: int) -> bool:
        """Forget all but the first tokens; False where this model can't."""
        done = bool(
            self.api.llama_memory_seq_rm(self.api.llama_get_memory(self.context), 0, length, -1)
        )
        self.used = length if done else self.used
        return done

    def read(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """(vocabulary,) the logits behind these further tokens"""
        for first in range(0, len(ids), BATCH_TOKENS):
            self._decode(ids[first : first + BATCH_TOKENS], every=False)
        found = self.api.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(found, shape=(self.count,)).copy()

    def read_each(self, ids: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """(tokens, vocabulary) the logits behind each, some tokens at a time; valid until the next"""
        step = max(1, min(BATCH_TOKENS, MAX_LOGITS_BYTES // (4 * self.count)))
        for first in range(0, len(ids), step):
            part = ids[first : first + step]
            self._decode(part, every=True)
            found = self.api.llama_get_logits(self.context)
            yield np.ctypeslib.as_array(found, shape=(len(part) * self.count,)).reshape(
                len(part), self.count
            )

    def _decode(self, ids: Sequence[int], *, every: bool) -> None:
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, id in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = (
                id,
                self.used + i,
                1,
                0,
            )
            batch.logits[i] = every or i == len(ids) - 1
        if code := self.api.llama_decode(self.context, batch):
            raise UsageError(
                f"{self.path}: llama.cpp stopped at token {self.used:,} with code {code}"
            )
        self.used += len(ids)

    def _free(self) -> None:
        if self.context is not None:
            self.api.llama_free(self.context)
            self.context = None

    def close(self) -> None:
        self._free()
        self.freed.close()
