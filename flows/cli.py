"""The command `mindpretrain`: a thin face over flows and functions. Those that run flows are in `cli_runs.py`, those about
training in `cli_training.py`; here is what shows texts and artifacts.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from configs.errors import PipelineError
from configs.load import load_config
from configs.schema import FilterConfig, NormalizeConfig, PackConfig, TokenizerConfig
from flows import cli_artifacts, cli_runs, cli_training
from flows.cli_common import (
    console,
    raise_if_any,
    show_problems,
    shows_errors,
)
from tasks.encoding import UnknownEncodingError, decode

app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, help="Raw Chinese text to MindSpore checkpoints."
)
app.add_typer(cli_training.app)
app.add_typer(cli_runs.app)
app.add_typer(cli_runs.server_app, name="server")
app.add_typer(cli_runs.states_app, name="states")
app.add_typer(cli_artifacts.app, name="artifacts")

TextFile = Annotated[
    Path, typer.Argument(metavar="[FILE]", help="A text in any encoding that normalize reads; - for standard input")
]
SettingsFrom = Annotated[
    str | None, typer.Option("--config", metavar="CONFIG", help="Take the settings from this file")
]


def main() -> None:
    app()


@app.command()
@shows_errors
def inspect(
    artifact: Annotated[Path, typer.Argument(help="Folder of an artifact")],
    samples: Annotated[int, typer.Option("-n", min=0, help="How many samples")] = 3,
    document: Annotated[
        str | None, typer.Option(metavar="ID", help="Say what became of this document, and why")
    ] = None,
) -> None:
    """Show what an artifact is, and samples of it; packed sequences as text with document ends marked."""
    from tasks.inspection import explain_document, inspect_artifact

    lines = inspect_artifact(artifact, samples) if document is None else explain_document(artifact, document)
    for line in lines:
        typer.echo(line)


@app.command()
@shows_errors
def trace(
    artifact: Annotated[Path, typer.Argument(help="Folder of a token dataset")],
    sequence: Annotated[int, typer.Argument(help="Number of the sequence, from 0")],
    split: Annotated[str, typer.Option(help="train or held_out")] = "train",
) -> None:
    """Show from which tokens of which documents a packed sequence was made."""
    from tasks.inspection import trace_sequence

    for line in trace_sequence(artifact, sequence, split):
        typer.echo(line)


@app.command()
@shows_errors
def check_tokens(
    dataset: Annotated[Path, typer.Argument(help="A .bin with its .idx, rows with a JSON header, or a folder of them")],
    tokenizer: Annotated[
        str, typer.Option(help="The tokenizer that made it: a folder or file, as pack.tokenizer.path")
    ],
    eos_token: Annotated[str | None, typer.Option(help="Its eos, where its settings name none")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Of the ids in a .bin that nothing describes, such as int32")
    ] = None,
    max_eos_share: Annotated[float, typer.Option(help="As pack.max_eos_share")] = PackConfig().max_eos_share,
) -> None:
    """Check a token dataset from elsewhere: eos at the ends of documents and not of lines, ids within the vocabulary."""
    from tasks.pack.foreign import check_dataset

    problems = 0
    config = TokenizerConfig(path=tokenizer, eos_token=eos_token)
    for checked in check_dataset(dataset, config, dtype, max_eos_share):
        found = checked.findings
        share = f"{found.eos / max(1, found.tokens):.3%}"
        typer.echo(f"{checked.file}: {found.tokens} tokens, {found.eos} eos ({share}), largest id {found.largest}")
        problems += len(checked.problems)
        show_problems(checked.problems, indent="  ")
    raise_if_any(problems, dataset)


@app.command(name="export-text")
@shows_errors
def export_artifact_text(
    artifact: Annotated[Path, typer.Argument(help="Folder of an artifact of documents or chunks")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; standard output without")
    ] = None,
) -> None:
    """Write an artifact as plain text: one paragraph a line, a blank line between documents."""
    from tasks.export import export_text

    documents = export_text(artifact, output)
    if output is not None:
        console.print(f"{output}: {documents} documents")


@app.command()
@shows_errors
def normalize(
    file: TextFile = Path("-"),
    explain: Annotated[bool, typer.Option("--explain", help="List the steps and the lines that each changes")] = False,
    config: SettingsFrom = None,
) -> None:
    """Show what normalize makes of one text."""
    from tasks.normalize.explain import explain as explain_steps
    from tasks.normalize.text import normalize_text

    settings = load_config(config).normalize if config else NormalizeConfig()
    text = _read_text(file)
    if not explain:
        typer.echo(normalize_text(text, settings))
        return
    for step, lines in explain_steps(text, settings):
        typer.echo(f"{step}:" if lines else f"{step}: nothing")
        for line in lines:
            typer.echo(f"  {line}")


@app.command()
@shows_errors
def judge(
    file: TextFile = Path("-"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
    config: SettingsFrom = None,
) -> None:
    """Show what normalize and then the filter make of one text: kept, or the rule that it breaks, and lines removed."""
    from tasks.filter import judge as judge_text
    from tasks.normalize.text import normalize_text

    settings = load_config(config) if config else None
    text = normalize_text(_read_text(file), settings.normalize if settings else NormalizeConfig())
    found = judge_text(text, settings.filter if settings else FilterConfig.model_validate({}))
    verdict = found.verdict
    if as_json:
        removed = [{"line": line, "rule": rule} for line, rule in found.removed_lines]
        broken = {"rule": verdict.rule, "score": verdict.score, "threshold": verdict.threshold} if verdict else {}
        answer = {"kept": verdict is None, "rule": None, "score": None, "threshold": None, "removed_lines": removed}
        typer.echo(json.dumps(answer | broken, ensure_ascii=False))
        return
    typer.echo(f"removed: {verdict.rule} {verdict.score:.3g}, threshold {verdict.threshold:g}" if verdict else "kept")
    for line, rule in found.removed_lines:
        typer.echo(f"  {rule}: {line}")


def _read_text(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return decode(data).text
    except OSError as error:
        raise PipelineError(f"{file}: cannot be read: {error.strerror}") from None
    except UnknownEncodingError as error:
        raise PipelineError(f"{file}: {error}") from None
