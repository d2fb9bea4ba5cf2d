"""Questions about scripts that several rules share: calls, models, losses, labels, prompts,
processes. Each module finds places or facts in source; the rules judge them. No rule stands
here.
"""
