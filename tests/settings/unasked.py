"""What tests expect where no file asks for a release: nobody knows then whether the call stops."""

from __future__ import annotations

UNASKED = "warning"
