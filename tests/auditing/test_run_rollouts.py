"""`truetune run` and the callback on trainings by rewards: their first rollouts are judged after a step."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import trl

import truetune
from tests.auditing import tiny
from tests.auditing.running import plain, run, run_training
from tests.auditing.tiny_rollouts import grpo, tiny_model
from tests.preloaded import libraries_python
from truetune.errors import TruetuneError

SCRIPT = """
import sys
import trl
from tests.auditing.tiny_rollouts import grpo
class Reversed(trl.GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = -output["advantages"]
        return output
kind, steps = sys.argv[1:]
trainer = grpo({"reversed": Reversed, "grpo": trl.GRPOTrainer}[kind], max_steps=int(steps))
trainer.train()
print("TRAINED", sum(p.double().sum().item() for p in trainer.model.parameters()))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def test_a_healthy_run_is_judged_and_trains_the_same(script: str, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("report.json", "report-2.json")]
    done = run_training(script, "grpo", "3", options=["--format", "json", "-o", files[0]])
    assert done.returncode == 0, done.stderr
    alone = plain(script, "grpo", "3", python=libraries_python())
    assert done.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1]
    first, second = (json.loads(Path(name).read_text(encoding="utf-8")) for name in files)
    assert first["outcome"] == second["outcome"] == "no findings"
    assert "loss-weighs-tokens-otherwise" in {part["rule"] for part in second["examined"]}
    (follow,) = [part for part in first["not_judged"] if part["what"] == "lines of batches"]
    assert "in a report of their own" in follow["unlock"]


def test_a_broken_run_is_stopped_before_its_third_step(script: str) -> None:
    done = run_training(script, "reversed", "3")
    assert done.returncode == 1
    assert "TRAINED" not in done.stdout
    text = re.sub(r"\s+", " ", done.stderr)
    assert "error[ROL011] advantages-are-not-of-their-rewards: 16 of 16 advantages" in text
    assert "they have the opposite sign" in text
    # One step was taken, and logged; the second was not.
    assert len(re.findall("'grad_norm'", done.stdout)) == 1


def test_a_broken_run_may_continue(script: str) -> None:
    done = run_training(script, "reversed", "3", options=["--on-error", "warn"])
    assert done.returncode == 0, done.stderr
    assert "ROL011" in done.stderr
    assert "TRAINED" in done.stdout


