"""The run was ended from outside, or below Python.

## What it does
Looks in the last lines of the console output for what shells, launchers, schedulers, the kernel and the CUDA runtime
print when they end a process: `Killed`, exit codes 137 and 139, `oom-kill`, time limits, NCCL's watchdog, a
segmentation fault, a failed assertion of a GPU kernel. Lines after which the run continued do not count. `CANCELLED AT`
without a reason is a cancelled job, not a time limit. Faults that the output names before it are shown with it. Whether
the run had stalled before is judged by the log's clock, or by the pace of its steps. If two logs of a folder show the
end of the same job, that is one finding.

## Why it is bad
There is no traceback, so nothing says what was wrong, and a checkpoint that was just being written is incomplete.

## Example
```yaml
output: |
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
  slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch. Some of the step tasks have been OOM Killed.
```

## Use instead
```yaml
output: |
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
  {'train_runtime': 61.2, 'train_samples_per_second': 4.9, 'train_loss': 2.18, 'epoch': 0.1}
```

## Fix safety
The help only reads, or requests other resources (memory, time).

## References
- docs.nesi.org.nz/General/FAQs/What_does_oom_kill_mean, pytorch/pytorch#118369; of each message its own
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.explain_log_messages_and_progress import (
    EVEN_SHARES,
    UNEVEN,
    describe_steps_or_records,
    explain_message,
    lines_printed_by_one_rank,
    optimizer_steps_made,
)
from truetune.checks.log.what_filled_host_memory import (
    HostMemoryCause,
    find_memory_cause_at_any_time,
    find_memory_cause_before_first_step,
    gib_held_by_killed_process,
)
from truetune.checks.rule import OutputRule
from truetune.logs.console.read_console_output import COLLECTIVE_TIMEOUT, ConsoleOutput, Notice
from truetune.logs.console.step_pace import parse_date_and_time
from truetune.logs.console.uneven_counts_of_ranks import RankCounts
from truetune.logs.facts_in_files_beside_log import (
    HOST_GIB,
    LOADED_BY_EVERY_PROCESS,
    MODEL_GIB,
    PROCESSES,
    RunBeside,
    SettingBeside,
)
from truetune.logs.size_and_speed_of_run_by_log import outline_run

CANCELLED = "cancelled"
KILLED, HOST_MEMORY = "killed", "host-memory-killed"
MEMORY_ENDS = (KILLED, HOST_MEMORY)
"""Messages of an end for which the machine's memory may be the cause"""
TIME_LIMIT = "time-limit"
SCHEDULER_ENDS = (TIME_LIMIT, CANCELLED, "terminated")
"""Messages of schedulers that end a job whatever it does"""
NOTHING_TRAINED = (
    "the output shows no step and no loss before it: nothing shows that training had started, so more time may not"
    " help"
)


