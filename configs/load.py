"""Reads a YAML file and `--set` overrides into a `RunConfig`, and reports every problem at once with its line.

PyYAML's node tree gives the lines; the values come from its safe constructor, so nothing in a file can run code.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from configs.errors import ConfigError
from configs.schema import RunConfig

Location = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """The safe loader, with true and false alone as booleans, as in YAML 1.2: `conversion: off` is a word."""


BOOLEAN = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != BOOLEAN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOLEAN, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load_config(file: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the configuration in `file` with `overrides` (`section.key=value`) applied.

    Raises:
        ConfigError: with every problem found: unreadable file, YAML syntax, unknown or repeated keys, wrong types,
            values out of range, overrides that name no key.
    """
    file = str(file)
    values, origins, problems = _read_yaml(file)
    for override in overrides:
        problem = _apply_override(values, origins, override)
        if problem:
            problems.append(problem)
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        problems.extend(_describe(details, origins) for details in error.errors())
    if problems:
        raise ConfigError(file, problems)
    return config


def _read_yaml(file: str) -> tuple[dict[str, Any], dict[Location, str], list[str]]:
    """Return the values, where each key stands ("line 12"), and keys that are written twice."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            file, ["the file does not exist; give the path of a YAML file such as configs/demo.yaml"]
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(file, [f"byte {error.start} is not UTF-8; save the file as UTF-8"]) from None
    except OSError as error:
        raise ConfigError(file, [f"cannot be read: {error.strerror}"]) from None
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(file, ["expected sections such as `inputs:` and `normalize:`, found none"])
        origins: dict[Location, str] = {(): "line 1"}
        problems = list(_walk(root, (), origins))
        values = loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(file, [f"line {line}: not valid YAML: {error.problem or error.context}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError(file, [f"not valid YAML: {error}"]) from None
    finally:
        loader.dispose()
    return values, origins, problems


def _walk(node: yaml.Node, location: Location, origins: dict[Location, str]) -> Iterator[str]:
    """Fill `origins` for everything below `node`; yield a problem for each key that is written twice."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = (*location, key.value)
            if child in origins:
                yield f"line {key.start_mark.line + 1}: {_dotted(child)} is written twice (first on {origins[child]})"
            origins[child] = f"line {key.start_mark.line + 1}"
            yield from _walk(value, child, origins)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            origins[*location, index] = f"line {value.start_mark.line + 1}"
            yield from _walk(value, (*location, index), origins)


def _apply_override(values: dict[str, Any], origins: dict[Location, str], override: str) -> str | None:
    """Write one `section.key=value` into `values`; return what is wrong with it, if anything."""
    name, equals, text = override.partition("=")
    if not equals or not name:
        return f"--set {override}: expected section.key=value, such as --set pack.seq_length=256"
    try:
        value = yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
    except yaml.YAMLError:
        return f"--set {override}: {text!r} is not a YAML value; quote it"
    location: Location = ()
    place: Any = values
    *parents, last = (int(part) if part.isdigit() else part for part in name.split("."))
    for parent in parents:
        location = (*location, parent)
        if isinstance(place, dict) and place.get(parent) is None:
            place[parent] = {}
        try:
            place = place[parent]
        except (KeyError, IndexError, TypeError):
            return f"--set {override}: there is no {_dotted(location)}"
    try:
        place[last] = value
    except (IndexError, TypeError):
        return f"--set {override}: there is no {name}"
    origins[*location, last] = f"--set {override}"
    return None


def _describe(details: ErrorDetails, origins: dict[Location, str]) -> str:
    """Return one problem as `line 12: section.key: what was found, what was expected; the mend`."""
    location = details["loc"]
    origin = next(origins[location[:end]] for end in range(len(location), -1, -1) if location[:end] in origins)
    found = details["input"]
    match details["type"]:
        case "extra_forbidden":
            problem = f"unknown key{_suggestion(location)}"
        case "missing":
            problem = "is missing"
        case "float_type" | "int_type" if isinstance(found, str) and _is_number(found):
            problem = (
                f"found the text {found!r}, expected a number; YAML 1.1 takes a number without a dot for text: "
                f"write {_as_yaml_number(found)}"
            )
        case "value_error":
            problem = details["msg"].removeprefix("Value error, ")
        case _:
            message = details["msg"][0].lower() + details["msg"][1:]
            problem = f"found {found!r}, expected: {message.removeprefix('input should be ')}"
    return f"{origin}: {_dotted(location)}: {problem}" if location else f"{origin}: {problem}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_yaml_number(text: str) -> str:
    mantissa, _, exponent = text.lower().partition("e")
    return f"{mantissa}.0e{exponent}" if exponent and "." not in mantissa else repr(float(text))


def _suggestion(location: Location) -> str:
    """Return the keys that stand where `location` tried to, the likeliest first."""
    model: type[BaseModel] | None = RunConfig
    for part in location[:-1]:
        if isinstance(part, str) and model is not None:
            annotation = model.model_fields[part].annotation
            candidates = [annotation, *get_args(annotation)]
            model = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
    if model is None:
        return ""
    close = difflib.get_close_matches(str(location[-1]), model.model_fields, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; expected one of {', '.join(model.model_fields)}"


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)
