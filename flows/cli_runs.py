"""The commands that run flows, and those about what flows leave. Prefect is imported only once its settings are in the
environment, and by the commands that run flows alone.
"""

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from configs.errors import PipelineError
from configs.load import load_config
from configs.schema import StageName
from flows.cli_common import ConfigFile, Overrides, WorkspaceFolder, console, show_rows, shows_errors
from tasks.artifact import Workspace
from tasks.local_server import ensure_server, is_healthy, running_server, stop_server
from tasks.masking import mask
from tasks.summary import summarize

if TYPE_CHECKING:
    from tasks.incremental.states import State

app = typer.Typer()
server_app = typer.Typer(no_args_is_help=True, help="The workspace's local Prefect server.")
states_app = typer.Typer(no_args_is_help=True, help="What incremental runs have left, and which the next goes on from.")


@app.command()
@shows_errors
def run(
    config: ConfigFile,
    until: Annotated[StageName, typer.Option(help="The last stage to run")] = "pretrain",
    only: Annotated[StageName | None, typer.Option(help="Run this stage alone, on the artifacts before it")] = None,
    overrides: Overrides = None,
) -> None:
    """Run the chain here, with progress, and end with a summary."""
    loaded = load_config(config, overrides or ())
    workspace = Workspace(Path(loaded.workspace))
    address = _connect(workspace)
    from flows.pretrain import pretrain  # only now: Prefect reads its settings when it is imported
    from tasks.compiled import is_cold

    _show_progress()
    if is_cold():
        console.print("First run of this version: compiling takes half a minute, once ...")
    manifests = pretrain(config=config, overrides=tuple(overrides or ()), until=until, only=only)
    typer.echo("\nSummary")
    show_rows([*summarize(manifests, workspace), *_links(workspace, address)], indent="  ")


@app.command()
@shows_errors
def incremental(config: ConfigFile, overrides: Overrides = None) -> None:
    """Train on what is new since the last run, from its last good checkpoint."""
    workspace = Workspace(Path(load_config(config, overrides or ()).workspace))
    address = _connect(workspace)
    from flows.incremental import incremental as incremental_flow

    _show_progress()
    state = incremental_flow(config=config, overrides=tuple(overrides or ()))
    typer.echo("\nSummary")
    show_rows([*_state_rows(state), *_links(workspace, address)], indent="  ")


@app.command()
@shows_errors
def evaluate(
    config: ConfigFile,
    checkpoint: Annotated[
        str | None, typer.Option(help="A checkpoint, or the folder of a training; the configuration's own without")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Measure the perplexity of a checkpoint on the held-out text of the configuration's token dataset."""
    workspace = Workspace(Path(load_config(config, overrides or ()).workspace))
    _connect(workspace)
    from flows.evaluate import evaluate as evaluate_flow

    _show_progress()
    manifest = evaluate_flow(config=config, overrides=tuple(overrides or ()), checkpoint=checkpoint)
    typer.echo(f"perplexity {manifest.stats['perplexity']} on held-out text")


@app.command()
@shows_errors
def deploy(
    workspace: WorkspaceFolder = Path("runs"),
    trainings: Annotated[int, typer.Option(min=1, help="How many trainings may run at once, on all workers")] = 1,
) -> None:
    """Make work pool, limits, automation and deployments on the server, which is started if there is none."""
    _connect(Workspace(workspace))
    from flows.deploy import POOL
    from flows.deploy import deploy as deploy_all

    deploy_all(trainings)
    typer.echo(f"deployed; next: prefect worker start --pool {POOL}")


@app.command()
@shows_errors
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A record of a run, or a workspace for its newest run")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where to write it; beside the record")] = None,
) -> None:
    """Write the report of a run again, as one HTML page."""
    from tasks.record import FOLDER, read_record, report_page
    from tasks.report import write_report

    record = read_record(run)
    workspace = Workspace(run if (run / FOLDER).is_dir() else run.absolute().parents[1])
    target = output or report_page(workspace, record)
    write_report(record, workspace, target)
    typer.echo(target)


