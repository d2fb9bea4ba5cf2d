import math
import random
from pathlib import Path

from bench.starts.material import write_lines, write_list
from bench.starts.tickets import Desk

STEPS = 1860
WARMUP = 186
RATE = 5e-4


def make(folder: Path) -> None:
    """The rows, and the log of a run whose loss climbs during the warm-up and stays up."""
    asked = "Answer the customer's ticket."
    rows = (
        {"instruction": asked, "input": question, "output": answer}
        for question, answer in Desk(3).pairs(150)
    )
    write_list(folder / "tickets.json", rows)
    drawn = random.Random(7)
    records = (
        {
            "current_steps": step,
            "total_steps": STEPS,
            "loss": round(_loss(step, drawn), 4),
            "lr": _rate(step),
            "epoch": round(3 * step / STEPS, 4),
            "percentage": round(100 * step / STEPS, 2),
            "elapsed_time": _clock(3 * step),
            "remaining_time": _clock(3 * (STEPS - step)),
        }
        for step in range(10, STEPS + 1, 10)
    )
    write_lines(folder / "trainer_log.jsonl", records)


def _loss(step: int, drawn: random.Random) -> float:
    if step < 60:
        return 1.62 - 0.006 * step + drawn.uniform(-0.08, 0.08)
    if step < 220:
        return 1.3 + (step - 60) / 160 * 5.6 + drawn.uniform(-0.35, 0.35)
    return 5.1 + 1.9 * math.exp(-(step - 220) / 500) + drawn.uniform(-0.15, 0.15)


def _rate(step: int) -> float:
    if step < WARMUP:
        return RATE * step / WARMUP
    return RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
