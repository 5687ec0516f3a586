"""What a run has come to, in a few lines for people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.schema import StageName
from tasks.artifact import Manifest, Workspace

DOCUMENTS_KEPT = "{documents_kept} of {documents_in} documents kept, {characters} characters"
TRAINED = "{steps} steps, loss {loss_first} to {loss_last}"
HEADLINES: dict[str, str] = {
    "normalize": DOCUMENTS_KEPT,
    "dedup": DOCUMENTS_KEPT,
    "filter": DOCUMENTS_KEPT,
    "chunk": "{chunks} chunks of {documents_in} documents",
    "tokens": "{tokens} tokens of {documents} documents",
    "pack": "{tokens} tokens in {sequences} sequences, {tokens_dropped} dropped, vocabulary {vocab_size}, "
    "{characters_per_token} characters a token",
    "mix": "{sequences_new} new and {sequences_old} old sequences",
    "smoke": TRAINED,
    "pretrain": TRAINED,
    "evaluate": "perplexity {perplexity} on held-out text",
}


def headline(manifest: Manifest) -> str:
    """Return one line that says what an artifact holds."""
    return HEADLINES[manifest.stage].format(**manifest.stats)


def removals(stats: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return what a stage took out and how often, such as ("documents exact_duplicate", 3), the most frequent first."""
    found = [
        (f"{scope.removesuffix('_removed')} {rule}", int(count))
        for name, count in stats.items()
        for scope, _, rule in [name.partition(":")]
        if scope.endswith("_removed")
    ]
    return sorted(found, key=lambda entry: -entry[1])


def removal_table(stats: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each rule that took something out: what, how often, how often alone, and the first of it."""
    samples = stats.get("samples", {})
    return [
        {
            "removed": what.partition(" ")[0],
            "rule": (rule := what.partition(" ")[2]),
            "count": count,
            "alone": stats.get(f"hits_alone:{rule}"),
            "first": next(iter(samples.get(rule, ())), None),
        }
        for what, count in removals(stats)
    ]


def summarize(manifests: Mapping[StageName, Manifest], workspace: Workspace) -> list[tuple[str, str]]:
    """Return the rows (what, value) of the table that ends a run."""
    rows: list[tuple[str, str]] = []
    data = [manifests[stage] for stage in ("normalize", "dedup", "filter") if stage in manifests]
    if data:
        rows.append(("documents in", str(data[0].stats["documents_in"])))
        for manifest in data:
            rows += [(f"  {manifest.stage} removed", f"{count} {what}") for what, count in removals(manifest.stats)]
        rows.append(("documents kept", str(data[-1].stats["documents_kept"])))
    if "pack" in manifests:
        stats = manifests["pack"].stats
        rows.append(
            ("tokens", f"{stats['tokens']} in {stats['sequences']} sequences ({stats['tokens_dropped']} dropped)")
        )
        rows.append(("samples", f"mindpretrain inspect {_shown(workspace, manifests['pack'])}"))
    for stage in ("smoke", "pretrain"):
        if stage in manifests:
            stats = manifests[stage].stats
            rows.append((f"{stage} loss", f"{stats['loss_first']} to {stats['loss_last']} over {stats['steps']} steps"))
    if "pretrain" in manifests:
        folder = _shown(workspace, manifests["pretrain"])
        rows += [("checkpoint", str(folder / name)) for name in manifests["pretrain"].stats["checkpoints"]]
    return rows


def _shown(workspace: Workspace, manifest: Manifest) -> Path:
    return workspace.folder(manifest.stage, manifest.key)
