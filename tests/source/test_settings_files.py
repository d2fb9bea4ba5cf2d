"""What a script reads from a file of settings beside it is followed as if it stood in the script."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module, read_module

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


TOML = "title = 'x'\n\n[server]\nkeep_alive = 0\nnames = ['a', 'b']\n"
ROOT = (
    "from pathlib import Path\nimport json, os, tomllib\nROOT = Path(__file__).resolve().parent\n"
)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ('cfg = tomllib.loads((ROOT / "job.toml").read_text())', 0),
        ('cfg = tomllib.load(open(ROOT / "job.toml", "rb"))', 0),
        ('cfg = tomllib.load(open(os.path.join(os.path.dirname(__file__), "job.toml"), "rb"))', 0),
        ('cfg = json.loads((ROOT / "sub" / "job.json").read_text())', 5),
        ('cfg = json.load(open("sub/job.json"))', 5),
        # A reader of another format fails on the file, so nothing is known.
        ('cfg = json.load(open("job.toml"))', UNKNOWN),
        # Which file it is stands on the command line, and JSON is never guessed.
        ("import sys\ncfg = json.load(open(sys.argv[1]))", UNKNOWN),
        ('import sys\ncfg = json.load(open(Path(sys.argv[1]) / "job.json"))', UNKNOWN),
    ],
)
def test_settings_of_toml_and_json_by_their_paths(code: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "job.toml").write_text(TOML, encoding="utf-8")
    (tmp_path / "sub" / "job.json").write_text('{"server": {"keep_alive": 5}}', encoding="utf-8")
    (tmp_path / "job.json").write_text('{"server": {"keep_alive": 6}}', encoding="utf-8")
    printed = ROOT + code + '\nprint(cfg["server"]["keep_alive"])'
    assert value_of(tmp_path, printed) == value


def test_a_value_of_toml_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(TOML, encoding="utf-8")
    code = (
        ROOT
        + 'cfg = tomllib.loads((ROOT / "job.toml").read_text())\nprint(cfg["server"]["keep_alive"])'
    )
    module = module_of(tmp_path, code)
    printed = list(module.calls("print"))[-1]
    node = module.flow.origins(printed.args[0])[0].node
    assert (Path(module.home(node).path).name, module.place(node)[0]) == ("job.toml", 4)


def test_broken_toml_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[server\nkeep_alive 0", encoding="utf-8")
    code = ROOT + 'cfg = tomllib.loads((ROOT / "job.toml").read_text())\nprint(cfg["server"])'
    assert value_of(tmp_path, code) is UNKNOWN
