"""The start command, or Modelfile, that serves a model as it was trained to be asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from truetune.checkpoint.files import read_object
from truetune.errors import UsageError
from truetune.generation.backends.model_source import GENERATION_CONFIG, ModelSource, serving_stops
from truetune.generation.backends.vllm_backend import LORA_RANKS, unsupported_adapter_settings
from truetune.render.probes import Probes
from truetune.serving.segments import Segments, segments_of

SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repetition_penalty": "repeat_penalty",
}
"""Name in generation_config.json -> name in a Modelfile"""


@dataclass(frozen=True, slots=True)
class Command:
    """What starts a server."""

    text: str
    """A shell command, or a Modelfile"""
    notes: tuple[str, ...] = ()
    """What it can't do, and what has to be done before"""


@dataclass(frozen=True)
class _Model:
    """What every engine is told."""

    place: ModelSource
    probes: Probes

    @property
    def weights(self) -> Path:
        """The folder of the full model, or the GGUF file."""
        found = self.place.base if self.place.kind == "adapter" else self.place.folder
        if found is None:
            raise UsageError(
                f"{self.place.name}: a start command is printed for a folder or a file, not for an"
                " endpoint"
            )
        return found.resolve()

    @property
    def adapter(self) -> Path | None:
        return (
            self.place.folder.resolve()
            if self.place.kind == "adapter" and self.place.folder
            else None
        )

    @property
    def name(self) -> str:
        """The name that clients ask by."""
        folder = self.place.folder or Path(self.place.name)
        return folder.resolve().stem if self.place.kind == "gguf" else folder.resolve().name

    @property
    def tokenizer(self) -> Path | None:
        """Its folder, where it is not the weights' own."""
        folder = self.place.tokenizer.resolve()
        return None if folder == self.weights else folder

    @property
    def context(self) -> int | None:
        """Tokens that the model has places for."""
        found = self.probes.tokenizer.model_config.get("max_position_embeddings")
        return found if isinstance(found, int) else None

    @cached_property
    def lora(self) -> Mapping[str, Any]:
        """adapter_config.json; empty where there is no adapter"""
        return read_object(self.adapter / "adapter_config.json", []) or {} if self.adapter else {}

    @property
    def rank(self) -> int:
        """The highest rank in an adapter."""
        ranks = [self.lora.get("r"), *(self.lora.get("rank_pattern") or {}).values()]
        return max((rank for rank in ranks if isinstance(rank, int)), default=8)

    @property
    def jinja(self) -> Path | None:
        """The file of the chat template, where there is one."""
        path = self.place.tokenizer.resolve() / "chat_template.jinja"
        return path if path.is_file() else None

    @property
    def generation(self) -> Path | None:
        """The folder whose generation_config.json is the model's."""
        own = [self.adapter, self.weights, self.place.model and self.place.model.resolve()]
        return next(
            (folder for folder in own if folder and (folder / GENERATION_CONFIG).is_file()), None
        )

    def unstopped(self) -> list[tuple[str, int]]:
        """The stops that were trained and at which serving will not end."""
        token = self.probes.terminator.token if self.probes.terminator else None
        return (
            []
            if token is None or token.id in serving_stops(self.probes.tokenizer)
            else [(token.token, token.id)]
        )

    def asides(self) -> tuple[str, ...]:
        """What a client must send, as no option of a server does it."""
        notes = [
            f"send stop_token_ids [{id}] with each request: the model was trained to end with"
            f" {token}, which {GENERATION_CONFIG} does not name; better add it there"
            for token, id in self.unstopped()
        ]
        if kwargs := self.probes.spec.template_kwargs:
            notes.append(
                f'send "chat_template_kwargs": {json.dumps(kwargs)} with each request, as in'
                " training"
            )
        return tuple(notes)


def command_for(place: ModelSource, probes: Probes, engine: str) -> Command:
    """The command for vllm, sglang, llama.cpp or ollama.

    Raises UsageError for another engine, an endpoint, and where the engine can't serve this model as it was trained.
    """
    if engine not in ENGINES:
        raise UsageError(f"--print {engine}: expected one of {', '.join(ENGINES)}")
    return ENGINES[engine](_Model(place, probes))


def _plain_lora(model: _Model, engine: str) -> None:
    """Raises UsageError for an adapter of which an engine that reads r and lora_alpha alone serves something else."""
    beyond = (
        "use_rslora",
        "alpha_pattern",
        "rank_pattern",
        "modules_to_save",
        "use_dora",
        "trainable_token_indices",
    )
    if found := [name for name in beyond if model.lora.get(name)]:
        raise _merge_first(model, engine, found)


def _merge_first(model: _Model, engine: str, parts: Iterable[str]) -> UsageError:
    return UsageError(
        f"{engine} does not apply {', '.join(parts)} of this adapter; merge it first: truetune"
        f" merge {model.place.name} -o merged, then name that folder"
    )