def test_a_run_that_ends_before_its_first_rollout_is_not_judged(
    script: str, tmp_path: Path
) -> None:
    path = tmp_path / "ends.py"
    code = SCRIPT.replace(
        "trainer.train()", "trainer._prepare_inputs = lambda inputs: sys.exit(0)\ntrainer.train()"
    )
    path.write_text(code, encoding="utf-8")
    done = run_training(str(path), "grpo", "1")
    assert done.returncode == 3, done.stderr
    assert "the rollouts were not judged: the training ended before the first one" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_two_processes_whose_groups_cross_are_judged_together(kind: str, tmp_path: Path) -> None:
    """Six completions a process and groups of four: a group begins in one process and ends in the other."""
    path, report = tmp_path / "script.py", tmp_path / "report.json"
    code = SCRIPT.replace(
        '"grpo": trl.GRPOTrainer', '"grpo": trl.GRPOTrainer, "rloo": trl.RLOOTrainer'
    )
    more = "max_steps=int(steps), per_device_train_batch_size=6, gradient_accumulation_steps=2, ddp_backend='gloo'"
    path.write_text(code.replace("max_steps=int(steps)", more), encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = run_training(
        *launch, str(path), kind, "2", options=["--format", "json", "-o", str(report)]
    )
    assert done.returncode == 0, done.stderr
    second = json.loads(report.with_stem("report-2").read_text(encoding="utf-8"))
    assert second["outcome"] == "no findings"
    figures = {part["rule"]: part["figure"] for part in second["examined"]}
    assert "0 of 48" in figures["sampled-ids-are-not-trained"]
    assert "in 8 micro-batches" in figures["loss-weighs-tokens-otherwise"]
    # RLOO's penalty is on the KL divergence of the other process, too.
    assert ("advantages-are-not-of-their-rewards" in figures) == (kind == "grpo")


@pytest.mark.slow
def test_rewards_of_another_process_are_found(tmp_path: Path) -> None:
    """Two processes with two groups each: each takes the rewards that the other's completions got.

    It starts three programs that import all libraries, which is most of its time.
    """
    path, report = tmp_path / "script.py", tmp_path / "report.json"
    crossed = """
class Crossed(trl.GRPOTrainer):
    def _calculate_rewards(self, inputs, *others):
        rewards = super()._calculate_rewards(inputs, *others)
        return rewards.roll(len(inputs), 0)
kind, steps"""
    code = SCRIPT.replace("\nkind, steps", crossed, 1)
    code = code.replace('"grpo": trl.GRPOTrainer', '"crossed": Crossed')
    code = code.replace("max_steps=int(steps)", "max_steps=int(steps), ddp_backend='gloo'")
    path.write_text(code, encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ["--laws", "none", "--format", "json", "-o", str(report)]
    done = run(*launch, str(path), "crossed", "2", options=options)
    assert done.returncode == 1, done.stderr
    second = json.loads(report.with_stem("report-2").read_text(encoding="utf-8"))
    (finding,) = second["findings"]
    assert finding["code"] == "ROL011"
    assert "32 of 32 advantages" in finding["message"]
    assert "those of another process's completions" in finding["message"]


class Reversed(trl.GRPOTrainer):
    """Rewards what it should not."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = -output["advantages"]
        return output


def test_the_callback_judges_the_rollouts_too(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = grpo(max_steps=3)
    callback = truetune.AuditCallback()
    trainer.add_callback(callback)
    trainer.train()
    assert trainer.state.global_step == 3
    assert callback.report.do_rollouts_follow
    assert callback.report.exit_code() == 0
    assert callback.rollout_report.outcome == "no findings"
    assert callback.rollout_report.completions == 16
    assert "ROL011" in capsys.readouterr().err


def test_the_callback_stops_a_broken_training() -> None:
    trainer = grpo(Reversed, max_steps=3)
    callback = truetune.AuditCallback(report_to_trackers=False)
    trainer.add_callback(callback)
    with pytest.raises(TruetuneError, match="the audit stopped the run"):
        trainer.train()
    assert trainer.state.global_step == 2
    assert [finding.rule for finding in callback.rollout_report.findings] == [
        "advantages-are-not-of-their-rewards"
    ]


def test_a_tokenizer_that_was_given_the_dtype_of_its_model_loses_no_audit() -> None:
    """TRL's example of online DPO does that; such a tokenizer can't be saved as it is, by its script neither."""
    tokenizer = tiny.tokenizer()
    tokenizer.init_kwargs["dtype"] = torch.float32
    trainer = grpo(max_steps=1, processing_class=tokenizer)
    callback = truetune.AuditCallback(laws="none")
    trainer.add_callback(callback)
    trainer.train()
    assert callback.rollout_report.outcome == "no findings"
    assert tokenizer.init_kwargs["dtype"] is torch.float32


def test_a_training_of_one_step_is_judged_at_its_end() -> None:
    trainer = grpo(max_steps=1, model=tiny_model(eos_token_id=3), max_completion_length=4)
    callback = truetune.AuditCallback()
    trainer.add_callback(callback)
    trainer.train()
    assert [finding.rule for finding in callback.rollout_report.findings] == [
        "first-completions-cut-or-empty"
    ]


def test_an_audit_before_the_training_says_what_is_missing() -> None:
    report = truetune.audit(grpo())
    assert report.exit_code() == 3
    assert not report.do_rollouts_follow
