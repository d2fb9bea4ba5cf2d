"""Each worker of a web server loads its own copy of the model, all on one GPU.

## What it does
Reads the commands that start uvicorn, gunicorn, hypercorn or `fastapi run` with several workers, and the application
module that they name. It fires if that module loads a model onto the GPU on import or at startup (`from_pretrained` or
`pipeline` with `device_map` or a CUDA device, vLLM's `LLM`), and nothing in it assigns workers to separate GPUs.

## Why it is bad
A worker is a process. Four workers hold the weights four times, and leave less memory for the KV cache. They also take
turns on the GPU: a request waits while another worker computes, so four answers take as long as one after another,
while a batch of four takes little longer than one.

## Example
```yaml
files:
  app.py: |
    from fastapi import FastAPI
    from transformers import pipeline
    pipe = pipeline("text-generation", model="out/merged", device_map="cuda:0")
    app = FastAPI()
    @app.post("/gen")
    def gen(question: str):
        return pipe(question, max_new_tokens=200)
  start.sh: |
    uvicorn app:app --port 8000 --workers 4
```

## Use instead
```yaml
files:
  app.py: |
    from fastapi import FastAPI
    from transformers import pipeline
    pipe = pipeline("text-generation", model="out/merged", device_map="cuda:0")
    app = FastAPI()
    @app.post("/gen")
    def gen(question: str):
        return pipe(question, max_new_tokens=200)
  start.sh: |
    uvicorn app:app --port 8000 --workers 1
```

## Fix safety
With transformers, one worker answers one request at a time. For several users, serve the model with vLLM and let the
application call it: vLLM batches concurrent requests.

## References
- uvicorn and gunicorn documentation, settings (workers are processes that fork or spawn)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.read_settings_in_launch_files import find_in_folder_or_parents, parse_script
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import (
    CommandFile,
    ShellCommand,
    last_option,
    parse_digits,
)

SERVERS = ("uvicorn", "gunicorn", "hypercorn", "fastapi")
APPLICATION = re.compile(r"^[A-Za-z_][\w.]{0,120}:[A-Za-z_]\w{0,60}(?:\(\))?$")
LOADS = ("from_pretrained", "pipeline", "LLM", "SentenceTransformer")
ON_GPU = re.compile(
    r"cuda|device_map(?!['\"]?\s*[=:]\s*(?:['\"]cpu|None|\{['\"]{2}: ['\"]cpu))|device\s*=\s*0\b"
)
"""A CUDA device, or a map of devices that is not the CPU's"""
GPU_OF_WORKER = re.compile(r"CUDA_VISIBLE_DEVICES|getpid|worker_id|WORKER|set_device|device_count")
"""What may give each worker a GPU of its own"""
STARTS = re.compile(r"lifespan|startup|post_fork|post_worker_init")
"""In the name or the decorator of a function that runs as a worker starts"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class _MultiWorkerApplication(NamedTuple):
    """The application that a server starts several times."""

    workers: int
    script: Path
    line: int
    """Of the load"""
    text: str


class EachWorkerLoadsTheModel(CommandRule):
    code = "CMD098"
    fault = Fault.GPU_MEMORY_TAKEN_BY_ANOTHER_MODEL
    symptoms = ("slow-generation", "out-of-memory")
    severity = "warning"
    stability = "preview"
    what = "commands that start a web server with several workers"

    @staticmethod
    def examined_places(
        file: CommandFile,
    ) -> Iterator[tuple[ShellCommand, _MultiWorkerApplication]]:
        """The places that the rule looks at: the commands that start a web server with several workers."""
        for command in file.commands:
            application = _multi_worker_application(file, command)
            if application is not None:
                yield command, application

    def findings(self) -> Iterator[Finding]:
        for command, application in self.examined_places(self.subject):
            number = application.workers
            yield self.finding(
                f"{number} workers load the model {number} times onto one GPU and take turns on it:"
                f" {application.script.name}:{application.line} runs in each of them",
                "set --workers 1; for several users, serve the model with vLLM, which batches their requests",
                cases=[
                    self.case_of_command(command, command.text[:300]),
                    Case(application.text, file=str(application.script), line=application.line),
                ],
            )


def _multi_worker_application(
    file: CommandFile, command: ShellCommand
) -> _MultiWorkerApplication | None:
    """The application that a command starts in several processes, where it loads a model; else
    None.
    """
    programs = {word.rpartition("/")[2] for word in command.words[:4]}
    # Under --preload the model is loaded once, before the workers are forked.
    if programs.isdisjoint(SERVERS) or "--preload" in command.words:
        return None
    workers = parse_digits(last_option(command.words, "--workers", "-w"))
    script = _application_script(file, command)
    if script is None or workers is None or workers <= 1:
        return None
    tree = parse_script(script)
    if tree is None or GPU_OF_WORKER.search(ast.unparse(tree)):
        return None
    load = next(_model_loads_at_worker_start(tree), None)
    if load is None:
        return None
    return _MultiWorkerApplication(workers, script, load.lineno, ast.unparse(load)[:200])


def _application_script(file: CommandFile, command: ShellCommand) -> Path | None:
    """The file of the application: of `app.main:app`, or the one that `fastapi run` names."""
    for word in command.words:
        name = word
        if APPLICATION.match(word):
            name = word.partition(":")[0].replace(".", "/") + ".py"
        if name.endswith(".py"):
            return find_in_folder_or_parents(Path(file.path).parent, name)
    return None


def _model_loads_at_worker_start(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls that load a model onto the GPU when a worker imports the module or starts."""
    for statement in tree.body:
        if isinstance(statement, Function) and not _is_application_start_handler(statement):
            continue
        if isinstance(statement, ast.ClassDef) or _is_main_guard(statement):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _loads_model_onto_gpu(node, ast.unparse(statement)):
                yield node


def _is_application_start_handler(function: Function) -> bool:
    """Is the function the lifespan of the application, or a handler of its start?"""
    named = " ".join((function.name, *map(ast.unparse, function.decorator_list)))
    return STARTS.search(named) is not None


def _is_main_guard(statement: ast.stmt) -> bool:
    """Is the statement `if __name__ == "__main__":`, which a worker does not run?"""
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _loads_model_onto_gpu(call: ast.Call, statement: str) -> bool:
    """Does a call load a model, and its statement name the GPU? A tokenizer is loaded onto none."""
    called = ast.unparse(call.func)
    owner, _, name = called.rpartition(".")
    if name not in LOADS or "Tokenizer" in owner or "Processor" in owner:
        return False
    return name == "LLM" or ON_GPU.search(statement) is not None
