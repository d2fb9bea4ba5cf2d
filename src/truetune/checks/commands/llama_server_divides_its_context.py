"""llama-server shares its context out among its slots, and each is too short for an answer.

## What it does
Divides `--ctx-size` (`-c`) of llama-server by `--parallel` (`-np`), and fires below 1,024 tokens for a slot. It skips
`--kv-unified`, with which all slots share one context, and servers for embeddings and rerankers.

## Why it is bad
The context is that of all slots together. With `-c 4096 -np 8` a request has 512 tokens for its prompt and its answer:
answers end in the middle (`finish_reason: length`), and longer prompts are refused.

## Example
```bash
llama-server -m ./support-q4_k_m.gguf -c 4096 -np 8 -ngl 99 --jinja
```

## Use instead
```bash
llama-server -m ./support-q4_k_m.gguf -c 65536 -np 8 -ngl 99 --jinja
```

## Fix safety
The KV cache takes more memory.

## References
- llama.cpp, tools/server/README.md: `-c`, `-np`, `--kv-unified`; ggml-org/llama.cpp#4130
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import CommandRule
from truetune.parsing.shell_commands import CommandFile, ShellCommand, last_option, parse_digits

# A system prompt, a question and an answer of a few paragraphs. Chosen, not measured: at half, servers of one-word
# labels would be alarms; the Modelfile rules take Ollama's former default of 2,048 as short.
MIN_TOKENS_OF_SLOT = 1024
OTHER_USE = ("--embedding", "--embeddings", "--reranking", "--rerank", "--kv-unified", "-kvu")


class SlotsOfServer(NamedTuple):
    """A server's context and its slots."""

    command: ShellCommand
    context: int
    slots: int


class LlamaServerDividesItsContext(CommandRule):
    code = "CMD254"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    symptoms = ("good-here-bad-there",)
    severity = "warning"
    what = "servers of llama.cpp whose context is set"

    @staticmethod
    def examined_places(file: CommandFile) -> Iterator[SlotsOfServer]:
        """The servers of chats whose context is set."""
        for command in file.commands:
            options = command.words_following("llama-server")
            if options is None or any(one in options for one in OTHER_USE):
                continue
            context = parse_digits(last_option(options, "-c", "--ctx-size"))
            slots = parse_digits(last_option(options, "-np", "--parallel") or "1")
            if context and slots:
                yield SlotsOfServer(command, context, slots)

    def findings(self) -> Iterator[Finding]:
        for server in self.examined_places(self.subject):
            each = server.context // server.slots
            if each >= MIN_TOKENS_OF_SLOT:
                continue
            shared = f" shared out among {server.slots} slots" if server.slots > 1 else ""
            yield self.finding(
                f"a context of {server.context:,}{shared} leaves {each:,} tokens for a prompt and its answer: answers"
                " are cut",
                f"set -c to {8192 * server.slots} (8,192 for each slot), or lower -np",
                cases=[self.case_of_command(server.command, server.command.text)],
            )
