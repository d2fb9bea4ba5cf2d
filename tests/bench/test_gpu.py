"""The GPU bench in small on a CPU: its sections measure, and neither a failing nor a hanging one stops the rest."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from bench.gpu import __main__ as gpu
from bench.gpu import grpo, messages, page
from bench.gpu.entries import Budget, Entry, append_entry, measure_guarded, read_entries
from bench.gpu.size import CARD, TINY
from bench.memory import SHAPES
from truetune.errors import UsageError
from truetune.training.audit_first_rollouts import MAX_PASSES
from truetune.training.rollout_rows import RolloutRows, load_rollout_data


def test_sections_measure_in_small(tmp_path: Path) -> None:
    names = ["environment", "correctness", "memory", "throughput"]
    assert gpu.run_bench(tmp_path, TINY, 5, only=names, in_process=True) == 0
    document = json.loads((tmp_path / gpu.RESULTS).read_text(encoding="utf-8"))
    entries = page.read_results(tmp_path / gpu.RESULTS)
    assert document["entries"]
    assert document["size"] == "tiny"
    assert {entry.section for entry in entries if entry.status != "not run"} == set(names)
    by_name = {entry.name: entry for entry in entries}
    packed = by_name["packed = alone: llama float32 sdpa"]
    assert packed.status == "passed"
    assert float(packed.figures["control without borders"] or 0) > 1
    assert by_name["laws: control: packed without borders"].figures["broken"] == "packing-isolation"
    assert by_name["tiny-llama 2x64 full float32 amp"].status == "passed"
    assert by_name["tiny-llama lora: truetune / TRL packed"].figures["runs"] == 1
    text = (tmp_path / gpu.PAGE).read_text(encoding="utf-8")
    assert all(page.TITLES[name] in text for name in names)
    # What was left out is named, not dropped.
    assert "section: not run (not asked for (--only))" in text


def test_trainings_by_rewards_are_compared_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The trial of the reward function is a program of its own, which takes seconds.
    monkeypatch.setattr(
        "truetune.training.audit_first_rollouts.try_own_reward_functions", lambda *_: ()
    )
    monkeypatch.setattr(grpo, "_has_card_and_vllm", lambda: False)
    assert gpu.run_bench(tmp_path, TINY, 5, only=["grpo"], in_process=True) == 0
    entries = page.read_results(tmp_path / gpu.RESULTS)
    by_name = {entry.name: entry for entry in entries if entry.section == "grpo"}
    title = "tiny-llama full, transformers"
    ours, theirs = by_name[f"{title}: truetune"], by_name[f"{title}: TRL"]
    for entry in (ours, theirs):
        assert entry.status == "measured", entry
        assert float(entry.figures["sampled tokens/s"] or 0) > 0
        assert float(entry.figures["steps/min"] or 0) > 0
        assert entry.figures["peak GiB"] is None
    assert 0 < float(ours.figures["mean reward"] or 0) < 1
    # What makes it a comparison: both sampled the same answers to the same prompts.
    assert by_name[f"{title}: truetune / TRL"].figures["the same rewards"] is True
    audit = by_name[f"{title}: audit"]
    assert audit.status == "passed", audit
    # Two generations, of which the second one was used once.
    assert audit.figures["completions"] == 8
    assert "over 64 tokens" in str(audit.figures["first ratio (ROL008)"])
    assert "not judged" in str(audit.figures["sampler and trainer (ROL010)"])
    assert 0 < float(audit.figures["seconds to note"] or 0) < ours.seconds
    plan = by_name[f"{title}: plan"]
    assert (plan.status, plan.note) == ("not run", "needs a GPU")
    assert float(plan.figures["predicted GiB"] or 0) > 0
    vllm = by_name["tiny-llama full, vLLM"]
    assert (vllm.status, vllm.note) == ("not run", "needs a GPU and vLLM")
    text = (tmp_path / gpu.PAGE).read_text(encoding="utf-8")
    assert "tiny-llama full, vLLM: not run (needs a GPU and vLLM)" in text


@pytest.mark.parametrize(
    ("judged", "found", "with_transformers", "with_vllm"),
    [
        (("ROL008", "ROL010"), ("ROL017",), "passed", "passed"),
        (("ROL008",), ("ROL010",), "failed", "failed"),
        # Neither rule found anything, and one of them had nothing to look at.
        (("ROL008",), (), "passed", "failed"),
        (("ROL010",), ("ROL008",), "failed", "failed"),
    ],
)
def test_a_sampler_fails_where_it_differs_from_the_trainer_or_is_not_judged(
    judged: tuple[str, ...], found: tuple[str, ...], with_transformers: str, with_vllm: str
) -> None:
    verdicts = {"ROL008": "a figure", "ROL010": "a figure"}
    audit = grpo.AuditOutcome(8, verdicts, judged, found, noting_s=0.5, judging_s=0.5)
    run = grpo.RunResult(64.0, 2, 4.0, 6.0, 10.0, None, (0.5, 0.25), audit, ("a line",))
    # As the process of a run with vLLM hands it back.
    run = grpo.RunResult.from_json(run.to_json())
    assert run.audit == audit
    assert run.mean_rewards == (0.5, 0.25)
    entry = grpo._audit_entry("audit", run, "transformers")
    assert (entry.status, entry.figures["share of the run"]) == (with_transformers, 0.1)
    assert grpo._audit_entry("audit", run, "vLLM").status == with_vllm


def test_the_plan_of_a_run_with_vllm_counts_its_engine(tmp_path: Path) -> None:
    (race,) = TINY.reward_races
    files = grpo._make_inputs(race, tmp_path)("truetune", "vLLM")
    # The plan reckons with the longest row; a shorter limit would drop its prompt.
    rows = load_rollout_data(grpo._recipe(files).spec).train
    assert isinstance(rows, RolloutRows)
    lengths = [len(row.prompt.ids) for row in rows.rows]
    assert len(lengths) == race.batch // race.group * (race.steps + grpo.SKIPPED) // grpo.ITERATIONS
    assert max(lengths) + race.max_completion_length == files.max_length
    assert grpo.RunFiles.from_json(files.to_json()) == files
    # The engine reserves 0.3 of a card, and the plan counts it.
    for measured, status in ((25.5, "passed"), (40.0, "failed")):
        plan = grpo._plan_entry("plan", files, measured * grpo.GIB, card=80.0)
        assert plan.status == status, plan
        assert 24 < float(plan.figures["predicted GiB"] or 0) < 25


@pytest.mark.skipif(
    importlib.util.find_spec("vllm") is not None,
    reason="vLLM is installed: its engine would start, and take 0.3 of the machine's card",
)
def test_a_run_with_vllm_gets_as_far_as_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "truetune.training.audit_first_rollouts.try_own_reward_functions", lambda *_: ()
    )
    (race,) = TINY.reward_races
    files = grpo._make_inputs(race, tmp_path)("truetune", "vLLM")
    # What its own process would do, in this one.
    asked, result = grpo.write_request(files)
    monkeypatch.setattr("sys.argv", ["grpo", str(asked), str(result)])
    with pytest.raises(UsageError, match="vLLM is not available"):
        grpo.main()


@pytest.mark.parametrize("name", ["mixed dtypes in a product", "no card is visible"])
def test_diagnose_names_a_provoked_failure(name: str, tmp_path: Path) -> None:
    failure = next(failure for failure in messages.FAILURES if failure.name == name)
    entry = messages._measure_failure(failure, tmp_path, Budget.of(100))
    assert entry.status == "passed", entry
    assert "Traceback" in entry.text
    assert str(tmp_path) not in entry.text
    assert page.write_logs([entry], tmp_path / "logs")[0].read_text(encoding="utf-8") == entry.text


def test_a_section_that_raises_stops_no_other(tmp_path: Path) -> None:
    sections = (gpu.Section("no_such_section", 10), gpu.Section("environment", 10))
    assert gpu.run_bench(tmp_path, TINY, 1, in_process=True, sections=sections) == 1
    failed, *others = read_entries(tmp_path / gpu.ENTRIES)
    assert (failed.section, failed.status) == ("no_such_section", "error")
    assert "ModuleNotFoundError" in failed.note
    assert {entry.section for entry in others} == {"environment"}


def test_a_section_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "GRACE_S", 0.1)
    gpu._run_in_child("correctness", TINY, 0.1, tmp_path)
    (entry,) = read_entries(tmp_path / gpu.ENTRIES)
    assert entry.status == "error"
    assert "ended" in entry.note


def test_what_the_time_does_not_reach_is_named(tmp_path: Path) -> None:
    assert gpu.run_bench(tmp_path, TINY, 0) == 0
    entries = read_entries(tmp_path / gpu.ENTRIES)
    assert [entry.section for entry in entries] == [section.name for section in gpu.SECTIONS]
    assert {entry.status for entry in entries} == {"not run"}

    def never() -> Entry:
        raise AssertionError

    assert measure_guarded("memory", "case", Budget.of(1), 60, never).status == "not run"
    assert measure_guarded("memory", "case", Budget.of(99), 60, never).status == "error"


def test_entries_survive_a_half_written_line(tmp_path: Path) -> None:
    path = tmp_path / gpu.ENTRIES
    append_entry(path, Entry("memory", "case", "measured", {"GiB": 1.5}))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"section": "mem')
    (entry,) = read_entries(path)
    assert entry.figures == {"GiB": 1.5}


def test_page_goes_between_the_markers_of_a_document(tmp_path: Path) -> None:
    document = tmp_path / "bench.md"
    document.write_text(f"before\n{page.BEGIN}old\n{page.END}\nafter\n", encoding="utf-8")
    page.write_document("new", document)
    assert document.read_text(encoding="utf-8") == (
        f"before\n{page.BEGIN}\nnew\n{page.END}\nafter\n"
    )
    assert page.BEGIN in page.DOCUMENT.read_text(encoding="utf-8")
    document.write_text("no markers", encoding="utf-8")
    with pytest.raises(ValueError, match="expected <!-- gpu -->"):
        page.write_document("new", document)


def test_shapes_of_the_card_are_known() -> None:
    shapes = {case.shape for case in CARD.memory} | {race.shape for race in CARD.races}
    shapes |= {race.shape for race in CARD.reward_races}
    assert shapes <= SHAPES.keys()


def test_timed_steps_by_rewards_are_whole_generations_after_the_audit() -> None:
    for race in (*CARD.reward_races, *TINY.reward_races):
        assert race.batch % race.group == 0
        assert race.steps % grpo.ITERATIONS == 0
        # The passes that the recorder waits for, as steps of the optimizer.
        passes = min(MAX_PASSES, race.accumulation * (grpo.ITERATIONS + 1))
        assert -(-passes // race.accumulation) <= grpo.SKIPPED
