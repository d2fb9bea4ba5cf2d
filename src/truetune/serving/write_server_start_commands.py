"""Writes the start command, or Modelfile, by which an engine serves a model as it was trained to be
asked.

Each engine names options of its own for the same facts: weights, adapter, tokenizer, template, context, stops and
sampling. What an engine can't be told becomes a note to the client. The trade-off: an engine that would serve something
else than was trained (an adapter setting that it does not read) is refused, with the command that merges first.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from truetune.checkpoint.read_weight_files_and_faults import read_json_object
from truetune.errors import UsageError
from truetune.generation.backends.model_source import GENERATION_CONFIG, ModelSource, serving_stops
from truetune.generation.backends.vllm_backend import LORA_RANKS, unsupported_adapter_settings
from truetune.render.template_probes import Probes
from truetune.serving.split_template_around_contents import (
    TemplateSegments,
    split_template_into_segments,
)

MODELFILE_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repetition_penalty": "repeat_penalty",
}
"""Name in generation_config.json -> name in a Modelfile"""


@dataclass(frozen=True, slots=True)
class StartCommand:
    """The command that starts a server, with notes on what the engine can't be told."""

    text: str
    """A shell command, or a Modelfile"""
    notes: tuple[str, ...] = ()
    """What it can't do, and what has to be done before"""


@dataclass(frozen=True)
class _ServedModel:
    """What every engine is told of the model that it serves."""

    source: ModelSource
    probes: Probes

    @property
    def weights_path(self) -> Path:
        """The weights to serve: the folder of the full model, or the GGUF file."""
        weights = self.source.base if self.source.kind == "adapter" else self.source.folder
        if weights is None:
            raise UsageError(
                f"{self.source.name}: a start command is printed for a folder or a file, not for an"
                " endpoint"
            )
        return weights.resolve()

    @property
    def adapter_folder(self) -> Path | None:
        """The folder of the adapter, where the model is one."""
        return (
            self.source.folder.resolve()
            if self.source.kind == "adapter" and self.source.folder
            else None
        )

    @property
    def name(self) -> str:
        """The name that clients ask by."""
        folder = self.source.folder or Path(self.source.name)
        return folder.resolve().stem if self.source.kind == "gguf" else folder.resolve().name

    @property
    def separate_tokenizer_folder(self) -> Path | None:
        """The folder of the tokenizer; None where it is the weights' own."""
        folder = self.source.tokenizer.resolve()
        return None if folder == self.weights_path else folder

    @property
    def context_length(self) -> int | None:
        """The context length: how many tokens the model has positions for."""
        positions = self.probes.tokenizer.model_config.get("max_position_embeddings")
        return positions if isinstance(positions, int) else None

    @cached_property
    def adapter_config_settings(self) -> Mapping[str, Any]:
        """The settings in adapter_config.json; empty where there is no adapter."""
        return (
            read_json_object(self.adapter_folder / "adapter_config.json", []) or {}
            if self.adapter_folder
            else {}
        )

    @property
    def rank(self) -> int:
        """The highest rank of a layer in an adapter."""
        ranks = [
            self.adapter_config_settings.get("r"),
            *(self.adapter_config_settings.get("rank_pattern") or {}).values(),
        ]
        # 8 is what peft takes where a config names no rank.
        return max((rank for rank in ranks if isinstance(rank, int)), default=8)

    @property
    def jinja(self) -> Path | None:
        """The file of the chat template, where there is one."""
        path = self.source.tokenizer.resolve() / "chat_template.jinja"
        return path if path.is_file() else None

    @property
    def folder_of_generation_config(self) -> Path | None:
        """The folder whose generation_config.json is the model's, for the engine to take sampling from."""
        # A run writes it beside the adapter; else the base's, else that of the model's folder.
        own = [
            self.adapter_folder,
            self.weights_path,
            self.source.model and self.source.model.resolve(),
        ]
        return next(
            (folder for folder in own if folder and (folder / GENERATION_CONFIG).is_file()), None
        )

    def list_unserved_stops(self) -> list[tuple[str, int]]:
        """(text, id) of trained stops at which the engine will not end."""
        token = self.probes.terminator.token if self.probes.terminator else None
        return (
            []
            if token is None or token.id in serving_stops(self.probes.tokenizer)
            else [(token.token, token.id)]
        )

    def list_request_notes(self) -> tuple[str, ...]:
        """Notes on what a client must send, since no option of a server does it."""
        notes = [
            f"send stop_token_ids [{id}] with each request: the model was trained to end with"
            f" {token}, which {GENERATION_CONFIG} does not name; better add it there"
            for token, id in self.list_unserved_stops()
        ]
        kwargs = self.probes.spec.template_kwargs
        if kwargs:
            notes.append(
                f'send "chat_template_kwargs": {json.dumps(kwargs)} with each request, as in'
                " training"
            )
        return tuple(notes)


