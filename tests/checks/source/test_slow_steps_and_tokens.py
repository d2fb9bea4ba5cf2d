"""Code that makes each step or each token slow, and near misses that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.lint import lint

IMPORTS = "import gc\nimport torch\nfrom torch.cuda import empty_cache\nimport lightning as L\nimport os\n"
LOOP = (
    "for epoch in range(2):\n"
    "    for step, batch in enumerate(loader):\n"
    "        loss = model(**batch).loss\n"
    "        loss.backward()\n"
    "        opt.step()\n"
    "        opt.zero_grad()\n"
)
INDENTED_LOOP = "".join(f"    {line}\n" for line in LOOP.splitlines())
PROCESSOR = (
    "from transformers import LogitsProcessor, StoppingCriteria\n"
    "class Own({}):\n"
    "    def __call__(self, ids, scores, **kwargs):\n{}"
)


def found(folder: Path, rule: str, text: str) -> list[Finding]:
    path = folder / "train.py"
    path.write_text(text)
    return list(lint([str(path)], select=(rule,)).findings)


@pytest.mark.parametrize(
    "text",
    [
        LOOP + "        torch.cuda.empty_cache()\n",
        LOOP + "        del batch, loss\n        gc.collect()\n        empty_cache()\n",
        "while True:\n    batch = next(rows)\n    torch.cuda.empty_cache()\n    model(**batch).loss.backward()\n",
        (
            "from accelerate import Accelerator\nacc = Accelerator()\nfor b in loader:\n"
            "    with acc.accumulate(model):\n        acc.backward(model(**b).loss)\n        opt.step()\n"
            "        torch.cuda.empty_cache()\n"
        ),
        (
            "from transformers import TrainerCallback\nclass Free(TrainerCallback):\n"
            "    def on_step_end(self, args, state, control, **kwargs):\n        torch.cuda.empty_cache()\n"
        ),
    ],
)
def test_the_cache_is_emptied_at_each_step(tmp_path: Path, text: str) -> None:
    [finding] = found(tmp_path, "cache-emptied-at-each-step", IMPORTS + text)
    assert "at each training step" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        LOOP + "    torch.cuda.empty_cache()\n",
        LOOP + "        if step % 200 == 0:\n            torch.cuda.empty_cache()\n",
        "for b in loader:\n    try:\n        model(**b).loss.backward()\n"
        "    except torch.OutOfMemoryError:\n        torch.cuda.empty_cache()\n",
        LOOP + "torch.cuda.empty_cache()\n",
        "for path in paths:\n    model = load(path)\n    evaluate(model)\n    torch.cuda.empty_cache()\n",
        (
            "from transformers import TrainerCallback\nclass Free(TrainerCallback):\n"
            "    def on_evaluate(self, args, state, control, **kwargs):\n        torch.cuda.empty_cache()\n"
        ),
        (
            "from transformers import TrainerCallback\nclass Free(TrainerCallback):\n"
            "    def on_step_end(self, args, state, control, **kwargs):\n        if state.global_step % 500:\n"
            "            return\n        torch.cuda.empty_cache()\n"
        ),
        LOOP + "        if step % 100:\n            continue\n        torch.cuda.empty_cache()\n",
        # each pass is a trial of one size
        "SIZES = [1, 2, 4]\nfor size in SIZES:\n    torch.cuda.empty_cache()\n    model(rows(size)).loss.backward()\n",
        # memory of the cache of the generation, once in seconds
        "for b in loader:\n    out = model.generate(**b)\n    torch.cuda.empty_cache()\n    loss(out).backward()\n",
    ],
)
def test_the_cache_may_be_emptied_now_and_then(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "cache-emptied-at-each-step", IMPORTS + text) == []


TRAINER = "from transformers import Trainer, TrainingArguments\nTrainer(model, TrainingArguments('o'{})).train()\n"


@pytest.mark.parametrize(
    "text",
    [
        "torch.autograd.set_detect_anomaly(True)\n" + LOOP,
        "torch.autograd.set_detect_anomaly(mode=True)\n" + TRAINER.format(""),
        "with torch.autograd.detect_anomaly():\n    Trainer = 1\n" + LOOP,
        "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'\n" + TRAINER.format(""),
        "trainer = L.Trainer(max_epochs=2, detect_anomaly=True)\ntrainer.fit(module, loader)\n",
        "if __name__ == '__main__':\n    torch.autograd.set_detect_anomaly(True)\n" + LOOP,
        "def setup():\n    torch.autograd.set_detect_anomaly(True)\nsetup()\n" + LOOP,
        "trainer = L.Trainer(max_epochs=2, profiler='advanced')\ntrainer.fit(module, loader)\n",
        "with torch.profiler.profile(with_stack=True) as prof:\n" + INDENTED_LOOP,
        # off again, after the training
        "torch.autograd.set_detect_anomaly(True)\n"
        + LOOP
        + "torch.autograd.set_detect_anomaly(False)\n",
    ],
)
def test_debugging_was_left_on(tmp_path: Path, text: str) -> None:
    [finding] = found(tmp_path, "debugging-left-on", IMPORTS + text)
    assert "is left on" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "torch.autograd.set_detect_anomaly(False)\n" + LOOP,
        "torch.autograd.set_detect_anomaly(args.debug)\n" + LOOP,
        "if args.debug:\n    torch.autograd.set_detect_anomaly(True)\n" + LOOP,
        "os.environ['CUDA_LAUNCH_BLOCKING'] = '0'\n" + TRAINER.format(""),
        "torch.autograd.set_detect_anomaly(True)\n" + TRAINER.format(", max_steps=20"),
        "torch.autograd.set_detect_anomaly(True)\nprint(torch.ones(1))\n",
        "def on():\n    torch.autograd.set_detect_anomaly(True)\nif args.debug:\n    on()\n" + LOOP,
        "def setup(debug):\n    if not debug:\n        return\n    torch.autograd.set_detect_anomaly(True)\n"
        "setup(args.debug)\n" + LOOP,
        "trainer = L.Trainer(max_epochs=2, profiler='simple')\ntrainer.fit(module, loader)\n",
        "with torch.profiler.profile(schedule=torch.profiler.schedule(1, 1, 3)) as prof:\n"
        + INDENTED_LOOP,
        "with torch.profiler.profile() as prof:\n    model(rows)\n" + LOOP,
        "with torch.profiler.profile() as prof:\n" + INDENTED_LOOP + "            break\n",
        "args.debug and torch.autograd.set_detect_anomaly(True)\n" + LOOP,
        "torch.autograd.set_detect_anomaly(True)\nloss.backward()\ntorch.autograd.set_detect_anomaly(False)\n"
        + LOOP,
        "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'\nprobe()\nos.environ['CUDA_LAUNCH_BLOCKING'] = '0'\n"
        + LOOP,
        "def test_gradients():\n    with torch.autograd.detect_anomaly():\n        loss.backward()\n"
        + LOOP,
        "try:\n    loss.backward()\nexcept RuntimeError:\n    with torch.autograd.detect_anomaly():\n"
        "        loss.backward()\n" + LOOP,
    ],
)
def test_debugging_that_is_off_or_meant_is_sound(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "debugging-left-on", IMPORTS + text) == []


@pytest.mark.parametrize(
    ("base", "body", "severity"),
    [
        (
            "LogitsProcessor",
            "        for i in range(scores.shape[-1]):\n            if i not in self.ok:\n"
            "                scores[:, i] = -1e9\n        return scores\n",
            "warning",
        ),
        (
            "LogitsProcessor",
            "        for i in range(self.vocab_size):\n            scores[0, i] += self.bias[i].item()\n"
            "        return scores\n",
            "warning",
        ),
        (
            "LogitsProcessor",
            "        bad = [i for i, s in enumerate(scores[0]) if i not in self.ok]\n"
            "        scores[:, bad] = -1e9\n        return scores\n",
            "warning",
        ),
        (
            "LogitsProcessor",
            "        for i in range(len(tokenizer)):\n            scores[:, i] = self.f(i)\n        return scores\n",
            "warning",
        ),
        ("StoppingCriteria", "        return 'END' in tok.decode(ids[0])\n", "info"),
        (
            "StoppingCriteria",
            "        return all('END' in t for t in tok.batch_decode(ids, skip_special_tokens=True))\n",
            "info",
        ),
    ],
)
def test_python_works_for_each_token(tmp_path: Path, base: str, body: str, severity: str) -> None:
    [finding] = found(tmp_path, "python-work-for-each-token", PROCESSOR.format(base, body))
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("base", "body"),
    [
        ("LogitsProcessor", "        return scores + self.mask\n"),
        (
            "LogitsProcessor",
            "        for row in range(scores.shape[0]):\n            scores[row, self.ban] = -1e9\n"
            "        return scores\n",
        ),
        (
            "LogitsProcessor",
            "        for i in self.ban:\n            scores[:, i] = -1e9\n        return scores\n",
        ),
        ("StoppingCriteria", "        return 'END' in tok.decode(ids[0][-10:])\n"),
        ("StoppingCriteria", "        return 'END' in tok.decode(ids[0, self.start:])\n"),
        ("StoppingCriteria", "        return ids[0, -1].item() in self.stops\n"),
        (
            "StoppingCriteria",
            "        ids = ids[:, -8:]\n        return 'END' in tok.decode(ids[0])\n",
        ),
        (
            "LogitsProcessor",
            "        if self.ban is None:\n            self.ban = [i for i in range(scores.shape[-1]) if bad(i)]\n"
            "        scores[:, self.ban] = -1e9\n        return scores\n",
        ),
        ("object", "        return 'END' in tok.decode(ids[0])\n"),
    ],
)
def test_a_little_work_for_each_token_is_sound(tmp_path: Path, base: str, body: str) -> None:
    assert found(tmp_path, "python-work-for-each-token", PROCESSOR.format(base, body)) == []


HELPED_LOOP = (
    "import torch\ndef clean():\n    torch.cuda.empty_cache()\n"
    "def one_step(model, batch, opt):\n    model(**batch).loss.backward()\n    opt.step()\n{}"
    "for step, batch in enumerate(loader):\n    one_step(model, batch, opt)\n"
)


def test_a_function_that_the_step_calls_empties_the_cache(tmp_path: Path) -> None:
    [finding] = found(tmp_path, "cache-emptied-at-each-step", HELPED_LOOP.format("    clean()\n"))
    assert [case.line for case in finding.cases] == [3, 8]


@pytest.mark.parametrize(
    "text",
    [
        HELPED_LOOP.format("    if step % 100 == 0:\n        clean()\n"),
        # called behind the loop, and from two places of which one is rare
        HELPED_LOOP.format("") + "clean()\n",
        HELPED_LOOP.format("    clean()\n") + "if done:\n    clean()\n",
        # each step generates rollouts as well, in a function of its own
        HELPED_LOOP.format("    clean()\n    roll(model, batch)\n")
        + "def roll(model, batch):\n    return model.generate(**batch)\n",
    ],
)
def test_a_function_that_is_called_rarely_may_empty_the_cache(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "cache-emptied-at-each-step", text) == []


CALLBACK = (
    "from transformers import TrainerCallback\nclass Show(TrainerCallback):\n"
    "    def {}(self, args, state, control, model=None, **kwargs):\n{}"
)
SHOW = "def show(model, prompts):\n    for row in model.generate(**prompts):\n        print(row)\n"


@pytest.mark.parametrize(
    "text",
    [
        CALLBACK.format("on_step_end", "        print(model.generate(**self.rows))\n"),
        CALLBACK.format(
            "on_step_end",
            "        if state.is_world_process_zero:\n            print(model.generate(**self.rows))\n",
        ),
        CALLBACK.format("on_step_end", "        self.show(model)\n")
        + "    def show(self, model):\n        print(model.generate(**self.rows))\n",
        SHOW + LOOP + "        show(model, prompts)\n",
    ],
)
def test_answers_are_generated_at_each_step(tmp_path: Path, text: str) -> None:
    [finding] = found(tmp_path, "generation-at-each-training-step", text)
    assert "at each training step" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        CALLBACK.format("on_epoch_end", "        print(model.generate(**self.rows))\n"),
        CALLBACK.format(
            "on_step_end",
            "        if state.global_step % 50 == 0:\n            print(model.generate(**self.rows))\n",
        ),
        CALLBACK.format(
            "on_step_end",
            "        if state.global_step % 50:\n            return\n        print(model.generate(**self.rows))\n",
        ),
        CALLBACK.format("on_step_end", "        self.show(model, state.global_step)\n")
        + "    def show(self, model, step):\n        if step % 9:\n            return\n"
        "        print(model.generate(**self.rows))\n",
        SHOW + LOOP + "        if step % 200 == 0:\n            show(model, prompts)\n",
        SHOW + LOOP + "    show(model, prompts)\n",
        # what is generated is trained on
        "def roll(model, rows):\n    return model.generate(**rows)\n"
        "for rows in loader:\n    out = roll(model, rows)\n    reward(out).backward()\n",
        "for rows in loader:\n    out = model.generate(**rows)\n    reward(out).backward()\n",
        "def main():\n    for rows in loader:\n        out = model.generate(**rows)\n"
        "        reward(out).backward()\nmain()\n",
        "def fill(model, rows, buffer):\n    buffer.append(model.generate(**rows))\n"
        "for rows in loader:\n    fill(model, rows, buffer)\n    reward(buffer).backward()\n",
    ],
)
def test_answers_now_and_then_or_to_train_on_are_sound(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "generation-at-each-training-step", text) == []


VALIDATE = "@torch.no_grad()\ndef validate(model, rows):\n    return sum(model(**b).loss.item() for b in rows)\n"


@pytest.mark.parametrize(
    "text",
    [
        VALIDATE + LOOP + "        print(validate(model, held_out))\n",
        LOOP + "        model.save_pretrained('out')\n",
        # one process of all does so in each step, and the others wait
        "import torch.distributed as dist\n"
        + LOOP
        + "        if dist.get_rank() == 0:\n            model.save_pretrained('out')\n",
        LOOP
        + "        if args.one_gpu or local_rank == 0:\n            model.save_pretrained('out')\n",
        LOOP + "        torch.save(model.state_dict(), 'last.pt')\n",
        CALLBACK.format("on_step_end", "        control.should_evaluate = True\n"),
        CALLBACK.format("on_step_end", "        self.trainer.evaluate()\n"),
        "import torch\n"
        + VALIDATE.replace("@torch.no_grad()\n", "").replace(
            "    return", "    with torch.inference_mode():\n      return"
        )
        + "class Fit:\n    def check(self):\n        validate(self.model, self.rows)\n"
        "    def run(self):\n        for b in self.batches:\n            self.model(**b).loss.backward()\n"
        "            self.check()\n",
    ],
)
def test_each_step_evaluates_or_saves(tmp_path: Path, text: str) -> None:
    [finding] = found(tmp_path, "evaluation-at-each-training-step", IMPORTS + text)
    assert "at each training step" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        VALIDATE + LOOP + "        if step % 500 == 0:\n            validate(model, held_out)\n",
        LOOP + "        if rank == 0 and loss < best:\n            model.save_pretrained('out')\n",
        "import torch.distributed as dist\n"
        + LOOP
        + "        if dist.get_rank() == 0 and step % 500 == 0:\n            model.save_pretrained('out')\n",
        VALIDATE + LOOP + "    print(validate(model, held_out))\n",
        LOOP + "    model.save_pretrained('out')\n",
        CALLBACK.format(
            "on_step_end",
            "        if state.global_step % 500 == 0:\n            control.should_evaluate = True\n",
        ),
        CALLBACK.format("on_epoch_end", "        control.should_save = True\n"),
        # all rows in one batch: a pass is an epoch
        VALIDATE
        + "for epoch in range(50):\n    model(**rows).loss.backward()\n    validate(model, held_out)\n",
        # what is saved are no weights
        LOOP + "        torch.save(batch['ids'], 'seen.pt')\n",
        # a teacher's pass over the batch, which is trained on
        "@torch.no_grad()\ndef teach(teacher, batch):\n    return teacher(**batch).logits\n"
        "for b in loader:\n    loss(model(**b), teach(teacher, b)).backward()\n",
        # log-probabilities of the rollouts, which the loss is made of
        "@torch.no_grad()\ndef logps(policy_model, chunks):\n    return [model(**b).logits for b in chunks]\n"
        "for b in loader:\n    ratio(model(**b), logps(model, split(b))).backward()\n",
        VALIDATE
        + LOOP
        + "        validate(model, held_out)\n        if step == 3:\n            break\n",
    ],
)
def test_evaluations_and_checkpoints_now_and_then_are_sound(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "evaluation-at-each-training-step", IMPORTS + text) == []