@states_app.command(name="list")
@shows_errors
def list_states(workspace: WorkspaceFolder = Path("runs")) -> None:
    """List all states; the one that the next incremental run goes on from is marked."""
    from tasks.incremental.states import States

    states = States(Workspace(workspace))
    current = states.current()
    for state in states.all():
        mark = "*" if current and state.number == current.last.number else " "
        what = f"{state.tokens} new tokens" if "pretrain" in state.artifacts else "nothing to train"
        perplexity = "" if state.perplexity_old is None else f", perplexity of old text {state.perplexity_old}"
        origin = "the first training" if state.parent is None else f"from {state.parent}"
        typer.echo(f"{mark} {state.number:5d}  {state.made:%Y-%m-%d %H:%M}  {origin}, {what}{perplexity}")


@states_app.command()
@shows_errors
def back(
    number: Annotated[int, typer.Argument(help="A state that `states list` shows")],
    workspace: WorkspaceFolder = Path("runs"),
) -> None:
    """Let the next incremental run go on from another state; nothing is deleted."""
    from tasks.incremental.states import States

    states = States(Workspace(workspace))
    with states.alone():
        line = states.go_to(number)
    typer.echo(f"the next incremental run goes on from state {number}, checkpoint {line.checkpoint}")


@server_app.command()
@shows_errors
def start(workspace: WorkspaceFolder = Path("runs")) -> None:
    """Start the server, or find the one that runs, and print its address."""
    typer.echo(ensure_server(workspace).api)


@server_app.command()
@shows_errors
def stop(workspace: WorkspaceFolder = Path("runs")) -> None:
    """Stop the server."""
    typer.echo("stopped" if stop_server(workspace) else "no server runs for this workspace")


@server_app.command()
@shows_errors
def status(workspace: WorkspaceFolder = Path("runs")) -> None:
    """Say whether the server runs, and where."""
    server = running_server(workspace)
    typer.echo(f"running at {server.ui}" if server else "no server runs for this workspace")


def _state_rows(state: "State") -> list[tuple[str, str]]:
    rows = [("state", str(state.number)), ("new tokens", str(state.tokens))]
    for name, before, after in (
        ("perplexity of old text", state.before_old, state.perplexity_old),
        ("perplexity of new text", state.before_new, state.perplexity_new),
    ):
        if before is not None and after is not None:
            rows.append((name, f"{before} to {after}"))
    return rows


def _links(workspace: Workspace, address: str) -> list[tuple[str, str]]:
    """Return where to look further: the newest run's report, which is missing where the disk was full, and the UI."""
    from tasks.record import read_record, report_page

    links = [("Prefect UI", address)]
    with suppress(PipelineError):  # no record, which the run has warned of
        page = report_page(workspace, read_record(workspace.root))
        links[:0] = [("report", str(page))] if page.is_file() else []
    return links


def _connect(workspace: Workspace) -> str:
    """Put Prefect's settings into the environment; return the address of the UI. PREFECT_API_URL is respected."""
    api = os.environ.get("PREFECT_API_URL")
    if api is None:
        console.print("Prefect server: starting, or finding the one that runs ...")
        api = ensure_server(workspace.root).api
    elif not is_healthy(api):
        raise PipelineError(
            f"PREFECT_API_URL {mask(api)}: no Prefect server answers there; start it, or unset the variable to use the "
            "workspace's own"
        )
    address = api.removesuffix("/api")
    console.print(f"Prefect UI: {address}")
    settings = {
        "PREFECT_API_URL": api,
        "PREFECT_LOGGING_EXTRA_LOGGERS": "mindpretrain",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the progress below takes its place
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_CLIENT_MAX_RETRIES": "8",  # a server that is away for minutes ends nothing
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    return address


def _show_progress() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%H:%M:%S"))
    logging.getLogger("mindpretrain").addHandler(handler)
    logging.getLogger("mindpretrain").setLevel(logging.INFO)
