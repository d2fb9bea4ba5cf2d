"""Finds models that are loaded from a folder which holds only an adapter. transformers then loads
their base with the adapter in it.
"""

from __future__ import annotations

import ast
from pathlib import Path

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ADAPTER_CONFIG = "adapter_config.json"
"""What peft writes beside an adapter's weights, and transformers looks for when it loads a model"""
MODEL_LOADS = ("transformers.AutoModel*.from_pretrained", "transformers.*For*LM.from_pretrained")
MAX_FOLDERS_UP = 2
"""Folders above a script that its paths may start from: scripts stand in `src/` or `scripts/`, and run from above"""


def loads_adapter_folder(module: Module, model: ast.AST) -> bool:
    """Is it a model that is loaded from a folder with an adapter in it, or the name of such a
    folder?
    """
    if isinstance(model, ast.Call):
        call = module.flow.call(model)
        if not call.named(*MODEL_LOADS):
            return False
        named = call.argument(0, "pretrained_model_name_or_path")
        return named is not None and _is_adapter_folder(module, named)
    return isinstance(model, ast.Constant) and _is_adapter_folder(module, model)


def _is_adapter_folder(module: Module, named: ast.expr) -> bool:
    """Does a path lead to an adapter: on this machine, or one that the files save?"""
    path = module.flow.value(named)
    if not isinstance(path, str) or not path:
        return False
    if _holds_adapter_here(module, path):
        return True
    saved = [
        _saves_adapter(module, call)
        for part in module.self_and_files_run_together
        for call in part.methods("save_pretrained", "save_model")
        if module.flow.value(_folder_saved_to(call)) == path and _saves_model_weights(module, call)
    ]
    return bool(saved) and all(saved)


def _holds_adapter_here(module: Module, path: str) -> bool:
    """Is there an adapter in a folder, seen from the script or from a folder above it?"""
    start = Path(module.path).absolute().parent
    starts = [start, *start.parents][: MAX_FOLDERS_UP + 1]
    return any((one / path / ADAPTER_CONFIG).is_file() for one in starts)


def _folder_saved_to(call: Call) -> ast.expr | None:
    """The folder that a call saves to."""
    return call.argument(0, "save_directory") or call.keywords.get("output_dir")


def _saves_model_weights(module: Module, call: Call) -> bool:
    """Does a call save a model, and no tokenizer or processor?"""
    return not module.flow.types(call.receiver) & {"tokenizer", "processor"}


def _saves_adapter(module: Module, call: Call) -> bool:
    """Is what a call saves a model of PEFT, or a trainer that makes one of its `peft_config`?"""
    if call.method == "save_pretrained":
        return "peft-model" in module.flow.types(call.receiver)
    trainer = module.flow.producing_call(call.receiver)
    return trainer is not None and "lora" in module.flow.types(trainer.keywords.get("peft_config"))
