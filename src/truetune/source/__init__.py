"""Python files and notebooks: names resolved, values followed, edits."""
