"""What a script reads from a YAML file beside it is followed as if it stood in the script."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from truetune.source.constant_values import UNKNOWN
from truetune.source.module import Module, read_module

SETTINGS = "model:\n  name: some/base\n  revision: ${oc.env:REV}\nrows: 8\n"
READ = 'import yaml\nwith open("job.yaml") as file:\n    cfg = yaml.safe_load(file)\n'
OMEGA = 'from omegaconf import OmegaConf\ncfg = OmegaConf.load("job.yaml")\n'
HYDRA = '{imports}\n@hydra.main(version_base=None, config_path=".", config_name="job")\ndef main(cfg):\n    '


def value_of(folder: Path, code: str) -> object:
    """The value of what the last line prints."""
    module = module_of(folder, code)
    printed = list(module.calls("print"))[-1]
    return module.flow.value(printed.args[0])


def module_of(folder: Path, code: str) -> Module:
    path = folder / "job.py"
    path.write_text(code, encoding="utf-8")
    return read_module(path)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (READ + 'print(cfg["rows"])', 8),
        (READ + 'print(cfg["model"]["name"])', "some/base"),
        (READ + 'cfg["rows"] = 2\nprint(cfg["rows"])', 2),
        (READ + 'print(cfg["missing"])', UNKNOWN),
        (READ + 'print(cfg["model"]["revision"])', UNKNOWN),
        (OMEGA + "print(cfg.model.name)", "some/base"),
        (
            OMEGA
            + "def f(**k): pass\nmodel = OmegaConf.to_container(cfg.model)\nprint(model['name'])",
            "some/base",
        ),
        (HYDRA.format(imports="import hydra") + "print(cfg.rows)", 8),
        ('import sys, yaml\ncfg = yaml.safe_load(open(sys.argv[1]))\nprint(cfg["rows"])', 8),
        ('import yaml\ncfg = yaml.safe_load(open("other.yaml"))\nprint(cfg["rows"])', UNKNOWN),
        ('import json\ncfg = json.load(open("job.yaml"))\nprint(cfg["rows"])', UNKNOWN),
    ],
)
def test_values_of_settings(code: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SETTINGS, encoding="utf-8")
    assert value_of(tmp_path, code) == value


def test_of_two_files_that_no_one_names_neither_is_taken(tmp_path: Path) -> None:
    code = 'import sys, yaml\ncfg = yaml.safe_load(open(sys.argv[1]))\nprint(cfg["rows"])'
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(SETTINGS, encoding="utf-8")
    assert value_of(tmp_path, code) is UNKNOWN
    named = '"""python job.py b.yaml"""\n' + code
    assert value_of(tmp_path, named) == 8


def test_settings_that_hydra_puts_together_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("defaults:\n  - base\n" + SETTINGS, encoding="utf-8")
    code = HYDRA.format(imports="import hydra") + "print(cfg.rows)"
    assert value_of(tmp_path, code) is UNKNOWN


def test_a_value_has_its_place_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SETTINGS, encoding="utf-8")
    module = module_of(tmp_path, READ + 'print(cfg["rows"])')
    printed = list(module.calls("print"))[-1]
    node = module.flow.origins(printed.args[0])[0].node
    assert isinstance(node, ast.Constant)
    assert (Path(module.home(node).path).name, module.place(node)) == ("job.yaml", (4, 7))
