"""YAML blocks, read by the reader of whatever they are. Each function raises where a key is not known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config

ROOT = Path(__file__).parents[2]


def read(text: str, folder: Path) -> str:
    """Whose settings these are, by their keys."""
    value = yaml.safe_load(re.sub(r"<[\w /]+>", "x", text))
    if isinstance(value, list) or {"jobs", "steps"} & value.keys():
        return _workflow(value)
    if "repos" in value:
        return _hooks(value)
    if "compute_environment" in value:
        return _accelerate(text, folder)
    if value.keys() <= RunSpec.model_fields.keys():
        validate_settings(value, "block")
        return "truetune"
    path = folder / "block.yaml"
    path.write_text(text, encoding="utf-8")
    config = read_config(path)
    assert not config.unknown, f"{config.stack} does not know {config.unknown}"
    assert not config.renamed, f"{config.stack} has renamed {config.renamed}"
    return config.stack


def _workflow(value: Any) -> str:
    known = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    jobs = (
        [{"steps": value}]
        if isinstance(value, list)
        else list(value.get("jobs", {"": value}).values())
    )
    for step in (step for job in jobs for step in job["steps"]):
        assert step.keys() & {"uses", "run"}, step
        if "truetune" in step.get("uses", ""):
            assert step.get("with", {}).keys() <= known.keys(), step
    return "a workflow"


def _hooks(value: Any) -> str:
    known = {
        hook["id"]
        for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    }
    for repo in value["repos"]:
        assert {hook["id"] for hook in repo["hooks"]} <= known, repo
    return "pre-commit"


def _accelerate(text: str, folder: Path) -> str:
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    path = folder / "accelerate.yaml"
    path.write_text(text, encoding="utf-8")
    loaded = load_config_from_file(str(path))
    made = {"fsdp_": FullyShardedDataParallelPlugin, "deepspeed_": DeepSpeedPlugin}
    for prefix, plugin in made.items():
        for name in getattr(loaded, f"{prefix}config"):
            if name.removeprefix(prefix) not in plugin.__dataclass_fields__:
                assert name in _LAUNCHED, f"accelerate does not know {name}"
    return "accelerate"


_LAUNCHED = {
    "fsdp_version", "fsdp_auto_wrap_policy", "fsdp_offload_params", "fsdp_state_dict_type",
    "fsdp_transformer_layer_cls_to_wrap", "zero_stage", "offload_optimizer_device", "offload_param_device",
    "gradient_accumulation_steps", "deepspeed_config_file",
}  # fmt: skip
"""Other names, which `accelerate launch` has for the same"""
