"""Generation runs with the default length limit: 20 tokens in transformers, 16 in vLLM.

## What it does
Looks for `model.generate(...)` without `max_new_tokens`, `max_length`, `max_time`, a stopping criterion or a generation
config, in a file that sets no length elsewhere and gives the model no other generation config. In a notebook it only
checks functions and loops. Tests, which compare generations, are not reported, nor is a function that elsewhere
generates with its caller's options.

The same default is reported for vLLM's `SamplingParams` without `max_tokens`, for completions requested from a server,
and for llama-cpp-python's `Llama(...)`: completions stop after 16 tokens, chats have no such limit. So is an evaluation
of `Seq2SeqTrainer` with `predict_with_generate` and no `generation_max_length`, unless the checkpoint's config has a
length; it is info if that is not known.

## Why it is bad
transformers stops after 20 tokens in total, prompt and answer, and vLLM after 16 tokens of the answer. Answers are cut
off, and an evaluation of them measures nothing.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**tokenizer("Tell me a story", return_tensors="pt"))
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
out = model.generate(**tokenizer("Tell me a story", return_tensors="pt"), max_new_tokens=512)
```

## Fix safety
There is no automatic fix: how long answers may be is your choice. If the checkpoint's generation_config.json sets a
length, nothing is cut.

## References
- huggingface/transformers: `GenerationConfig.max_length` (default 20)
- huggingface/transformers#28056, huggingface/transformers#10032; vllm/sampling_params.py (`max_tokens`, default 16)
- llama_cpp/llama.py (`max_tokens: Optional[int] = 16`); openai completions reference (`max_tokens`, default 16)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generate_call_inputs import (
    argument_is_certainly_missing,
    generate_calls,
    is_causal_model,
)
from truetune.checks.source.evidence.seq2seq_evaluations_without_length import (
    evaluations_without_length_and_certainty,
    label_cut_length,
)
from truetune.checks.source.evidence.text_generation_calls import (
    VLLM_SAMPLING,
    completion_prompts_of_clients,
    engine_prompts,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.name_bindings_in_scopes import Scope
from truetune.source.parsed_source_file import Module

REPEATED_CODE = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.For,
    ast.While,
    ast.ListComp,
    ast.GeneratorExp,
    ast.DictComp,
)
"""Code that runs more than once, or elsewhere than it stands"""
DEFAULT_LENGTH = 20
"""Tokens that transformers generates where nothing else is said"""
LENGTH_ARGUMENTS = (
    "max_new_tokens",
    "max_length",
    "max_time",
    "stopping_criteria",
    "generation_config",
)


class GenerationLengthNotSet(SourceRule):
    code = "SRC041"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    severity = "warning"
    since = "0.1.0"
    looks_at = CodePlaces(
        "calls that generate",
        lambda module: (
            *generate_calls(module),
            *module.calls(*VLLM_SAMPLING),
            *_completions_without_length(module),
            *(call for call, _ in evaluations_without_length_and_certainty(module)),
        ),
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        yield from self._findings_on_vllm()
        yield from self._findings_on_completions()
        yield from self._findings_on_trainers()
        calls = [
            call
            for call in generate_calls(module)
            if all(argument_is_certainly_missing(module, call, name) for name in LENGTH_ARGUMENTS)
        ]
        if not calls or _sets_length_or_replaces_config(module):
            return
        with_options = _scopes_with_callers_options(module)
        for call in calls:
            if _is_notebook_call_run_once(module, call) or _is_in_test(module, call):
                continue
            if module.scopes.of[call.node] in with_options:
                continue
            causal = call.receiver is not None and is_causal_model(module, call.receiver)
            yield self.finding(
                "generate has no length limit set: it stops after 20 tokens in total, unless the checkpoint's"
                " generation_config.json sets more",
                "set max_new_tokens to the longest answer that you expect, for example max_new_tokens=512",
                severity="warning" if causal else "info",
                cases=[case_of_node(module, call.node)],
            )

    def _findings_on_vllm(self) -> Iterator[Finding]:
        """Findings on sampling parameters of vLLM that leave the length to its default of 16
        tokens.
        """
        module = self.subject
        for call in module.calls(*VLLM_SAMPLING):
            if (
                _sampling_reaches_vllm(module, call)
                and call.lacks("max_tokens")
                and not module.mentions(".max_tokens", "guided", "prompt_logprobs")
            ):
                yield self.finding(
                    "SamplingParams has no max_tokens: vLLM cuts every answer off after 16 tokens",
                    "set max_tokens to the longest answer that you expect, for example SamplingParams(max_tokens=512)",
                    cases=[case_of_node(module, call.node)],
                )

    def _findings_on_trainers(self) -> Iterator[Finding]:
        """Findings on trainers that generate in their evaluations, and leave the length to the
        default of 20 tokens.
        """
        module = self.subject
        cut = label_cut_length(module)
        if cut is not None and cut <= DEFAULT_LENGTH:
            return
        for call, is_known in evaluations_without_length_and_certainty(module):
            yield self.finding(
                "predict_with_generate is on without generation_max_length: the evaluation generates at most"
                f" {DEFAULT_LENGTH} tokens"
                + ("" if is_known else ", unless the checkpoint's generation_config.json sets more")
                + (f", and labels have up to {cut}" if cut else ""),
                "set generation_max_length to the number of tokens of the longest answer"
                + (f" ({cut})" if cut else ""),
                severity="warning" if is_known else "info",
                cases=[case_of_node(module, call.node)],
            )

    def _findings_on_completions(self) -> Iterator[Finding]:
        """Findings on completions of servers and of llama-cpp-python that leave the length to their
        default of 16 tokens.
        """
        module = self.subject
        for call, _ in (*completion_prompts_of_clients(module), *engine_prompts(module)):
            if not _completion_ends_after_16_tokens(module, call) or "max_tokens" in module.text:
                continue
            yield self.finding(
                "a completion is requested without max_tokens: it is cut off after 16 tokens",
                "set max_tokens, for example max_tokens=512 (unlike chats, completions have this low default)",
                cases=[case_of_node(module, call.node)],
            )


def _completions_without_length(module: Module) -> Iterator[Call]:
    """Completions that end after 16 tokens where nobody says more."""
    for call, _ in (*completion_prompts_of_clients(module), *engine_prompts(module)):
        if _completion_ends_after_16_tokens(module, call):
            yield call


def _completion_ends_after_16_tokens(module: Module, call: Call) -> bool:
    """Does a completion end after 16 tokens by default: of an OpenAI client or request, or of
    llama-cpp-python? Only where all its arguments are seen.
    """
    if call.method in ("generate", "text_generation"):
        return False
    body = call.keywords.get("json")
    if body is not None:
        entries, is_whole = module.flow.dict_entries_and_if_complete(body)
        return is_whole and "prompt" in entries
    return not call.open and "extra_body" not in call.keywords


def _sampling_reaches_vllm(module: Module, sampling: Call) -> bool:
    """Are these sampling parameters given to vLLM's `generate` or `chat`? A trainer that gets them sets the length."""
    for call in module.methods("generate", "chat"):
        engine = module.flow.producing_call(call.receiver) if call.receiver is not None else None
        if engine is None or not engine.named("vllm.LLM"):
            continue
        for argument in (*call.args, *call.keywords.values()):
            made = module.flow.producing_call(argument)
            if made is not None and made.node is sampling.node:
                return True
    return False


