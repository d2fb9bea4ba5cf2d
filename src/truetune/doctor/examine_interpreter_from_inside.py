"""Runs inside the interpreter that is examined, with the standard library alone, and prints what it
finds as JSON lines.

    python examine_interpreter_from_inside.py packages NAME...     versions and requirements, without an import
    python examine_interpreter_from_inside.py load MODULE...       imports, one after the other; torch tells what it is
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import locale
import os
import platform
import sys
import warnings
from typing import Any

# Libraries print while they are imported: a line of theirs among ours would not be JSON.
STDOUT = os.dup(1)
"""The real stdout; what libraries print goes to stderr"""


def print_json_line(**value: Any) -> None:
    """Print one line of JSON."""
    os.write(STDOUT, (json.dumps(value) + "\n").encode())


def canonical_package_name(name: str) -> str:
    """The canonical name of a package: `Flash_Attn` as `flash-attn`."""
    return name.lower().replace("_", "-").replace(".", "-")


def print_versions_and_requirements(names: list[str]) -> None:
    """Print the versions of what is installed, and what the named packages require."""
    versions: dict[str, str] = {}
    required: dict[str, list[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = canonical_package_name(distribution.metadata["Name"] or "")
        # The first on the path is the one that an import finds.
        if name and name not in versions:
            versions[name] = distribution.version
            if name in names:
                required[name] = distribution.requires or []
    print_json_line(
        python=sys.executable,
        version=platform.python_version(),
        system=platform.platform(),
        encoding=locale.getpreferredencoding(),
        packages=versions,
        requires=required,
    )


def read_torch_facts() -> dict[str, Any]:
    """The facts for `truetune.doctor.environment_record_types.Torch`."""
    import torch

    # A driver that is too old is a warning of torch, and no error.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
        count = torch.cuda.device_count() if available else 0
        devices = [
            [torch.cuda.get_device_name(i), list(torch.cuda.get_device_capability(i))]
            for i in range(count)
        ]
        architectures = torch.cuda.get_arch_list() if available else []
    return {
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "available": available,
        "devices": devices,
        "architectures": architectures,
        "bf16": can_multiply_bf16(torch) if available else None,
        "said": " ".join(str(warning.message) for warning in caught),
    }


def can_multiply_bf16(torch: Any) -> bool:
    """Does the first GPU multiply in bf16?"""
    try:
        one = torch.ones(32, 32, dtype=torch.bfloat16, device="cuda")
        return bool(((one @ one).float() == 32).all().item())
    except Exception:
        return False


def try_flash_attention() -> None:
    """Run a forward pass of flash attention; ones in, ones out."""
    torch, attention = (
        importlib.import_module("torch"),
        importlib.import_module("flash_attn").flash_attn_func,
    )
    if torch.cuda.is_available():
        one = torch.ones(1, 16, 2, 64, dtype=torch.float16, device="cuda")
        if not torch.allclose(attention(one, one, one), one):
            raise RuntimeError("its result is wrong")


def try_bitsandbytes() -> None:
    """Call the native library of bitsandbytes, which a broken install replaces with one that raises
    later.
    """
    library = importlib.import_module("bitsandbytes.cextension").lib
    if "Mock" in type(library).__name__:
        raise RuntimeError(
            str(getattr(library, "error_msg", "")) or "its native library was not loaded"
        )


DEEPER_CHECKS: dict[str, Any] = {
    "transformers": lambda: importlib.import_module("transformers.trainer"),
    "trl": lambda: importlib.import_module("trl").SFTTrainer,
    "peft": lambda: importlib.import_module("peft").LoraConfig,
    "flash_attn": try_flash_attention,
    "bitsandbytes": try_bitsandbytes,
}
"""What an import alone does not show"""


def try_imports_and_print_outcomes(names: list[str]) -> None:
    """Import each module, and print how it went; a crash is known by the line that is missing."""
    # File descriptors and not sys.stdout: native libraries print as well.
    os.dup2(2, 1)
    for name in names:
        print_json_line(begins=name)
        try:
            importlib.import_module(name)
            DEEPER_CHECKS.get(name, lambda: None)()
            facts = read_torch_facts() if name == "torch" else None
            print_json_line(done=name, error="", facts=facts)
        # Some packages exit, or raise what is no Exception, where a library is missing.
        except BaseException as error:
            text = " ".join(str(error).split()) or "no message"
            print_json_line(done=name, error=f"{type(error).__name__}: {text}", facts=None)


if __name__ == "__main__":
    # The folder of this file: its modules would hide others of the same name.
    sys.path.pop(0)
    warnings.simplefilter("ignore")
    {"packages": print_versions_and_requirements, "load": try_imports_and_print_outcomes}[
        sys.argv[1]
    ](sys.argv[2:])
