"""Steps of reinforcement that go into generating, and tables of timings that are no rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

RULE = "generation-takes-the-steps"
TRANSFORMERS = "profiling/Time taken: RLOOTrainer.transformers.generate"
SCRIPT = "from trl import GRPOConfig, GRPOTrainer\nargs = GRPOConfig(output_dir='o'{more})\n"


def table(folder: Path, curves: dict[str, float], *, name: str = "export.csv") -> None:
    """A table of one row a step."""
    rows = [",".join(["Step", *curves])]
    rows += [
        ",".join([str(n), *(f"{one + n % 3 * 0.1:.3f}" for one in curves.values())])
        for n in range(1, 21)
    ]
    (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")


def records(folder: Path, curves: dict[str, float], tokens: float = 25_000) -> None:
    """A log of records with losses, rewards and these curves."""
    made = [
        {"step": n, "loss": 0.01, "reward": 0.3 + n % 5 / 50, "num_tokens": n * tokens, **curves}
        for n in range(1, 31)
    ]
    text = "".join(json.dumps(one) + "\n" for one in made)
    (folder / "train_log.jsonl").write_text(text, encoding="utf-8")


def severities(folder: Path) -> list[str]:
    report = truetune.check([str(folder)], select=[RULE], allow_unjudged=True)
    return [finding.severity for finding in report.findings]


@pytest.mark.parametrize(
    "curves",
    [
        {TRANSFORMERS: 80, "profiling/Time taken: RLOOTrainer.compute_loss": 2},
        {TRANSFORMERS: 80, "profiling/Time taken: RLOOTrainer._prepare_inputs": 81,
         "profiling/Time taken: RLOOTrainer.compute_loss": 5},
        {TRANSFORMERS: 40, "step_time": 45},
    ],
)  # fmt: skip
def test_timings_in_a_table(tmp_path: Path, curves: dict[str, float]) -> None:
    table(tmp_path, curves)
    (tmp_path / "notes.py").write_text("print(1)\n", encoding="utf-8")
    assert severities(tmp_path) == ["warning"]


def test_timings_of_an_own_name_where_the_settings_leave_the_engine_off(tmp_path: Path) -> None:
    records(tmp_path, {"timing_s/gen": 55.0, "timing_s/step": 60.0})
    (tmp_path / "grpo.py").write_text(SCRIPT.format(more=""), encoding="utf-8")
    assert severities(tmp_path) == ["warning"]


def test_few_tokens_a_second_are_a_note(tmp_path: Path) -> None:
    records(tmp_path, {"step_time": 100.0})
    (tmp_path / "grpo.py").write_text(SCRIPT.format(more=", use_vllm=False"), encoding="utf-8")
    assert severities(tmp_path) == ["info"]


@pytest.mark.parametrize(
    ("curves", "more"),
    [
        # an engine, whatever it takes
        ({"profiling/Time taken: GRPOTrainer.vLLM.generate": 50.0, "step_time": 60.0}, ""),
        ({"timing_s/gen": 55.0, "timing_s/step": 60.0}, ", use_vllm=True"),
        # half a step
        ({"profiling/Time taken: GRPOTrainer.transformers.generate": 30.0, "step_time": 60.0}, ""),
        # a short step
        ({"profiling/Time taken: GRPOTrainer.transformers.generate": 4.0, "step_time": 5.0}, ""),
        # thousands of tokens a second come out of an engine that the settings switch on
        ({"step_time": 100.0}, ", use_vllm=True"),
    ],
)
def test_sound_runs(tmp_path: Path, curves: dict[str, float], more: str) -> None:
    records(tmp_path, curves, tokens=250_000)
    (tmp_path / "grpo.py").write_text(SCRIPT.format(more=more), encoding="utf-8")
    assert severities(tmp_path) == []


def test_a_slow_step_of_many_tokens_is_sound(tmp_path: Path) -> None:
    records(tmp_path, {"step_time": 100.0}, tokens=250_000)
    (tmp_path / "grpo.py").write_text(SCRIPT.format(more=""), encoding="utf-8")
    assert severities(tmp_path) == []


def test_rows_with_a_column_of_steps_stay_rows(tmp_path: Path) -> None:
    text = "step,prompt,completion\n1,How?,Thus.\n2,Why?,So.\n"
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    report = truetune.check([str(tmp_path / "rows.csv")], allow_unjudged=True)
    assert "run log" not in {subject.kind for subject in report.subjects}


def test_a_table_of_quantities_trains_nothing_that_is_known(tmp_path: Path) -> None:
    table(tmp_path, {"gpu/memory": 3.0})
    report = truetune.check([str(tmp_path / "export.csv")], allow_unjudged=True)
    facts = dict(report.subjects[0].facts)
    assert report.subjects[0].kind == "run log"
    assert "trains" not in facts


def test_the_output_stops_at_its_last_record(tmp_path: Path) -> None:
    lines = [f"{{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': {n / 100}}}" for n in range(1, 9)]
    lines.insert(5, "  1%|          | 5/600 [0:11:03<21:54:57, 132.66s/it]")
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = truetune.check(
        [str(tmp_path / "train.log")], select=["output-stops-in-the-middle"], allow_unjudged=True
    )
    assert not any("step 5 of" in finding.message for finding in report.findings)
