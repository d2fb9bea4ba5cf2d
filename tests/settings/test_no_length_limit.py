"""`max_length=None` is no limit, and not a limit that is left to its default."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.source.parsed_source_file import read_module
from truetune.source.settings_of_script_as_configs import only_config_of_script


@pytest.mark.parametrize(
    ("argument", "is_off"),
    [
        ("max_length=None", True),
        ("max_length=2048", False),
        ("", False),
        ("max_length=args.length", False),
    ],
)
def test_of_a_script(tmp_path: Path, argument: str, is_off: bool) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"from trl import SFTConfig\nmade = SFTConfig(output_dir='out', {argument})\n")
    config = only_config_of_script(read_module(file))
    assert config is not None
    assert config.spec.training.no_length_limit is is_off


@pytest.mark.parametrize(
    ("line", "is_off"), [("max_length: null", True), ("max_length: 512", False), ("", False)]
)
def test_of_a_settings_file(tmp_path: Path, line: str, is_off: bool) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text(
        "model_name_or_path: m\ndataset_name: d\npacking: false\ncompletion_only_loss:"
        f" false\n{line}\n"
    )
    assert read_config(str(file)).spec.training.no_length_limit is is_off
