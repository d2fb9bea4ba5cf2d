import json
from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    rows = encoded(questions(40))
    run = fit(folder, rows, max_steps=60)
    (folder / "trainer_state.json").unlink()
    history = [line for line in run.state.log_history if "loss" in line]
    for line in history[20:] if broken else ():
        line["loss"] = line["grad_norm"] = float("nan")
    (folder / "log.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in history), encoding="utf-8"
    )
