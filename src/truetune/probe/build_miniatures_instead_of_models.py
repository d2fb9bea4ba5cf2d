"""Builds a miniature in the place of each model: from its configuration alone, before any weight is downloaded.

In a rehearsal's process `from_pretrained` and the constructor of transformers' models are replaced: the configuration
is shrunk (`truetune.probe.shrink_config`) and the model made with random weights on the CPU. The run's own code asks
for its model, adapts and trains it, and never learns that it is small.

Trade-off: random weights know no language, so what pretraining contributes can't be rehearsed. What can is all that a
run does to a model: its data, masks, loss, adapters, and how it is saved and served.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from truetune.probe.shrink_config import (
    SHRUNK_ATTRIBUTE,
    shrink_config,
    small_llama_of_same_vocabulary,
)

# Of the random weights: the same for each model of a run, so that a reference model is the policy at the start. Else
# the first log-ratios of DPO are not zero, and a law would report it.
WEIGHTS_SEED = 0
# Arguments of `from_pretrained` that concern weights, devices or quantization.
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
    "dtype",
    "torch_dtype",
    "key_mapping",
    "adapter_kwargs",
    "generation_config",
)
# Those whose loss the user is told of.
NOTED_ARGUMENTS = (
    "device_map",
    "quantization_config",
    "load_in_8bit",
    "load_in_4bit",
    "gguf_file",
)
# Arguments that say where a configuration is read from: they are passed on.
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
# Implementations of attention that compute on a CPU.
_CPU_ATTENTION = ("eager", "sdpa")

notes: list[str] = []
"""What is otherwise than in the run itself, each in a sentence"""
real_config: dict[str, Any] = {}
"""The configuration of the run's model, under `config`, as it was before it was shrunk"""


def replace_models(base: Any, ensure_guards: Callable[[], None]) -> None:
    """From now on each model of transformers is built as a miniature, for a CPU.

    Args:
        base: transformers' PreTrainedModel.
        ensure_guards: Called before a model is shrunk; it ends the process where a guard does not stand.
    """
    import torch

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # A miniature's matrices are too small to gain from threads, and the run itself may be computing beside it.
    torch.set_num_threads(1)

    @_mark_as_shrinking
    def from_pretrained(cls: Any, *args: Any, **settings: Any) -> Any:
        ensure_guards()
        return _from_pretrained(cls, *args, **settings)

    base.from_pretrained = classmethod(from_pretrained)
    _shrink_models_built_from_configuration(base, ensure_guards)


def note_once(text: str) -> None:
    """Add a note, unless it exists already."""
    if text not in notes:
        notes.append(text)


def miniature_of(model: Any) -> Any:
    """A miniature of a model in memory, with its generation settings."""
    import copy

    small = build_miniature(type(model), copy.deepcopy(model.config))
    small.generation_config = copy.deepcopy(model.generation_config)
    return small


def build_miniature(kind: Any, config: Any) -> Any:
    """A model of this class with random weights, in float32 and in eval mode.

    Args:
        kind: a class of transformers' models.
        config: of the real model; it is shrunk in place.

    Returns:
        A small Llama with the model's vocabulary where the class can't be shrunk; a note says so.
    """
    import torch

    if not getattr(config, SHRUNK_ATTRIBUTE, False):
        real_config.setdefault("config", config.to_dict())
    attention = getattr(config, "_attn_implementation", None)
    shrink_config(config)
    if attention is not None and attention not in _CPU_ATTENTION:
        config._attn_implementation = _attention_implementation_on_cpu(attention)
    # The generators of the run are left as they are: what it draws after this is what it would draw.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(WEIGHTS_SEED)
        try:
            small = kind(config)
            _forward_once(small)
        except Exception as error:
            from transformers import LlamaForCausalLM

            note_once(
                f"{kind.__name__} can't be shrunk ({type(error).__name__}: {str(error)[:120]}): "
                "the miniature is a Llama with its vocabulary"
            )
            torch.manual_seed(WEIGHTS_SEED)
            small = LlamaForCausalLM(small_llama_of_same_vocabulary(config))
    return small.float().eval()


