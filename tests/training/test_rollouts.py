"""GRPO by `truetune train`: our prompts, each answer kept with its reward, rollouts judged, runs resumed to the bit.

All runs are of a model of two layers; the module takes about 10 s of processor time, most of it for four short runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from tests.auditing.tiny import FRUITS, model, tokenizer
from truetune.errors import DataError, FindingsError, SpecError, UsageError
from truetune.evaluation.training_run_report import build_run_report
from truetune.generation.sampling_pass_files import ROLLOUTS, read_passes_with_new_token_limits
from truetune.settings.run_spec import RunSpec
from truetune.training.reward_functions import make_reward_functions
from truetune.training.rollout_rows import RolloutRows, load_rollout_data
from truetune.training.run_training import Trained, train_run
from truetune.training.training_recipe import make_recipe

REWARDS = """
def early_letters(completions, answer, **columns):
    assert all(value.startswith("There are") for value in answer)
    texts = [completion[0]["content"] for completion in completions]
    return [sum(letter < "n" for letter in text) / max(len(text), 1) for text in texts]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with its tokenizer, rows and a reward function."""
    root = tmp_path_factory.mktemp("rollouts")
    made = model()
    made.generation_config.eos_token_id = tokenizer().convert_tokens_to_ids("<|im_end|>")
    made.save_pretrained(root / "base")
    tokenizer().save_pretrained(root / "base")
    write_rows(
        root / "rows.jsonl",
        [
            {"question": f"How many {FRUITS[i]} are in box {i}?", "answer": f"There are {i + 3}."}
            for i in range(10)
        ],
    )
    (root / "rewards.py").write_text(REWARDS, encoding="utf-8")
    return root


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(root: Path, **training: Any) -> RunSpec:
    """The settings of a run of eight steps, two prompts each: an epoch ends after four."""
    return RunSpec.model_validate(
        {
            "model": str(root / "base"),
            "tokenizer": str(root / "base"),
            "data": str(root / "rows.jsonl"),
            "max_length": 96,
            "watch": {"prompts": 1, "max_new_tokens": 4},
            "trainer": {"report_to": "none"},
            "rehearsal": False,
            "training": {
                "method": "grpo",
                "rewards": f"{root / 'rewards.py'}:early_letters",
                "num_generations": 2,
                "max_completion_length": 6,
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 2,
                "max_steps": 8,
                "learning_rate": 5e-6,
                "logging_steps": 1,
                "save_steps": 5,
                "val_size": 2,
                **training,
            },
        }
    )


@pytest.fixture(scope="module")
def whole(folder: Path) -> tuple[Path, Trained]:
    """A run from its beginning to its end, rehearsed, without the trial of the reward function: that is a program of
    its own."""
    out = folder / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "truetune.training.audit_first_rollouts.try_own_reward_functions", lambda *_: ()
        )
        spec = settings(folder, output_dir=str(out)).model_copy(update={"rehearsal": True})
        return out, train_run(spec)


def record_of(out: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((out / "run.json").read_text(encoding="utf-8"))
    return record


def log_of(out: Path) -> list[Mapping[str, Any]]:
    """The log of a run, without what depends on the clock."""
    state = json.loads((out / "trainer_state.json").read_text(encoding="utf-8"))
    return [
        {k: v for k, v in line.items() if not k.endswith(("runtime", "_per_second", "step_time"))}
        for line in state["log_history"]
        if "train_loss" not in line
    ]


def test_each_answer_is_kept_with_its_own_reward(folder: Path, whole: tuple[Path, Trained]) -> None:
    passes = read_passes_with_new_token_limits(whole[0], within=ROLLOUTS)
    assert [one.step for one, _ in passes] == list(range(8))
    assert {limit for _, limit in passes} == {6}
    logged = [line["reward"] for line in log_of(whole[0]) if "reward" in line]
    for (one, _), mean in zip(passes, logged, strict=True):
        rewards = [sample.scores.reward for sample in one.samples]
        assert len(rewards) == 4
        texts = [
            tokenizer().decode(list(sample.answer.ids), skip_special_tokens=True)
            for sample in one.samples
        ]
        # By the function itself, on the texts that are kept.
        own = [sum(letter < "n" for letter in text) / max(len(text), 1) for text in texts]
        assert rewards == pytest.approx(own)
        assert mean == pytest.approx(sum(own) / 4)
        # Two answers to one prompt stand beside each other, and the better one counts for more.
        for first, second in (one.samples[:2], one.samples[2:]):
            assert first.prompt == second.prompt
            assert first.scores.reward is not None
            assert second.scores.reward is not None
            assert first.scores.advantage == pytest.approx(
                -(second.scores.advantage or 0), abs=1e-3
            )
            gain = first.scores.reward - second.scores.reward
            assert gain * (first.scores.advantage or 0) >= 0


def test_a_prompt_is_what_the_template_makes_of_the_question(whole: tuple[Path, Trained]) -> None:
    passes = read_passes_with_new_token_limits(whole[0], within=ROLLOUTS)
    for sample in passes[0][0].samples:
        chat = [{"role": "user", "content": sample.prompt.question}]
        expected: Any = tokenizer().apply_chat_template(chat, add_generation_prompt=True)
        assert list(sample.prompt.ids) == expected["input_ids"]
        assert sample.prompt.reference.startswith("There are")


def test_the_first_rollouts_are_judged_and_recorded(whole: tuple[Path, Trained]) -> None:
    record, done = record_of(whole[0]), whole[1]
    assert record["method"] == "grpo"
    assert record["skipped"] == ["the audit of batches"]
    assert record["looks"]["the rehearsal"] == []
    # A random model ends no answer within six tokens.
    assert rules_found_in_rollouts(record) == ["first-completions-cut-or-empty"]
    assert record["data"]["counts"] == {"rows": 10, "encoded": 10, "dropped": 0, "rejected": 0}
    (known,) = record["inputs"]["rewards"]
    assert known.startswith("early_letters of ")
    assert "rewards" not in record["inputs"]["settings"]["training"]
    assert (done.steps, done.loss, done.exit_code) == (8, None, 0)


def test_the_report_of_a_run_has_its_answers_with_their_rewards(
    whole: tuple[Path, Trained],
) -> None:
    run = build_run_report([str(whole[0])], RunSpec()).more()["runs"][0]
    assert [one["step"] for one in run["rollouts"]] == list(range(8))
    sample = run["rollouts"][0]["samples"][0]
    assert {"reward", "advantage", "answer", "verdict"} <= sample.keys()
    assert "reward" not in run["looks"][0]["samples"][0]
    assert "rewards/early_letters/mean" in run["curves"]


def rules_found_in_rollouts(record: Mapping[str, Any]) -> list[str]:
    return [finding["rule"] for finding in record["looks"]["the first rollouts"]]


class Broken(TrainerCallback):
    """Ends a run by an error after its sixth step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 6:
            raise RuntimeError("the machine is gone")


