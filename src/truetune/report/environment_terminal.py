"""What `truetune doctor` found in the environment, on a terminal below the findings: machine, GPU,
packages, and which extras are missing.

What is missing is said with what it would be good for, so that nobody installs all of it to be safe.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from truetune.checks.check_environment import DoctorReport, training_package_versions
from truetune.doctor.environment_record_types import Environment
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import borderless_table
from truetune.report.visible_text import escape_invisible_characters

# Sizes of disks and RAM as their vendors count them; memory of a GPU is in GiB, as drivers and
# `plan` count it.
GIGABYTE = 10**9
EXTRA_PURPOSES = {
    "train": "train, rehearse, sample, evaluate, merge, and the proof of the demo",
    "qlora": "training of a 4-bit base",
    "vllm": "answers by vLLM",
    "llama": "answers of .gguf files",
    "lm-eval": "tasks of lm-eval in evaluate",
    "hub": "models by their name on the hub",
    "fast": "faster tokenizers in encode",
    "ray": "encode on a cluster",
    "mcp": "the server of tools for coding assistants",
    "lsp": "findings in editors",
}
"""What the extras of truetune are for"""


@draw_details_by_kind.register
def draw_environment(report: DoctorReport, console: Console, verbose: bool) -> None:
    """Draw packages, machine and extras; `verbose` shows what was imported as well."""
    here = report.environment
    table = borderless_table(header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in (*_machine_lines(here), *_software_lines(here, verbose)):
        table.add_row(name, Text(escape_invisible_characters(text)))
    console.print(table)
    # An extra that this table does not know is passed over:
    # nothing true could be said of it.
    for name, there in here.extras.items():
        if not there and name in EXTRA_PURPOSES:
            console.print(
                Text(f"not installed: truetune[{name}], for {EXTRA_PURPOSES[name]}", style="dim"),
                soft_wrap=True,
            )
    console.print()


def _machine_lines(here: Environment) -> Iterator[tuple[str, str]]:
    """(name, value) of the system, each kind of GPU, torch, and the Hugging Face cache."""
    machine = here.machine
    memory = f", {machine.memory / GIGABYTE:,.0f} GB RAM" if machine.memory else ""
    yield "machine", f"{here.system}; {machine.cpus or '?'} CPUs{memory}"
    # Eight equal GPUs are one line with their number.
    for gpu in dict.fromkeys(machine.gpus):
        yield "GPU", f"{machine.gpus.count(gpu)} x {gpu.name}, {gpu.memory / 2**30:,.0f} GiB"
    if here.torch is not None:
        yield "torch", _describe_torch(here)
    free = "" if here.cache_free is None else f", {here.cache_free / GIGABYTE:,.0f} GB free"
    yield "hub cache", f"{here.cache}{free}"


def _describe_torch(here: Environment) -> str:
    """What torch was built for, and what it uses."""
    torch = here.torch
    assert torch is not None
    # A build for CUDA on a machine without a GPU driver is the common reason for "uses no GPU",
    # so both are said.
    built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "CPUs"
    # bf16 says nothing where there is no GPU to compute it.
    if not torch.available:
        return f"built for {built}; uses no GPU"
    return (
        f"built for {built}; uses {len(torch.devices)} GPU{'s' * (len(torch.devices) != 1)}; bf16 "
        + ("works" if torch.bf16 else "fails")
    )


def _software_lines(here: Environment, verbose: bool) -> Iterator[tuple[str, str]]:
    """(name, value) of the packages; with `verbose` those that were imported as well."""
    yield (
        "packages",
        ", ".join(f"{name} {version}" for name, version in training_package_versions(here).items())
        or "none of them",
    )
    fine = [name for name, error in here.loads.items() if not error]
    if verbose and fine:
        yield "imported", ", ".join(fine)
