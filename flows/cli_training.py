"""The commands about training: what will run, whether it fits, what went wrong, and what comes out."""

import json
from pathlib import Path
from typing import Annotated

import typer

from configs.load import load_config
from flows.cli_common import (
    ConfigFile,
    Overrides,
    console,
    counted,
    raise_if_any,
    show_problems,
    show_rows,
    shows_errors,
)

app = typer.Typer()
rank_tables = typer.Typer(no_args_is_help=True, help="Rank tables (hccl.json), for launches that still need one.")
app.add_typer(rank_tables, name="ranktable")

TABLE_VERSION = "1.0"


@app.command()
@shows_errors
def check(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="This project's YAML, or one of mindformers")],
    overrides: Overrides = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Of a mindformers YAML: devices that will train")] = None,
    servers: Annotated[int, typer.Option(min=1, help="Of a mindformers YAML: servers that they are in")] = 1,
) -> None:
    """Check a configuration and its inputs, or a mindformers YAML, by every rule, without running anything."""
    from tasks.check import check_config, check_foreign, foreign_yaml

    given = None if overrides else foreign_yaml(Path(config))
    found = (
        check_config(load_config(config, overrides or ())) if given is None else check_foreign(given, devices, servers)
    )
    show_problems((*found.errors, *found.warnings))
    raise_if_any(len(found.errors), config)
    said = f", {counted(len(found.warnings), 'warning')}" if found.warnings else ""
    console.print(f"{config}: no problem found{said}")


@app.command(name="yaml")
@shows_errors
def show_yaml(config: ConfigFile, overrides: Overrides = None) -> None:
    """Show the mindformers YAML of the long training, each value with its origin, and the command line of each host."""
    from tasks.train.mindformers_yaml import with_origins
    from tasks.train.msrun import command_lines
    from tasks.train.planned import planned_job

    planned = planned_job(load_config(config, overrides or ()))
    for note in planned.notes:
        typer.echo(f"# {note}")
    for line in with_origins(planned.job):
        typer.echo(line)
    typer.echo("\n# started by `mindpretrain run`; on each host:")
    for host, line in command_lines(planned.job):
        typer.echo(f"# {host}: {line}")


@app.command()
@shows_errors
def plan(
    config: ConfigFile,
    devices: Annotated[int | None, typer.Option(min=1, help="Devices; training.workers where left out")] = None,
    device_memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Of a device, such as 64GB")] = None,
    tokens: Annotated[str | None, typer.Option(metavar="COUNT", help="To train on, such as 20B")] = None,
    throughput: Annotated[float | None, typer.Option(min=1, help="Tokens a second of a device")] = None,
    corpus: Annotated[
        str | None,
        typer.Option("--corpus", metavar="SIZE", help="Plan dedup instead, for this much text, such as 200GB"),
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="With --corpus: cores over which the time is divided")] = 1,
    overrides: Overrides = None,
) -> None:
    """State what training needs of each device, term by term, how long it takes, and which layouts fit; or what dedup of a
    corpus needs, measured on the normalized documents.
    """
    loaded = load_config(config, overrides or ())
    if corpus is not None:
        from tasks.plan import dedup_rows

        show_rows(dedup_rows(loaded, corpus, cores))
        return
    from tasks.train.plan import plan_lines

    for line in plan_lines(loaded, devices, device_memory, tokens, throughput):
        typer.echo(line)


@app.command()
@shows_errors
def doctor(
    config: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="Also look at its disk and hosts")] = None,
    hosts: Annotated[str, typer.Option(help="Names of the servers, with commas between")] = "",
    device: Annotated[str | None, typer.Option(help="CPU or Ascend")] = None,
) -> None:
    """Look at the machine: versions, devices, a small training, ports, hosts, disk."""
    from tasks.train.doctor import examine, raise_if_failed

    loaded = load_config(config) if config else None
    named = [host for host in hosts.split(",") if host] or (loaded.training.hosts if loaded else [])
    checks = []
    for check in examine(loaded, named, device or (loaded.training.device if loaded else "CPU")):
        checks.append(check)
        mend = f"; {check.mend}" if check.mend else ""
        typer.echo(f"{check.status:<5}{check.name}: {check.found}{mend}")
    raise_if_failed(checks)


@app.command()
@shows_errors
def diagnose(logs: Annotated[list[Path], typer.Argument(help="Logs, or folders of logs")]) -> None:
    """Name the known failures in training logs, the first cause first."""
    from tasks.train.diagnose import diagnose as diagnose_logs
    from tasks.train.diagnose import find_logs

    for line in diagnose_logs(find_logs(logs)):
        typer.echo(line)


@app.command()
@shows_errors
def export(
    checkpoint: Annotated[
        Path, typer.Argument(help="A checkpoint, or the artifact folder of a training: its last one")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to make")],
) -> None:
    """Write a checkpoint as a Hugging Face folder: config.json, safetensors, tokenizer."""
    from tasks.train.export import export_checkpoint

    for file in export_checkpoint(checkpoint, output):
        typer.echo(str(file))


@app.command()
@shows_errors
def compare(runs: Annotated[list[Path], typer.Argument(help="Artifact folders of pretrain or smoke")]) -> None:
    """Show what differed between trainings, and their losses over the tokens they saw."""
    from tasks.train.compare import compare as compare_runs

    for line in compare_runs(runs):
        typer.echo(line)


@rank_tables.command(name="check")
@shows_errors
def check_rank_table(
    file: Annotated[Path, typer.Argument(help="The rank table")],
    workers: Annotated[int | None, typer.Option(min=1, help="Devices that it should have")] = None,
    same_as: Annotated[list[Path] | None, typer.Option(help="The same table on another node; repeatable")] = None,
) -> None:
    """Check a rank table by the rules R1 to R12."""
    from tasks.train.rank_table import check_file

    problems = check_file(file, workers, same_as or ())
    show_problems(problems)
    raise_if_any(len(problems), file)
    console.print(f"{file}: no problem found")


@rank_tables.command(name="make")
@shows_errors
def make_rank_table(
    servers: Annotated[
        list[str], typer.Argument(metavar="SERVER=IP,IP...", help="A server and its devices' addresses, in rank order")
    ],
    version: Annotated[str, typer.Option(help="1.0 (Atlas A2), 1.2 (A3 SuperPoD)")] = TABLE_VERSION,
) -> None:
    """Print a rank table."""
    from tasks.train.rank_table import make_table

    parts = [server.partition("=") for server in servers]
    table = make_table([(name, [ip for ip in ips.split(",") if ip]) for name, _, ips in parts], version)
    typer.echo(json.dumps(table, indent=1))