def _vllm(model: _Model) -> Command:
    options: dict[str, Any] = {
        "--served-model-name": model.name if model.adapter is None else f"{model.name}-base"
    }
    options |= {"--tokenizer": model.tokenizer, "--chat-template": model.tokenizer and model.jinja}
    options |= {"--max-model-len": model.context, "--generation-config": model.generation}
    if model.adapter is not None:
        if found := unsupported_adapter_settings(model.lora):
            raise _merge_first(model, "vLLM", found)
        rank = next((rank for rank in LORA_RANKS if rank >= model.rank), None)
        if rank is None:
            raise UsageError(
                f"{model.place.name}: vLLM serves adapters up to rank {LORA_RANKS[-1]}, this one has "
                f"{model.rank}; merge it first: truetune merge {model.place.name}"
            )
        options |= {
            "--enable-lora": True,
            "--max-lora-rank": rank,
            "--lora-modules": f"{model.name}={model.adapter}",
        }
    ask = (
        (f'ask for the model "{model.name}": "{model.name}-base" is the base alone',)
        if model.adapter
        else ()
    )
    return Command(_shell(["vllm", "serve", str(model.weights)], options), (*ask, *model.asides()))


def _sglang(model: _Model) -> Command:
    options: dict[str, Any] = {"--model-path": model.weights, "--served-model-name": model.name}
    options |= {
        "--tokenizer-path": model.tokenizer,
        "--chat-template": model.tokenizer and model.jinja,
    }
    options |= {"--context-length": model.context}
    ask: tuple[str, ...] = ()
    _plain_lora(model, "SGLang")
    if model.adapter is not None:
        options |= {
            "--enable-lora": True,
            "--lora-paths": f"{model.name}={model.adapter}",
            "--max-lora-rank": model.rank,
        }
        options["--served-model-name"] = "base"
        ask = (f'ask for the model "base:{model.name}": "base" is the base alone',)
    return Command(
        _shell(["python", "-m", "sglang.launch_server"], options), (*ask, *model.asides())
    )


def _llama(model: _Model) -> Command:
    options: dict[str, Any] = {"--model": _gguf(model), "--alias": model.name, "--jinja": True}
    options |= {"--chat-template-file": model.jinja, "--ctx-size": model.context}
    return Command(_shell(["llama-server"], options), model.asides())


def _gguf(model: _Model) -> Path:
    """Raises UsageError where there is none yet."""
    if model.place.kind != "gguf":
        merged = f"truetune merge {model.place.name} -o merged, then " if model.adapter else ""
        source = "merged" if model.adapter else model.place.name
        raise UsageError(
            f"llama.cpp serves GGUF files: {merged}truetune export {source} -o gguf --to gguf, then"
            " name that file"
        )
    return model.weights


def _ollama(model: _Model) -> Command:
    _plain_lora(model, "Ollama")
    segments = segments_of(model.probes)
    tokenizer = model.probes.tokenizer
    lines = [f"FROM {model.weights}"]
    lines += [f"ADAPTER {model.adapter}"] if model.adapter else []
    template, notes = _go(segments, tokenizer.special["bos"].token if tokenizer.adds_bos else "")
    lines.append(f'TEMPLATE """{template}"""')
    ids = serving_stops(tokenizer) | {id for _, id in model.unstopped()}
    stops = sorted({str(tokenizer.backend.id_to_token(id)) for id in ids})
    lines += [f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops]
    lines += [f"PARAMETER num_ctx {model.context}"] if model.context else []
    config: Mapping[str, Any] = tokenizer.generation_config or {}
    sampling = {
        ours: config[theirs] for theirs, ours in SAMPLING.items() if config.get(theirs) is not None
    }
    lines += [f"PARAMETER {name} {value}" for name, value in sampling.items()]
    if "temperature" not in sampling:
        notes += (
            (
                f"{GENERATION_CONFIG} names no temperature, so Ollama's own holds; send"
                " options.temperature 0 to be greedy"
            ),
        )
    return Command("\n".join(lines), (*notes, *segments.notes, "tools are left out of it"))


def _go(segments: Segments, bos: str) -> tuple[str, tuple[str, ...]]:
    """As a template of Go, which has loop and branches of its own; Ollama writes BOS where the tokenizer does."""
    opening = segments.opening.removeprefix(bos)
    notes: tuple[str, ...] = ()
    if bos and segments.user[0].startswith(bos):
        notes = (
            (
                f"each question begins with {bos}, and Ollama writes one before everything: BOS"
                " comes twice"
            ),
        )
    branches = {"system": segments.system, "user": segments.user, "assistant": segments.assistant}
    chosen = [
        "{{ "
        + "else " * bool(i)
        + f'if eq .Role "{role}"'
        + " }}"
        + "{{ .Content }}".join(map(_plain, around))
        for i, (role, around) in enumerate(
            (role, around) for role, around in branches.items() if around
        )
    ]
    default = (
        "{{ if not .System }}" + _plain(segments.default_system) + "{{ end }}"
        if segments.default_system
        else ""
    )
    loop = "{{ range .Messages }}" + "".join(chosen) + "{{ end }}{{ end }}"
    return _plain(opening) + default + loop + _plain(segments.generation), notes


def _plain(text: str) -> str:
    """Text that Go takes as text."""
    return text.replace("{{", '{{ "{{" }}')


def _shell(words: list[str], options: Mapping[str, Any]) -> str:
    """A command over several lines; options without a value are left out."""
    lines = [shlex.join(words)]
    for name, value in options.items():
        if value is True:
            lines.append(name)
        elif value not in (None, False):
            lines.append(f"{name} {shlex.quote(str(value))}")
    return " \\\n  ".join(lines)


ENGINES: dict[str, Callable[[_Model], Command]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama,
    "ollama": _ollama,
}
