"""The commands `mindpretrain artifacts`: what lies in a workspace, who needs it, and what can go."""

from pathlib import Path
from typing import Annotated

import typer

from configs.sizes import parse_size, show_size
from flows.cli_common import WorkspaceFolder, raise_if_any, show_problems, shows_errors
from tasks.artifact import Workspace

app = typer.Typer(no_args_is_help=True, help="What lies in a workspace, who needs it, and what can go.")

KEPT_RUNS = 10
KeptRuns = Annotated[int, typer.Option(min=1, help="The newest so many runs keep what they made and used")]


@app.command(name="list")
@shows_errors
def list_artifacts(workspace: WorkspaceFolder = Path("runs"), kept_runs: KeptRuns = KEPT_RUNS) -> None:
    """List all artifacts, the longest unused first, with what needs them."""
    from tasks.housekeeping import stored_artifacts

    stored = stored_artifacts(Workspace(workspace), kept_runs)
    for one in stored:
        what = "draft" if one.is_draft else one.needed_by or "nobody needs it"
        typer.echo(f"{one.stage:<10} {one.key}  {show_size(one.bytes):>9}  {one.used:%Y-%m-%d %H:%M}  {what}")
    typer.echo(f"{len(stored)} artifacts, {show_size(sum(one.bytes for one in stored))}")


@app.command()
@shows_errors
def verify(workspace: WorkspaceFolder = Path("runs")) -> None:
    """Read every byte of every artifact, and name what is damaged."""
    from tasks.housekeeping import stored_artifacts
    from tasks.housekeeping import verify as verify_one

    place = Workspace(workspace)
    stored = stored_artifacts(place, KEPT_RUNS)
    problems = [damage for one in stored if (damage := verify_one(place, one)) is not None]
    show_problems(problems)
    raise_if_any(len(problems), workspace)
    typer.echo(f"{len(stored)} artifacts are whole")


@app.command()
@shows_errors
def remove(
    workspace: WorkspaceFolder = Path("runs"),
    older_than: Annotated[str, typer.Option(help="Unused for so long, such as 30d or 12h")] = "30d",
    max_size: Annotated[
        str | None, typer.Option(help="Remove no more than it takes to come under this size, such as 2TB")
    ] = None,
    kept_runs: KeptRuns = KEPT_RUNS,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without, they are only listed")] = False,
) -> None:
    """Remove artifacts that no kept run and no state needs."""
    from tasks.housekeeping import parse_days, removable, stored_artifacts
    from tasks.housekeeping import remove as remove_one

    try:
        largest = parse_size(max_size) if max_size else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    stored = stored_artifacts(Workspace(workspace), kept_runs)
    chosen = removable(stored, parse_days(older_than), largest)
    for one in chosen:
        done = "would go" if not yes else "removed" if remove_one(one) else "left: a run is making it"
        typer.echo(f"{one.stage:<10} {one.key}  {show_size(one.bytes):>9}  {done}")
    total = show_size(sum(one.bytes for one in chosen))
    typer.echo(f"{len(chosen)} artifacts, {total}" + ("" if yes else "; add --yes to remove them"))
