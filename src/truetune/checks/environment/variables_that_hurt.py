"""An environment variable slows runs down, or sends local requests to a proxy.

## What it does
Looks for settings that were made for debugging and forgotten (CUDA_LAUNCH_BLOCKING, NCCL_P2P_DISABLE,
TOKENIZERS_PARALLELISM), and for a proxy that also receives requests to this machine.

## Why it is bad
CUDA_LAUNCH_BLOCKING=1 makes every kernel wait for the previous one. Without P2P, GPUs exchange gradients through CPU
memory. With a proxy but no `no_proxy`, requests to a server on localhost go through the proxy, which answers 502 or
503.

## Example
```yaml
variables: {CUDA_LAUNCH_BLOCKING: "1"}
```

## Use instead
```yaml
variables: {CUDA_LAUNCH_BLOCKING: "0"}
```

## Fix safety
Some GPUs without P2P hang if NCCL tries it (RTX 40xx with older drivers): keep NCCL_P2P_DISABLE=1 there.

## References
- NVIDIA/nccl-tests#117, dmlc/xgboost#11242 (P2P); vllm-project/vllm#1519, bentoml/OpenLLM#79 (proxies); NCCL's and
  CUDA's documentation of environment variables
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import EnvironmentRule
from truetune.settings.run_spec import Severity

# Warnings slow every step many times over. Notes have a use: NCCL_P2P_DISABLE=1 is how consumer GPUs without P2P work.
HARMFUL_SETTINGS: dict[tuple[str, str], tuple[Severity, str]] = {
    ("CUDA_LAUNCH_BLOCKING", "1"): (
        "warning",
        "every kernel waits for the previous one, which is only useful for debugging",
    ),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"): (
        "warning",
        ("every tensor is allocated by the driver, without torch's cache"),
    ),
    ("NCCL_P2P_DISABLE", "1"): (
        "info",
        "GPUs exchange data through CPU memory, which only a few need",
    ),
    ("NCCL_IB_DISABLE", "1"): ("info", "nodes exchange data over TCP instead of InfiniBand"),
    ("TOKENIZERS_PARALLELISM", "false"): ("info", "texts are tokenized in one thread"),
}
"""Severity, and what comes of it, by name and value"""
# Programs differ in which spelling they read, so either counts. https_proxy is left out: local servers speak http.
PROXY_VARIABLES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
NAMES_OF_THIS_MACHINE = ("localhost", "127.0.0.1", "*")


class VariablesThatHurt(EnvironmentRule):
    code = "ENV009"
    fault = Fault.ENVIRONMENT_VARIABLE_HARMS
    severity = "warning"
    since = "0.1.0"

    def measurement_if_clean(self) -> str:
        """That none of the known harmful settings is among the environment's variables."""
        return (
            f"0 of {len(HARMFUL_SETTINGS):,} harmful settings are among"
            f" {len(self.subject.variables):,} variables"
        )

    def findings(self) -> Iterator[Finding]:
        variables = self.subject.variables
        for (name, value), (severity, what) in HARMFUL_SETTINGS.items():
            if variables.get(name, "").strip().lower() == value:
                yield self.finding(
                    f"{name}={variables[name]}: {what}", f"unset {name}", severity=severity
                )
        proxy = next((name for name in PROXY_VARIABLES if variables.get(name)), None)
        exceptions = f"{variables.get('no_proxy', '')},{variables.get('NO_PROXY', '')}".split(",")
        if proxy and not any(item.strip() in NAMES_OF_THIS_MACHINE for item in exceptions):
            yield self.finding(
                f"{proxy} is set, but no_proxy does not exclude localhost: requests to a server on this machine go"
                " through the proxy",
                "export no_proxy=localhost,127.0.0.1",
            )
