"""Memory that a run needs, and the machine that it runs on."""
