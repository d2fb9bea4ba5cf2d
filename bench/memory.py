"""The estimate of `truetune plan` beside what a training step really takes.

python -m bench.memory            on a GPU where there is one: torch.cuda.max_memory_allocated
python -m bench.memory --fake     anywhere: the same step on tensors without data, counted as torch allocates them

Each case builds a model of real shape with random weights, takes two steps as transformers' Trainer does, and prints
estimate, measured peak and error. CUDA's own memory and the margin are left out on both sides. Without data
transformers cannot see that no row is padded, and makes an attention mask: the estimate has one too there.
TRL's tiles are Triton kernels, so that their cases need a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from truetune.memory.estimate_memory import GIB, estimate_memory
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.memory.memory_settings import resolve_memory_settings
from truetune.settings.config import Config
from truetune.settings.run_spec import RunSpec


def _shape(**fields: Any) -> dict[str, Any]:
    return fields


SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": _shape(
        model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, vocab_size=49152, tie_word_embeddings=True,
    ),
    "qwen3-0.6b": _shape(
        model_type="qwen3", hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True,
    ),
    "gemma3-1b": _shape(
        model_type="gemma3_text", hidden_size=1152, intermediate_size=6912, num_hidden_layers=26,
        num_attention_heads=4, num_key_value_heads=1, head_dim=256, vocab_size=262144, tie_word_embeddings=True,
    ),
    "llama-3.2-1b": _shape(
        model_type="llama", hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, vocab_size=128256, tie_word_embeddings=True,
    ),
    "phi-3-mini": _shape(
        model_type="phi3", hidden_size=3072, intermediate_size=8192, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=32, vocab_size=32064, tie_word_embeddings=False,
    ),
    "llama-3.1-8b": _shape(
        model_type="llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=False,
    ),
    "olmoe-1b-7b": _shape(
        model_type="olmoe", hidden_size=2048, intermediate_size=1024, num_hidden_layers=16, num_attention_heads=16,
        num_key_value_heads=16, num_experts=64, num_experts_per_tok=8, vocab_size=50304, tie_word_embeddings=False,
    ),
    "tiny-llama": _shape(
        model_type="llama", hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=4096, tie_word_embeddings=True,
    ),
}  # fmt: skip
"""config.json of published models, as far as shapes go; `tiny-llama` is for tests"""
ALL = {"r": 16, "target_modules": "all-linear"}


@dataclass(frozen=True)
class Case:
    """One run."""

    shape: str
    batch: int
    length: int
    training: dict[str, Any] = field(default_factory=dict)
    trl: bool = False

    @property
    def name(self) -> str:
        words = [
            self.shape,
            f"{self.batch}x{self.length}",
            "lora" if "lora" in self.training else "full",
        ]
        words += [str(self.training.get("dtype"))] + ["amp"] * ("bf16" in self.training)
        words += ["ckpt"] * ("gradient_checkpointing" in self.training) + ["tiles"] * self.trl
        return " ".join(
            [
                *words,
                *[
                    self.training[key]
                    for key in ("optim", "attn_implementation")
                    if key in self.training
                ],
            ]
        )

    def config(self) -> Config:
        rows = {"per_device_train_batch_size": self.batch, "padding_free": True}
        spec = RunSpec.model_validate(
            {"max_length": self.length, "training": {**rows, **self.training}}
        )
        return Config("trl" if self.trl else "transformers", "1.16.0", "", spec)


BF16, WIDE, MIXED = {"dtype": "bfloat16"}, {"dtype": "float32"}, {"dtype": "float32", "bf16": True}
AMP, CKPT = {"dtype": "bfloat16", "bf16": True}, {"gradient_checkpointing": True}
CASES = (
    Case("smollm2-135m", 4, 1024, BF16),
    Case("smollm2-135m", 4, 1024, WIDE),
    Case("smollm2-135m", 4, 1024, MIXED),
    Case("smollm2-135m", 4, 1024, MIXED | CKPT),
    Case("smollm2-135m", 4, 1024, AMP | {"attn_implementation": "eager"}),
    Case("smollm2-135m", 16, 1024, AMP | CKPT, trl=True),
    Case("qwen3-0.6b", 2, 2048, AMP),
    Case("qwen3-0.6b", 2, 2048, AMP | CKPT),
    Case("qwen3-0.6b", 8, 2048, AMP | CKPT | {"lora": ALL}),
    Case("qwen3-0.6b", 2, 2048, AMP | {"lora": {"r": 16, "target_modules": ("q_proj", "v_proj")}}),
    Case("qwen3-0.6b", 2, 1024, MIXED | {"gradient_accumulation_steps": 2}),
    Case("gemma3-1b", 1, 2048, AMP),
    Case("gemma3-1b", 4, 2048, AMP | CKPT | {"lora": ALL}),
    Case("llama-3.2-1b", 2, 2048, AMP),
    Case("llama-3.2-1b", 2, 2048, AMP | {"optim": "adamw_torch"}),
    Case("llama-3.2-1b", 8, 2048, AMP | CKPT, trl=True),
    Case("llama-3.2-1b", 1, 4096, MIXED | CKPT),
    Case("phi-3-mini", 1, 2048, AMP | {"lora": ALL}),
    Case("llama-3.1-8b", 1, 4096, AMP | CKPT | {"lora": ALL}),
    Case("llama-3.1-8b", 2, 2048, AMP | {"lora": ALL}),
    Case("llama-3.1-8b", 1, 2048, AMP | CKPT),
    Case("olmoe-1b-7b", 1, 2048, AMP | CKPT),
)


def model_of(case: Case, dtype: Any) -> Any:
    """The model of a case, with its adapter, ready to train."""
    import transformers

    values = dict(SHAPES[case.shape])
    tokens = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values, **tokens)
    attention = case.training.get("attn_implementation", "sdpa")
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=dtype, attn_implementation=attention
    )
    if case.trl:
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model)
    if case.training.get("gradient_checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if lora := case.training.get("lora"):
        import peft

        wanted = lora["target_modules"]
        targets = list(wanted) if isinstance(wanted, tuple) else wanted
        model = peft.get_peft_model(
            model, peft.LoraConfig(r=lora["r"], target_modules=targets, task_type="CAUSAL_LM")
        )
        if case.training.get("gradient_checkpointing"):
            model.enable_input_require_grads()
    return model.train()


def step(case: Case, model: Any, optimizer: Any, device: str) -> None:
    """What the Trainer does in one step: accelerate's autocast, the loss, its backward pass, the optimizer."""
    amp = torch.autocast(device, torch.bfloat16, enabled=bool(case.training.get("bf16")))
    ids = torch.ones(case.batch, case.length, dtype=torch.long, device=device)
    for _ in range(case.training.get("gradient_accumulation_steps", 1)):
        with amp:
            more = {"fused_lm_head": True} if case.trl else {"use_cache": False}
            loss = model(input_ids=ids, labels=ids, **more).loss
        loss.backward()
        del loss
    optimizer.step()
    optimizer.zero_grad()


