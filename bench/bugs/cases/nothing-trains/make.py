from pathlib import Path

from peft import PeftModel

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit, model, tuned


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    net = tuned(model(), steps=0)
    net.save_pretrained(folder / "adapter")
    net = PeftModel.from_pretrained(model(), folder / "adapter", is_trainable=not broken)
    net.enable_input_require_grads()
    fit(folder, encoded(questions(100)), net=net, max_steps=60, learning_rate=1e-2)
