"""Tells a rule's name or code from words that are to be searched.

The catalogue loads every rule, and a search must answer without it. So the form of the text decides; only where
plug-ins are installed are their codes asked for, since they may have any form.
"""

from __future__ import annotations


def is_written_like_rule_name(question: str) -> bool:
    """Is it written as the name or code of a rule is, or the code of a plug-in's rule?

    Args:
        question: what a user wants explained.

    Returns:
        True where it should be looked up as a rule, which may turn out not to exist.
    """
    if " " in question:
        return False
    from truetune.checks.rule_families import is_rule_code

    if "-" in question or is_rule_code(question):
        return True
    from truetune.plugins import load_plugins

    if not load_plugins("truetune.rules"):
        return False
    from truetune.checks.rule_catalogue import rules_of_plugins

    return any(question.upper() == rule.code for rule in rules_of_plugins())