def _sets_length_or_replaces_config(module: Module) -> bool:
    """Does the file set a length on a model's generation config, or give the model another one, as a checkpoint's?"""
    if module.mentions(*(f"generation_config.{name}" for name in LENGTH_ARGUMENTS)):
        return True
    targets = (target for node in module.nodes(ast.Assign) for target in node.targets)
    return any(
        isinstance(target, ast.Attribute) and target.attr == "generation_config"
        for target in targets
    )


def _is_notebook_call_run_once(module: Module, call: Call) -> bool:
    """Is the call one of a notebook's cell that runs once? Its short answer is seen below it."""
    is_again = any(isinstance(around, REPEATED_CODE) for around in module.parents(call.node))
    return bool(module.cells) and not is_again


def _is_in_test(module: Module, call: Call) -> bool:
    """Does a call stand in a test?"""
    functions = (
        around for around in module.parents(call.node) if isinstance(around, ast.FunctionDef)
    )
    return any(function.name.startswith("test") for function in functions)


def _scopes_with_callers_options(module: Module) -> list[Scope]:
    """The functions in which a `generate` gets `**options` of their callers, who may say how long answers are."""
    return [
        module.scopes.of[call.node]
        for call in generate_calls(module)
        if not all(argument_is_certainly_missing(module, call, name) for name in LENGTH_ARGUMENTS)
        and any(
            keyword.arg is None and _is_given_by_caller(module, keyword.value)
            for keyword in call.node.keywords
        )
    ]


def _is_given_by_caller(module: Module, options: ast.expr) -> bool:
    """Are these options handed on by a function's caller?"""
    arguments = getattr(module.scopes.of[options].node, "args", None)
    names = (
        [a.arg for a in (*arguments.args, *arguments.kwonlyargs, arguments.kwarg) if a]
        if arguments
        else []
    )
    return isinstance(options, ast.Name) and options.id in names
