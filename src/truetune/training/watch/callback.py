"""A callback of any transformers Trainer that samples the model's answers while it is trained.

It works in the training process, on the model as it is between two steps, and leaves generators, modes and caches as
they were: training is the same to the bit. It costs a share of the run's time that is measured and kept to, and never
ends a run by an error of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from truetune.checks.findings import RANK, Finding
from truetune.checks.findings_file import append_findings
from truetune.checks.judge_answers import findings_new_or_worse, judge_answers
from truetune.checks.judgement import requested_parts_not_judged
from truetune.data.write_atomically import write_atomically
from truetune.errors import UsageError
from truetune.generation import sampling_pass_files
from truetune.generation.answer_samples import Answer, Prompt, Sample, SampledRun, SamplingPass
from truetune.generation.identical_answers import mark_identical_answers
from truetune.probe.find_trainers_and_their_datasets import innermost_trainer_on_stack
from truetune.settings.run_spec import RunSpec
from truetune.training.watch.exchange_between_sampling_processes import (
    broadcast_object,
    describe_sharding,
    gather_objects,
    process_count,
    process_rank,
)
from truetune.training.watch.experiment_trackers import send_pass_to_trackers
from truetune.training.watch.losses_by_source import SourceLosses, losses_from_log_history
from truetune.training.watch.remove_samples_after_resumed_checkpoint import forget_later_samples
from truetune.training.watch.sample_answers import make_answer_sampler, measure_row_and_token_costs
from truetune.training.watch.sampling_pass_lines_and_record import (
    describe_pass,
    finding_line,
    values_of_watch_json,
)
from truetune.training.watch.sampling_pass_size_and_schedule import (
    PASSES_BETWEEN,
    PassSchedule,
    PassSize,
    choose_pass_size,
)

# Chosen: well below the 30 minutes of ddp_timeout, and half of NCCL's own 10. At the double a slow
# process might end the run; at half of it more passes of large models on CPUs are cut.
MAX_PASS_SECONDS = 300.0
"""Seconds after which a pass is cut: no process waits for another until it is given up"""
WATCH_FILE = "watch.json"


class Watcher(TrainerCallback):
    """Samples the answers to `prompts` before the first step, a few times in between, and after the
    last one.

    In `folder` it writes samples/*.parquet, findings.jsonl and watch.json, from which a resumed run continues.
    All of this happens in the first process, which tells `say` of what it finds, and `show` of each pass; the
    others answer their share of the prompts. Training is the same to the bit with and without it.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        tokenizer: Any,
        stops: Sequence[int],
        spec: RunSpec,
        folder: str | Path,
        *,
        say: Callable[[str], None] = print,
        show: Callable[[SamplingPass], None] | None = None,
    ) -> None:
        self.prompts = tuple(prompts)
        self.spec, self.settings = spec, spec.watch
        self.speech = make_answer_sampler(tokenizer, stops, spec.watch.parser)
        self.folder, self.say = Path(folder), say
        self.show = show or (lambda look: say(describe_pass(look)))
        self.limit = spec.watch.max_new_tokens
        self.budget = spec.watch.budget if spec.watch.budget < 1 else inf
        self.looks: list[SamplingPass] = []
        self.findings: tuple[Finding, ...] = ()
        """Of the last pass"""
        self.notes: list[str] = []
        """What was made smaller or left out, and why"""
        self.stopped_by: Finding | None = None
        """What ended the run (`watch.stop_on`)"""
        self._said: dict[str, Finding] = {}
        self._callbacks: Sequence[Any] = ()
        self._pace = PassSchedule(0, self.budget, 1)
        self._next: int | None = None
        """The step at which to look, or to ask whether to"""
        self._began, self._first = 0.0, 0

    @property
    def sample(self) -> Sample | None:
        """The latest sampled answer, for a line on the terminal."""
        return self.looks[-1].samples[0] if self.looks and self.looks[-1].samples else None

    @property
    def seconds(self) -> float:
        """Seconds that the watcher took in this process: its sampling passes, and the choice of their size."""
        return self._pace.seconds_of_all_passes

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Continue the passes of a run that resumes; or choose their size, and sample for the first
        time.
        """
        self._began, self._first, self._next = time.monotonic(), state.global_step, None
        self.looks, self.stopped_by = [], None
        trainer = innermost_trainer_on_stack()
        # The trainer is not among a callback's arguments; it is found through the frames that
        # called.
        ledger = getattr(trainer, "ledger", None)
        if isinstance(ledger, SourceLosses) and not state.global_step:
            # Losses of the audit's batches are no part of the first log line.
            ledger.clear()  # of what an audit has put through the loss
        if not self.prompts:
            return
        # Its parameters are flat pieces outside of its own forward, and generate() calls inner
        # modules.
        if describe_sharding(model) == "FSDP 1":
            self._note_once("answers are not watched: FSDP 1 can't generate; set fsdp_version: 2")
            return
        # Evenly spread: the first and the last pass stand at the ends, PASSES_BETWEEN in between.
        every = self.settings.every or max(1, -(-state.max_steps // (PASSES_BETWEEN + 1)))
        left = -(-(state.max_steps - state.global_step) // every)
        self._pace = PassSchedule(state.max_steps, self.budget, every)
        self._callbacks = trainer.callback_handler.callbacks
        # The first process has the files; all must ask the same prompts, or they wait in different
        # collectives.
        resumed = broadcast_object(
            self._prompts_and_limit_to_resume(state.global_step) if process_rank() == 0 else None
        )
        if resumed is not None:
            self.prompts, self.limit = resumed
        else:
            size = self._choose_pass_size(args, state, model, left + 1)
            if size is None:
                return
            self._pace.sizing, self._pace.expected = time.monotonic() - self._began, size.seconds
            self.prompts, self.limit = _pick_spread_prompts(self.prompts, size.prompts), size.limit
            if not self._sample_pass(args, state, control, model):
                return
        self._next = self._pace.next_sampling_step(state.global_step, left)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Run a sampling pass where one is due."""
        step = state.global_step
        if self._next is None or step < min(self._next, state.max_steps):
            return
        done = step - self._first
        # Clocks differ between processes: the first one decides for all.
        if not broadcast_object(self._pace.is_due(step, done, time.monotonic() - self._began)):
            # Asked again later and not at each step: the answer costs a collective call.
            self._next = min(state.max_steps, step + self._pace.every)
        elif self._sample_pass(args, state, control, model):
            self._next = self._pace.next_sampling_step(
                step,
                broadcast_object(
                    self._pace.passes_left(step, done, time.monotonic() - self._began)
                ),
            )
        else:
            self._next = None

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say how long the sampling passes took."""
        if process_rank() == 0 and self._pace.looks:
            share = self._write_record_and_give_time_share()
            over = " (the first and the last one are always made)" if share > self.budget else ""
            self.say(
                f"watching: {len(self._pace.looks)} looks took {self.seconds:.1f} s, {share:.1%} of"
                f" the time{over}"
            )

    def watched(self, state: Any) -> SampledRun:
        """What was watched: the run's passes and losses, as the rules judge them."""
        return SampledRun(
            tuple(self.looks),
            losses_from_log_history(state.log_history),
            self.limit,
            finished=state.global_step >= state.max_steps,
            total=state.max_steps,
        )

    def _prompts_and_limit_to_resume(self, step: int) -> tuple[tuple[Prompt, ...], int] | None:
        """The prompts and the limit of the passes up to a step, whose later ones are forgotten; None where there are no
        such, or of other prompts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Passes behind the checkpoint belong to steps that will be made again, with other answers
        # perhaps.
        findings, removed = forget_later_samples(self.folder, step)
        if removed:
            self._note_once(
                f"sampling passes of an earlier run, after step {step:,}, are removed from"
                f" {self.folder}: {removed}"
            )
        prompt_of_ids = {prompt.ids: prompt for prompt in self.prompts}
        earlier = sampling_pass_files.read_passes_with_new_token_limits(self.folder) if step else []
        if not earlier:
            return None
        last, limit = earlier[-1]
        asked_ids = [sample.prompt.ids for sample in last.samples]
        # Answers to other prompts cannot be compared over time: the series would show a jump that
        # is none.
        if not prompt_of_ids.keys() >= set(asked_ids):
            self._note_once("the earlier passes are of other prompts: not compared")
            return None
        self._said = {finding.rule: finding for finding in findings}
        self.looks = [look for look, of in earlier if of == limit]
        return tuple(prompt_of_ids[ids] for ids in asked_ids), limit

    def _choose_pass_size(self, args: Any, state: Any, model: Any, planned: int) -> PassSize | None:
        """How many prompts and tokens a pass has, by what a pass and the run will take; None where
        the model can't be run so.
        """
        try:
            took: Any = measure_row_and_token_costs(self.speech, model, self.prompts)
        except (
            Exception
        ) as error:  # of a model that can't generate: the run continues without being watched
            took = f"{type(error).__name__}: {error}"
        failed = [one for one in gather_objects(took) if isinstance(one, str)]
        if failed:
            self._note_once(f"answers are not watched: {failed[0]}")
            return None
        lengths = sorted(len(prompt.reference_ids) for prompt in self.prompts)
        size: PassSize = broadcast_object(
            choose_pass_size(
                took,
                prompts=len(self.prompts),
                limit=self.settings.max_new_tokens,
                needed_tokens=lengths[3 * len(lengths) // 4] + 1,
                planned=planned,
                budget=self.budget,
                rows=args.per_device_train_batch_size
                * args.gradient_accumulation_steps
                * (state.max_steps - state.global_step),
                sampled=_tokens_sampled_for_each_row(args),
            )
        )
        if size.note:
            self._note_once(size.note)
        return size

    def _sample_pass(self, args: Any, state: Any, control: Any, model: Any) -> bool:
        """Sample all prompts; False where that fails."""
        started, step = time.monotonic(), state.global_step
        # A sharded model needs every process in each forward pass, so all answer all prompts; else
        # each takes its share.
        together = bool(describe_sharding(model))
        own_prompts = self.prompts if together else self.prompts[process_rank() :: process_count()]
        try:
            answers: Any = self.speech.answer_prompts_greedily(
                model, own_prompts, self.limit, started + MAX_PASS_SECONDS
            )
        except Exception as error:  # of a device without room for it: the run continues
            answers = f"{type(error).__name__}: {error}"
        everyones = gather_objects(answers)
        failed = [one for one in everyones if isinstance(one, str)]
        if failed:
            self._note_once(f"answers are not watched from step {step:,} on: {failed[0]}")
            return False
        if process_rank() == 0:
            answered = (
                everyones[0]
                if together
                else [
                    everyones[i % process_count()][i // process_count()]
                    for i in range(len(self.prompts))
                ]
            )
            self._score_store_and_judge_answers(answered, started, args, state, control, model)
        self._pace.looks.append((step, time.monotonic() - started))
        if broadcast_object(self.stopped_by is not None):
            control.should_training_stop = control.should_save = True
        return True

    def _score_store_and_judge_answers(
        self,
        answered: Sequence[Answer | None],
        started: float,
        args: Any,
        state: Any,
        control: Any,
        model: Any,
    ) -> None:
        """Score the answers of a pass, store it, send it to the trackers, and judge it."""
        pairs = zip(self.prompts, answered, strict=True)
        samples = tuple(
            self.speech.score(prompt, answer) for prompt, answer in pairs if answer is not None
        )
        if len(samples) < len(answered):
            self._note_once(
                f"step {state.global_step:,}: {len(answered) - len(samples)} prompts were not"
                " answered: they leave no room for an answer, or the pass took longer than"
                f" {MAX_PASS_SECONDS:.0f} s"
            )
        look = SamplingPass(
            state.global_step, mark_identical_answers(samples), time.monotonic() - started
        )
        self.looks = [*(known for known in self.looks if known.step != look.step), look]
        try:
            sampling_pass_files.save_pass(look, self.limit, self.folder)
        except (
            UsageError
        ) as error:  # a file of the user's stands there: it stays, and the run continues
            self._note_once(f"the answers of step {state.global_step:,} are not kept: {error}")
        for refused in send_pass_to_trackers(look, self._callbacks, args, state, control, model):
            self._note_once(f"a tracker did not take the samples: {refused}")
        self.show(look)
        self._judge_and_report(state)
        self._write_record_and_give_time_share()

    def _judge_and_report(self, state: Any) -> None:
        """Judge the passes so far: say what is new, and decide whether it ends the run."""
        judgement = judge_answers(self.watched(state), self.spec)
        self.findings = judgement.findings
        for part in requested_parts_not_judged(judgement.not_judged):
            self._note_once(f"not judged: {part}")
        # A finding is said once, and again only when it has become worse: a log of the same warning
        # is not read.
        fresh = findings_new_or_worse(self.findings, self._said)
        for finding in fresh:
            self.say(finding_line(finding))
        over, least = state.global_step >= state.max_steps, self.settings.stop_on
        # At the end there is nothing left to stop.
        if least is not None and not over:
            worst = [finding for finding in fresh if RANK[finding.severity] >= RANK[least]]
            self.stopped_by = worst[0] if worst else None
        append_findings(fresh, state.global_step, self.folder, stopped=self.stopped_by)
        if self.stopped_by is not None:
            self.say(
                f"the run ends at step {state.global_step:,}: {self.stopped_by.rule}"
                f" (watch.stop_on: {least})"
            )

    def _write_record_and_give_time_share(self) -> float:
        """Write watch.json; gives the share of the time that the passes have taken."""
        share = self.seconds / max(1e-9, time.monotonic() - self._began)
        facts = values_of_watch_json(
            self.looks, self.limit, self.settings.budget, share, self.notes, self.stopped_by
        )
        write_atomically(self.folder / WATCH_FILE, json.dumps(facts, indent=1).encode())
        return share

    def _note_once(self, text: str) -> None:
        """Say something once, and keep it for watch.json."""
        if text not in self.notes and process_rank() == 0:
            self.notes.append(text)
            self.say(f"watching: {text}")


def _pick_spread_prompts(prompts: tuple[Prompt, ...], count: int) -> tuple[Prompt, ...]:
    """`count` of the prompts, spread over them evenly."""
    return tuple(prompts[i * len(prompts) // count] for i in range(count))


def _tokens_sampled_for_each_row(args: Any) -> int:
    """New tokens that a training samples for each row at most; 0 where it samples none."""
    return int(args.max_completion_length or 0) if hasattr(args, "num_generations") else 0
