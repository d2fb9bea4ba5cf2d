"""Says which function a node stands in, and whether a file evaluates a model without training one."""

from __future__ import annotations

import ast

from truetune.source.parsed_source_file import Module


def function_around(module: Module, node: ast.AST) -> ast.AST:
    """The innermost function that a node stands in; the module where it stands in none."""
    functions = (
        p
        for p in module.parents(node)
        if isinstance(p, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    )
    return next(functions, module.tree)


def only_evaluates(module: Module) -> bool:
    """Is a model evaluated, and nothing trained, or saved for a training?"""
    trains = any(
        module.methods("backward", "fit", "save_to_disk", "to_json", "to_parquet", "push_to_hub")
    )
    trains = trains or any(
        "trainer" in module.flow.types(call.receiver) for call in module.methods("train")
    )
    evaluates = any(module.methods("evaluate", "predict", "generate", "eval"))
    return evaluates and not trains and not any(module.calls("torch.optim.*"))
