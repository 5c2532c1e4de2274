"""`semel completion`: what makes a shell complete commands and options by Tab."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_COMMAND, _VARIABLE = "semel", "_SEMEL_COMPLETE"

# Where each shell looks at its start.
_STARTS = {
    "bash": 'eval "$(semel completion bash)"    in ~/.bashrc',
    "zsh": 'eval "$(semel completion zsh)"    in ~/.zshrc, after compinit',
    "fish": "semel completion fish | source    in ~/.config/fish/config.fish",
}


def _places() -> str:
    return "\b\n" + "\n".join(_STARTS.values())


@click.command(
    help=f"Print what makes a shell complete commands and options.\n\nTo have it always:\n\n{_places()}"
)
@click.argument("shell", type=click.Choice(tuple(_STARTS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    script = get_completion_class(shell)
    assert script is not None, "each choice is one that click knows"
    click.echo(script(context.find_root().command, {}, _COMMAND, _VARIABLE).source())
