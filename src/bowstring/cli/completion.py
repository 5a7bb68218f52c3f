"""``bowstring completion``: what a shell needs to complete commands, options and their choices."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from bowstring.cli.arguments import parser

if TYPE_CHECKING:
    from collections.abc import Iterator

_BASH = """\
_bowstring() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}} $before" in
{choices}
            *) case "${{COMP_WORDS[1]}}" in
{options}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _bowstring bowstring"""


def run(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    print(_fish() if arguments.shell == "fish" else _bash(zsh=arguments.shell == "zsh"))
    return 0


def _commands() -> dict[str, argparse.ArgumentParser]:
    actions = vars(parser())["_actions"]
    [commands] = [each for each in actions if isinstance(each, argparse._SubParsersAction)]
    return dict(commands.choices)


def _arguments(command: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    yield from vars(command)["_actions"]


def _bash(*, zsh: bool) -> str:
    commands, choices, options = _commands(), [], []
    for name, command in commands.items():
        names = [option for each in _arguments(command) for option in each.option_strings]
        for each in _arguments(command):
            if each.choices:
                after = "|".join(f'"{name} {option}"' for option in each.option_strings or [name])
                choices.append(f'            {after}) words="{" ".join(map(str, each.choices))}" ;;')
        options.append(f'                {name}) words="{" ".join(names)}" ;;')
    script = _BASH.format(commands=" ".join(commands), choices="\n".join(choices), options="\n".join(options))
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def _fish() -> str:
    begin = "complete -c bowstring"
    lines = []
    for name, command in _commands().items():
        about = _quoted(command.description or "")
        lines.append(f"{begin} -n __fish_use_subcommand -f -a {name} -d {about}")
        for each in _arguments(command):
            words = _quoted(" ".join(map(str, each.choices or ())))
            here = f"{begin} -n '__fish_seen_subcommand_from {name}'"
            if each.option_strings:
                option = each.option_strings[-1].lstrip("-")
                takes = "" if each.nargs == 0 else f" -f -r -a {words}" if each.choices else " -r"
                lines.append(f"{here} -l {option} -d {_quoted(each.help or '')}{takes}")
            elif each.choices:
                lines.append(f"{here} -f -a {words}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + re.sub(r"(['\\])", r"\\\1", text.replace("%%", "%")) + "'"