def make_start_command(source: ModelSource, probes: Probes, engine: str) -> StartCommand:
    """The command for vllm, sglang, llama.cpp or ollama.

    Raises UsageError for another engine, an endpoint, and where the engine can't serve this model as it was trained.
    """
    if engine not in ENGINE_COMMANDS:
        raise UsageError(f"--print {engine}: expected one of {', '.join(ENGINE_COMMANDS)}")
    return ENGINE_COMMANDS[engine](_ServedModel(source, probes))


def _refuse_adapter_beyond_r_and_alpha(model: _ServedModel, engine: str) -> None:
    """Raise UsageError for an adapter that an engine would serve wrongly because it reads r and
    lora_alpha alone.
    """
    beyond = (
        "use_rslora",
        "alpha_pattern",
        "rank_pattern",
        "modules_to_save",
        "use_dora",
        "trainable_token_indices",
    )
    beyond_engine = [name for name in beyond if model.adapter_config_settings.get(name)]
    if beyond_engine:
        raise _error_to_merge_adapter_first(model, engine, beyond_engine)


def _error_to_merge_adapter_first(
    model: _ServedModel, engine: str, parts: Iterable[str]
) -> UsageError:
    """The error that says to merge first, for an adapter with settings that an engine does not
    apply.
    """
    return UsageError(
        f"{engine} does not apply {', '.join(parts)} of this adapter; merge it first: truetune"
        f" merge {model.source.name} -o merged, then name that folder"
    )


def _vllm_command(model: _ServedModel) -> StartCommand:
    """The command for vLLM, which serves base and adapter under two names; the plain one goes to
    what was trained.
    """
    options: dict[str, Any] = {
        "--served-model-name": model.name if model.adapter_folder is None else f"{model.name}-base"
    }
    # The template beside the weights is read anyway; only a tokenizer elsewhere needs both options.
    options |= {
        "--tokenizer": model.separate_tokenizer_folder,
        "--chat-template": model.separate_tokenizer_folder and model.jinja,
    }
    options |= {
        "--max-model-len": model.context_length,
        "--generation-config": model.folder_of_generation_config,
    }
    if model.adapter_folder is not None:
        beyond_engine = unsupported_adapter_settings(model.adapter_config_settings)
        if beyond_engine:
            raise _error_to_merge_adapter_first(model, "vLLM", beyond_engine)
        # vLLM takes a rank out of a list: the next higher one serves the adapter as it is.
        rank = next((rank for rank in LORA_RANKS if rank >= model.rank), None)
        if rank is None:
            raise UsageError(
                f"{model.source.name}: vLLM serves adapters up to rank {LORA_RANKS[-1]}, this one has "
                f"{model.rank}; merge it first: truetune merge {model.source.name}"
            )
        options |= {
            "--enable-lora": True,
            "--max-lora-rank": rank,
            "--lora-modules": f"{model.name}={model.adapter_folder}",
        }
    ask = (
        (f'ask for the model "{model.name}": "{model.name}-base" is the base alone',)
        if model.adapter_folder
        else ()
    )
    return StartCommand(
        _format_shell_command(["vllm", "serve", str(model.weights_path)], options),
        (*ask, *model.list_request_notes()),
    )


def _sglang_command(model: _ServedModel) -> StartCommand:
    """The command for SGLang, which reads r and lora_alpha alone, and asks for an adapter as
    `base:adapter`.
    """
    options: dict[str, Any] = {
        "--model-path": model.weights_path,
        "--served-model-name": model.name,
    }
    options |= {
        "--tokenizer-path": model.separate_tokenizer_folder,
        "--chat-template": model.separate_tokenizer_folder and model.jinja,
    }
    options |= {"--context-length": model.context_length}
    ask: tuple[str, ...] = ()
    _refuse_adapter_beyond_r_and_alpha(model, "SGLang")
    if model.adapter_folder is not None:
        options |= {
            "--enable-lora": True,
            "--lora-paths": f"{model.name}={model.adapter_folder}",
            "--max-lora-rank": model.rank,
        }
        options["--served-model-name"] = "base"
        ask = (f'ask for the model "base:{model.name}": "base" is the base alone',)
    return StartCommand(
        _format_shell_command(["python", "-m", "sglang.launch_server"], options),
        (*ask, *model.list_request_notes()),
    )


