"""The ``jobcore`` command and its subcommands."""

from __future__ import annotations

import click

from jobcore._version import __version__
from jobcore.cli.ls import ls_command
from jobcore.cli.run import run_command
from jobcore.cli.show import show_command
from jobcore.cli.verify import verify_command

__all__ = ["app"]


_EXAMPLES = """\b
Examples:
  jobcore run examples/digits.py                  train, or go on where it stopped
  jobcore run examples/digits.py --set epochs=30
  jobcore ls runs/digits                          the epochs that exist
  jobcore show runs/digits                        the blobs of the newest one
  jobcore verify runs/digits                      read and check every byte
"""


@click.group(
    epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="jobcore", message="%(prog)s %(version)s")
def app() -> None:
    """Run training jobs that survive anything, and look at their checkpoints."""


for _command in (run_command, ls_command, show_command, verify_command):
    app.add_command(_command)
