"""A model is loaded, never moved to the GPU, and then generates or is trained.

## What it does
Traces, in a symbolic run of the script, the model of each `generate`, training loop and pipeline back to its load,
through adapters, helpers and every call that moves it. It warns if nothing puts the model on a device (`device_map`,
`.to(...)`, `.cuda()`, a Trainer, Accelerate, a quantization, a default device) and the model is meant for a GPU: it is
in 16 bits, has a billion parameters by its name, or runs in a job that has a GPU. For a training loop, a file that
mentions CUDA is enough.

If the script names the CPU (`.to("cpu")`, `device="cpu"`, `use_cpu=True`, `Accelerator(cpu=True)`,
`CUDA_VISIBLE_DEVICES=""`, the default of an option that no job sets), it warns only if the job next to it has a GPU, an
earlier line put the model on one, or a model of a billion parameters is trained. llama-cpp-python's `Llama` without
`n_gpu_layers` counts too. It does not report models that pass through unknown functions, or libraries that place models
themselves.

## Why it is bad
transformers loads onto the CPU by default, without a message. The answers are right, but the GPU is idle, and each
token takes ten to a hundred times as long. In 16 bits a CPU is slower still.

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
Results stay the same up to rounding. Move the inputs as well: `inputs.to(model.device)`. If the model does not fit,
`device_map="auto"` leaves layers on the CPU and prints a warning.

## References
- huggingface/transformers `PreTrainedModel.from_pretrained`: `device_map`
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import backward_calls
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.models_used_on_cpu_despite_gpu import (
    PIPELINE,
    TRAINERS,
    CpuUse,
    models_used_on_cpu,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OTHER_DEVICES = ("intel_extension", "torch_xla", "spaces.GPU", "deepspeed", "cpu_offload")
"""What puts a model on a device in a way that is not followed, or is another device"""
NAMES_CPU = re.compile(
    r"""["']cpu["']|\bCUDA_VISIBLE_DEVICES\b\W*=\s*["'](?:-1)?["']|no_cuda|use_cpu"""
)
OTHERWISE_CPU = re.compile(r"""is_available\(\)\s+else\s+["']cpu["']""")
"""The CPU where no GPU is there: who writes this means the GPU"""
LLAMA_CPP = ("llama_cpp.Llama", "langchain_community.llms.LlamaCpp", "langchain.llms.LlamaCpp")
LAYERS = "n_gpu_layers"
"""0 where it is left out"""


class ModelLeftOnTheCpu(SourceRule):
    code = "SRC034"
    fault = Fault.PROGRAM_RUNS_ON_CPU
    severity = "warning"
    looks_at = CodePlaces(
        "models that generate or are trained",
        lambda module: (
            *generate_calls(module),
            *module.calls(*LLAMA_CPP, PIPELINE, *TRAINERS),
            *_optimizers_in_files_with_backward(module),
        ),
    )

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_llama_cpp()
        module = self.subject
        if any(part.mentions(*OTHER_DEVICES) for part in module.self_and_files_run_together):
            return
        for use in models_used_on_cpu(module):
            message, remedy = _message_and_advice(use)
            cases = [case_of_node(module.home(place.node), place.node) for place in use.places]
            yield self.finding(message, remedy, cases=cases)

    def _findings_on_llama_cpp(self) -> Iterator[Finding]:
        """Findings on loads of llama.cpp, whose default leaves all layers on the CPU."""
        module = self.subject
        # Who writes "cpu" in the file means it.
        if any(
            NAMES_CPU.search(OTHERWISE_CPU.sub("", part.text))
            for part in module.self_and_files_run_together
        ):
            return
        for call in module.calls(*LLAMA_CPP):
            if call.lacks(LAYERS, 1):
                yield self.finding(
                    f"{LAYERS} is not set: llama.cpp keeps all layers on the CPU, and generates every answer there",
                    f"set {LAYERS}=-1, and install llama-cpp-python with CUDA (CMAKE_ARGS=-DGGML_CUDA=on pip install"
                    " --force-reinstall --no-cache-dir llama-cpp-python)",
                    cases=[case_of_node(module, call.node)],
                )


def _message_and_advice(use: CpuUse) -> tuple[str, str]:
    """The message of the finding, and the advice."""
    because = f" ({use.sign})" if use.sign else ""
    if use.named:
        return (
            f"{use.named} keeps the model on the CPU, and {use.what} there, although a GPU is meant{because}",
            'set the device to "cuda" instead of "cpu" (or delete the setting that forces the CPU): a GPU is ten to a'
            " hundred times as fast",
        )
    if use.what.startswith("every"):
        remedy = (
            'set device_map="auto" in from_pretrained, and move the inputs with .to(model.device)'
        )
    else:
        remedy = 'call model.to("cuda") after the load, and move each batch to model.device'
    return (
        f"the model is never moved to the GPU{because}: it stays on the CPU, and {use.what} there",
        remedy,
    )


def _optimizers_in_files_with_backward(module: Module) -> Iterator[Call]:
    """The optimizers that are made in a file with a backward pass of its own."""
    if any(True for _ in backward_calls(module)):
        yield from module.calls("torch.optim.Adam*", "torch.optim.SGD", "bitsandbytes.optim.*")
