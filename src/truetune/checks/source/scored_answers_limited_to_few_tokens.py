"""Answers are limited to fewer tokens than they need.

## What it does
Follows the result of `generate(max_new_tokens=N)` with N up to 32, through `decode`, to the `predictions` of ROUGE,
BLEU, METEOR or BERTScore, which compare texts. Choices, numbers and labels need no more tokens, but other metrics score
those. If the file searches answers for the mark before a final answer (`####`, `\\boxed{}`, `final answer`), it fires
for N up to 128, also for the `max_tokens` of a client or of vLLM.

If the training chats lie next to a script that generates, it compares the script's largest limit with the trained
answers: an answer of more than six characters per allowed token is cut with any tokenizer in use. Not reported: a
script that asks another model (a judge, the base), reads questions from a data set of the hub, or asks for a short
answer.

## Why it is bad
Every answer is cut after a few words, so the metric measures the limit, not the model. A worked solution puts its steps
first: cut off before the final answer, it counts as wrong.

## Example
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
rouge = evaluate.load("rouge")
inputs = tokenizer(["Summarise: ..."], return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=20)
texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
rouge.compute(predictions=texts, references=summaries)
```

## Use instead
```python
import evaluate
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model")
rouge = evaluate.load("rouge")
inputs = tokenizer(["Summarise: ..."], return_tensors="pt")
out = model.generate(**inputs, max_new_tokens=256)
texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
rouge.compute(predictions=texts, references=summaries)
```

## Fix safety
There is no automatic fix: allow as many tokens as the longest reference has, and some more. Generation takes longer
only for answers that need it.

## References
- huggingface/transformers: `GenerationConfig.max_new_tokens`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_training_chats_nearby import find_nearby_chats
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.answer_token_limits import largest_answer_limit
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.decoded_answers_with_prompt import is_scored_by_metric
from truetune.checks.source.evidence.generate_call_inputs import generate_calls
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.own_or_published_model_names import (
    is_surely_published_or_helper_model,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import loaded_model_names, trains_a_model
from truetune.checks.source.evidence.served_model_folders import model_names_in_requests
from truetune.checks.source.evidence.text_generation_calls import VLLM_SAMPLING, model_questions
from truetune.data.row_text_bytes import MOST_CHARACTERS_PER_TOKEN
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

MIN_SHARE_CUT = 0.5
"""Trained answers that are surely cut, from which the limit is no choice. Chosen: some long answers may be meant to be
cut, and half of them are not"""
FEW_TOKENS = 32
"""Tokens; the median reference of public summaries and dialogues has 40 to 70"""
FEW_TOKENS_FOR_STEPS = 128
"""Tokens; the gold solutions of GSM8K have some 100 at the median, and models write longer ones"""
FINAL_ANSWER_MARK = re.compile(r"####|boxed|final answer", re.I)
"""What stands behind the steps of a solution, as evaluations search for it"""
REGEX_SEARCHES = ("re.search", "re.findall", "re.match", "re.finditer", "re.split")
PATTERN_SEARCHES = ("search", "findall", "match", "finditer")
ANSWER_METHODS = ("decode", "batch_decode", "generate", "chat", "create")
"""Methods that give a generated text, or ids that become one"""
TEXT_SEARCHES = ("split", "rsplit", "partition", "rpartition", "find", "rfind", "index", "rindex")
TEXT_METRICS = ("rouge", "bleu", "sacrebleu", "meteor", "bertscore")
METRIC_LOADERS = ("evaluate.load", "datasets.load_metric")


HUB_SET = re.compile(r"[\w-]+/[\w.-]+")
"""`cais/mmlu`: questions of a benchmark"""
SHORT_ANSWER = re.compile(
    r"\b(?:yes or no|yes/no|true or false|(?:one|single|1) (?:word|letter|token|number|digit|label|sentence)"
    r"|only the (?:letter|number|label|name|class|category)|the letter|[A-C], [A-D]|grade|judge"
    r"|(?:write|give|make|create) (?:a|the|it a) (?:\w+ )?(?:title|headline|name)"
    r"|rate (?:the|this|how|it)|score (?:the|this|from|between)|from 1 to|warm ?-?up)\b",
    re.I,
)
"""What asks for another answer than a trained one: of a few words, or a mark"""


class ScoredAnswersLimitedToFewTokens(SourceRule):
    code = "SRC070"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    symptoms = ("garbage-output", "odd-metrics", "good-here-bad-there")
    severity = "warning"
    looks_at = CodePlaces(
        "calls that limit an answer",
        lambda module: (
            *generate_calls(module),
            *_client_calls_with_answer_limit(module),
            *filter(None, [largest_answer_limit(module)]),
        ),
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on limits of answers that are shorter than what is looked for in them."""
        module = self.subject
        mark = _call_searching_final_answer_mark(module)
        if mark is not None:
            yield from self._findings_on_limits_before_solution_mark(mark)
        yield from self._findings_on_limits_below_trained_answers()
        if not _scores_by_metric_of_texts(module):
            return
        for call in generate_calls(module):
            limit = module.flow.value(call.keywords.get("max_new_tokens"))
            few = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= FEW_TOKENS
            if few and is_scored_by_metric(module, call.node):
                yield self.finding(
                    f"answers are cut after {limit} tokens and scored against whole texts: the score measures the"
                    " limit, not the model",
                    "raise max_new_tokens above the tokens of the longest reference, for example to 256",
                    cases=[case_of_node(module, call.node)],
                )

    def _findings_on_limits_below_trained_answers(self) -> Iterator[Finding]:
        """Findings on a limit below the length of the answers that the model was trained to give."""
        module = self.subject
        is_other = trains_a_model(module) or _may_ask_for_untrained_answers(module)
        limit = None if is_other else largest_answer_limit(module)
        chats = find_nearby_chats(module.path) if limit is not None else None
        if limit is None or chats is None:
            return
        most = limit.tokens * MOST_CHARACTERS_PER_TOKEN
        count, total = sum(len(one) > most for one in chats.answers), len(chats.answers)
        if total == 0 or count < MIN_SHARE_CUT * total:
            return
        yield self.finding(
            f"{limit.name} is {limit.tokens}, but {count} of {total} trained answers of {chats.path.name} are"
            f" certainly longer (more than {most:,} characters): they get cut off, and cut JSON can't be parsed",
            f"raise {limit.name} above the tokens of the longest trained answer",
            cases=[case_of_node(module, limit.node)],
        )

    def _findings_on_limits_before_solution_mark(self, mark: ast.AST) -> Iterator[Finding]:
        """Findings on generations that are too short for the steps before the mark that ends a
        solution.
        """
        module = self.subject
        for call in (*generate_calls(module), *_client_calls_with_answer_limit(module)):
            name = "max_new_tokens" if "max_new_tokens" in call.keywords else "max_tokens"
            limit = module.flow.value(call.keywords.get(name))
            if (
                isinstance(limit, int)
                and not isinstance(limit, bool)
                and 0 < limit <= FEW_TOKENS_FOR_STEPS
            ):
                yield self.finding(
                    f"{name} is {limit}, but the answers are searched for a final answer, which comes after all"
                    " steps of the solution: longer solutions are cut off before it and count as wrong",
                    f"raise {name}, for example to 512, and count the answers that are still cut off",
                    cases=[case_of_node(module, call.node), case_of_node(module, mark)],
                )