class RunWasKilled(OutputRule):
    code = "LOG031"
    fault = Fault.RUN_FAILED
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Also unmet where the run ended in an exception, which another rule is about."""
        output = self.subject.output
        if output is not None and output.failure is not None:
            return Unmet("the run ended in an exception")
        return super().unmet()

    def measurement_if_clean(self) -> str:
        """How many lines say that the run was ended from outside."""
        output = self.subject.output
        return (
            f"lines that say it was ended: {len(output.ends)} of {output.lines:,}" if output else ""
        )

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None or output.failure is not None:
            return
        end = _find_end(output)
        if end is None:
            return
        before = self._faults_before(end)
        uneven = output.uneven if end.message.name == COLLECTIVE_TIMEOUT else None
        reported = _fault_reported_by_launcher(end, before)
        is_explained = uneven is not None or reported is not None
        others = [
            f"{other.text} (line {other.line:,})" for other in output.ends if other is not end
        ]
        yield self.finding(
            f"the run was ended{describe_steps_or_records(self.subject, output)}: {_title_of_end(end, uneven)}",
            EVEN_SHARES if uneven is not None else self._advice(end, reported),
            severity=end.message.severity,
            evidence=(
                *map(_describe_notice, before),
                *self._events_before_end(end, output),
                *explain_message(
                    end.message, cause=not is_explained and not self._is_cause_known(end)
                ),
                *others[:5],
            ),
            cases=(Case(end.text, file=output.file, line=end.line),),
            count=end.count,
        )

    def _advice(self, end: Notice, reported: Notice | None) -> str:
        """Advice on an end; `reported` is the fault before it that the end is only a report of."""
        memory = self._memory_cause(end)
        if self._timed_out_before_first_step(end):
            advice = (
                "find out what it waited for in the last lines before the end: processes that wait for each other (the"
                " launch, the number and the addresses of the nodes), a download, or the preparation of the"
                " data."
                " `py-spy dump --pid PID` shows it in a job that hangs"
            )
        elif reported is not None:
            advice = f"first fix what the output reports before it: {reported.message.advice}"
        elif memory is not None and memory.advice:
            advice = memory.advice
        else:
            advice = self._advice_on_loading(end) or end.message.advice
        return advice.replace("{gpu}", "SIZE")

    def _events_before_end(self, end: Notice, output: ConsoleOutput) -> Iterator[str]:
        """Evidence before the end: what processes waited for, how the steps came, and what took the
        machine's memory.
        """
        if self._timed_out_before_first_step(end):
            yield NOTHING_TRAINED
        yield from _awaited_operations_evidence(end, output)
        yield from self._pace_evidence(end)
        yield from self._loading_evidence(end)
        yield from _held_memory_evidence(end)
        memory = self._memory_cause(end)
        if memory is not None:
            yield from memory.lines

    def _is_cancelled_at_even_pace(self, end: Notice) -> bool:
        """Was a job cancelled whose steps come at an even pace, so that nothing says that it stood still?"""
        if end.message.name != CANCELLED:
            return False
        return self._evenly_paced_run() is not None and not self._stood_still_before(end)

    def _timed_out_before_first_step(self, end: Notice) -> bool:
        """Did a job's time run out whose output names no step: nothing was trained that could continue?"""
        output = self.subject.output
        if end.message.name != TIME_LIMIT or output is None:
            return False
        return not self.subject.curves and not optimizer_steps_made(self.subject, output)

    def _is_cause_known(self, end: Notice) -> bool:
        """Is the cause known, so that the message's list of causes would only be a guess beside it?"""
        memory = self._memory_cause(end)
        is_proved = memory is not None and memory.is_proved
        is_proved = is_proved or self._timed_out_before_first_step(end)
        return (
            is_proved
            or self._is_cancelled_at_even_pace(end)
            or self._setting_loading_in_every_process(end) is not None
        )

    def _memory_cause(self, end: Notice) -> HostMemoryCause | None:
        """What filled the machine's memory; None where nothing says so."""
        if (
            end.message.name not in MEMORY_ENDS
            or self._setting_loading_in_every_process(end) is not None
        ):
            return None
        beside = self.subject.files_beside
        is_loading = self._ran_out_of_memory_before_first_step(end)
        loading = find_memory_cause_before_first_step(end.text, beside) if is_loading else None
        return loading or find_memory_cause_at_any_time(
            end.text, beside, has_trained=not is_loading
        )

    def _ran_out_of_memory_before_first_step(self, end: Notice) -> bool:
        """Was the memory used up before a step was made?"""
        output = self.subject.output
        if end.message.name not in MEMORY_ENDS or output is None:
            return False
        return not self.subject.curve("loss") and not optimizer_steps_made(self.subject, output)

    def _setting_loading_in_every_process(self, end: Notice) -> SettingBeside | None:
        """The setting by which each process loaded the whole model, where the memory was used up before a step."""
        if not self._ran_out_of_memory_before_first_step(end):
            return None
        return self.subject.files_beside.setting(LOADED_BY_EVERY_PROCESS)

    def _loading_evidence(self, end: Notice) -> Iterator[str]:
        """Evidence: who loads the weights, and how much memory that takes beside what the job asked
        for.
        """
        setting = self._setting_loading_in_every_process(end)
        if setting is None:
            return
        yield (
            f"{setting.text} ({setting.place}): every process loads the whole model into host memory, and no"
            " step was made yet"
        )
        beside = self.subject.files_beside
        model, processes, asked = map(beside.setting, (MODEL_GIB, PROCESSES, HOST_GIB))
        if model is None or processes is None:
            return
        total = float(model.value) * int(processes.value)
        limit = ""
        if asked is not None and total > float(asked.value):
            limit = f", more than {asked.text} ({asked.place})"
        yield (
            f"{processes.value} processes x {model.value:,.0f} GiB ({model.text} at 2 bytes per weight) need"
            f" {total:,.0f} GiB{limit}"
        )

    def _advice_on_loading(self, end: Notice) -> str:
        """The edit that lets one process load for all; empty where nothing shows that each of them loaded."""
        setting = self._setting_loading_in_every_process(end)
        if setting is None:
            return ""
        prefix = "fsdp_" if setting.key.startswith("fsdp_") else ""
        return (
            f"set {setting.key} to true ({setting.place}), and {prefix}sync_module_states to true: then one process"
            " reads the weights and sends the others their parts"
        )

    def _evenly_paced_run(self) -> RunBeside | None:
        """The run in this log, or in the other log of the same job, if its steps come at an even pace."""
        own = outline_run(self.subject)
        runs = [
            run
            for run in self.subject.files_beside.runs
            if _is_same_job(run.file, self.subject.path)
        ]
        return next((run for run in (own, *runs) if run is not None and run.is_even), None)

    def _stood_still_before(self, end: Notice) -> bool | None:
        """Was no step logged for long before the end? None where the log has no clock."""
        output = self.subject.output
        return (
            output.pace.stood_still_until(parse_date_and_time(end.text))
            if output is not None
            else None
        )

    def _pace_evidence(self, end: Notice) -> Iterator[str]:
        """Evidence whether the run stood still before it was cancelled, as far as its steps say it."""
        if end.message.name != CANCELLED:
            return
        run, output = self._evenly_paced_run(), self.subject.output
        last = output.pace.last if output is not None else None
        until = parse_date_and_time(end.text)
        if self._stood_still_before(end) and last is not None and until is not None:
            minutes = (until - last).total_seconds() / 60
            yield f"it hung: the last step was logged {minutes:,.0f} minutes before"
        elif run is not None and run.step_seconds is not None:
            yield (
                f"its steps come at an even pace up to step {run.steps:,.0f}, {run.step_seconds:.3g} s each: somebody"
                " ended a run that was still training, or another task of the job failed"
            )

    def _faults_before(self, end: Notice) -> list[Notice]:
        """Faults that the output names before the end: where a job was only cancelled, they are the story."""
        output = self.subject.output
        return [
            notice
            for notice in (output.notices if output else ())
            if notice.message.severity == "error" and notice.line < end.line
        ]


