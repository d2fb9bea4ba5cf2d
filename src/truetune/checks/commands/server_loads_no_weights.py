"""A vLLM server runs with random weights.

## What it does
Reads the commands that start vLLM in shell scripts, job files and Dockerfiles, for `--load-format dummy`.

## Why it is bad
`dummy` fills the model with random numbers, for speed measurements. There is no error, every answer is garbage, and the
tuned weights look broken.

## Example
```bash
vllm serve ./merged --load-format dummy
```

## Use instead
```bash
vllm serve ./merged
```

## Fix safety
Safe, unless you only measure speed.

## References
- vLLM documentation, engine arguments: `--load-format`
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.checks.vllm_server_commands import VllmServerCommand, find_vllm_server_commands
from truetune.parsing.shell_commands import CommandFile, last_option


class ServerLoadsNoWeights(CommandRule):
    code = "CMD003"
    fault = Fault.WEIGHTS_ARE_RANDOM
    symptoms = ("garbage-output", "nothing-is-learned", "good-here-bad-there")
    severity = "error"
    what = "commands that start vLLM"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[VllmServerCommand]:
        """The places that the rule looks at: the commands that start vLLM."""
        return find_vllm_server_commands(file)

    def findings(self) -> Iterator[Finding]:
        for server in find_vllm_server_commands(self.subject):
            if last_option(server.options, "--load-format") == "dummy":
                yield self.finding(
                    "this server runs with random weights: --load-format dummy loads no file",
                    "remove --load-format dummy",
                    cases=[self.case_of_command(server.command, "--load-format dummy")],
                )
