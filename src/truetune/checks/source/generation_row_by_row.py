"""Answers are generated one row at a time in a loop.

## What it does
Looks for calls that ask a model for text (`model.generate`, a pipeline, vLLM's `LLM`, a client of a server) in a loop
over rows, each with the text of one row: in the loop itself, in a function that it calls, or in a function that `apply`
or `map` runs on each row. A coroutine of AsyncOpenAI, httpx or aiohttp that the loop awaits for each row counts, with
or without a semaphore. It is info if the number of rows is not known. It also reports an `async` handler of a web
server that runs `generate` itself. Not reported: a loop over a handful of questions in the code, and a chat that
continues.

## Why it is bad
A GPU answers 32 prompts in nearly the time of one: an evaluation that could take minutes takes hours.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")


def ask(question):
    inputs = tokenizer(question, return_tensors="pt")
    return model.generate(**inputs, max_new_tokens=20)


answers = [ask(line) for line in open("questions.txt")]
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model", padding_side="left")
model = AutoModelForCausalLM.from_pretrained("model")


def ask(questions):
    inputs = tokenizer(questions, padding=True, return_tensors="pt")
    return model.generate(**inputs, max_new_tokens=20)


questions = open("questions.txt").readlines()
answers = [ask(questions[start : start + 32]) for start in range(0, len(questions), 32)]
```

## Fix safety
Batches need left padding and the attention mask. Sort the prompts by length to waste the least on padding. Answers may
differ slightly from those of single rows, because of rounding.

## References
- turbo-llm/turbo-alignment#47, huggingface/transformers#28056
- transformers/pipelines/base.py: "You seem to be using the pipelines sequentially on GPU"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.generations_repeated_row_by_row import generations_per_row
from truetune.checks.source.evidence.names_of_row_reading_calls import READERS, TAKES_ROWS
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.requests_awaited_one_by_one import (
    is_request_asynchronous,
    waits_for_each_answer,
)
from truetune.checks.source.evidence.text_generation_calls import (
    CLIENT_FUNCTIONS,
    CLIENT_METHODS,
    POST_FUNCTIONS,
    TEXT_GENERATION_CALLS,
    TRANSFORMERS_PIPELINE,
    ModelQuestion,
    model_questions,
)
from truetune.checks.source.evidence.what_makes_code_run_again import (
    CodeRepetition,
    repetitions_of,
    uses_repeated_element,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import Value

OF_ENGINE = "vLLM is called"
"""An engine is made for many prompts in one call: one at a time it leaves nearly all of the GPU idle"""
OF_MODEL = (
    "generate runs",
    'tokenize a list of some 32 prompts with padding=True and padding_side="left", and generate for all of them at'
    " once",
)
"""What a model of transformers does with one row, and how to ask it for many"""
ASKS_SERVER = "the server is asked"
"""What is said of a client; who reads a server's log beside it corrects the advice"""
MAX_DEMO_QUESTIONS = 8
"""Questions in the code; a demonstration has so many, and takes no time worth a batch"""
MIN_SAMPLES = 8
"""Answers to one question in one call, which use a GPU as a small batch does"""
ROW_COUNTS = ("len(", ".shape", "num_rows", ".size")
"""How scripts spell the number of rows"""
CONCURRENCY_SIGNS = (
    "PoolExecutor",
    "threading",
    "multiprocessing",
    "gather(",
    "create_task",
    "as_completed",
    "TaskGroup",
    "Semaphore",
    "thread_map",
)
"""Signs that several requests are under way at once"""


Functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class GenerationRowByRow(SourceRule):
    code = "SRC043"
    fault = Fault.REQUESTS_NOT_BATCHED
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    looks_at = TEXT_GENERATION_CALLS

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for blocking in _blocking_handlers(module):
            yield self.finding(
                "an async handler runs generate itself: it blocks the event loop until the answer is complete, so"
                " requests wait for one another, and none shares a batch",
                "serve the model with vLLM (vllm serve FOLDER), which batches requests; or here, write def instead of"
                " async def, or await asyncio.to_thread(model.generate, ...)",
                severity="warning",
                cases=[
                    case_of_node(module, blocking.call),
                    case_of_node(module, blocking.handler, blocking.line),
                ],
            )
        seen: set[ast.AST] = set()
        for question in model_questions(module):
            repeat = _loop_over_rows(module, question)
            if repeat is not None:
                seen.add(question.call.node)
                asks, instead = _asker_and_batching_advice(module, question)
                yield self.finding(
                    f"{asks} on one row at a time, in a loop: batches would take a fraction of the time",
                    instead,
                    severity="warning"
                    if asks == OF_ENGINE or _loop_goes_over_many_rows(module, repeat)
                    else "info",
                    cases=[
                        case_of_node(module, question.call.node),
                        case_of_node(
                            module, repeat.node, module.text_of(repeat.node).partition("\n")[0]
                        ),
                    ],
                )
        yield from self._findings_on_traced_runs(seen)

    def _findings_on_traced_runs(self, seen: set[ast.AST]) -> Iterator[Finding]:
        """Findings on generations that only the symbolic run sees to be of one row each."""
        module = self.subject
        for one in generations_per_row(module):
            call = one.call
            if call.node in seen or _traced_value_is_batch(
                call.keywords.get("num_return_sequences")
            ):
                continue
            asks, instead = OF_MODEL
            yield self.finding(
                f"{asks} on one row at a time, in a loop: batches would take a fraction of the time",
                instead,
                severity="warning",
                cases=[
                    case_of_node(module, call.node),
                    case_of_node(module, one.repeat, module.text_of(one.repeat).partition("\n")[0]),
                ],
            )


class BlockingHandler(NamedTuple):
    """A call that generates in a coroutine which answers requests."""

    call: ast.AST
    handler: ast.AST
    line: str


def _blocking_handlers(module: Module) -> Iterator[BlockingHandler]:
    """Handlers of requests that are coroutines, and call `generate` of a model or a pipeline without awaiting it."""
    for question in model_questions(module):
        call = question.call
        if _asks_server(call):
            continue
        around = next((p for p in module.parents(call.node) if isinstance(p, Functions)), None)
        requests = (one for one in repetitions_of(module, call.node) if one.kind == "request")
        handler = next((one.node for one in requests), None)
        awaited = isinstance(module.scopes.parent.get(call.node), ast.Await)
        if isinstance(handler, ast.AsyncFunctionDef) and around is handler and not awaited:
            yield BlockingHandler(call.node, handler, f"async def {handler.name}(...)")


def _loop_over_rows(module: Module, question: ModelQuestion) -> CodeRepetition | None:
    """The loop that a question is asked in once for each row; None where it takes several, or goes over few."""
    if not question.is_one or _question_is_growing_chat(module, question):
        return None
    if _samples_a_batch(module, question.call):
        return None
    if _asks_server(question.call) and _may_overlap_other_requests(module, question.call):
        return None
    for repeat in repetitions_of(module, question.call.node):
        is_of_rows = repeat.kind != "request" and not any(
            _loop_goes_over_a_handful(module, iterated) or _is_range_of_repetitions(iterated)
            for iterated in repeat.iterated
        )
        if is_of_rows and uses_repeated_element(module, question.text, repeat):
            return repeat
    return None


def _may_overlap_other_requests(module: Module, call: Call) -> bool:
    """May several requests be under way at once? Of coroutines it is followed whether each is awaited in turn."""
    if is_request_asynchronous(module, call):
        return not waits_for_each_answer(module, call)
    return module.mentions(*CONCURRENCY_SIGNS)


def _loop_goes_over_many_rows(module: Module, repeat: CodeRepetition) -> bool:
    """Does a loop go over the rows of a file or data set, of which there are many more than a person would type?"""
    sources = repeat.iterated or _iterables_of_map(module, repeat)
    return any(
        isinstance(part, ast.Call) and _last_name(part.func) in READERS
        for iterated in sources
        for part in backward_slice(module, iterated)
    )


def _iterables_of_map(module: Module, repeat: CodeRepetition) -> tuple[ast.expr, ...]:
    """What `map` or `apply` goes over: its object, or the second argument of Python's own `map`."""
    if repeat.kind != "map" or not isinstance(repeat.node, ast.Call):
        return ()
    call = module.flow.call(repeat.node)
    rows = call.receiver if call.receiver is not None else call.argument(1, "iterable")
    return () if rows is None else (rows,)


def _last_name(function: ast.expr) -> str:
    """The last name of a dotted name: `load_dataset` of `datasets.load_dataset`."""
    return ast.unparse(function).rpartition(".")[2]


