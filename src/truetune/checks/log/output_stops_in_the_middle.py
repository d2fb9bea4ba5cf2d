"""The console output stops in the middle of the training.

## What it does
Looks at the progress bar of the training: it is not full, neither an exception nor another end is printed, and the
trainer did not report that it was done. That is info. If NCCL connected the GPUs by direct copies (`via P2P`) and the
bar is still at 0, it is a warning that says so.

## Why it is bad
The run is still writing, or it hangs, or what ended it was printed elsewhere: in the file of another process, in the
scheduler's, or in the kernel's log. The file by itself can't tell which.

## Example
```yaml
output: |
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
    2%|▏         | 10/500 [00:12<10:03,  1.23s/it]
```

## Use instead
```yaml
output: |
  {'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}
  100%|██████████| 500/500 [10:12<00:00,  1.23s/it]
  {'train_runtime': 612.2, 'train_samples_per_second': 4.9, 'train_loss': 2.18, 'epoch': 0.1}
```

## Fix safety
These commands only read. `NCCL_P2P_DISABLE=1` makes copies between GPUs slower: set it for one test run.

## References
- pytorch/pytorch#118369, hiyouga/LlamaFactory#8261
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import OutputRule


class OutputStopsInTheMiddle(OutputRule):
    code = "LOG033"
    fault = Fault.RUN_FAILED
    severity = "info"

    def unmet(self) -> Unmet | None:
        """Also unmet where the output shows no progress bar of a training."""
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        output = self.subject.output
        return (
            None
            if output is not None and output.total
            else Unmet("the output shows no bar of a training")
        )

    def measurement_if_clean(self) -> str:
        """The steps that are done, of all steps."""
        output = self.subject.output
        return f"{output.done:,} of {output.total:,} steps" if output else ""

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if (
            output is None
            or output.failure
            or output.ends
            or output.is_finished
            or not self._stops_before_its_end(output.done)
        ):
            return
        done = self._last_step_seen()
        if self._is_no_step_done_since_gpus_joined():
            yield self._finding_on_no_step_since_gpus_joined()
            return
        yield self.finding(
            f"the log stops at step {done:,} of {output.total:,} without an end: the run was still going when it"
            " was copied, or it stopped without a message",
            "nothing to do if it is still running (nvidia-smi, ps); if it hangs, `py-spy dump --pid"
            " PID` names the line of each process; if it is gone, read the files of other processes and"
            " of the scheduler, and `dmesg`",
            evidence=(
                (f"last lines: {' / '.join(output.last_lines)[:300]}",) if output.last_lines else ()
            ),
            cases=(
                Case(f"step {done:,} of {output.total:,}", file=output.file, line=output.lines),
            ),
        )

    def _last_step_seen(self) -> int:
        """The step of the last bar, or of a record that was printed behind it."""
        output = self.subject.output
        assert output is not None
        last = 0 if self.subject.is_numbered else int(self.subject.last_step)
        return max(output.done, last if last <= output.total else 0)

    def _is_no_step_done_since_gpus_joined(self) -> bool:
        """Were GPUs joined by direct copies, and no step done since?"""
        output = self.subject.output
        return output is not None and output.done == 0 and output.settings.peer_copies

    def _finding_on_no_step_since_gpus_joined(self) -> Finding:
        """The finding that no step is done after the GPUs were joined by direct copies."""
        output = self.subject.output
        assert output is not None
        return self.finding(
            f"no step is done: the bar is at 0 of {output.total:,} after NCCL connected the GPUs by P2P copies",
            "start once with NCCL_P2P_DISABLE=1: if it runs, the IOMMU or ACS blocks copies between the GPUs"
            " (`sudo dmesg | grep -i -e iommu -e page_fault`), or the driver offers P2P on cards that don't have it; if"
            " it hangs too, `py-spy dump --pid PID` names the line of each process",
            severity="warning",
            cases=(Case(f"step 0 of {output.total:,}", file=output.file, line=output.lines),),
        )

    def _stops_before_its_end(self, done: int) -> bool:
        """Does the output end before the training's last step, `done` steps being made?"""
        output = self.subject.output
        total = self.subject.planned_steps
        if output is None or done >= output.total:
            return False
        return output.total == total or (
            self._is_no_step_done_since_gpus_joined() and not self.subject.curve("loss")
        )