def _llama_cpp_command(model: _ServedModel) -> StartCommand:
    """The command for llama.cpp, which serves a GGUF file alone."""
    # Without --jinja it takes the built-in format that looks most like the template, which may differ from it.
    options: dict[str, Any] = {"--model": _gguf_file(model), "--alias": model.name, "--jinja": True}
    options |= {"--chat-template-file": model.jinja, "--ctx-size": model.context_length}
    return StartCommand(
        _format_shell_command(["llama-server"], options), model.list_request_notes()
    )


def _gguf_file(model: _ServedModel) -> Path:
    """The model's GGUF file. Raises UsageError where there is none yet."""
    if model.source.kind != "gguf":
        merged = (
            f"truetune merge {model.source.name} -o merged, then " if model.adapter_folder else ""
        )
        source = "merged" if model.adapter_folder else model.source.name
        raise UsageError(
            f"llama.cpp serves GGUF files: {merged}truetune export {source} -o gguf --to gguf, then"
            " name that file"
        )
    return model.weights_path


def _ollama_modelfile(model: _ServedModel) -> StartCommand:
    """The Modelfile for Ollama (template, stops, context and sampling), which reads none of them
    from a model's folder.
    """
    _refuse_adapter_beyond_r_and_alpha(model, "Ollama")
    segments = split_template_into_segments(model.probes)
    tokenizer = model.probes.tokenizer
    lines = [f"FROM {model.weights_path}"]
    lines += [f"ADAPTER {model.adapter_folder}"] if model.adapter_folder else []
    template, notes = _go_template_and_its_stops(
        segments, tokenizer.special["bos"].token if tokenizer.adds_bos else ""
    )
    lines.append(f'TEMPLATE """{template}"""')
    # The stop that was trained, too: a Modelfile can name it where generation_config.json does not.
    ids = serving_stops(tokenizer) | {id for _, id in model.list_unserved_stops()}
    stops = sorted({str(tokenizer.backend.id_to_token(id)) for id in ids})
    # All of them: a stop in a Modelfile takes the place of Ollama's own guesses.
    lines += [f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops]
    lines += [f"PARAMETER num_ctx {model.context_length}"] if model.context_length else []
    config: Mapping[str, Any] = tokenizer.generation_config or {}
    sampling = {
        ours: config[theirs]
        for theirs, ours in MODELFILE_SAMPLING.items()
        if config.get(theirs) is not None
    }
    lines += [f"PARAMETER {name} {value}" for name, value in sampling.items()]
    if "temperature" not in sampling:
        note = (
            f"{GENERATION_CONFIG} names no temperature, so Ollama's own holds; send"
            " options.temperature 0 to be greedy"
        )
        notes = (*notes, note)
    return StartCommand("\n".join(lines), (*notes, *segments.notes, "tools are left out of it"))


def _go_template_and_its_stops(segments: TemplateSegments, bos: str) -> tuple[str, tuple[str, ...]]:
    """The prompt's segments as a template of Go, and the stops that it needs; Ollama writes BOS
    where the tokenizer does.
    """
    # Left out here: with Ollama's own there would be two.
    opening = segments.opening.removeprefix(bos)
    notes: tuple[str, ...] = ()
    if bos and segments.user[0].startswith(bos):
        note = (
            f"each question begins with {bos}, and Ollama writes one before everything: BOS"
            " comes twice"
        )
        notes = (note,)
    roles = {"system": segments.system, "user": segments.user, "assistant": segments.assistant}
    branches: list[str] = []
    for role, around in roles.items():
        if around:
            keyword = "else if" if branches else "if"
            content = "{{ .Content }}".join(map(_escape_go_text, around))
            branches.append("{{ " + f'{keyword} eq .Role "{role}"' + " }}" + content)
    default = ""
    if segments.default_system:
        default = "{{ if not .System }}" + _escape_go_text(segments.default_system) + "{{ end }}"
    loop = "{{ range .Messages }}" + "".join(branches) + "{{ end }}{{ end }}"
    return _escape_go_text(opening) + default + loop + _escape_go_text(segments.generation), notes


def _escape_go_text(text: str) -> str:
    """A text escaped for a template of Go."""
    return text.replace("{{", '{{ "{{" }}')


def _format_shell_command(words: list[str], options: Mapping[str, Any]) -> str:
    """A command over several lines; options without a value are left out."""
    lines = [shlex.join(words)]
    for name, value in options.items():
        # `is`, for 1 is equal to True and may be a value.
        if value is True:
            lines.append(name)
        elif value not in (None, False):
            lines.append(f"{name} {shlex.quote(str(value))}")
    return " \\\n  ".join(lines)


ENGINE_COMMANDS: dict[str, Callable[[_ServedModel], StartCommand]] = {
    "vllm": _vllm_command,
    "sglang": _sglang_command,
    "llama.cpp": _llama_cpp_command,
    "ollama": _ollama_modelfile,
}
