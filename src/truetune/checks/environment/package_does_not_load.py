"""An installed package can't be imported.

## What it does
Imports torch, transformers with its Trainer, trl, peft, accelerate, datasets, bitsandbytes, flash-attn and Liger in a
separate process with a time limit. It also runs flash-attn, and checks bitsandbytes for its native library, because the
import doesn't show these errors.

## Why it is bad
The run fails at the start. If flash-attn fails, transformers silently uses another attention; with bitsandbytes, the
error only comes after the model was loaded.

## Example
```yaml
packages: {torch: 2.8.0, flash-attn: 2.8.3}
loads: {torch: "", flash_attn: "ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEa"}
```

## Use instead
```yaml
packages: {torch: 2.8.0, flash-attn: 2.8.3}
loads: {torch: "", flash_attn: ""}
```

## Fix safety
There is no automatic fix. Packages with compiled parts must be reinstalled after torch was changed.

## References
- Dao-AILab/flash-attention#1832, Dao-AILab/flash-attention#723, bitsandbytes-foundation/bitsandbytes#1559
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EnvironmentRule

# Packages with machine code: pip alone does not repair them, for the build has to fit torch and CUDA.
REMEDY_BY_MODULE = {
    "flash_attn": (
        "install a flash-attn that was built for this torch and CUDA (pip install flash-attn"
        " --no-build-isolation --force-reinstall --no-deps builds one), or train with"
        " attn_implementation=sdpa"
    ),
    "bitsandbytes": (
        "run `python -m bitsandbytes` to see which library is missing, then pip install -U bitsandbytes"
    ),
    "torch": "reinstall torch; pytorch.org gives the command for this machine",
}


class PackageDoesNotLoad(EnvironmentRule):
    code = "ENV003"
    fault = Fault.PACKAGES_CLASH
    symptoms = ("slow-generation",)
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if self.subject.loads:
            return None
        return Unmet("no package was imported", "leave --no-imports out")

    def measurement_if_clean(self) -> str:
        """The packages that were imported, and their number."""
        return (
            f"{len(self.subject.loads):,} packages were imported: {', '.join(self.subject.loads)}"
        )

    def findings(self) -> Iterator[Finding]:
        for module, error in self.subject.loads.items():
            if error:
                # Modules are looked at, distributions are installed: `flash_attn` comes with `flash-attn`.
                name = module.replace("_", "-")
                yield self.finding(
                    f"{name} {self.subject.packages.get(name, '')} can't be imported: {error}",
                    REMEDY_BY_MODULE.get(
                        module,
                        f"pip install -U {name}; the error message names the package that it conflicts with",
                    ),
                )
