"""Which releases a run asks for, and what follows for names of earlier ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.modules import notebook
from truetune.checks.lint import lint
from truetune.checks.settings import of_settings
from truetune.spec.pins import Age, Pin
from truetune.spec.run import RunSpec
from truetune.spec.stacks import read_config


@pytest.mark.parametrize(
    ("wanted", "age"),
    [
        ("==0.9.6", "older"), ("<0.13", "older"), ("~=0.9.4", "older"), ("==0.9.*", "older"), ("<0.20", "older"),
        (">=0.7,<0.9", "older"), ("<=0.19.1", "older"), ("==0.20.0", "current"), ("==1.2", "current"),
        (">=0.20", "current"), ("", "current"), (">=0.9", "unknown"), ("!=0.9", "unknown"), (">0.1,<2", "unknown"),
        ("not a bound", "unknown"),
    ],
)  # fmt: skip
def test_a_bound_is_before_a_change_or_after_it(wanted: str, age: Age) -> None:
    assert Pin(wanted, "requirements.txt", 1).age("0.19.1", "0.20.0") == age


@pytest.mark.parametrize(
    ("wanted", "age"),
    [("==5.12.0", "unknown"), (">=5.12", "unknown"), ("==5.10.0", "older"), ("==5.23.0", "current"), ("<5", "older")],
)
def test_between_two_releases_that_were_read_nothing_is_known(wanted: str, age: Age) -> None:
    assert Pin(wanted, "requirements.txt", 1).age("5.10.0", "5.23.0") == age


SCRIPT = """
from trl import SFTConfig

args = SFTConfig(output_dir="out", max_seq_length=2048)
"""


def severities(path: Path) -> list[str]:
    return [f.severity for f in lint([path], select=["setting-renamed"]).findings]


@pytest.mark.parametrize(
    ("install", "expected"),
    [
        ("!pip install trl==0.9.6", []),
        ("%pip install -q 'trl<0.20' peft", []),
        ("!pip install -q \\\n    transformers==4.38.0 \\\n    trl==0.9", []),
        ("!uv pip install trl~=0.12.0", []),
        ("!python -m pip install --no-deps trl[vllm]==0.18.0", []),
        ("!pip install git+https://github.com/huggingface/trl.git@v0.9.6", []),
        ("%%capture\n!pip install trl==0.9", []),
        ("%%bash\npip install trl==0.9", []),
        ("import os\nif os.environ.get('X'):\n    !pip install trl\nelse:\n    !pip install trl==0.9", []),
        ("!pip install trl==0.9\n!pip install -U trl", ["warning"]),
        ("!pip install trl==1.2", ["warning"]),
        ("!pip install trl", ["warning"]),
        ("!pip install -U git+https://github.com/huggingface/trl.git", ["warning"]),
        ("# !pip install trl==0.9", ["warning"]),
        ("!pip install trl-extras==0.9 my-trl==0.9", ["warning"]),
        ("print('hello')", ["warning"]),
    ],
)  # fmt: skip
def test_a_notebooks_own_install_cells_decide(install: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(notebook(install, SCRIPT), encoding="utf-8")
    assert severities(path) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("requirements.txt", "torch\ntrl==0.9.6\n", []),
        ("requirements-train.txt", "trl>=0.8,<0.12  # for max_seq_length\n", []),
        ("pyproject.toml", '[project]\ndependencies = [\n  "trl[peft]==0.11.1",\n]\n', []),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntrl = "^0.9.1"\n', []),
        ("setup.py", '_deps = [\n    "trl[vllm]==0.18.0",\n]\n', []),
        ("environment.yml", "dependencies:\n  - trl=0.9\n", []),
        ("requirements.txt", "# trl==0.9.6\n", ["warning"]),
        ("requirements.txt", "trl\n", ["warning"]),
        ("requirements.txt", "trl>=1\n", ["warning"]),
        ("notes.txt", "trl==0.9.6\n", ["warning"]),
    ],
)
def test_requirements_beside_a_script_decide(name: str, text: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text(SCRIPT)
    assert severities(tmp_path / "train.py") == expected


def test_requirements_of_the_project_count_and_those_of_others_do_not(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.9.6\n")
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    (project / "scripts" / "train.py").write_text(SCRIPT)
    assert severities(project / "scripts" / "train.py") == ["warning"]
    (project / "setup.py").write_text('install_requires=["trl==0.10"]\n')
    assert severities(project / "scripts" / "train.py") == []


def test_a_scripts_header_decides(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text('# /// script\n# dependencies = [\n#     "trl==0.9.6",\n# ]\n# ///\n' + SCRIPT)
    assert severities(path) == []
    path.write_text('# /// script\n# dependencies = [\n#     "trl",\n# ]\n# ///\n' + SCRIPT)
    assert severities(path) == ["warning"]


def test_where_nothing_is_asked_for_both_are_said(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    (finding,) = lint([path], select=["setting-renamed"]).findings
    assert finding.message == "max_seq_length is max_length in trl 0.20.0 and later"
    assert finding.remedy == "write max_length; before trl 0.20.0, max_seq_length is right"
    assert finding.evidence[1] == "no file here says which release of trl runs"


def test_defaults_of_an_older_release_are_not_assumed(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    text = 'from trl import SFTConfig\nargs = SFTConfig(output_dir="out")\n'
    for install, count in (("!pip install trl==1.2", 1), ("!pip install trl==0.9", 0)):
        path.write_text(notebook(install, text), encoding="utf-8")
        assert len(lint([path], select=["length-left-to-default"]).findings) == count


@pytest.mark.parametrize(("asked", "count"), [("==4.46.0", 0), (">=5", 1), ("", 1)])
def test_rules_on_source_ask_for_the_release_too(asked: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"transformers{asked}\n")
    path = tmp_path / "train.py"
    path.write_text(
        "from transformers import AutoTokenizer\ntok = AutoTokenizer.from_pretrained('x')\n"
        "n = len(tok.apply_chat_template(m))\n"
    )
    assert len(lint([path], select=["apply-chat-template-returns-dict"]).findings) == count


def test_settings_in_yaml_are_judged_by_the_requirements_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(
        "model_name_or_path: a/b\ndataset_name: a/rows\nmax_seq_length: 2048\nper_device_train_batch_size: 1\n"
    )
    spec = RunSpec(select=("setting-renamed",))
    assert [f.severity for f in of_settings(read_config(path), spec).findings] == ["warning"]
    (tmp_path / "requirements.txt").write_text("trl==0.15.2\n")
    assert list(of_settings(read_config(path), spec).findings) == []
