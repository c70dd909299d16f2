"""``python -m jobcore.cli``: the same as the ``jobcore`` command."""

import sys

from jobcore.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
