import math
import random
from pathlib import Path

from bench.starts.material import write_lines

HEAD = """\
INFO 10-12 09:12:44 [__init__.py:244] Automatically detected platform cuda.
INFO 10-12 09:13:02 [config.py:1472] Using max model len 32768
INFO 10-12 09:13:40 [gpu_model_runner.py:1801] Model loading took 2.8871 GiB and 3.104 seconds
"""


def make(folder: Path) -> None:
    """Problems whose answer is a whole solution, and the log of a run whose rewards are all 0."""
    drawn = random.Random(11)
    write_lines(folder / "data/math_train.jsonl", (_problem(drawn) for _ in range(200)))
    log = HEAD + "".join(f"{_record(drawn, step)}\n" for step in range(1, 121))
    (folder / "train.log").write_text(log, encoding="utf-8")


def _problem(drawn: random.Random) -> dict[str, str]:
    boxes, each, less = drawn.randrange(3, 60), drawn.randrange(2, 12), drawn.randrange(2, 30)
    name, pens = drawn.choice(("Natalia", "Weng", "Betty", "Julie", "Mark")), boxes * each
    return {
        "question": (
            f"{name} packs {boxes} boxes with {each} pens each and gives away {less} pens."
            " How many pens are left?"
        ),
        "answer": (
            f"{name} has {boxes}*{each}=<<{boxes}*{each}={pens}>>{pens} pens.\n"
            f"After giving away {less} pens, {pens}-{less}={pens - less} pens are left.\n"
            f"#### {pens - less}"
        ),
    }


def _record(drawn: random.Random, step: int) -> dict[str, str]:
    length = 310 * math.exp(-step / 900) + drawn.uniform(-30, 30)
    return {
        "loss": "0",
        "grad_norm": "0",
        "learning_rate": f"{1e-6 * (1 - (step - 1) / 300):.4g}",
        "num_tokens": f"{step * 15500}",
        "completions/mean_length": f"{length:.1f}",
        "completions/min_length": f"{length * 0.5:.0f}",
        "completions/max_length": "512",
        "completions/clipped_ratio": f"{drawn.uniform(0, 0.06):.4f}",
        "completions/mean_terminated_length": f"{length - 5:.1f}",
        "rewards/correctness_reward/mean": "0",
        "rewards/correctness_reward/std": "0",
        "reward": "0",
        "reward_std": "0",
        "frac_reward_zero_std": "1",
        "entropy": f"{drawn.uniform(0.33, 0.4):.4f}",
        "clip_ratio/region_mean": "0",
        "step_time": f"{drawn.uniform(11, 13):.2f}",
        "epoch": f"{step * 0.16:.3f}",
    }
