"""A miniature in the place of the model: built from its configuration alone, before any weight is downloaded."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from truetune.probe.shrink_config import SHRUNK_ATTRIBUTE, like_llama, shrink_config

WEIGHTS_SEED = 0
"""Of the random weights: the same for each model of a run, so that a reference model is the policy at the start"""
DROPPED_ARGUMENTS = (
    "device_map",
    "quantization_config",
    "load_in_8bit",
    "load_in_4bit",
    "gguf_file",
    "max_memory",
    "state_dict",
    "offload_folder",
    "tp_plan",
    "distributed_config",
    "use_safetensors",
    "low_cpu_mem_usage",
    "use_kernels",
    "weights_only",
    "variant",
    "mirror",
    "ignore_mismatched_sizes",
)
NOTED_ARGUMENTS = ("device_map", "quantization_config", "load_in_8bit", "load_in_4bit", "gguf_file")
HUB_ARGUMENTS = (
    "cache_dir",
    "force_download",
    "local_files_only",
    "token",
    "revision",
    "subfolder",
    "proxies",
    "trust_remote_code",
    "code_revision",
)
notes: list[str] = []
"""What is otherwise than in the run itself"""
real_config: dict[str, Any] = {}
"""The configuration of the run's model, as it was before it was shrunk"""


def replace_models(base: Any, ensure_guards: Callable[[], None]) -> None:
    """From now on each model of transformers is built as a miniature, for a CPU.

    Args:
        base: transformers' PreTrainedModel.
        ensure_guards: Called before a model is shrunk; it ends the process where a guard does not stand.
    """
    import torch

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_num_threads(1)

    @_mark_as_shrinking
    def from_pretrained(cls: Any, *args: Any, **settings: Any) -> Any:
        ensure_guards()
        return _from_pretrained(cls, *args, **settings)

    base.from_pretrained = classmethod(from_pretrained)
    _shrink_what_is_built(base, ensure_guards)


def note_once(text: str) -> None:
    """Say once what is otherwise."""
    if text not in notes:
        notes.append(text)


def miniature_of(model: Any) -> Any:
    """A miniature of a model in memory, with its generation settings."""
    import copy

    made = build_miniature(type(model), copy.deepcopy(model.config))
    made.generation_config = copy.deepcopy(model.generation_config)
    return made


def build_miniature(kind: Any, config: Any) -> Any:
    """A model of this class with random weights; a small Llama where the class can't be shrunk."""
    import torch

    if not getattr(config, SHRUNK_ATTRIBUTE, False):
        real_config.setdefault("config", config.to_dict())
    attention = getattr(config, "_attn_implementation", None)
    shrink_config(config)
    if attention not in (None, "eager", "sdpa"):
        note_once(f"attention {attention} needs a GPU: the miniature uses sdpa")
        config._attn_implementation = "sdpa"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(WEIGHTS_SEED)
        try:
            made = kind(config)
            _forward_once(made)
        except Exception as error:
            from transformers import LlamaForCausalLM

            note_once(
                f"{kind.__name__} can't be shrunk ({type(error).__name__}: {str(error)[:120]}): "
                "the miniature is a Llama with its vocabulary"
            )
            torch.manual_seed(WEIGHTS_SEED)
            made = LlamaForCausalLM(like_llama(config))
    return made.float().eval()


def _forward_once(model: Any) -> None:
    import torch

    with torch.no_grad():
        model.eval()(input_ids=torch.tensor([[1, 2, 3]]))


def _mark_as_shrinking(function: Any) -> Any:
    setattr(function, SHRUNK_ATTRIBUTE, True)
    return function


def _from_pretrained(
    cls: Any, name: Any = None, *args: Any, config: Any = None, **settings: Any
) -> Any:
    """In the place of PreTrainedModel.from_pretrained: config.json and generation_config.json are read, no weights."""
    from transformers import AutoConfig, GenerationConfig

    for setting in NOTED_ARGUMENTS:
        if settings.get(setting) is not None:
            note_once(f"{setting} is left out: the miniature is not quantized and stays on the CPU")
    hub = {key: settings.pop(key) for key in HUB_ARGUMENTS if key in settings}
    loading_info = settings.pop("output_loading_info", False)
    for setting in (
        "dtype",
        "torch_dtype",
        "key_mapping",
        "adapter_kwargs",
        "generation_config",
        *DROPPED_ARGUMENTS,
    ):
        settings.pop(setting, None)
    attention = settings.pop("attn_implementation", None)
    if not hasattr(config, "to_dict"):
        config = AutoConfig.from_pretrained(config or name, **hub)
    for key in [key for key in settings if hasattr(config, key)]:
        setattr(config, key, settings.pop(key))
    if attention is not None:
        config._attn_implementation = attention if attention in ("eager", "sdpa") else "sdpa"
        if attention not in ("eager", "sdpa"):
            note_once(f"attention {attention} needs a GPU: the miniature uses sdpa")
    made = build_miniature(cls, config)
    made.name_or_path = made.config._name_or_path = str(name)
    with suppress(Exception):
        made.generation_config = GenerationConfig.from_pretrained(
            name, **_without_keys(hub, "trust_remote_code")
        )
    return (
        (made, {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": [], "error_msgs": []})
        if loading_info
        else made
    )


def _without_keys(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in names}


def _shrink_what_is_built(base: Any, ensure_guards: Callable[[], None]) -> None:
    """Models that a program builds from a configuration of its own."""
    init = base.__init__

    @functools.wraps(init)
    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if not getattr(config, SHRUNK_ATTRIBUTE, False) and hasattr(config, "to_dict"):
            ensure_guards()
            real_config.setdefault("config", config.to_dict())
            shrink_config(config)
        init(self, config, *args, **kwargs)

    base.__init__ = __init__


def replace_adapters(base: Any) -> None:
    """An adapter that is to be trained further is built anew, since its weights fit the real model alone.

    `base` is PEFT's PeftModel.
    """

    def from_pretrained(
        cls: Any,
        model: Any,
        name: Any,
        adapter_name: str = "default",
        is_trainable: bool = False,
        config: Any = None,
        **settings: Any,
    ) -> Any:
        import peft

        made = config or peft.PeftConfig.from_pretrained(name)
        made.inference_mode = not is_trainable
        note_once("the adapter that is loaded has random weights in the miniature")
        return peft.get_peft_model(model, made, adapter_name=adapter_name)

    base.from_pretrained = classmethod(_mark_as_shrinking(from_pretrained))