def _forward_once(model: Any) -> None:
    """Run the model forward once, and raise what that raises: some classes accept sizes that they can't
    compute with.
    """
    import torch

    with torch.no_grad():
        model.eval()(input_ids=torch.tensor([[1, 2, 3]]))


def _mark_as_shrinking(function: Any) -> Any:
    """Mark a replacement, by which tests and the guards know that it stands."""
    setattr(function, SHRUNK_ATTRIBUTE, True)
    return function


def _attention_implementation_on_cpu(asked_for: str) -> str:
    """The implementation of attention that the miniature has for the one that the run asks for."""
    if asked_for in _CPU_ATTENTION:
        return asked_for
    note_once(f"attention {asked_for} needs a GPU: the miniature uses sdpa")
    return "sdpa"


def _from_pretrained(
    cls: Any, name: Any = None, *args: Any, config: Any = None, **settings: Any
) -> Any:
    """In the place of PreTrainedModel.from_pretrained: a miniature by config.json and
    generation_config.json; no weights are read.
    """
    from transformers import AutoConfig

    hub = {key: settings.pop(key) for key in HUB_ARGUMENTS if key in settings}
    loading_info = settings.pop("output_loading_info", False)
    _drop_weight_and_device_arguments(settings)
    attention = settings.pop("attn_implementation", None)
    if not hasattr(config, "to_dict"):
        config = AutoConfig.from_pretrained(config or name, **hub)
    # As transformers does it: what the configuration has is a setting of it, such as `use_cache=False`.
    for key in [key for key in settings if hasattr(config, key)]:
        setattr(config, key, settings.pop(key))
    if attention is not None:
        config._attn_implementation = _attention_implementation_on_cpu(attention)
    small = build_miniature(cls, config)
    small.name_or_path = small.config._name_or_path = str(name)
    _read_generation_config(small, name, hub)
    if loading_info:
        empty: dict[str, list[str]] = {
            key: [] for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
        }
        return small, empty
    return small


def _drop_weight_and_device_arguments(settings: dict[str, Any]) -> None:
    """Take out what concerns weights and devices, in place; what changes the computation is noted."""
    for setting in NOTED_ARGUMENTS:
        if settings.get(setting) is not None:
            note_once(f"{setting} is left out: the miniature is not quantized and stays on the CPU")
    for setting in DROPPED_ARGUMENTS:
        settings.pop(setting, None)


def _read_generation_config(model: Any, name: Any, hub: dict[str, Any]) -> None:
    """Give a miniature the generation settings of its model, where there are some."""
    from transformers import GenerationConfig

    with suppress(Exception):
        model.generation_config = GenerationConfig.from_pretrained(
            name, **_without_keys(hub, "trust_remote_code")
        )


def _without_keys(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """A copy of settings without these."""
    return {key: value for key, value in settings.items() if key not in names}


def _shrink_models_built_from_configuration(base: Any, ensure_guards: Callable[[], None]) -> None:
    """Shrink models that a program builds from a configuration of its own, too.

    Without it `AutoModelForCausalLM.from_config` would make the whole model
    (`test_every_order_of_imports_shrinks`).
    """
    init = base.__init__

    @functools.wraps(init)
    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if not getattr(config, SHRUNK_ATTRIBUTE, False) and hasattr(config, "to_dict"):
            ensure_guards()
            real_config.setdefault("config", config.to_dict())
            shrink_config(config)
        init(self, config, *args, **kwargs)

    base.__init__ = __init__


def rebuild_adapters_instead_of_loading(base: Any) -> None:
    """From now on an adapter that is loaded is built again with random weights, since its own fit the real
    model alone.

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

        adapter = config or peft.PeftConfig.from_pretrained(name)
        adapter.inference_mode = not is_trainable
        note_once("the adapter that is loaded has random weights in the miniature")
        return peft.get_peft_model(model, adapter, adapter_name=adapter_name)

    base.from_pretrained = classmethod(_mark_as_shrinking(from_pretrained))
