"""The record and the contract of a run, and what `truetune check` proves with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import truetune
from tests.checkpoint.make import edit
from tests.training.killed import STEPS, prepare, settings
from truetune.checkpoint.read_run_and_check_checkpoints import CONTRACT_FILE, RUN_FILE
from truetune.checks.check_paths import check_paths
from truetune.checks.inspect_checkpoint import checkpoint_report
from truetune.errors import UsageError
from truetune.render.serving_contract import verify
from truetune.settings.run_spec import RunSpec

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, its data, and a run on them."""
    root = prepare(tmp_path_factory.mktemp("recorded"))
    truetune.train(**settings("lora", root, root / "run"), force=True)
    return root


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """The run, to be spoiled."""
    return Path(shutil.copytree(root / "run", tmp_path / "run"))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    return found


def found(folder: Path, base: Path | None = None) -> dict[str, str]:
    """Rule -> severity, notes left out"""
    return {
        f.rule: f.severity
        for f in checkpoint_report(folder, base=base).findings
        if f.severity != "info"
    }


def test_the_record_says_what_was_done(root: Path) -> None:
    run = read(root / "run" / RUN_FILE)
    jsonschema.validate(run, read(SCHEMAS / "run-1.json"))
    assert (run["status"], run["step"], run["steps"], run["resumed"]) == (
        "finished",
        STEPS,
        STEPS,
        [],
    )
    assert run["checkpoints"] == ["checkpoint-8", "checkpoint-12"]
    assert set(run["looks"]) == {"the check", "the audit"}
    assert run["skipped"] == ["the rehearsal"]
    assert len(run["data"]["held_out"]) == 2
    assert run["data"]["ledger"]["stop token"]["supervised"] == run["data"]["counts"]["documents"]
    assert run["stops"] == [{"token": "<|im_end|>", "id": 3, "trained": True}]
    assert run["losses"]["held_out"] == run["losses"]["eval_loss"]
    assert {"adapter_model.safetensors", "tokenizer.json", CONTRACT_FILE} <= set(run["files"])


def test_the_contract_is_kept_by_what_was_saved(root: Path) -> None:
    contract = read(root / "run" / CONTRACT_FILE)
    jsonschema.validate(contract, read(SCHEMAS / "contract-1.json"))
    names = [prompt["name"] for prompt in contract["prompts"]]
    assert {"1 turn", "4 turns, system, tools", "a tool was called", "row 0", "row 3"} <= set(names)
    assert verify(contract, root / "run") == []


def test_a_clean_run_is_found_clean(root: Path) -> None:
    for folder in (root / "run", root / "run" / "checkpoint-12"):
        assert found(folder) == {}
    report = check_paths([root / "run"], RunSpec())
    assert [
        f.rule for f in report.findings if f.code.startswith("CKP") and f.severity != "info"
    ] == []


def test_the_same_again_trains_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (root / "run" / RUN_FILE).read_bytes()
    again = truetune.train(**settings("lora", root, root / "run"), force=True)
    assert "already trained" in capsys.readouterr().out
    assert (again.steps, (root / "run" / RUN_FILE).read_bytes()) == (STEPS, before)


def test_another_run_wants_another_folder(root: Path) -> None:
    other = settings("lora", root, root / "run")
    other["training"]["learning_rate"] = 0.5
    with pytest.raises(UsageError, match=r"training\.learning_rate \(0\.01 there, 0\.5 now\)"):
        truetune.train(**other, force=True)


def edited(name: str, **changes: Any) -> Callable[[Path], object]:
    return lambda folder: edit(folder / name, **changes)


def appended(name: str, body: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes() + body)


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return change


FAULTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "weights-changed-since-training": ("run", appended("adapter_model.safetensors", b"\0")),
    "prompts-differ-from-training": (
        "run",
        replaced("tokenizer.json", '"<|im_start|>"', '"<|im_begin|>"'),
    ),
    "chat-template-missing-or-old-in-checkpoint": (
        "run",
        replaced("chat_template.jinja", "assistant", "model"),
    ),
    "trained-stop-not-in-generation-config": (
        "run",
        edited("generation_config.json", eos_token_id=0),
    ),
    "truetune-checkpoint-not-whole": ("run/checkpoint-12", appended("optimizer.pt", b"\0")),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_found(rule: str, copy: Path) -> None:
    where, change = FAULTS[rule]
    change(copy.parent / where)
    assert found(copy.parent / where)[rule] == "error"


def test_another_base_is_found(root: Path, tmp_path: Path) -> None:
    from tests.checkpoint import make

    other = make.base(tmp_path / "base", seed=1, max_position_embeddings=512)
    assert found(root / "run", other) == {"adapter-on-another-base": "error"}


def test_weights_of_a_run_that_has_not_ended(copy: Path) -> None:
    edit(copy / RUN_FILE, status="training")
    assert found(copy) == {"truetune-checkpoint-not-whole": "error"}


def test_a_broken_contract_is_no_crash(copy: Path) -> None:
    edit(copy / CONTRACT_FILE, prompts=[3])
    assert found(copy) == {"prompts-differ-from-training": "warning"}
