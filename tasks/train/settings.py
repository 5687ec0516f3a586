"""Values of the mindformers YAML that remember where they come from: the configuration, a preset, a default, or a rule."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from configs.section import Section
from configs.training import ModelConfig, read_preset


@dataclass(frozen=True)
class Setting:
    """A value and its origin, such as `config training.eps`. What bears no origin was derived here."""

    value: Any
    origin: str


def setting(section: Section, key: str, path: str) -> Setting:
    """Return a section's value. `path`: of the section, such as training.parallel."""
    value = getattr(section, key)
    preset = section.preset if isinstance(section, ModelConfig) else None
    if preset and key in read_preset(preset) and read_preset(preset)[key] == value:
        origin = f"preset {preset}"
    else:
        origin = "config" if key in section.model_fields_set else "default"
    return Setting(value, f"{origin} {path}.{key}")


def plain(tree: Any) -> Any:
    """Return a tree with its settings replaced by their values."""
    match tree:
        case Setting():
            return tree.value
        case dict():
            return {key: plain(value) for key, value in tree.items()}
        case list():
            return [plain(value) for value in tree]
        case _:
            return tree


def origins(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield path, value and origin of every leaf; a list of plain values is one."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from origins(value, (*path, str(key)))
    elif isinstance(tree, list) and any(isinstance(value, dict) for value in tree):
        for index, value in enumerate(tree):
            yield from origins(value, (*path, str(index)))
    else:
        leaves = tree if isinstance(tree, list) else [tree]
        named = [leaf.origin for leaf in leaves if isinstance(leaf, Setting)]
        yield path, plain(tree), ", ".join(named) or "derived"