def _samples_a_batch(module: Module, call: Call) -> bool:
    """Does one call draw so many answers to its question that they are a batch?"""
    num_return_sequences_argument = call.keywords.get("num_return_sequences")
    count = (
        module.flow.value(num_return_sequences_argument)
        if num_return_sequences_argument is not None
        else None
    )
    return isinstance(count, int) and count >= MIN_SAMPLES


def _traced_value_is_batch(value: Value | None) -> bool:
    """Does a value of the symbolic run say that a call draws so many answers that they are a batch?"""
    count = constant_of(value)
    return isinstance(count, int) and count >= MIN_SAMPLES


def _loop_goes_over_few_first_rows(module: Module, iterated: ast.AST) -> bool:
    """Does a loop go over the first rows alone: `rows.head(5)`, `rows[:3]`, `rows.select(range(4))`?"""
    for part in backward_slice(module, iterated):
        count = _count_of_first_rows(part)
        number = module.flow.value(count) if count is not None else None
        if isinstance(number, int) and 0 < number <= MAX_DEMO_QUESTIONS:
            return True
    return False


def _count_of_first_rows(part: ast.AST) -> ast.expr | None:
    """n of `rows[:n]`, `rows.head(n)` and `rows.select(range(n))`; None where no first rows are taken."""
    if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Slice):
        return part.slice.upper if part.slice.lower is None else None
    if not isinstance(part, ast.Call) or _last_name(part.func) not in TAKES_ROWS or not part.args:
        return None
    count = part.args[0]
    if isinstance(count, ast.Call) and _last_name(count.func) == "range" and count.args:
        return count.args[0]
    return count


def _loop_goes_over_a_handful(module: Module, iterated: ast.AST) -> bool:
    """Does a loop go over a handful of things that stand in the code, or of the rows?"""
    if _loop_goes_over_few_first_rows(module, iterated):
        return True
    lists = [
        origin.node
        for origin in module.flow.origins(iterated)
        if isinstance(origin.node, ast.List | ast.Tuple)
    ]
    return any(0 < len(one.elts) <= MAX_DEMO_QUESTIONS for one in lists)


def _is_range_of_repetitions(iterated: ast.AST) -> bool:
    """Is it a number of repetitions, as of games or samples, and not the number of rows?"""
    text = ast.unparse(iterated)
    return text.startswith("range(") and not any(one in text for one in ROW_COUNTS)


def _question_is_growing_chat(module: Module, question: ModelQuestion) -> bool:
    """Is the question a chat to which turns are added?"""
    names = (part for part in backward_slice(module, question.text) if isinstance(part, ast.Name))
    return any(
        _is_chat_turn(added)
        for name in names
        for added in module.expressions_added_to_variable(name)
    )


def _is_chat_turn(added: ast.expr) -> bool:
    """Is what is added a turn: a dictionary with a role?"""
    keys = [key for part in ast.walk(added) if isinstance(part, ast.Dict) for key in part.keys]
    return any(isinstance(key, ast.Constant) and key.value == "role" for key in keys)


def _asks_server(call: Call) -> bool:
    """Does a call send a request to a server, by a client or by HTTP?"""
    return (
        call.method in CLIENT_METHODS
        or call.method == "post"
        or call.named(*POST_FUNCTIONS, *CLIENT_FUNCTIONS)
    )


def _asker_and_batching_advice(module: Module, question: ModelQuestion) -> tuple[str, str]:
    """What asks, and how to ask for many rows at once."""
    call = question.call
    made = module.flow.producing_call(call.node.func)
    if made is not None and made.named(TRANSFORMERS_PIPELINE):
        return (
            "the pipeline is called",
            "pass the pipeline all rows as one list or dataset, with batch_size=16 and a tokenizer with"
            ' padding_side="left"',
        )
    if call.method == "generate" and "model" in module.flow.types(call.receiver or call.node):
        return OF_MODEL
    if _asks_server(call) and is_request_asynchronous(module, call):
        return (
            ASKS_SERVER,
            "start the requests together: await asyncio.gather(*(ask(row) for row in rows)), or asyncio.as_completed;"
            " an await in the loop waits for each answer before it sends the next request, even with a Semaphore",
        )
    if _asks_server(call):
        return (
            ASKS_SERVER,
            "send some 32 requests at once, with AsyncOpenAI or a ThreadPoolExecutor: the server batches them",
        )
    return (OF_ENGINE, "pass all prompts in one call: vLLM batches them itself")
