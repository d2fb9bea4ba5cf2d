"""What rules on logs, weights, answers, servers and environments say where they find nothing: a figure, or what lacks.

The "Use instead" of a rule's page is a healthy subject that it can judge: it must be examined, with a figure. A subject
that holds next to nothing must leave every rule without a verdict, or with a figure of what is there.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checks.pages import block, sections
from truetune.checkpoint.load_checkpoint import read_checkpoint
from truetune.checks.judgement import Examined, Judgement
from truetune.checks.rule import AdapterLoadingRule, Rule
from truetune.checks.rule_catalogue import all_rules, station_of_rule
from truetune.checks.rule_runner import run_rule, run_rules
from truetune.doctor.environment_record_types import Environment
from truetune.generation.answer_samples import SampledRun, SamplingPass
from truetune.generation.evaluation_loss_and_score_types import EvaluationResults
from truetune.generation.evidence_on_causes_of_answers import ModelEvidence
from truetune.generation.reward_trial import RewardTrial
from truetune.generation.server_observations import ServerObservations
from truetune.logs.read_jsonl_csv_json_logs import add_trainer_state
from truetune.logs.run_log import RunLog
from truetune.logs.run_log_builder import RunLogBuilder

STATIONS = (
    "log",
    "checkpoint",
    "answers",
    "cause",
    "evaluation",
    "serving",
    "reward",
    "environment",
)
RULES = all_rules(*STATIONS)
IN_WORDS = {
    "special-token-ids-differ-from-base",
    "use-cache-saved-off",
    "generation-config-distorts-answers",
    "tied-embeddings-flag-contradicts-tensors",
}
"""Rules whose figure may have no number: flags, and names of files that agree"""
OTHER_SUBJECT = {
    "memorised-not-learned": "8 of each",
    "offload-without-need": "does not say that anything is offloaded",
    "server-ignores-fields": "asked for no prompt",
    "answers-have-faults": "too few to say",
}
"""Rules whose healthy example is a subject that lacks what they take: rows that were held out, fields alone, a fault in
few answers, of which it can't be told whether it is often"""


def judged(rule: type[Rule[Any]], section: str, folder: Path) -> Judgement:
    """What a rule says of the subject that a section's block describes."""
    subjects: list[Any] = []

    def keep(subject: Any) -> Rule[Any]:
        subjects.append(subject)
        return rule(subject)

    folder.mkdir()
    module = importlib.import_module(f"tests.checks.pages.{station_of_rule(rule)}")
    module.findings(keep, block(section), folder)
    return run_rule(subjects[-1], rule)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_a_healthy_example_is_examined_with_a_figure(rule: type[Rule[Any]], tmp_path: Path) -> None:
    made = judged(rule, sections(rule)["Use instead"], tmp_path / "healthy")
    assert not made.findings
    if rule.name() in OTHER_SUBJECT:
        assert OTHER_SUBJECT[rule.name()] in made.not_judged[0].reason
        return
    assert not made.not_judged, made.not_judged
    (examined,) = made.examined
    assert examined.figure
    assert rule.name() in IN_WORDS or any(letter.isdigit() for letter in examined.figure), (
        examined.figure
    )


def log_of(*records: dict[str, float]) -> RunLog:
    log_builder = RunLogBuilder("made", "transformers")
    add_trainer_state({"log_history": list(records)}, log_builder)
    return log_builder.build()


def bare() -> Iterator[tuple[str, Any]]:
    """Subjects that hold next to nothing, by station."""
    yield "log", log_of({"step": 1, "loss": 2.0})
    yield "log", log_of({"step": 1, "grad_norm": 1.0})
    yield "answers", SampledRun((SamplingPass(0, (), 0.0),), finished=True)
    yield "cause", ModelEvidence(SampledRun((SamplingPass(0, (), 0.0),), finished=True))
    yield "evaluation", EvaluationResults(rows=0)
    yield "serving", ServerObservations("http://localhost:8000")
    yield "reward", RewardTrial("rewards.py:correct", rows=0)
    yield "environment", Environment("python", "3.11", "Linux", "UTF-8", {})


@pytest.mark.parametrize(
    ("where", "subject"), list(bare()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_nothing_of_a_bare_subject_is_fine_without_a_figure(where: str, subject: Any) -> None:
    # Rules of the family serving look at a server, or at what an engine's loader makes of an adapter.
    rules = [rule for rule in all_rules(where) if not issubclass(rule, AdapterLoadingRule)]
    made = run_rules(subject, rules)
    assert not [part for part in made.not_judged if part.place], "a rule failed"
    assert all(part.figure for part in made.examined)
    assert len(made.not_judged) > len(made.examined)


def names(parts: tuple[Examined, ...]) -> set[str]:
    return {part.rule for part in parts}


def test_a_log_of_five_lines_lets_few_rules_judge() -> None:
    made = run_rules(
        log_of(*({"step": i, "loss": 2.0 - i / 10} for i in range(1, 6))), all_rules("log")
    )
    assert names(made.examined) == {
        "loss-not-finite",
        "loss-or-gradient-exactly-zero",
        "first-loss-above-guessing",
    }
    assert all(part.unlock for part in made.not_judged if "the log has" in part.reason)


def test_a_bare_checkpoint_names_its_base(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    made = run_rules(read_checkpoint(tmp_path), all_rules("checkpoint"))
    assert not names(made.examined) & {
        "nan-in-weights",
        "weights-equal-the-base",
        "weights-file-broken",
    }
    assert not [part for part in made.not_judged if part.place]
