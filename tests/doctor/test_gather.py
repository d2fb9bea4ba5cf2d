"""What is broken in an environment is told, and breaks nothing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema
import pytest

import truetune
from tests.checks.pages.environment import environment
from truetune.checks.check_environment import doctor, judge_environment
from truetune.checks.environment.gpu_not_in_torch_build import has_kernels_for
from truetune.checks.environment.gpu_not_used_by_torch import GpuNotUsedByTorch
from truetune.doctor.environment_record_types import PACKAGES
from truetune.doctor.gather_environment import (
    IMPORTED_MODULES,
    _try_imports_and_ask_torch,
    gather_environment,
    list_extras,
)
from truetune.errors import UsageError
from truetune.report.as_json import report_as_dict
from truetune.report.report_terminal import report_as_text
from truetune.settings.run_spec import RunSpec

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "report-1.json"
TORCH = """
    import warnings

    class cuda:
        is_available = staticmethod(lambda: warnings.warn("The NVIDIA driver is too old") or False)

    class version:
        cuda = "12.8"
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before all others on the children's path."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def write(folder: Path, **modules: str) -> None:
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")


def test_a_crash_an_error_and_a_hang_are_found_and_the_rest_is_imported(modules: Path) -> None:
    write(
        modules,
        torch=TORCH,
        numpy="import os; os.abort()",
        tokenizers="raise ImportError('undefined\\nsymbol')",
        accelerate="print('noise on stdout')",
        liger_kernel="import time; time.sleep(60)",
        peft="import os; os.abort()",
    )
    names = ("torch", "numpy", "tokenizers", "accelerate", "peft", "liger-kernel")
    loads, facts = _try_imports_and_ask_torch(sys.executable, dict.fromkeys(names, "1"), 4, str)
    assert (loads["torch"], loads["accelerate"]) == ("", "")
    assert "crashed" in loads["numpy"]
    assert "crashed" in loads["peft"]
    assert loads["tokenizers"] == "ImportError: undefined symbol"
    assert "not done after" in loads["liger_kernel"]
    assert "too old" in facts["said"]


def test_a_native_library_that_was_not_loaded_is_found(modules: Path) -> None:
    write(modules, bitsandbytes="")
    package = modules / "bitsandbytes"
    package.mkdir()
    write(
        package,
        __init__="",
        cextension="class MockLibrary: error_msg = 'no CUDA binary'\nlib = MockLibrary()",
    )
    (modules / "bitsandbytes.py").unlink()
    loads, _ = _try_imports_and_ask_torch(sys.executable, {"bitsandbytes": "0.48"}, 20, str)
    assert loads == {"bitsandbytes": "RuntimeError: no CUDA binary"}


def test_versions_and_requirements_are_read_without_an_import(modules: Path) -> None:
    info = modules / "trl-1.0.dist-info"
    info.mkdir()
    needs = (
        "Requires-Dist: peft>=99\nRequires-Dist: vllm; extra == 'vllm'\nRequires-Dist: peft<1;"
        " python_version<'3'\n"
    )
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: TRL\nVersion: 1.0\n{needs}", encoding="utf-8"
    )
    peft = modules / "peft-0.20.dist-info"
    peft.mkdir()
    (peft / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: peft\nVersion: 0.20\n", encoding="utf-8"
    )
    write(modules, trl="raise SystemExit('imported')")
    found = gather_environment(sys.executable, load=False)
    assert found.packages["trl"] == "1.0"
    report = judge_environment(found, RunSpec(select=("ENV002",)))
    assert [f.message for f in report.findings if f.message.startswith("trl")] == [
        "trl 1.0 requires peft>=99, but 0.20 is installed"
    ]


def test_extras_of_truetune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "truetune-0.1.dist-info"
    info.mkdir()
    needs = (
        "click",
        "torch>=2; extra == 'train'",
        "truetune[train]; extra == 'qlora'",
        "bitsandbytes; extra == 'qlora'",
        "pytest; extra == 'dev'",
    )
    lines = "\n".join(f"Requires-Dist: {need}" for need in needs)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: truetune\nVersion: 0.1\n{lines}\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert list_extras() == {"train": ("torch",), "qlora": ("bitsandbytes",)}


def test_no_interpreter() -> None:
    with pytest.raises(UsageError, match="can't be started"):
        gather_environment("nowhere/python")
    with pytest.raises(UsageError, match="no Python interpreter"):
        gather_environment("/bin/true" if os.name != "nt" else "where.exe")


def test_the_report_is_of_its_schema_and_draws() -> None:
    report = doctor(load=False, spec=RunSpec(ignore=("ENV007",)))
    value = report_as_dict(report)
    jsonschema.validate(value, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert value["environment"]["packages"]["tokenizers"]

    text = report_as_text(report, verbose=True)
    assert "hub cache" in text
    assert "Python 3." in text


def test_why_a_gpu_is_not_used() -> None:
    def said(**torch: object) -> str:
        given = {"packages": {"torch": "2.8"}, "gpus": 1, "torch": {"cuda": "12.8", **torch}}
        return " ".join(
            finding.message for finding in GpuNotUsedByTorch(environment(given)).findings()
        )

    assert "a CPU build" in said(cuda=None)
    assert "too old for CUDA 12.8" in said(said="The NVIDIA driver on your system is too old")
    assert "fails to initialise" in said()
    hidden = environment({"gpus": 2, "torch": {}, "variables": {"CUDA_VISIBLE_DEVICES": ""}})
    (finding,) = GpuNotUsedByTorch(hidden).findings()
    assert (finding.severity, "hides all GPUs" in finding.message) == ("warning", True)


def test_kernels_for_a_gpu() -> None:
    assert has_kernels_for((8, 9), ("sm_80", "sm_90"))
    assert not has_kernels_for((12, 0), ("sm_80", "sm_90"))
    assert has_kernels_for((12, 0), ("sm_90", "compute_90"))
    assert not has_kernels_for((7, 0), ("sm_75", "sm_80"))
    assert has_kernels_for((9, 0), ("sm_90a",))


def test_the_command() -> None:
    def ran(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "truetune", "doctor", *options]
        path = str(Path(truetune.__file__).parents[1])
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
        )

    done = ran("--no-imports", "--json", "--ignore", "ENV007", "--ignore", "ENV008")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["environment"]["version"].startswith("3.")
    wrong = ran("--python", "nowhere")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "nowhere: can't be started" in wrong.stderr


def test_what_is_imported_is_told() -> None:
    assert set(IMPORTED_MODULES) <= set(PACKAGES)