def test_a_run_that_resumes_in_its_second_epoch_is_the_run_that_never_stopped(
    folder: Path, whole: tuple[Path, Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "truetune.training.audit_first_rollouts.try_own_reward_functions", lambda *_: ()
    )
    out = folder / "broken"
    spec = settings(folder, output_dir=str(out))
    with pytest.raises(RuntimeError, match="the machine is gone"):
        train_run(spec, callbacks=[Broken()])
    assert record_of(out)["status"] == "failed"
    train_run(spec)
    assert record_of(out)["resumed"][0]["step"] == 5
    # The other one was rehearsed before: that has left nothing behind.
    assert record_of(out)["skipped"] == ["the audit of batches", "the rehearsal"]
    assert log_of(out) == log_of(whole[0])
    weights = "model.safetensors"
    assert (out / weights).read_bytes() == (whole[0] / weights).read_bytes()


def test_another_reward_function_is_another_run(folder: Path, whole: tuple[Path, Trained]) -> None:
    other = folder / "other.py"
    other.write_text(REWARDS + "\n# Changed.\n", encoding="utf-8")
    spec = settings(folder, output_dir=str(whole[0]), rewards=f"{other}:early_letters")
    with pytest.raises(UsageError, match=r"a run .* that differs: the reward functions"):
        train_run(spec)


def test_rollouts_without_any_reward_end_the_run_where_warnings_do(folder: Path) -> None:
    # A random model never gives the reference, so that all rewards are 0.
    spec = settings(
        folder, output_dir=str(folder / "ended"), rewards="exact", max_steps=3, save_steps=1
    )
    with pytest.raises(
        FindingsError, match=r"the first rollouts found .*groups-without-reward-spread"
    ):
        train_run(spec.model_copy(update={"fail_on": "warning"}))
    record = record_of(folder / "ended")
    assert record["status"] == "failed"
    assert "groups-without-reward-spread" in rules_found_in_rollouts(record)
    # Started again it begins again, and is not let through.
    with pytest.raises(FindingsError, match="groups-without-reward-spread"):
        train_run(spec.model_copy(update={"fail_on": "warning"}))


def test_a_function_that_pays_the_empty_answer_ends_the_run_before_its_first_step(
    folder: Path,
) -> None:
    # One program of its own tries the function: there is no other way to see that it is tried.
    (folder / "loose.py").write_text(
        "def contained(completions, answer, **_):\n"
        "    texts = [one[0]['content'] for one in completions]\n"
        "    return [float(text in gold) for text, gold in zip(texts, answer)]\n",
        encoding="utf-8",
    )
    spec = settings(
        folder, output_dir=str(folder / "loose"), rewards=f"{folder / 'loose.py'}:contained"
    )
    with pytest.raises(FindingsError, match=r"the trial of .*contained found .*reward-pays-empty"):
        train_run(spec)
    assert not (folder / "loose" / ROLLOUTS).exists()


def recipe_of(root: Path, **training: Any) -> RunSpec:
    """Filled settings."""
    return make_recipe(settings(root, **training), rows=None, gpu=False, bf16=False).spec


def rows_of(folder: Path, tmp_path: Path, rows: list[dict[str, Any]], **training: Any) -> Any:
    spec = recipe_of(folder, **training)
    path = write_rows(tmp_path / "rows.jsonl", rows)
    return load_rollout_data(spec.model_copy(update={"data": (str(path),)}))


def chat(*contents: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]


def test_rows_without_an_answer_are_prompts_without_a_reference(
    folder: Path, tmp_path: Path
) -> None:
    rows = [{"messages": chat("Count to three."), "level": i} for i in range(3)]
    data = rows_of(folder, tmp_path, rows, val_size=0)
    assert isinstance(data.train, RolloutRows)
    given = data.train.as_given_to_rewards(2)
    assert given["prompt"] == chat("Count to three.")
    assert given["level"] == 2
    assert data.train.rows[2].prompt.reference == ""
    assert [c.value for c in data.choices if c.setting == "data"] == ["3 rows without an answer"]
    with pytest.raises(UsageError, match="exact compares with the answers of the rows, and no row"):
        make_reward_functions(["exact"], data.train)


def test_a_prompt_that_leaves_no_room_is_left_out_and_counted(folder: Path, tmp_path: Path) -> None:
    rows = [{"question": q, "answer": "1"} for q in ("Short?", "A long question " * 40)]
    data = rows_of(folder, tmp_path, rows, val_size=0)
    assert len(data.train) == 1
    assert data.encoded.counts["dropped"] == 1
    assert any("leaves no room" in choice.why for choice in data.choices)
    with pytest.raises(
        DataError, match="no prompt is left to sample answers to: its prompt leaves"
    ):
        rows_of(folder, tmp_path, rows[1:], val_size=0)


def test_built_in_rewards_compare_with_the_reference_of_their_row(
    folder: Path, tmp_path: Path
) -> None:
    rows = [{"question": "2 + 2?", "answer": "4"}, {"question": "Who?", "answer": "Ada  Lovelace"}]
    train = rows_of(folder, tmp_path, rows, val_size=0).train
    exact, agrees = make_reward_functions(["exact", "agrees:number"], train)
    said = [[{"role": "assistant", "content": text}] for text in ("4", "The answer is 4.", "5")]
    assert exact(completions=said, truetune_row=[0, 0, 0]) == [1.0, 0.0, 0.0]
    assert agrees(completions=said, truetune_row=[0, 0, 0]) == [1.0, 1.0, 0.0]
    # Nothing is read of a reference without a number: no answer agrees with it.
    assert agrees(completions=said[:1], truetune_row=[1]) == [0.0]
    assert exact(completions=["Ada Lovelace"], truetune_row=[1]) == [1.0]
    assert [exact.__name__, agrees.__name__] == ["exact", "agrees:number"]


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("missing.py:f", UsageError, "there is no such file"),
        ("no.such.module:f", SpecError, "No module named"),
        ("json:nothing", SpecError, "has no attribute 'nothing'"),
        ("json:__name__", SpecError, "is no function"),
        ("agrees:nonsense", SpecError, "the parser 'nonsense' is not known"),
    ],
)
def test_a_reward_that_is_not_there_is_named(
    folder: Path, tmp_path: Path, name: str, error: type[Exception], said: str
) -> None:
    train = rows_of(folder, tmp_path, [{"question": "2 + 2?", "answer": "4"}], val_size=0).train
    with pytest.raises(error, match=said):
        make_reward_functions([name], train)


def test_fewer_prompts_than_one_generation_are_refused(folder: Path) -> None:
    spec = settings(folder, gradient_accumulation_steps=16, output_dir=str(folder / "few"))
    with pytest.raises(UsageError, match=r"16 prompts are answered in one generation .* has 8"):
        train_run(spec, force=True)
