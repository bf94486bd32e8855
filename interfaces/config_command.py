"""The command ``config``: the settings that a host with this configuration file runs with."""

from __future__ import annotations

from ..harness.configuration import Configuration, configuration_toml, read_configuration
from .commands import app


@app.command
def config(file: str | None = None, /) -> None:
    """Show every setting that is in force with a configuration FILE, as such a file.

    Parameters
    ----------
    file
        A TOML file with a table for each part: store, index, query, tools, scheduler, spill.
        Without it, the defaults.
    """
    configuration = Configuration() if file is None else read_configuration(file)
    print(configuration_toml(configuration), end="")
