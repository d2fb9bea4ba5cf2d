"""What training stacks say about cases of the bug bench, beside truetune: docs/compared-with-stacks.md."""
