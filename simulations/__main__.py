"""``python -m session_query.simulations``: see ``--help``, or README.md beside this file."""

from __future__ import annotations

import sys

from .command_line import main

if __name__ == "__main__":
    sys.exit(main())
