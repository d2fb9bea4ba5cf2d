"""What runs inside the interpreter that is looked at: standard library alone, Python 3.8 and later; JSON lines on
stdout.

    python inside.py packages NAME...     versions and requirements, without an import
    python inside.py load MODULE...       imports, one after the other; torch tells what it is
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

STDOUT = os.dup(1)
"""The real stdout; what libraries print goes to stderr"""


def say(**value: Any) -> None:
    """One line."""
    os.write(STDOUT, (json.dumps(value) + "\n").encode())


def canonical(name: str) -> str:
    """`Flash_Attn` as `flash-attn`."""
    return name.lower().replace("_", "-").replace(".", "-")


def packages(names: list[str]) -> None:
    """Versions of what is installed, and what the named ones require."""
    found: dict[str, str] = {}
    required: dict[str, list[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = canonical(distribution.metadata["Name"] or "")
        if name and name not in found:
            found[name] = distribution.version
            if name in names:
                required[name] = distribution.requires or []
    say(
        python=sys.executable,
        version=platform.python_version(),
        system=platform.platform(),
        encoding=locale.getpreferredencoding(),
        packages=found,
        requires=required,
    )


def torch_facts() -> dict[str, Any]:
    """Of `truetune.doctor.environment.Torch`."""
    import torch

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
        "bf16": bf16(torch) if available else None,
        "said": " ".join(str(warning.message) for warning in caught),
    }


def bf16(torch: Any) -> bool:
    """Does the first GPU multiply in bf16?"""
    try:
        one = torch.ones(32, 32, dtype=torch.bfloat16, device="cuda")
        return bool(((one @ one).float() == 32).all().item())
    except Exception:
        return False


def flash_attn() -> None:
    """A forward pass; ones in, ones out."""
    torch, attention = (
        importlib.import_module("torch"),
        importlib.import_module("flash_attn").flash_attn_func,
    )
    if torch.cuda.is_available():
        one = torch.ones(1, 16, 2, 64, dtype=torch.float16, device="cuda")
        if not torch.allclose(attention(one, one, one), one):
            raise RuntimeError("its result is wrong")


def bitsandbytes() -> None:
    """The library behind it, which a broken install replaces with one that raises later."""
    library = importlib.import_module("bitsandbytes.cextension").lib
    if "Mock" in type(library).__name__:
        raise RuntimeError(
            str(getattr(library, "error_msg", "")) or "its native library was not loaded"
        )


DEEPER: dict[str, Any] = {
    "transformers": lambda: importlib.import_module("transformers.trainer"),
    "trl": lambda: importlib.import_module("trl").SFTTrainer,
    "peft": lambda: importlib.import_module("peft").LoraConfig,
    "flash_attn": flash_attn,
    "bitsandbytes": bitsandbytes,
}
"""What an import alone does not show"""


def load(names: list[str]) -> None:
    """Import each; a crash is known by the line that is missing."""
    os.dup2(2, 1)
    for name in names:
        say(begins=name)
        try:
            importlib.import_module(name)
            DEEPER.get(name, lambda: None)()
            facts = torch_facts() if name == "torch" else None
            say(done=name, error="", facts=facts)
        except BaseException as error:
            text = " ".join(str(error).split()) or "no message"
            say(done=name, error=f"{type(error).__name__}: {text}", facts=None)


if __name__ == "__main__":
    sys.path.pop(0)
    warnings.simplefilter("ignore")
    {"packages": packages, "load": load}[sys.argv[1]](sys.argv[2:])
