"""Open a backend by name, or by what it is to answer with."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from truetune.errors import UsageError
from truetune.generation.backends.backend import Backend
from truetune.generation.backends.model_source import ModelSource, SourceKind
from truetune.render.tokenizer import Tokenizer

BACKENDS = {"transformers": "local", "server": "server", "vllm": "vllm", "llama.cpp": "llama"}
"""Name -> module beside this one; each has `opened(place, options, tokenizer) -> Backend`"""
DEFAULT_BACKENDS: dict[SourceKind, str] = {
    "model": "transformers",
    "adapter": "transformers",
    "gguf": "llama.cpp",
    "endpoint": "server",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is opened; what a backend has no use for is not looked at."""

    backend: str | None = None
    """None: the usual one for this kind of place"""
    device: str | None = None
    """cpu, cuda, cuda:1, mps; None: a GPU where there is one"""
    dtype: str | None = None
    """None: as stored, float32 on a CPU"""
    served_model: str | None = None
    """The name that a server knows the model by"""
    route: str = "chat"
    """Of a server: chat, or completions"""
    concurrency: int = 8
    """Requests at a time"""
    timeout: float = 120.0
    """Seconds for one answer of a server"""
    trust_remote_code: bool = False
    """Run the code in the model's folder"""


def open_backend(place: ModelSource, tokenizer: Tokenizer, options: Options = Options()) -> Backend:
    """Load the model, or reach the server. Raises UsageError where that can't be done."""
    name = options.backend or DEFAULT_BACKENDS[place.kind]
    if name not in BACKENDS:
        raise UsageError(f"--backend {name}: expected one of {', '.join(BACKENDS)}")
    module = importlib.import_module(f"truetune.generation.backends.{BACKENDS[name]}")
    backend: Backend = module.opened(place, options, tokenizer)
    return backend
