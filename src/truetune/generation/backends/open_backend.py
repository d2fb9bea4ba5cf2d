"""Open a backend by name, or by what it is to answer with.

Backends are imported by name when they are opened: each needs packages (torch, vllm, llama_cpp) that the others do
not, and a command that asks a server must not load any of them. A new backend is one module beside this one and one
line in `BACKENDS`; a backend of another package is an entry point of the group `truetune.backends` whose object is such
a module.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

from truetune.errors import UsageError
from truetune.generation.backends.backend import Backend
from truetune.generation.backends.model_source import ModelSource, SourceKind
from truetune.plugins import load_plugins
from truetune.render.tokenizer import Tokenizer

BACKENDS = {
    "transformers": "transformers_backend",
    "server": "server_backend",
    "vllm": "vllm_backend",
    "llama.cpp": "llama_cpp_backend",
}
"""Name -> module beside this one; each has `open_backend(source, options, tokenizer) -> Backend`"""
DEFAULT_BACKENDS: dict[SourceKind, str] = {
    "model": "transformers",
    "adapter": "transformers",
    # transformers reads GGUF files too, but unpacks them: llama.cpp answers as its users will get it.
    "gguf": "llama.cpp",
    "endpoint": "server",
}


def backend_names() -> tuple[str, ...]:
    """The names of all backends, those of plug-ins last.

    Raises:
        UsageError: a plug-in can't be loaded.
    """
    return tuple(dict.fromkeys((*BACKENDS, *load_plugins("truetune.backends"))))


def _module_of(name: str) -> ModuleType:
    """The module of a backend; truetune's own where a plug-in has the name of one."""
    if name in BACKENDS:
        return importlib.import_module(f"truetune.generation.backends.{BACKENDS[name]}")
    module: ModuleType = load_plugins("truetune.backends")[name]
    return module


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is opened; what a backend has no use for is not looked at."""

    backend: str | None = None
    """None: the usual one for this kind of source"""
    device: str | None = None
    """cpu, cuda, cuda:1, mps; None: a GPU where there is one"""
    dtype: str | None = None
    """None: as stored, float32 on a CPU"""
    served_model: str | None = None
    """The name that a server knows the model by"""
    route: str = "chat"
    """Of a server: chat, or completions"""
    # Chosen, not measured: servers batch what comes together, and each of more requests waits longer.
    concurrency: int = 8
    """Requests at a time"""
    # The same as ANSWER_TIMEOUT_S of `http_client`.
    timeout: float = 120.0
    """Seconds for one answer of a server"""
    # Never by default: a folder that was downloaded would run code on this machine.
    trust_remote_code: bool = False
    """Run the code in the model's folder"""


def open_backend(
    source: ModelSource, tokenizer: Tokenizer, options: Options = Options()
) -> Backend:
    """Open the backend for a model: load the model, or reach the server.

    Args:
        source: what is to answer.
        tokenizer: that of the prompts.
        options: how it is opened.

    Raises:
        UsageError: where that can't be done.
    """
    name = options.backend or DEFAULT_BACKENDS[source.kind]
    if name not in backend_names():
        raise UsageError(f"--backend {name}: expected one of {', '.join(backend_names())}")
    backend: Backend = _module_of(name).open_backend(source, options, tokenizer)
    return backend
