"""Which releases a run asks for, and what follows for names of earlier ones."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tests.settings.unasked import UNASKED
from tests.source.modules import notebook
from truetune.checks.judge_settings import judge_settings
from truetune.checks.lint import lint
from truetune.settings.release_pins import Pin, ReleaseAge, installed_release, pins_of_project_files
from truetune.settings.run_spec import RunSpec
from truetune.settings.stacks.read_config_of_any_stack import read_config
from truetune.settings.stacks.read_trainer_arguments import defaults_same_in_asked_releases


@pytest.mark.parametrize(
    ("wanted", "age"),
    [
        ("==0.9.6", "older"), ("<0.13", "older"), ("~=0.9.4", "older"), ("==0.9.*", "older"), ("<0.20", "older"),
        (">=0.7,<0.9", "older"), ("<=0.19.1", "older"), ("==0.20.0", "current"), ("==1.2", "current"),
        (">=0.20", "current"), ("", "current"), (">=0.9", "unknown"), ("!=0.9", "unknown"), (">0.1,<2", "unknown"),
        ("not a bound", "unknown"),
    ],
)  # fmt: skip
def test_a_bound_is_before_a_change_or_after_it(wanted: str, age: ReleaseAge) -> None:
    assert Pin(wanted, "requirements.txt", 1).compare_with_removal_window("0.19.1", "0.20.0") == age


@pytest.mark.parametrize(
    ("wanted", "age"),
    [
        ("==5.12.0", "unknown"),
        (">=5.12", "unknown"),
        ("==5.10.0", "older"),
        ("==5.23.0", "current"),
        ("<5", "older"),
    ],
)
def test_between_two_releases_that_were_read_nothing_is_known(wanted: str, age: ReleaseAge) -> None:
    assert Pin(wanted, "requirements.txt", 1).compare_with_removal_window("5.10.0", "5.23.0") == age


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
        ("!pip install trl==0.9\n!pip install -U trl", ["error"]),
        ("!pip install trl==1.2", ["error"]),
        ("!pip install trl", ["error"]),
        ("!pip install -U git+https://github.com/huggingface/trl.git", ["error"]),
        ("# !pip install trl==0.9", [UNASKED]),
        ("%pip list | grep -E 'trl|transformers'", [UNASKED]),
        ("!pip show trl && pip freeze | grep trl", [UNASKED]),
        ("!pip uninstall -y trl", [UNASKED]),
        ("!pip -q install trl==0.9.6 && pip list | grep trl", []),
        ("!pip list | grep trl; pip install trl==0.9.6", []),
        ("!conda install -y trl=0.9", []),
        ("!pip install trl-extras==0.9 my-trl==0.9", [UNASKED]),
        ("print('hello')", [UNASKED]),
    ],
)  # fmt: skip
def test_a_notebooks_own_install_cells_decide(
    install: str, expected: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(notebook(install, SCRIPT), encoding="utf-8")
    assert severities(path) == expected


@pytest.mark.parametrize(
    ("cell", "printed", "expected"),
    [
        ("%pip list | grep trl", "trl                  0.9.6\n", []),
        ("%pip list | grep trl", "trl                  1.2.0\n", ["error"]),
        ("!pip install trl", "Successfully installed shtab-1.7 trl-0.9.6 tyro-0.9\n", []),
        ("!pip install -U trl", "Requirement already satisfied: trl in /opt/x (0.9.6)\n", []),
        ("!pip install unsloth", "Requirement already satisfied: trl!=0.9.0,<=0.24 in /x (from unsloth) (0.9.6)\n", []),
        ("import trl\ntrl.__version__", "'0.9.6'", []),
        ("import torch, trl\nprint(trl.__version__)\nprint(torch.__version__)", "0.9.6\n2.6.0\n", [UNASKED]),
        ("print('trl', trl.__version__)", "trl 0.9.6\n", []),
        ("!pip show trl", "Name: trl\nVersion: 0.9.6\nSummary: x\n", []),
        ("!pip show torch", "Name: torch\nVersion: 0.9.6\n", [UNASKED]),
        ("!pip install x", "Found existing installation: trl 0.9.6\n  Successfully uninstalled trl-0.9.6\n", [UNASKED]),
        ("!pip install x", "trl 0.9.6 requires transformers>=4.31, which is not installed.\n", [UNASKED]),
        ("!pip install trl==1.2", "Successfully installed trl-0.9.6\n", ["error"]),
    ],
)  # fmt: skip
def test_a_release_that_outputs_print_is_the_one_that_ran(
    cell: str, printed: str, expected: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "train.ipynb"
    whole = json.loads(notebook(cell, SCRIPT))
    first = next(cell for cell in whole["cells"] if cell["cell_type"] == "code")
    first["outputs"] = [{"output_type": "stream", "name": "stdout", "text": [printed]}]
    path.write_text(json.dumps(whole, indent=1), encoding="utf-8")
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
        ("requirements-dev.in", "trl==0.9.6\n", []),
        ("constraints.txt", "trl==0.9.6\n", []),
        ("conda.yaml", "dependencies:\n  - pip:\n    - trl==0.9.6\n", []),
        ("requirements/train.txt", "trl==0.9.6\n", []),
        (
            "uv.lock",
            '[[package]]\nname = "trl"\nversion = "0.9.6"\nsource = { registry = "x" }\n',
            [],
        ),
        ("poetry.lock", '[[package]]\nname = "trl"\nversion = "0.9.6"\noptional = false\n', []),
        ("pdm.lock", '[[package]]\nname = "trl"\nversion = "0.9.6"\n', []),
        (
            "Pipfile.lock",
            '{"default": {"trl": {"hashes": ["sha256:a"], "version": "==0.9.6"}}}',
            [],
        ),
        (
            "uv.lock",
            (
                '[[package]]\nname = "trl"\nversion = "0.9.6"\n\n[[package]]\nname = "trl"\nversion'
                ' = "1.2.0"\n'
            ),
            [UNASKED],
        ),
        ("uv.lock", '[[package]]\nname = "trl-extras"\nversion = "0.9.6"\n', [UNASKED]),
        ("requirements.txt", "unsloth==2025.3.19\n", []),
        ("requirements.txt", "unsloth==2024.12.4\ntrl\n", []),
        ("requirements.txt", "unsloth\n", ["warning"]),
        ("requirements.txt", "unsloth==2025.3.19\ntrl==1.2.0\n", ["error"]),
        ("requirements.txt", "# trl==0.9.6\n", [UNASKED]),
        ("requirements.txt", "trl\n", ["error"]),
        ("requirements.txt", "trl>=1\n", ["error"]),
        ("notes.txt", "trl==0.9.6\n", [UNASKED]),
    ],
)
def test_requirements_beside_a_script_decide(
    name: str, text: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text(SCRIPT)
    assert severities(tmp_path / "train.py") == expected


def test_requirements_of_the_project_count_and_those_of_others_do_not(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.9.6\n")
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    (project / "scripts" / "train.py").write_text(SCRIPT)
    assert severities(project / "scripts" / "train.py") == [UNASKED]
    (project / "setup.py").write_text('install_requires=["trl==0.10"]\n')
    assert severities(project / "scripts" / "train.py") == []


def test_a_scripts_header_decides(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text('# /// script\n# dependencies = [\n#     "trl==0.9.6",\n# ]\n# ///\n' + SCRIPT)
    assert severities(path) == []
    path.write_text('# /// script\n# dependencies = [\n#     "trl",\n# ]\n# ///\n' + SCRIPT)
    assert severities(path) == ["error"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("# get_ipython().system('uv pip install trl==0.9.6')", []),
        ("get_ipython().system('pip install trl==0.9.6')", []),
        ("# !pip install -q trl==0.9.6", []),
        ("# %pip install 'trl<0.13'", []),
        ("# pip install transformers==4.40 trl==0.9.6", []),
        ("import os\nos.system('pip install trl==0.9.6')", []),
        (
            (
                "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip',"
                " 'install', 'trl==0.9.6'])"
            ),
            [],
        ),
        ("import subprocess\nsubprocess.run('pip install trl~=0.9.0', shell=True)", []),
        ("require_version('trl>=0.8.6,<=0.9.6', 'To fix: pip install trl==0.9.6')", []),
        ("# get_ipython().system('pip install unsloth==2025.3.19 vllm==0.8.2')", []),
        ("# get_ipython().system('uv pip install transformers==4.56.2')", [UNASKED]),
        ("raise ImportError('please pip install trl==0.9.6')", [UNASKED]),
        ("# trl==0.9.6 was slower", [UNASKED]),
        ("# pip install trl", [UNASKED]),
        ('"""Rows with a weight. trl 0.9."""', []),
        ("#!/usr/bin/env python3\n# (transformers 4.40, trl 0.9.6)", []),
        ('"""Runs with trl 0.9.6, peft 0.11"""', []),
        ('"""Since trl 0.9 the trainer packs."""', [UNASKED]),
        ('"""Needs: trl 0.9 or newer."""', [UNASKED]),
        ("# works. trl 0.9+", [UNASKED]),
        ("import os\nnote = 'trl 0.9.'", [UNASKED]),
        ("help = 'pip install trl==0.9.6'", [UNASKED]),
    ],
)
def test_what_a_script_installs_itself_decides(
    line: str, expected: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(line + "\n" + SCRIPT)
    assert severities(path) == expected


def test_the_requirements_beside_a_script_win_over_its_comments(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("trl==0.20.0\n")
    path = tmp_path / "train.py"
    path.write_text('"""Rows with a weight. trl 0.9."""\n' + SCRIPT)
    assert severities(path) == ["error"]


def test_a_lock_file_wins_over_the_bounds_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["trl>=0.9"]\n')
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "trl"\nversion = "0.18.2"\n')
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert severities(path) == []


@pytest.mark.parametrize("wanted", ["<=0.20.0", "<=0.20"])
def test_a_bound_that_holds_the_change_is_not_before_it(wanted: str) -> None:
    assert (
        Pin(wanted, "requirements.txt", 1).compare_with_removal_window("0.19.1", "0.20.0")
        == "unknown"
    )


def test_where_nothing_is_asked_for_both_are_said(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    (finding,) = lint([path], select=["setting-renamed"]).findings
    assert finding.message == "max_seq_length is max_length in trl 0.20.0 and later"
    assert finding.remedy == "write max_length; before trl 0.20.0, max_seq_length is right"
    assert finding.evidence[1].partition(";")[0] == "no file here says which release of trl runs"


@pytest.mark.parametrize("release", ["1.2.0", "0.9.6"])
def test_a_release_that_is_installed_here_makes_nothing_sure(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    _install(release, tmp_path / "packages", monkeypatch)
    assert severities(path) == ["warning"]
    installed_release.cache_clear()


def _install(release: str, packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a release of trl the one that is installed here."""
    (packages / f"trl-{release}.dist-info").mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: trl\nVersion: {release}\n"
    (packages / f"trl-{release}.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(packages)
    importlib.invalidate_caches()
    installed_release.cache_clear()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("checkpoint-50/trainer_state.json", "{}"),
        ("out/run/checkpoint-50/trainer_state.json", "{}"),
        ("out/adapter_config.json", "{}"),
        ("train.log", "{'loss': 1.2, 'epoch': 0.1}\n"),
        ("job.err", " 12/100 [00:31<03:48,  2.6s/it]\n"),
        ("predictions.jsonl", "{}"),
        ("output.txt", "Dear Sir,"),
        ("../answers.jsonl", "{}"),
        ("README.md", "The loss went from 1.93 to 0.74.\n"),
        ("run.sh", "# two runs, took 5 h 50 min each\npython train.py\n"),
        ("predict.py", '"""Asks the adapter (eval_loss 0.22 at the end)."""\n'),
    ],
)
def test_a_script_that_has_run_gets_a_note(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "train"
    folder.mkdir()
    path = folder / "train.py"
    path.write_text(SCRIPT)
    _install("1.2.0", tmp_path / "packages", monkeypatch)
    (folder / "train.txt").write_text("loss, they say, took 3 epochs\n")
    (folder / "loss.py").write_text("loss = 0.5  # weight of the val loss\neval_loss = 0.25\n")
    assert severities(path) == ["warning"]
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    path.write_text(SCRIPT + "# again\n")
    (finding,) = lint([path], select=["setting-renamed"]).findings
    assert finding.severity == "info"
    assert "the call stops at it from that release on" in finding.evidence
    assert finding.evidence[1].endswith("it ran, so with an earlier release")
    installed_release.cache_clear()


def test_the_default_length_is_that_of_every_release(tmp_path: Path) -> None:
    """Before TRL had max_length, it cut rows at the tokenizer's limit, and at no more than 1,024."""
    path = tmp_path / "train.ipynb"
    text = 'from trl import SFTConfig\nargs = SFTConfig(output_dir="out")\n'
    for install, count in (("!pip install trl==1.2", 1), ("!pip install trl==0.9", 1)):
        path.write_text(notebook(install, text), encoding="utf-8")
        assert len(lint([path], select=["max-length-left-to-trl-default"]).findings) == count


@pytest.mark.parametrize(("release", "is_known"), [("1.2", True), ("0.12.2", True), ("0.9", False)])
def test_a_default_is_known_from_the_release_on_that_has_it(
    release: str, is_known: bool, tmp_path: Path
) -> None:
    """DPOConfig has had 1e-6 since 0.12.2, the first release that was read."""
    path = tmp_path / "train.ipynb"
    text = (
        "from peft import LoraConfig\nfrom trl import DPOConfig, DPOTrainer\nargs = DPOConfig(output_dir='out')\n"
        "DPOTrainer('m', args=args, train_dataset=rows, peft_config=LoraConfig(r=8)).train()\n"
    )
    path.write_text(notebook(f"!pip install trl=={release}", text), encoding="utf-8")
    found = lint([path], select=["learning-rate-far-from-published"]).findings
    assert len(found) == is_known


@pytest.mark.parametrize(
    ("name", "key", "trl", "is_known"),
    [
        ("SFTConfig", "max_length", "0.16.1", True),
        ("SFTConfig", "max_length", "0.15.2", False),  # max_seq_length was its name
        ("SFTConfig", "num_train_epochs", "0.15.2", True),
        # TRL's own default of a key that is left to transformers today
        ("RewardConfig", "remove_unused_columns", "0.23.0", False),
        ("RewardConfig", "remove_unused_columns", "0.24.0", True),
        ("GRPOConfig", "gradient_accumulation_steps", "0.14.0", False),
        ("GRPOConfig", "gradient_accumulation_steps", "0.15.2", True),
    ],
)
def test_defaults_of_trl_release_by_release(
    name: str, key: str, trl: str, is_known: bool, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text(f"trl=={trl}\n")
    pins = pins_of_project_files(str(tmp_path / "train.py"))
    assert (key in defaults_same_in_asked_releases(name, pins)) == is_known


@pytest.mark.parametrize(("asked", "count"), [("==4.46.0", 0), (">=5", 1), ("", 1)])
def test_rules_on_source_ask_for_the_release_too(asked: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"transformers{asked}\n")
    path = tmp_path / "train.py"
    path.write_text(
        "from transformers import AutoTokenizer\ntok = AutoTokenizer.from_pretrained('x')\n"
        "n = len(tok.apply_chat_template(m))\n"
    )
    assert len(lint([path], select=["apply-chat-template-returns-dict"]).findings) == count


BRACKETED = """from transformers import TrainingArguments
TrainingArguments("o", evaluation_strategy="no", warmup_ratio=0.1, no_cuda=True)
"""


def test_of_a_change_between_releases_that_were_not_read_only_the_last_before_it_is_said(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.py"
    path.write_text(BRACKETED)
    said = {f.message: f.remedy for f in lint([path], select=["setting-renamed"]).findings}
    assert said == {
        "evaluation_strategy is eval_strategy since a transformers after 4.46.3": (
            "write eval_strategy; up to transformers 4.46.3, evaluation_strategy is right"
        ),
        "warmup_ratio is warmup_steps since a transformers after 5.10.0": (
            "write warmup_steps; up to transformers 5.10.0, warmup_ratio is right"
        ),
        "no_cuda is use_cpu in transformers 5.0.0 and later": (
            "write use_cpu; before transformers 5.0.0, no_cuda is right"
        ),
    }


@pytest.mark.parametrize(
    ("name", "text", "severities"),
    [
        ("Dockerfile", "FROM python:3.11\nRUN pip install trl==0.16.1 \\\n    torch\n", []),
        ("Dockerfile.train", "RUN pip install torch \\\n    trl==0.16.1\n", []),
        ("train.dockerfile", "RUN uv pip install 'trl<0.17'\n", []),
        ("Dockerfile", "RUN pip install trl\n", [UNASKED]),
        ("Dockerfile", "# RUN pip install trl==0.16.1\n", [UNASKED]),
        ("requirements.txt", "git+https://github.com/huggingface/trl.git@69ad852e5654a77f1695eb4c608906fe0c7e8624",
         ["info"]),
        ("requirements.txt", "git+https://github.com/huggingface/trl.git@my-branch", ["info"]),
        ("requirements.txt", "git+https://github.com/huggingface/trl.git@v0.16.1", []),
        ("requirements.txt", "git+https://github.com/huggingface/trl.git", ["error"]),
    ],
)  # fmt: skip
def test_a_dockerfile_asks_for_releases_and_a_commit_for_one_that_is_not_known(
    name: str, text: str, severities: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert [f.severity for f in lint([path], select=["setting-renamed"]).findings] == severities


@pytest.mark.parametrize(
    "asked", ["git+https://github.com/huggingface/trl@abc1234", "trl==0.15.2", "trl>=1"]
)
def test_a_call_of_a_commit_stops_perhaps(asked: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(asked + "\n")
    path = tmp_path / "train.py"
    path.write_text(
        "from trl import SFTConfig, SFTTrainer\nSFTTrainer('m', tokenizer=3)\n"
        "from trl import DataCollatorForCompletionOnlyLM\nSFTConfig('o', sft_dir='x')\n"
    )
    rules = ["trainer-argument-gone", "trl-name-gone", "unknown-setting"]
    severities = {f.rule: f.severity for f in lint([path], select=rules).findings}
    by_pin = {"git+": {"trainer-argument-gone": "info", "trl-name-gone": "info", "unknown-setting": "info"},
              "trl=": {"unknown-setting": "info"},
              "trl>": {"trainer-argument-gone": "error", "trl-name-gone": "error", "unknown-setting": "warning"},
              }  # fmt: skip
    assert severities == by_pin[asked[:4]]


@pytest.mark.parametrize(
    "call",
    ["SFTConfig('o', sft_dir='x')", "GRPOConfig(batch_size=2, group_size=4, kl_penalty=0.1)",
     "GRPOConfig('o', wandb_log_unique_prompts=True)", "more = {'sft_dir': 'x'}\nSFTConfig('o', **more)"],
)  # fmt: skip
def test_an_unknown_keyword_stops_the_call(call: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"from trl import GRPOConfig, SFTConfig\n{call}\n")
    findings = lint([path], select=["unknown-setting", "setting-renamed"]).findings
    assert {f.severity for f in findings} == {"warning"}


def test_settings_in_yaml_are_judged_by_the_requirements_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text(
        "model_name_or_path: a/b\ndataset_name: a/rows\nmax_seq_length: 2048\ndataset_train_split:"
        " train\n"
    )
    spec = RunSpec(select=("setting-renamed",))
    assert [f.severity for f in judge_settings(read_config(path), spec).findings] == ["warning"]
    (tmp_path / "requirements.txt").write_text("trl==0.15.2\n")
    assert list(judge_settings(read_config(path), spec).findings) == []
