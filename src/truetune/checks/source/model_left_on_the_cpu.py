"""A model is loaded, never moved to the GPU, and asked for text or trained.

## What it does
Follows the model of `generate` to what loads it, through adapters, merges and functions. It warns where nothing puts
it on a device (`device_map`, `.to(...)`, `.cuda()`, a Trainer, Accelerate, a quantization, a default device), and it
is a model for a GPU: loaded in 16 bits, or of a billion parameters by its name. Silent where the file names the CPU,
and with libraries that place models themselves. A loop of one's own whose optimizer holds such a model trains on the
CPU; there a file that speaks of CUDA is enough (`device = "cuda" if torch.cuda.is_available() else "cpu"`, never
used). llama-cpp-python's `Llama` without `n_gpu_layers` is such a model too.

## Why it is bad
transformers loads onto the CPU unless it is told otherwise, and says nothing of it: the answers are right, the GPU is
idle, and each token takes ten to a hundred times as long. In 16 bits a CPU is slower still.

## Example
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out/merged")
model = AutoModelForCausalLM.from_pretrained("out/merged", dtype=torch.bfloat16)
inputs = tokenizer("Hi", return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=200)
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out/merged")
model = AutoModelForCausalLM.from_pretrained("out/merged", dtype=torch.bfloat16, device_map="auto")
inputs = tokenizer("Hi", return_tensors="pt").to(model.device)
out = model.generate(**inputs, max_new_tokens=200)
```

## Fix safety
Move the inputs as well: `inputs.to(model.device)`. Where the model does not fit, `device_map="auto"` leaves layers on
the CPU and says so in a warning.

## References
- huggingface/transformers `PreTrainedModel.from_pretrained`: `device_map`
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answering_models import (
    ModelChain,
    billions_of_model,
    load_dtypes,
    model_chains,
)
from truetune.checks.source.evidence.backward_and_steps import backward_calls
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.optimized_weight_dtypes import (
    BFLOAT16,
    FLOAT16,
    optimized_models,
)
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

PLACES = (
    "device_map",
    "set_default_device",
    "set_default_tensor_type",
    "dispatch_model",
    "cpu_offload",
    "deepspeed",
    "Trainer",
    "parallelize",
    "tp_plan",
    "quantization_config",
    "load_in_4bit",
    "load_in_8bit",
    "unsloth",
    "intel_extension",
    "xla",
    "spaces.GPU",
)
"""What puts a model on a device, or is another device"""
NAMES_CPU = re.compile(
    r"""["']cpu["']|\bCUDA_VISIBLE_DEVICES\b\W*=\s*["'](?:-1)?["']|no_cuda|use_cpu"""
)
OTHERWISE_CPU = re.compile(r"""is_available\(\)\s+else\s+["']cpu["']""")
"""The CPU where no GPU is there: who writes this means the GPU"""
QUANTIZED = re.compile(r"gptq|awq|bnb|[48]-?bit|gguf|int4|int8|fp8", re.I)
"""Names of weights that are stored quantized: loading puts them on the GPU, or refuses"""
LLAMA_CPP = ("llama_cpp.Llama", "langchain_community.llms.LlamaCpp", "langchain.llms.LlamaCpp")
LAYERS = "n_gpu_layers"
"""0 where it is left out"""
MOVES = ("to", "cuda", "prepare", "cuda_", "to_empty")
# Chosen: below a billion parameters float32 answers come at reading speed on a CPU. At double, 1.5B models are
# missed.
MIN_BILLIONS = 1.0
"""A smaller model in float32 is a demonstration, which a CPU answers at reading speed"""