def _is_same_job(file: str, other: str) -> bool:
    """Are two logs those of one job: `train-4711.out` and `train-4711.err`?"""
    return Path(file) != Path(other) and Path(file).stem == Path(other).stem


def _find_end(output: ConsoleOutput) -> Notice | None:
    """The line that ended the run; None where no line did."""
    # What launchers print about one another comes after the cause.
    causes = [end for end in output.ends if not end.message.is_consequence] or list(output.ends)
    return _root_cause_of_end(min(causes, key=lambda end: end.line), output) if causes else None


def _fault_reported_by_launcher(end: Notice, before: list[Notice]) -> Notice | None:
    """The first fault that the output names, where the end is a launcher's report of it; None elsewhere."""
    return before[0] if before and end.message.is_consequence else None


def _root_cause_of_end(end: Notice, output: ConsoleOutput) -> Notice:
    """What the end itself comes from, where the output says it; else the end.

    A process that was killed was killed by the kernel, where the scheduler says that the memory was used up. Processes
    that wait for one another in vain hold the job until its time limit, or until somebody cancels it.
    """
    if end.message.name == KILLED:
        of_memory = (other for other in output.ends if other.message.name == HOST_MEMORY)
        return next(of_memory, end)
    if end.message.name not in SCHEDULER_ENDS:
        return end
    waited = (
        other
        for other in output.ends
        if other.message.name == COLLECTIVE_TIMEOUT and other.line < end.line
    )
    return next(waited, end)


def _awaited_operations_evidence(end: Notice, output: ConsoleOutput) -> tuple[str, ...]:
    """The operations that processes waited in, where a collective operation's time ran out."""
    if end.message.name != COLLECTIVE_TIMEOUT:
        return ()
    return (*output.collectives, *lines_printed_by_one_rank(output))


def _held_memory_evidence(end: Notice) -> Iterator[str]:
    """What the process held that was killed, as the kernel's line says it."""
    held = gib_held_by_killed_process(end.text)
    if held is not None:
        yield f"the process used {held:,.0f} GiB when the kernel killed it (anon-rss)"


def _title_of_end(end: Notice, uneven: RankCounts | None) -> str:
    """What ended the run, with the exit code as the output prints it: Python's -9, or the shell's 137."""
    if uneven is not None:
        return UNEVEN.format(uneven.unit)
    says_python = re.search(r"(?<![\w.])-9\b", end.text) is not None
    return end.message.title.replace(
        "exit code 137", "exit code -9" if says_python else "exit code 137"
    )


def _describe_notice(notice: Notice) -> str:
    """A fault that the output names before the end, as a line of evidence."""
    times = f", {notice.count:,} times" if notice.count > 1 else ""
    return f"before it, from line {notice.line:,} on{times}: {notice.message.title}"
