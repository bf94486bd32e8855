"""The command that teaches a shell to complete the others."""

from __future__ import annotations

import sys
from typing import Literal

from .commands import app


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completions for SHELL, to be loaded where it starts.

    bash: eval "$(session-query completion bash)" in ~/.bashrc. zsh: the same with zsh, in ~/.zshrc.
    fish: session-query completion fish > ~/.config/fish/completions/session-query.fish.

    Parameters
    ----------
    shell
        The shell that is used.
    """
    sys.stdout.write(app.generate_completion(shell=shell))
