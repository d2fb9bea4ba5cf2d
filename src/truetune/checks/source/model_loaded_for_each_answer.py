"""A model is loaded again for each request, or for each row.

## What it does
Looks for calls that load a model (`from_pretrained`, an adapter, a pipeline, vLLM) inside the handler of a request
(`@app.post`, `@app.route`, a function of Gradio), in a Streamlit script, which runs again at every input, or inside a
loop over rows that generates; also in functions and classes that these call. It does not report loads whose result is
kept (`lru_cache`, `st.cache_resource`, `st.session_state`, `if model is None`), loops over models or checkpoints, and
files that train. Requests to Ollama with `keep_alive` 0 or a changing `num_ctx` have the same effect and count too.

## Why it is bad
Before the first token of each answer, the weights are read from the disk, copied to the GPU and, with
`merge_and_unload`, merged. This takes seconds to minutes, and the GPU is idle. The answer itself takes a fraction of
it.

## Example
```python
from fastapi import FastAPI
from transformers import pipeline

app = FastAPI()


@app.post("/ask")
def ask(question: str):
    pipe = pipeline("text-generation", model="out/merged")
    return pipe(question, max_new_tokens=100)
```

## Use instead
```python
from fastapi import FastAPI
from transformers import pipeline

app = FastAPI()
pipe = pipeline("text-generation", model="out/merged")


@app.post("/ask")
def ask(question: str):
    return pipe(question, max_new_tokens=100)
```

## Fix safety
Safe if one process serves one model; the answers stay the same. Load the model when the process starts: at the top of
the file or in a start-up hook; in Streamlit, in a function under `@st.cache_resource`.

## References
- fastapi documentation, "Lifespan events": a model that is loaded once and shared by requests
- streamlit documentation, "Caching overview": `st.cache_resource` for models
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.text_generation_calls import model_questions
from truetune.checks.source.evidence.what_makes_code_run_again import (
    CodeRepetition,
    Function,
    calls_running_function,
    repetitions_of,
    result_is_cached,
    uses_repeated_element,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOADS = (
    "transformers.*.from_pretrained",
    "peft.*Model*.from_pretrained",
    "unsloth.Fast*Model.from_pretrained",
    "transformers.pipeline",
    "vllm.LLM",
)
IN_THE_HANDLER = (
    "for each request",
    "load it once, when the process starts (at the top of the file), and use that object in the handler",
)
IN_THE_LOOP = (
    "for each row",
    "load it once, before the loop, and use that object in the loop",
)
ADVICE = {
    "request": IN_THE_HANDLER,
    "loop": IN_THE_LOOP,
    "map": IN_THE_LOOP,
    "rerun": (
        "at every input, since Streamlit runs the script again",
        "load it in a function that is decorated with @st.cache_resource",
    ),
}
"""When a model is loaded again, and what to do, by what makes the code run again"""
IS_ABSENT = re.compile(r"session_state|\bNone\b|\bnot\b|hasattr|cache")
"""Signs of a condition that is true once, or never again"""


def _model_loads(module: Module) -> Iterator[Call]:
    """Calls that load the weights of a model."""
    for call in module.calls(*LOADS):
        is_model = call.named("transformers.pipeline", "vllm.LLM", "unsloth.*")
        if is_model or "model" in module.flow.types(call.node):
            yield call


def _ollama_requests_that_unload_model(module: Module) -> Iterator[ast.AST]:
    """The requests to Ollama that let it unload the model: `keep_alive=0`, or `"keep_alive": 0` of a body."""
    answering_calls = [
        call.keywords["keep_alive"] for call in module.all_calls if "keep_alive" in call.keywords
    ]
    for node in module.nodes(ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        names = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
        if "keep_alive" in names and not {"messages", "prompt"}.isdisjoint(names):
            answering_calls.append(names["keep_alive"])
    for value in answering_calls:
        # Ollama takes a number of seconds or a text with its unit; both mean: unload at once.
        if module.flow.value(value) in (0, "0", "0s", "0m"):
            yield value


def _model_loads_and_unload_or_reload_options(module: Module) -> Iterator[object]:
    """Calls that load a model, requests that let a server unload it, and options by which Ollama loads it again."""
    yield from _model_loads(module)
    yield from _ollama_requests_that_unload_model(module)
    yield from _computed_ollama_context_lengths(module)


def _computed_ollama_context_lengths(module: Module) -> Iterator[ast.AST]:
    """Options of a request to Ollama whose `num_ctx` is computed from the length of the prompt."""
    # num_ctx belongs to Ollama, which loads a model again where it changes; other servers ignore it.
    if not module.mentions("ollama", "11434", "/api/chat", "/api/generate"):
        return
    for node in module.nodes(ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        names = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
        context = names.get("num_ctx")
        if context is not None and any(
            isinstance(part, ast.Call) and ast.unparse(part.func) == "len"
            for origin in module.flow.origins(context)
            for part in ast.walk(origin.node)
        ):
            yield context


class ModelLoadedForEachAnswer(SourceRule):
    code = "SRC003"
    fault = Fault.MODEL_LOADED_AGAIN_AND_AGAIN
    severity = "warning"
    looks_at = CodePlaces(
        "calls that load a model, or let it be unloaded", _model_loads_and_unload_or_reload_options
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if trains_anything(module):
            return
        for body in _ollama_requests_that_unload_model(module):
            yield self.finding(
                "keep_alive is 0: Ollama unloads the model after each answer, and loads it again for the next one",
                'delete keep_alive (default: 5 minutes), or keep the model longer: "keep_alive": "24h", or -1 for'
                " ever",
                cases=[case_of_node(module, body)],
            )
        for context in _computed_ollama_context_lengths(module):
            yield self.finding(
                "num_ctx changes from request to request: Ollama loads the model again whenever it changes",
                "send the same num_ctx in every request, large enough for the longest prompt and its answer",
                cases=[case_of_node(module, context)],
            )
        reported: set[ast.AST] = set()
        for load in _model_loads(module):
            repeat = _handler_or_loop_of_load(module, load)
            if repeat is None or repeat.node in reported:
                continue
            reported.add(repeat.node)
            when, remedy = ADVICE[repeat.kind]
            yield self.finding(
                f"the model is loaded again {when}: every answer waits for it",
                remedy,
                cases=[
                    case_of_node(module, load.node),
                    case_of_node(
                        module, repeat.node, module.text_of(repeat.node).partition("\n")[0]
                    ),
                ],
            )
            if repeat.kind == "rerun":
                return


def _handler_or_loop_of_load(module: Module, load: Call) -> CodeRepetition | None:
    """The handler or loop that a model is loaded in; None where it is loaded once, or is another one each time."""
    place = _streamlit_rerun_of_load(module, load.node)
    if place is not None:
        return CodeRepetition("rerun", place)

    def runs_once(node: ast.AST) -> bool:
        """Is a load, or what calls one, under a condition, which is a cache that is filled once?"""
        return _is_loaded_conditionally_or_kept(module, node)

    if runs_once(load.node):
        return None
    for repeat in repetitions_of(module, load.node, runs_once=runs_once):
        if repeat.kind == "request":
            return repeat
        names = [*load.args, *load.keywords.values()]
        if any(uses_repeated_element(module, name, repeat) for name in names):
            return None
        if _asks_model_with_loop_row(module, repeat):
            return repeat
    return None


def _streamlit_rerun_of_load(module: Module, load: ast.AST) -> ast.AST | None:
    """The place outside of functions from which streamlit loads again at every input; None where it is kept."""
    if not module.mentions("import streamlit", "from streamlit"):
        return None
    seen, waiting = {load}, [load]
    while waiting:
        node = waiting.pop()
        if _is_kept_or_loaded_once_for_many_answers(module, node):
            continue
        around = next((one for one in module.parents(node) if isinstance(one, Function)), None)
        if around is None:
            # What another file loads at its top stays: only the script of the app runs again.
            if "streamlit" in module.home(node).text:
                return node
        elif not result_is_cached(around) and "cache" not in _decorator_text(around):
            calls = [one for one in calls_running_function(module, around) if one not in seen]
            seen.update(calls)
            waiting += calls
    return None


def _decorator_text(function: ast.AST) -> str:
    """The decorators of a function as they are written."""
    return " ".join(ast.unparse(one) for one in getattr(function, "decorator_list", ()))


def _is_kept_or_loaded_once_for_many_answers(module: Module, node: ast.AST) -> bool:
    """Is the loaded model put into the session, or loaded where it is not there yet, in a `try`, or in an `if`
    that asks in a loop?
    """
    statement = module.statement(node)
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
        if "session_state" in ast.unparse(statement):
            return True
    for around in module.parents(node):
        if isinstance(around, Function):
            return False
        if isinstance(around, ast.Try) or (
            isinstance(around, ast.If | ast.IfExp | ast.While)
            and IS_ABSENT.search(ast.unparse(around.test))
        ):
            return True
        # A button that answers all rows of a file loads once for all of them.
        if isinstance(around, ast.If) and _if_statement_asks_model_in_loop(module, around):
            return True
    return False


def _if_statement_asks_model_in_loop(module: Module, around: ast.If) -> bool:
    """Is a model asked in a loop anywhere in an `if` statement, its `else` included?"""
    loops = [part for part in ast.walk(around) if isinstance(part, ast.For | ast.ListComp)]
    questions = {question.call.node for question in model_questions(module)}
    return any(part in questions for loop in loops for part in ast.walk(loop))


def _is_loaded_conditionally_or_kept(module: Module, load: ast.AST) -> bool:
    """Is the model loaded under a condition, as `if model is None`, or kept under a name that
    outlives the call?
    """
    statement = module.statement(load)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if any(_does_name_outlive_call(module, part) for part in targets):
        return True
    for around in module.parents(load):
        if isinstance(around, ast.If | ast.IfExp | ast.Try | ast.While):
            # `if request.method == "POST"` is true for each question of a form.
            return not (isinstance(around, ast.If) and "request.method" in ast.unparse(around.test))
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return False
    return False


def _does_name_outlive_call(module: Module, target: ast.expr) -> bool:
    """Does a name outlive the call: a global, or an attribute of an object that is not just being made?"""
    if isinstance(target, ast.Attribute | ast.Subscript):
        is_own = isinstance(target.value, ast.Name) and target.value.id == "self"
        function = next((one for one in module.parents(target) if isinstance(one, Function)), None)
        return not (is_own and getattr(function, "name", "") == "__init__")
    return _is_global_name(module, target)


def _is_global_name(module: Module, target: ast.expr) -> bool:
    """Does a name that is set inside a function belong to the file?"""
    if not isinstance(target, ast.Name):
        return False
    scopes = module.scopes
    return (
        scopes.of[target].node is not module.tree
        and scopes.scope_that_binds_name(target).node is module.tree
    )


def _asks_model_with_loop_row(module: Module, repeat: CodeRepetition) -> bool:
    """Is a model asked for text in the loop, with the loop's own row?"""
    for question in model_questions(module):
        for other in repetitions_of(module, question.call.node):
            if other.node is repeat.node and uses_repeated_element(module, question.text, other):
                return True
    return False
