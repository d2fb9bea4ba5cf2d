"""What the audit of a training by rewards costs: `python -m bench.rollouts [SIZE] [STEPS] [ROUNDS]`.

One script trains TRL's GRPOTrainer alone and under `truetune run`, in turn, start included. Processor seconds decide,
those of all processes: the clock also counts what else the machine does.

- `tiny`: two layers, 32 wide, completions of 24 tokens. The audit costs about the same beside a large model, so that
  its share is the largest here.
- `small`: six layers, 256 wide, completions of 64 tokens: nearer to what is trained, and far below it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SCRIPT = """
import sys
from tests.auditing.tiny_rollouts import grpo, tiny_model

SIZES = {
    "tiny": ({}, 24),
    "small": (
        {
            "num_hidden_layers": 6,
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
        },
        64,
    ),
}
shape, length = SIZES[sys.argv[1]]
model = tiny_model(**shape)
grpo(model=model, max_completion_length=length, max_steps=int(sys.argv[2])).train()
print("trained to the end")
"""
ROOT = Path(__file__).parents[1]
NAMES = ("tiny", "small")
STEPS = 200
ROUNDS = 3
TRAINED = "trained to the end"
"""What each run has to print: exit codes 1 and 3 may be the audit's verdict, and no failure of the run"""


@dataclass(frozen=True)
class Seconds:
    """What one run took."""

    clock: float
    processor: float
    """Of the program and all that it started"""


def main(size: str, steps: int, rounds: int) -> None:
    """Measure, and print one line for each round and the medians.

    Args:
        size: of the model, `tiny` or `small`.
        steps: optimizer steps of each run.
        rounds: pairs of runs.
    """
    pairs: list[tuple[Seconds, Seconds]] = []
    with tempfile.TemporaryDirectory() as work:
        script = Path(work, "train.py")
        script.write_text(SCRIPT, encoding="utf-8")
        training = [sys.executable, str(script), size, str(steps)]
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
    print(f"{size}, {steps} steps: the audit takes {more:.1f} s more, {ratio:.3f} of the run alone")


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
        # Of two threads one waits in a loop for the other in so small a model, and that wait would count.
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    after = os.times()
    if TRAINED not in done.stdout:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        )
    user = after.children_user - before.children_user
    system = after.children_system - before.children_system
    return Seconds(after.elapsed - before.elapsed, user + system)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.rollouts", description=__doc__)
    parser.add_argument("size", nargs="?", choices=NAMES, default=NAMES[0])
    parser.add_argument("steps", nargs="?", type=int, default=STEPS)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    given = parser.parse_args()
    main(given.size, given.steps, given.rounds)
