"""The command line: ``jobcore run``, ``ls``, ``show`` and ``verify``.

`jobcore.cli.main.main` is the entry point. It needs nothing beyond the plain install: the rest, with click and rich
(extra ``cli``), is imported when it is called.
"""

__all__: list[str] = []