def on_gpu(case: Case) -> float:
    """Peak bytes that torch allocated on the GPU in the second step."""
    dtype = getattr(torch, case.training["dtype"])
    with torch.device("cuda"):
        model = model_of(case, dtype)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **_kind(case))
    step(case, model, optimizer, "cuda")
    torch.cuda.reset_peak_memory_stats()
    step(case, model, optimizer, "cuda")
    peak = torch.cuda.max_memory_allocated()
    del model, optimizer
    torch.cuda.empty_cache()
    return float(peak)


class Live(TorchDispatchMode):
    """Bytes of the storages that are alive, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.now += size
            weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for item in tree_iter(made):
            if isinstance(item, torch.Tensor):
                self.add(item)
        self.peak = max(self.peak, self.now)
        return made


def on_nothing(case: Case) -> float:
    """Peak bytes of the same step on tensors without data, counted by storage."""
    with torch.device("meta"):
        model = model_of(case, getattr(torch, case.training["dtype"]))
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cpu"):
        _move(model)
        optimizer = torch.optim.AdamW(
            [p for p in model.parameters() if p.requires_grad], **_kind(case)
        )
        live = Live()
        for tensor in (*model.parameters(), *model.buffers()):
            live.add(tensor)
        with live:
            step(case, model, optimizer, "cpu")
            live.peak = 0
            step(case, model, optimizer, "cpu")
    return float(live.peak)


def _move(model: torch.nn.Module) -> None:
    """Tensors of the device meta become ones that seem to be on the CPU; tied ones stay tied."""
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, old in module._parameters.items():
            if old is not None:
                new = torch.nn.Parameter(
                    torch.empty(old.shape, dtype=old.dtype), requires_grad=old.requires_grad
                )
                module._parameters[name] = made.setdefault(id(old), new)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def _kind(case: Case) -> dict[str, Any]:
    return {"foreach": True} if case.training.get("optim") == "adamw_torch" else {"fused": True}


def results(cases: tuple[Case, ...], fake: bool) -> Iterator[dict[str, Any]]:
    """Estimate and measurement of each case."""
    for case in cases:
        began = time.perf_counter()
        known = parse_architecture(SHAPES[case.shape])
        settings = resolve_memory_settings(case.config(), known)
        guess = estimate_memory(known, replace(settings, masked=True) if fake else settings)
        allocated = max(guess.moments, key=lambda moment: moment.allocated)
        measured = on_nothing(case) if fake else on_gpu(case)
        yield {
            "case": case.name,
            "estimate": allocated.allocated,
            "moment": allocated.name,
            "parts": {name: round(size / GIB, 3) for name, size in allocated.parts.items() if size},
            "measured": measured,
            "error": allocated.allocated / measured - 1,
            "seconds": time.perf_counter() - began,
        }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fake", action="store_true", help="tensors without data, on any machine")
    parser.add_argument("--only", help="cases whose name holds this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    fake = options.fake or not torch.cuda.is_available()
    print(f"peak of {'tensors without data' if fake else torch.cuda.get_device_name()}, GiB")
    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = tuple(c for c in CASES if (options.only or "") in c.name and not (fake and c.trl))
        for found in results(chosen, fake):
            if options.json:
                print(json.dumps(found), flush=True)
                continue
            line = (
                f"{found['case']:62} {found['estimate'] / GIB:8.2f} {found['measured'] / GIB:8.2f} "
            )
            print(
                f"{line} {found['error']:+7.1%}  {found['moment']} ({found['seconds']:.1f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
