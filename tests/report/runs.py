"""Small runs on disk, written by the code that training uses, and results of `truetune sample`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from truetune.checks.findings_file import append_findings
from truetune.checks.judge_answers import findings_on_sampled_answers
from truetune.evaluation.compare_model_answers import compare_model_answers
from truetune.evaluation.sample_report import SampleReport
from truetune.generation import sampling_pass_files
from truetune.generation.answer_samples import Answer, Prompt, Sample, SampledRun, SamplingPass
from truetune.generation.score_answer_by_prompt_and_reference import score_answer
from truetune.settings.run_spec import RunSpec

LIMIT = 48
STOP = 2


def sample(
    number: int, question: str, said: str, *, stops: bool = True, p: float | None = 0.9
) -> Sample:
    """The answer to a question, with its scores."""
    reference = f"The answer to number {number} is short."
    ids = tuple(range(10, 10 + (len(said.split()) if stops else LIMIT)))
    prompt = Prompt(
        (1, number), question, reference, (7, 8, 9, STOP), "held.jsonl", number + 1, row=number
    )
    answer = Answer(ids, said, STOP if stops else None, p)
    return Sample(prompt, answer, score_answer(prompt, answer))


def look(step: int, texts: Sequence[str] = ()) -> SamplingPass:
    """At step 0 all answers loop, at step 20 the second one still does, later none; `texts` stand in questions and
    answers."""
    samples = []
    for number, text in enumerate(texts or [f"what is {n}?" for n in range(6)]):
        loops = step == 0 or (step == 20 and number == 1)
        said = (
            f"{text} again " + "and again " * 20
            if loops
            else f"The answer to number {number} at {step} is {text}"
        )
        samples.append(
            sample(
                number,
                f"Question {number}: {text}",
                said,
                stops=not loops,
                p=0.001 if loops else 0.9,
            )
        )
    return SamplingPass(step, tuple(samples), 1.5)


def write_run(
    folder: Path, *, rate: float = 1e-4, texts: Sequence[str] = (), steps: int = 40, **record: Any
) -> Path:
    """The folder of a run with looks at steps 0, 20 and the last, and the findings of the first noted at step 20."""
    folder.mkdir(parents=True)
    history = [
        {
            "step": step,
            "loss": 1 + math.exp(-step * rate * 1e3),
            "learning_rate": rate * (1 - step / steps),
            "grad_norm": 1.0 + step % 3,
            "epoch": step / steps,
            "loss/assistant content": 1.1,
            "loss/stop token": 3 / step,
        }
        for step in range(1, steps + 1)
    ]
    history.append({"step": steps, "eval_loss": 1.5})
    state = {"global_step": steps, "max_steps": steps, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    settings = {"training": {"learning_rate": rate, "optim": "adamw"}, "data": ["train.jsonl"]}
    made = {
        "format": 1,
        "status": "finished",
        "method": "sft",
        "settings": settings,
        "seconds": 12.5,
        "step": steps,
        "base": {"name": "tiny"},
        "versions": {"truetune": "0.1.0"},
    } | record
    (folder / "run.json").write_text(json.dumps(made))
    looks = [look(step, texts) for step in (0, 20, steps)]
    for one in looks:
        sampling_pass_files.save_pass(one, LIMIT, folder)
    append_findings(
        findings_on_sampled_answers(SampledRun(tuple(looks[:1]), limit=LIMIT, finished=True)),
        20,
        folder,
    )
    (folder / "watch.json").write_text(
        json.dumps({"prompts": 6, "share_of_the_time": 0.1, "notes": []})
    )
    return folder


def sampled(texts: Sequence[str] = ()) -> SampleReport:
    """A model of good answers beside one that loops."""
    good, bad = look(40, texts), look(0, texts)
    pairs = list(zip(good.samples, bad.samples, strict=True))
    return SampleReport(
        spec=RunSpec(), findings=(), seconds=1.0, name="tuned", looks=(good,), limit=LIMIT,
        compared=compare_model_answers("base", pairs, LIMIT),
    )  # fmt: skip