def _client_calls_with_answer_limit(module: Module) -> Iterator[Call]:
    """Calls of clients, pipelines and vLLM that limit an answer."""
    yield from module.calls(*VLLM_SAMPLING)
    for question in model_questions(module):
        if question.call.method != "generate" and {"max_tokens", "max_new_tokens"} & set(
            question.call.keywords
        ):
            yield question.call


def _call_searching_final_answer_mark(module: Module) -> ast.AST | None:
    """The call that searches a generated text for the mark of a final answer; None where none does."""
    for call in (
        *module.calls(*REGEX_SEARCHES),
        *module.methods(*TEXT_SEARCHES, *PATTERN_SEARCHES),
    ):
        pattern, searched = _pattern_and_searched_text(module, call)
        text = module.flow.value(pattern) if pattern is not None else None
        if isinstance(text, str) and FINAL_ANSWER_MARK.search(text):
            if searched is not None and _comes_from_generation(module, searched):
                return call.node
    return None


def _pattern_and_searched_text(
    module: Module, call: Call
) -> tuple[ast.expr | None, ast.expr | None]:
    """(what is searched for, in what) of `re.search(p, text)`, `PATTERN.search(text)` and `text.split(p)`."""
    if call.receiver is None or call.named(*REGEX_SEARCHES):
        return call.argument(0, "pattern"), call.argument(1, "string")
    compiled = module.flow.producing_call(call.receiver)
    if compiled is not None and compiled.named("re.compile"):
        return compiled.argument(0, "pattern"), call.argument(0, "string")
    return (call.args[0] if call.args else None), call.receiver


def _comes_from_generation(module: Module, text: ast.expr) -> bool:
    """Does a text come from a generation, as far as it is followed?"""
    for part in backward_slice(module, text):
        if isinstance(part, ast.Call) and module.flow.call(part).method in ANSWER_METHODS:
            return True
        if isinstance(part, ast.Attribute) and part.attr in ("outputs", "choices"):
            return True
        if isinstance(part, ast.Constant) and part.value == "generated_text":
            return True
    return False


def _scores_by_metric_of_texts(module: Module) -> bool:
    """Does the file score by a metric that compares whole texts?"""
    loaded = (module.flow.value(call.argument(0, "path")) for call in module.calls(*METRIC_LOADERS))
    return any(name in TEXT_METRICS for name in loaded if isinstance(name, str))


def _may_ask_for_untrained_answers(module: Module) -> bool:
    """Does a script ask another model than the trained one, or for other answers: a benchmark, a grade, a title?"""
    requested = {
        text for node in model_names_in_requests(module) for text in possible_texts(module, node)
    }
    names = requested | loaded_model_names(module)
    if names and all(map(is_surely_published_or_helper_model, names)):
        return True
    if any(HUB_SET.fullmatch(name) for name in _data_set_names(module)):
        return True
    texts = (node.value for node in module.nodes(ast.Constant))
    return any(isinstance(text, str) and SHORT_ANSWER.search(text) for text in texts)


def _data_set_names(module: Module) -> Iterator[str]:
    """The data sets that a file loads by their names."""
    for call in module.calls("datasets.load_dataset"):
        yield from possible_texts(module, call.argument(0, "path"))
