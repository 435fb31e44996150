"""`dpspectral completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_USE = {
    "bash": 'eval "$(dpspectral completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(dpspectral completion zsh)"       # in ~/.zshrc',
    "fish": "dpspectral completion fish | source       # in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(_USE.values()))
@click.argument("shell", type=click.Choice(list(_USE)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for tab completion in SHELL."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = context.find_root().command
    click.echo(completion_class(root, {}, "dpspectral", "_DPSPECTRAL_COMPLETE").source())
