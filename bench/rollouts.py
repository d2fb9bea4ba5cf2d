"""What the audit of a training by rewards costs: `python -m bench.rollouts [STEPS] [ROUNDS]`.

One script trains TRL's GRPOTrainer on a model of two layers, alone and under `truetune run`, in turn, start included.
Processor seconds decide, those of all processes: the clock also counts what else the machine does. A small model makes
the share look large, since the audit costs about the same beside a big one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SCRIPT = """
import sys
from tests.auditing.tiny_rollouts import grpo

grpo(max_steps=int(sys.argv[1])).train()
"""
ROOT = Path(__file__).parents[1]
STEPS = 200
ROUNDS = 3
# The audit's report comes after its first steps; exit codes 1 and 3 are its verdict, and no failure of the run.
VERDICTS = (0, 1, 3)


@dataclass(frozen=True)
class Seconds:
    """What one run took."""

    clock: float
    processor: float
    """Of the program and all that it started"""


def main(steps: int, rounds: int) -> None:
    """Measure, and print one line for each round and the medians.

    Args:
        steps: optimizer steps of each run.
        rounds: pairs of runs.
    """
    pairs: list[tuple[Seconds, Seconds]] = []
    with tempfile.TemporaryDirectory() as work:
        script = Path(work, "train.py")
        script.write_text(SCRIPT, encoding="utf-8")
        training = [sys.executable, str(script), str(steps)]
        under_audit = [sys.executable, "-m", "truetune", "run", "--", *training]
        for number in range(1, rounds + 1):
            alone = _measure(training, Path(work))
            audited = _measure(under_audit, Path(work))
            pairs.append((alone, audited))
            print(
                f"round {number}: alone {alone.processor:.1f} s ({alone.clock:.1f} s on the clock),"
                f" audited {audited.processor:.1f} s ({audited.clock:.1f} s)",
                flush=True,
            )
    more = median(audited.processor - alone.processor for alone, audited in pairs)
    ratio = median(audited.processor / alone.processor for alone, audited in pairs)
    print(f"{steps} steps: the audit takes {more:.1f} s more, {ratio:.3f} of the run alone")


def _measure(command: list[str], folder: Path) -> Seconds:
    """Run a command to its end.

    Raises:
        SystemExit: it failed; its output is printed.
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    before = os.times()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    after = os.times()
    if done.returncode not in VERDICTS:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        )
    user = after.children_user - before.children_user
    system = after.children_system - before.children_system
    return Seconds(after.elapsed - before.elapsed, user + system)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(STEPS, ROUNDS)[len(given) :])
