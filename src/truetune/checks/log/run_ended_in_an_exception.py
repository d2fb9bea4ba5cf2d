"""The run ended in an exception.

## What it does
Collects the tracebacks in the console output, of every process, and finds the one that ended the run: the root of a
chain, not what was raised because another process had failed (`ChildFailedError`, an NCCL timeout, a broken pipe).
About 130 exceptions are known with their cause; `truetune explain NAME` shows each. For an unknown one it names the
type, the last frame in your own code, and its line. A traceback after which the run continued is not reported here. A
run that its user stopped (Ctrl-C) is info, with the place where it was.

## Why it is bad
Nothing after this step was trained, and the newest checkpoint may be incomplete. The last lines of the output are often
those of the launcher, which only reports that a process failed.

## Example
```yaml
output: |
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
  Traceback (most recent call last):
    File "train.py", line 40, in <module>
      trainer.train()
    File "/opt/venv/lib/python3.11/site-packages/transformers/trainer.py", line 2206, in train
      return inner_training_loop(
  IndexError: index out of range in self
```

## Use instead
```yaml
output: |
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
  {'loss': 2.05, 'grad_norm': 1.1, 'learning_rate': 1e-05, 'epoch': 0.2}
  {'train_runtime': 61.2, 'train_samples_per_second': 4.9, 'train_loss': 2.18, 'epoch': 0.2}
```

## Fix safety
The help is a command that only reads, or an edit whose effect the next run shows.

## References
- docs.python.org/3/library/traceback.html, pytorch.org/docs/stable/elastic/errors.html; of each message its own
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.log.evidence.is_exception_from_parsing_answer import failed_to_parse_an_answer
from truetune.checks.log.explain_log_messages_and_progress import (
    EVEN_SHARES,
    UNEVEN,
    describe_steps_or_records,
    explain_message,
    lines_printed_by_one_rank,
    optimizer_steps_made,
)
from truetune.checks.log.explain_missing_best_metric import MissingMetric, explain_missing_metric
from truetune.checks.log.what_filled_host_memory import describe_rows_in_a_list
from truetune.checks.rule import OutputRule
from truetune.logs.console.explain_out_of_memory_with_advice import (
    MODE_OF_EVALUATION,
    MemoryStory,
    failed_right_after_first_evaluation,
    memory_curve_of_run_or_sibling,
)
from truetune.logs.console.failure_phase import find_failure_phase
from truetune.logs.console.messages import KnownMessage
from truetune.logs.console.out_of_memory_causes import (
    ATTENTION_MASK,
    LOADED_AFTER_TRAINING,
    MODEL_LOADING,
    add_settings_proved_by_frames,
    cause_after_evaluation,
    cause_of_engine_cache,
    find_memory_cause,
)
from truetune.logs.console.out_of_memory_loading import loading_cause
from truetune.logs.console.out_of_memory_message import (
    HELD_BY_OTHERS,
    SHARED_BY_RANKS,
    MemoryFigures,
    add_count_of_own_processes_on_gpu,
    parse_memory_error,
)
from truetune.logs.console.port_conflicts_within_run import PortConflict
from truetune.logs.console.read_console_output import (
    COLLECTIVE_TIMEOUT_RAISED,
    ConsoleOutput,
    Failure,
    is_stopped_by_hand,
)
from truetune.logs.console.uneven_counts_of_ranks import RankCounts
from truetune.logs.console.weights_at_out_of_memory_by_files_beside_log import (
    evidence_of_adapter_slots,
)

OUT_OF_MEMORY = "cuda-out-of-memory"
SECOND_LOAD = "another model was loaded onto the GPU after the training"
WORKER_ENDS = ("dataloader-worker-killed",)
"""Messages on workers that the kernel may have ended for the memory they took"""
NO_CACHE = "vllm-no-memory-for-the-cache"
NODES_APART = "nodes-did-not-meet"
PORT_TAKEN = "port-in-use"
SHARE_NOT_FREE = "vllm-memory-not-free"
FREE_ON_DEVICE = re.compile(r"Free memory on device \D{0,20}(\d{1,4}\.\d{1,3})/")
ENGINE_STARTS = frozenset(("run_engine_core", "init_device", "_initialize_kv_caches"))
"""Functions of vLLM that run before it takes a request"""
GIB = float(1 << 30)
HOLDS_MUCH = 0.05
"""Share of a GPU's memory from which a process is named as what fills it. Chosen, not measured: half of it would name a
desktop (Xorg, 0.1 to 0.5 GiB) on a small card, twice of it leave out a small model"""
FREE_APART = 1.5
"""GiB by which what vLLM finds free and what nvidia-smi shows may differ. Chosen: a process has 0.5 of its own"""
PROGRAM = "<module>"
"""The function of the outermost frame where an exception ends the program itself"""
OLD_SERVER_ANSWERS = (
    "cause: another process, often an earlier server, still uses the port and answers the requests, with its own"
    " model instead of the one in this command"
)
OLD_SERVER_REMEDY = (
    "find the process that uses the port (`ss -ltnp`) and end it, start the server again, and compare the model name"
    " in GET /v1/models; or start it on another port and send the requests there"
)
RIVALS = "several processes of this run try to open the same port"
ONE_LAUNCHER = (
    "start the launcher only once on each node (#SBATCH --ntasks-per-node=1, `srun --ntasks-per-node=1`, mpirun"
    " --map-by ppr:1:node): it starts the processes of its node itself; another port or node does not help"
)
ONE_FIRST_PROCESS = (
    "give each process its own number (RANK from SLURM_PROCID or OMPI_COMM_WORLD_RANK, or rank= of"
    " init_process_group): now each takes itself for the first one; another port does not help"
)
DIFFERENT_VALUES = re.compile(r"^- (ds \S.{0,200} vs hf .{1,200})$", re.MULTILINE)
"""The lines in which the Trainer says which values of the DeepSpeed file are not its own"""
RESUMING_FUNCTION = re.compile(
    r"^(?:_load_from_checkpoint|_load_optimizer_and_scheduler|_load_rng_state|load_checkpoint|resume\w*"
    r"|load_state_dict_from_checkpoint|restore_checkpoint)$"
)
"""Functions that read the state of a training before its first step"""
RACED = "several processes delete, rename or make the same files at the same time"
RACE_REMEDY = (
    "let one process do it (if accelerator.is_main_process, or rank 0) and let the others wait after it"
    " (wait_for_everyone, barrier): `truetune lint SCRIPT` names the calls that every process runs"
)
MAX_TEXT = 200
"""Characters of an exception's text in a finding's message"""


class RunEndedInAnException(OutputRule):
    code = "LOG030"
    fault = Fault.RUN_FAILED
    severity = "error"

    def measurement_if_clean(self) -> str:
        """The number of lines that no exception ends; empty without an output."""
        output = self.subject.output
        return f"no exception ends the {output.lines:,} lines of {output.file}" if output else ""

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None or output.failure is None:
            return
        if failed_to_parse_an_answer(self.subject, output.failure):
            return  # answers-fail-to-parse says so
        failure, known = output.failure, output.failure.message
        text = failure.raised.text.partition("\n")[0][:MAX_TEXT]
        is_other_launch = output.is_relaunched or self._is_resuming(output)
        after = "" if is_other_launch else describe_steps_or_records(self.subject, output)
        meaning = f": {self._title(known, failure)}" if known or failure.race else ""
        by_hand = is_stopped_by_hand(failure.raised)
        yield self.finding(
            (
                f"the run was stopped by hand{after}"
                if by_hand
                else f"{self._ended_thing_in_words(failure)} in an exception{after}{meaning} ({text})"
            ),
            self._remedy(failure),
            severity=known.severity if known else "error",
            evidence=self._evidence(failure),
            cases=(Case(text, file=output.file, line=failure.raised.line),),
        )

    def _ended_thing_in_words(self, failure: Failure) -> str:
        """What ended, in words: a run, a server, or a request to a server that keeps answering
        others.
        """
        if not self.subject.inference_server_name:
            return "the run ended"
        # A handler's frames begin in the event loop or in a thread; those of a program begin at its first line.
        is_program = any(
            one.frames and one.frames[0].function == PROGRAM for one in failure.chain.raised
        )
        functions = {frame.function for one in failure.chain.raised for frame in one.frames}
        is_start = failure.message is not None and failure.message.name == SHARE_NOT_FREE
        if is_start or functions & ENGINE_STARTS:
            return "the server did not start: its engine ended"
        return "the server itself ended" if is_program else "a request to the server ended"

    def _describe_gpu_holders(self, failure: Failure) -> str:
        """The processes that hold the GPU on which vLLM does not find its share, by nvidia-smi beside the log."""
        free = FREE_ON_DEVICE.search(failure.raised.text)
        if free is None:
            return ""
        fitting = [
            gpu
            for gpu in self.subject.files_beside.gpus
            if gpu.total is not None
            and gpu.used is not None
            and abs((gpu.total - gpu.used) / GIB - float(free[1])) <= FREE_APART
        ]
        # Two GPUs that are as full leave open which one is meant.
        if len(fitting) != 1:
            return ""
        held = HOLDS_MUCH * (fitting[0].total or 0.0)
        named = [
            f"process {one.pid} ({one.name}), which holds {one.used / GIB:.1f} GiB"
            for one in fitting[0].processes
            if one.used >= held
        ]
        if not named:
            return ""
        return f"{' and '.join(named)} of GPU {fitting[0].index} by nvidia-smi"

    def _steps_of_failed_launch(self, output: ConsoleOutput) -> float:
        """Steps of the launch that failed; those of an earlier one in the same file are none of it."""
        if output.is_relaunched or self._is_resuming(output):
            return 0.0
        return optimizer_steps_made(self.subject, output)

    def _steps_or_records_of_launch(self, output: ConsoleOutput) -> float:
        """Steps of this launch, or its records where no record has a step."""
        if output.is_relaunched or self._is_resuming(output):
            return 0.0
        return optimizer_steps_made(self.subject, output) or self.subject.last_step

    def _is_resuming(self, output: ConsoleOutput) -> bool:
        """Was a checkpoint of a training being read, so that no step of this launch had been made?"""
        failure = output.failure
        return failure is not None and any(
            RESUMING_FUNCTION.search(frame.function) for frame in failure.raised.frames
        )

    def _title(self, known: KnownMessage | None, failure: Failure) -> str:
        """The finding's title: what the exception means; an out-of-memory message that others
        caused is not a step too large.
        """
        if failure.race is not None:
            return RACED
        if known is None:
            return ""
        metric = self._missing_metric(failure)
        if metric is not None:
            return metric.title
        if self._own_port_conflict(known) is not None:
            return RIVALS
        uneven = self._unequal_batch_counts(known)
        if uneven is not None:
            return UNEVEN.format(uneven.unit)
        if known.name == OUT_OF_MEMORY:
            figures = self._memory_figures(failure)
            if figures.has_several_ranks:
                return SHARED_BY_RANKS
            if figures.others_hold_most:
                return HELD_BY_OTHERS
            if self._was_model_loading_after_training(failure):
                return SECOND_LOAD
        return known.title

    def _own_port_conflict(self, known: KnownMessage | None) -> PortConflict | None:
        """The port that processes of the run itself compete for, where the exception is about a port."""
        output = self.subject.output
        if (
            known is None
            or known.name != PORT_TAKEN
            or output is None
            or self.subject.inference_server_name
        ):
            return None
        return output.port_conflict

    def _unequal_batch_counts(self, known: KnownMessage | None) -> RankCounts | None:
        """The unequal numbers of batches by which processes parted, where the exception is about their waiting."""
        output = self.subject.output
        if known is None or known.name != COLLECTIVE_TIMEOUT_RAISED or output is None:
            return None
        return output.uneven

    def _missing_metric(self, failure: Failure) -> MissingMetric | None:
        """The metric that an evaluation of the log did not give, where the exception is about that."""
        return explain_missing_metric(self.subject, failure.raised.text, failure.message)

    def _was_model_loading_after_training(self, failure: Failure) -> bool:
        """Was another model being loaded after the training?"""
        output = self.subject.output
        if output is None:
            return False
        cause = self._circumstances_of_memory_error(failure, output).cause
        return cause is not None and cause.name == LOADED_AFTER_TRAINING.name

    def _memory_remedy(self, failure: Failure, output: ConsoleOutput) -> str:
        """The remedy that frees memory, by what the error says and by what the run did before."""
        figures = self._memory_figures(failure)
        if figures.has_several_ranks:
            return figures.advice_to_regain_memory_of_others(
                loads_checkpoint=_failed_loading_tensors(failure)
            )
        advice = self._circumstances_of_memory_error(failure, output).advice(
            figures.gpu_memory_as_plan_argument
        )
        return ": ".join(
            part for part in (figures.advice_to_regain_memory_of_others(), advice) if part
        )

    def _message_remedy(self, failure: Failure, known: KnownMessage) -> str:
        """The remedy of a known message, in the light of what else the log and the files beside it
        say.
        """
        if known.name == OUT_OF_MEMORY and self.subject.output is not None:
            return self._memory_remedy(failure, self.subject.output)
        if known.name == PORT_TAKEN and self.subject.inference_server_name:
            return OLD_SERVER_REMEDY
        if self._unequal_batch_counts(known) is not None:
            return EVEN_SHARES
        holders = self._describe_gpu_holders(failure)
        if holders:
            return (
                f"end {holders}, or give the server another GPU (CUDA_VISIBLE_DEVICES); only if that process has to"
                " stay, lower --gpu-memory-utilization to what is free"
            )
        rivals = self._own_port_conflict(known)
        if rivals is not None:
            return ONE_LAUNCHER if rivals.launchers else ONE_FIRST_PROCESS
        metric = self._missing_metric(failure)
        return metric.advice if metric is not None else known.advice.replace("{gpu}", "SIZE")

    def _memory_figures(self, failure: Failure) -> MemoryFigures:
        """The figures of an out-of-memory message, with the processes of the run that share the GPU."""
        output = self.subject.output
        figures = parse_memory_error(failure.raised.text)
        return add_count_of_own_processes_on_gpu(
            figures, output.started if output else frozenset(), failure.beside
        )

    def _remedy(self, failure: Failure) -> str:
        """The remedy: the advice of a known message, else where to look."""
        if failure.race is not None:
            return RACE_REMEDY
        if failure.message is not None:
            return self._message_remedy(failure, failure.message)
        frame = failure.raised.last_user_frame
        if failure.raised.type == "error" or frame is None:
            return (
                "run it again so that the traceback is printed (`python -X faulthandler SCRIPT`),"
                " and diagnose that output"
            )
        return (
            f"read the code at {frame}; `truetune lint {frame.file}` checks the script for known faults, "
            "`truetune check DATA -t TOKENIZER` the rows"
        )

    def _circumstances_of_memory_error(
        self, failure: Failure, output: ConsoleOutput
    ) -> MemoryStory:
        """What frames, settings and the memory curve of the log show of an out-of-memory exception."""
        raised = failure.raised
        figures = parse_memory_error(raised.text)
        engine = cause_of_engine_cache(output.settings, figures)
        cause = engine or find_memory_cause(raised.frames, raised.text)
        if cause is MODEL_LOADING:
            cause = loading_cause(raised.frames, figures, self._steps_or_records_of_launch(output))
        is_behind = failed_right_after_first_evaluation(self.subject, raised.frames)
        if is_behind and not engine and cause is not ATTENTION_MASK:
            beside = self.subject.files_beside
            checkpointing = beside.setting("gradient_checkpointing")
            # Without checkpointing a step keeps as much in either mode.
            is_off = checkpointing is not None and checkpointing.value is False
            is_left = beside.setting(MODE_OF_EVALUATION) is not None and not is_off
            cause = cause_after_evaluation(raised.frames, is_left_in_eval_mode=is_left)
        return MemoryStory(
            cause,
            add_settings_proved_by_frames(output.settings, raised.frames),
            memory_curve_of_run_or_sibling(self.subject),
            self._steps_of_failed_launch(output),
            figures.idle if figures.fragments_would_suffice else None,
            figures.asked,
            self.subject.files_beside,
            raised.frames,
            output.pictures,
            figures.capacity,
            figures.gpu_number,
            self.subject.path,
        )

    def _evidence(self, failure: Failure) -> Iterator[str]:
        """Evidence: where it was raised and in which phase, what it is known to mean, and what else
        was raised.
        """
        raised, known = failure.raised, failure.message
        frame = raised.last_user_frame
        if frame is not None:
            phase = find_failure_phase(raised.frames)
            yield f"raised from {frame}" + (f", {phase}" if phase else "")
            if raised.frames[-1] != frame:
                yield f"in {raised.frames[-1]}"
        yield from self._meaning_evidence(failure, known)
        yield from self._earlier_launch_evidence()
        holders = self._describe_gpu_holders(failure)
        if holders:
            yield f"what holds the memory: {holders}"
        others = [
            other.text.partition("\n")[0][:MAX_TEXT]
            for other in failure.chain.raised
            if other is not raised
        ]
        if others:
            yield f"raised together with: {'; '.join(dict.fromkeys(others))}"
        if failure.processes > 1:
            yield (
                f"{failure.processes} processes ended in exceptions; this is the first that the others do not"
                " explain"
            )

    def _meaning_evidence(self, failure: Failure, known: KnownMessage | None) -> Iterator[str]:
        """Evidence: what the exception is known to mean."""
        output = self.subject.output
        metric = self._missing_metric(failure)
        if failure.race is not None:
            yield failure.race.evidence()
        elif metric is not None:
            yield metric.evidence
        elif known is not None and known.name == OUT_OF_MEMORY and output is not None:
            yield from self._memory_evidence(failure, output, known)
        elif known is not None:
            yield from DIFFERENT_VALUES.findall(failure.raised.text)
            yield from self._evidence_on_waiting_processes(known)
            yield from self._memory_evidence_beside(failure, known)
            yield from self._known_cause_evidence(known)

    def _memory_evidence_beside(self, failure: Failure, known: KnownMessage) -> Iterator[str]:
        """Evidence: what the files beside the log hold in memory, where the exception is about
        that.
        """
        if known.name in WORKER_ENDS and "Killed" in failure.raised.text:
            rows = describe_rows_in_a_list(self.subject.files_beside, of_worker=True)
            if rows:
                yield rows
        if known.name == NO_CACHE:
            yield from evidence_of_adapter_slots(self.subject.files_beside)

    def _known_cause_evidence(self, known: KnownMessage) -> Iterator[str]:
        """Evidence: what a message means, with its usual causes only where the log proves none."""
        is_server = known.name == PORT_TAKEN and bool(self.subject.inference_server_name)
        if is_server:
            yield OLD_SERVER_ANSWERS
        rivals = self._own_port_conflict(known)
        if rivals is not None:
            yield _describe_port_conflict(rivals)
        is_proved = is_server or rivals is not None or self._unequal_batch_counts(known) is not None
        yield from explain_message(known, cause=not is_proved)

    def _earlier_launch_evidence(self) -> Iterator[str]:
        """Evidence that steps of an earlier launch stand in the same output."""
        output = self.subject.output
        if output is None or not (output.is_relaunched or self._is_resuming(output)):
            return
        before = optimizer_steps_made(self.subject, output)
        if before:
            yield (
                f"the output also contains an earlier launch, whose steps (up to {before:,.0f}) are not those of the"
                " one that failed"
            )

    def _memory_evidence(
        self, failure: Failure, output: ConsoleOutput, known: KnownMessage
    ) -> Iterator[str]:
        """Evidence: the figures of an out-of-memory message, and what needed the memory."""
        figures = self._memory_figures(failure)
        story = self._circumstances_of_memory_error(failure, output)
        yield from figures.evidence(
            asks_on=story.would_more_tensors_follow_failed_one,
            is_explained=story.bytes_per_weight_of_whole_model is not None
            or story.rows_are_mostly_pictures,
        )
        proofs = tuple(story.evidence())
        yield from proofs
        # the message's own list of causes is a guess: it is left out where the run proves one
        yield from explain_message(
            known, cause=not proofs and not figures.is_gpu_shared_with_others
        )

    def _evidence_on_waiting_processes(self, known: KnownMessage) -> tuple[str, ...]:
        """Evidence: what processes waited in, or why machines never met, where the exception is
        about that.
        """
        output = self.subject.output
        if output is None:
            return ()
        if known.name == COLLECTIVE_TIMEOUT_RAISED:
            return (*output.collectives, *lines_printed_by_one_rank(output))
        return output.meeting if known.name == NODES_APART else ()


def _describe_port_conflict(rivals: PortConflict) -> str:
    """Who competes for the port, as a line of evidence."""
    how = (
        "each task started a launcher (torchrun), and one of them holds the port"
        "each task started a launcher (torchrun), and one of them has the port"
        if rivals.launchers
        else "only one process of a run opens its port, but each of these tries to"
    )
    return f"{rivals.describe_tasks} failed to open port {rivals.port} at the same time: {how}"


def _failed_loading_tensors(failure: Failure) -> bool:
    """Did it fail while a file of tensors was being read onto a GPU?"""
    return any(
        frame.file.replace("\\", "/").endswith("torch/serialization.py")
        or "torch.load(" in frame.code
        for frame in failure.raised.frames
    )
