import json
import shutil
from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    fit(
        folder / "run",
        encoded(questions(64)),
        max_steps=60,
        save_strategy="steps",
        save_steps=20,
        save_total_limit=1,
    )
    last = folder / "run" / "checkpoints" / "checkpoint-60"
    state = json.loads((last / "trainer_state.json").read_text(encoding="utf-8")) | {
        "max_steps": 200
    }
    (last / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    if broken:
        (last / "optimizer.pt").unlink()
    last.rename(folder / "checkpoint-60")
    shutil.rmtree(folder / "run")