class ModelLeftOnTheCpu(SourceRule):
    code = "SRC034"
    severity = "warning"
    looks_at = CodePlaces(
        "models that generate or are trained in a loop",
        lambda module: (
            *generate_calls(module),
            *module.calls(*LLAMA_CPP),
            *_optimizers_of_loops(module),
        ),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # Who writes "cpu" in the file means it.
        names_cpu = any(
            NAMES_CPU.search(OTHERWISE_CPU.sub("", part.text)) for part in module.with_linked
        )
        if names_cpu:
            return
        yield from self._of_llama_cpp()
        if module.mentions(*PLACES) or any(module.calls("accelerate.*")) or _moves_models(module):
            return
        yield from self._of_transformers()
        yield from self._of_loops()

    def _of_llama_cpp(self) -> Iterator[Finding]:
        """Loads of llama.cpp, whose default leaves all layers on the CPU."""
        module = self.subject
        for call in module.calls(*LLAMA_CPP):
            if call.lacks(LAYERS, 1):
                yield self.finding(
                    f"{LAYERS} is not set: llama.cpp keeps all layers on the CPU, and every answer is generated"
                    " there",
                    f"give {LAYERS}=-1, with a build that has CUDA (CMAKE_ARGS=-DGGML_CUDA=on)",
                    cases=[case_at(module, call.node)],
                )

    def _of_transformers(self) -> Iterator[Finding]:
        """Models of transformers that generate and are moved nowhere, each load once."""
        module = self.subject
        seen: set[object] = set()
        for call in generate_calls(module):
            chains = model_chains(module, call.receiver) if call.receiver is not None else None
            for chain in chains or ():
                if chain.load.node not in seen and _is_for_gpu(module, chain):
                    seen.add(chain.load.node)
                    yield self.finding(
                        "the model is never moved to the GPU: it stays on the CPU, and every answer is"
                        " generated there",
                        'give device_map="auto" to from_pretrained, and move the inputs with'
                        " .to(model.device)",
                        cases=[case_at(module, chain.load.node), case_at(module, call.node)],
                    )

    def _of_loops(self) -> Iterator[Finding]:
        """Models of transformers that an optimizer of a loop holds, in a file that means a GPU."""
        module = self.subject
        if not any(part.mentions("cuda") for part in module.with_linked):
            return
        for optimizer in _optimizers_of_loops(module):
            for model in optimized_models(module, optimizer):
                chains = model_chains(module, model)
                if not chains or any(_may_be_placed(module, chain) for chain in chains):
                    continue
                yield self.finding(
                    "the model is never moved to the GPU: it stays on the CPU, and is trained there",
                    'move the model behind its load, model.to("cuda"), and each batch to model.device',
                    cases=[case_at(module, chains[0].load.node), case_at(module, optimizer.node)],
                )
                return


def _optimizers_of_loops(module: Module) -> Iterator[Call]:
    """The optimizers that are made in a file with a backward pass of its own."""
    if any(True for _ in backward_calls(module)):
        yield from module.calls("torch.optim.Adam*", "torch.optim.SGD", "bitsandbytes.optim.*")


def _may_be_placed(module: Module, chain: ModelChain) -> bool:
    """May the load put the model on a GPU: by arguments that are not seen, or because it is quantized?"""
    return chain.load.open or QUANTIZED.search(module.text_of(chain.load.node)) is not None


def _moves_models(module: Module) -> bool:
    """Is anything moved that may be a model? Inputs alone would fail beside a model on the CPU."""
    return any(True for part in module.with_linked for _ in part.methods(*MOVES))


def _is_for_gpu(module: Module, chain: ModelChain) -> bool:
    """Is it a model that nobody runs on a CPU with intent: in 16 bits, or large by its name?"""
    if _may_be_placed(module, chain):
        return False
    is_narrow = any(
        dtype in BFLOAT16.names | FLOAT16.names for dtype in load_dtypes(module, chain.load)
    )
    is_narrow = is_narrow or any(step.method in ("half", "bfloat16") for step in chain.steps)
    billions = billions_of_model(module, chain.load)
    return is_narrow or (billions is not None and billions >= MIN_BILLIONS)
