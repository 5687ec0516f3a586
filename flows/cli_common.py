"""What all commands share: how they show errors, and the arguments that several have."""

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec

import typer
from rich.console import Console

from configs.errors import ConfigError, PipelineError

JOB_FAILED, WRONG_USE = 1, 2

console = Console(highlight=False)
error_console = Console(stderr=True, highlight=False)

Parameters = ParamSpec("Parameters")
ConfigFile = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML file, such as configs/demo.yaml")]
WorkspaceFolder = Annotated[Path, typer.Option("--workspace", help="The configuration's workspace")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key; repeatable")]


def shows_errors(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Let a command end with a message when something is wrong that its user can mend: status 2 for a bad configuration,
    as for a bad option, else 1."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PipelineError as error:
            error_console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            raise typer.Exit(WRONG_USE if isinstance(error, ConfigError) else JOB_FAILED) from None
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            text = f"error: {place}{error.strerror or error}; mend it and run the same command again"
            error_console.print(text, style="red", markup=False, soft_wrap=True)
            raise typer.Exit(JOB_FAILED) from None

    return run


def show_rows(rows: list[tuple[str, str]], indent: str = "") -> None:
    """Print names and values in two columns."""
    width = max(len(what) for what, _ in rows)
    for what, value in rows:
        typer.echo(f"{indent}{what:<{width}}  {value}")


def show_problems(problems: Iterable[str], indent: str = "") -> None:
    for problem in problems:
        error_console.print(f"{indent}{problem}", markup=False, soft_wrap=True)


def raise_if_any(problems: int, where: str | Path) -> None:
    """End the command if problems were found.

    Raises:
        PipelineError: they were; it counts them.
    """
    if problems:
        raise PipelineError(f"{where}: {counted(problems, 'problem')}")


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
