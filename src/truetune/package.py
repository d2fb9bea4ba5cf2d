"""The version and the folder of the package.

This module imports nothing of truetune, so that every module may import it. `import truetune` in an inner module would
close a circle, for the package's front imports them all.
"""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"
PACKAGE_FOLDER = Path(__file__).parent
"""Where the installed files of the package are"""
