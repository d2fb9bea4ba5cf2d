"""After training, the file evaluates the base model again, and never the trained one.

## What it does
Looks at files that train a model and generate afterwards (`generate`, a pipeline, vLLM). It fires if every model that
generates after the training was loaded again by the name of the base, and nothing loads the output or an adapter, or
uses the trained object. Answers of the base before the training, or next to those of the tuned model, are a comparison
and not reported.

## Why it is bad
Loading the base by its name gives the published weights. The answers are those of an untrained model: training seems to
have no effect, and the answers before and after are identical.

## Example
```python
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

BASE = "some/model"
trainer = SFTTrainer(model=BASE, train_dataset=rows, peft_config=LoraConfig(r=8))
trainer.train()
trainer.save_model("out")
model = AutoModelForCausalLM.from_pretrained(BASE)
answers = model.generate(**batch, max_new_tokens=64)
```

## Use instead
```python
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

BASE = "some/model"
trainer = SFTTrainer(model=BASE, train_dataset=rows, peft_config=LoraConfig(r=8))
trainer.train()
trainer.save_model("out")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), "out")
answers = model.generate(**batch, max_new_tokens=64)
```

## Fix safety
There is no automatic fix. You can also pass an adapter's folder to `AutoModelForCausalLM.from_pretrained` if peft is
installed; a folder of whole weights is loaded by its own name. Scores change to those of the trained model.

## References
- huggingface/peft#515, substratusai/runbooks#43
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.loads_of_trained_and_asked_models import (
    AskedModel,
    generation_record_with_model_loads,
    is_second_load_of_base,
    trained_models,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    Route,
    call_routes_to,
    route_runs_after,
    training_places,
)
from truetune.source.parsed_source_file import Module

TAKES_UP = (
    "PeftModel.from_pretrained",
    "PeftModelForCausalLM",
    "AutoPeftModel",
    "load_adapter",
    "load_lora",
    "load_state_dict",
    "set_peft_model_state_dict",
    "lora_request",
    "LoRARequest",
    "add_weighted_adapter",
    "load_state(",
    "load_checkpoint",
)
"""Signs that trained weights are put into a model that was loaded by the base's name"""


def _generations_beside_training(module: Module) -> Iterator[AskedModel]:
    """Calls that generate text in a file that trains."""
    if not any(training_places(module)):
        return
    for call in module.methods("generate", "chat"):
        if call.receiver is not None:
            yield generation_record_with_model_loads(module, call.node, call.receiver)
    for node in module.nodes(ast.Call):
        maker = module.flow.producing_call(node.func)
        if maker is not None and maker.named("transformers.pipeline"):
            yield generation_record_with_model_loads(module, node, node.func)


class UntrainedModelEvaluated(SourceRule):
    code = "SRC024"
    fault = Fault.WRONG_MODEL_EVALUATED
    severity = "error"
    looks_at = CodePlaces("generations in files that train", _generations_beside_training)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # Who loads trained weights somewhere may load them into this model.
        if module.mentions(*TAKES_UP):
            return
        trained = list(trained_models(module))
        trainings = [
            route for node in training_places(module) for route in call_routes_to(module, node)
        ]
        late = [
            one
            for one in _generations_beside_training(module)
            if _may_run_after_training(module, one, trainings)
        ]
        if not trained or not late:
            return
        if all(one.loads and is_second_load_of_base(module, one, trained) for one in late):
            yield self._finding_on_base(late[0], trained[0].load)

    def _finding_on_base(self, generation: AskedModel, base: ast.Call) -> Finding:
        """The finding on a base that is asked after the training."""
        module = self.subject
        return self.finding(
            "after the training, answers come from the base, loaded by its name: nothing loads the trained"
            " weights",
            'load the output folder: for an adapter PeftModel.from_pretrained(base, "out"), for whole weights'
            ' AutoModelForCausalLM.from_pretrained("out")',
            cases=[
                case_of_node(module, generation.node),
                case_of_node(module, generation.loads[0]),
                case_of_node(module, base),
            ],
        )


def _may_run_after_training(module: Module, generation: AskedModel, trainings: list[Route]) -> bool:
    """Is there a way in which it runs after a training?"""
    return any(
        route_runs_after(late, training)
        for late in call_routes_to(module, generation.node)
        for training in trainings
    )
