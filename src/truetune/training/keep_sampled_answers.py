"""Keeps the answers that a training by rewards learns from: `rollouts/step-00000010.parquet` in the folder of the run.

A file has the form of a sampling pass (`generation.sampling_pass_files`), with the reward and the advantage of each
answer, so that the page of a run shows it as it shows answers to held-out prompts. The first process keeps its own
answers: those of the others are their groups' as well, and the files of a run of many processes would grow with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import PartialState

from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Sample, SamplingPass
from truetune.generation.sampling_pass_files import ROLLOUTS, save_pass
from truetune.settings.run_spec import RunSpec
from truetune.training.rollout_rows import RolloutRows
from truetune.training.rollout_trainer import SampledAnswers
from truetune.training.watch.sample_answers import AnswerSampler, make_answer_sampler


class AnswerKeeper:
    """Scores the answers of each generation and writes them into the folder of a run."""

    def __init__(
        self,
        rows: RolloutRows,
        sampler: AnswerSampler,
        limit: int,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
            rows: that answers are sampled to.
            sampler: decodes and scores answers.
            limit: tokens after which an answer was cut.
            folder: of the run.
            say: is told once where the answers can't be kept.
        """
        self.rows, self.sampler, self.limit, self.folder = rows, sampler, limit, folder
        self.seconds = 0.0
        """That scoring and writing have taken"""
        self._say, self._failed = say, False
        self._step = -1
        self._samples: list[Sample] = []

    def keep(self, answers: SampledAnswers) -> None:
        """Score and write the answers of one generation. A file that can't be written ends no run."""
        if self._failed or not PartialState().is_main_process:
            return
        started = time.perf_counter()
        # Several generations in one step of the optimizer stand in one file.
        if answers.step != self._step:
            self._step, self._samples = answers.step, []
        self._samples += self._score(answers)
        try:
            save_pass(
                SamplingPass(answers.step, tuple(self._samples), time.perf_counter() - started),
                self.limit,
                self.folder,
                within=ROLLOUTS,
            )
        except (UsageError, OSError) as error:
            self._failed = True
            self._say(f"sampled answers are not kept from step {answers.step:,} on: {error}")
        self.seconds += time.perf_counter() - started

    def _score(self, answers: SampledAnswers) -> list[Sample]:
        """The answers as samples."""
        samples = []
        for row, ids, reward, advantage in zip(
            answers.rows, answers.ids, answers.rewards, answers.advantages, strict=True
        ):
            sample = self.sampler.score(
                self.rows.rows[row].prompt, _answer_of_ids(ids, self.sampler)
            )
            scores = replace(sample.scores, reward=reward, advantage=advantage)
            samples.append(replace(sample, scores=scores))
        return samples


def make_answer_keeper(
    spec: RunSpec,
    rows: RolloutRows,
    tokenizer: Any,
    stops: Collection[int],
    folder: Path,
    say: Callable[[str], None],
) -> AnswerKeeper:
    """The keeper of a run's answers. Raises UsageError for a parser that there is none of."""
    sampler = make_answer_sampler(tokenizer, sorted(stops), spec.watch.parser)
    return AnswerKeeper(rows, sampler, spec.training.max_completion_length or 0, folder, say)


def _answer_of_ids(ids: Sequence[int], sampler: AnswerSampler) -> Answer:
    """An answer as it was sampled, without the stop token that ended it."""
    stop = ids[-1] if ids and ids[-1] in sampler.stops else None
    said = tuple(ids[:-1] if stop is not None else ids)
    return Answer(said, sampler.decode(said), stop)
