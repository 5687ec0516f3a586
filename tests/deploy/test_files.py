"""What cannot be run here is at least read by the tools that would run it."""

import os
import shutil
import stat
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.utilities.callables import parameter_schema

from tests.conftest import PROJECT

DEPLOY = PROJECT / "deploy"
SECRETS = ("notify_urls", "postgres_password", "prefect_auth")


def run(*command: str | Path, cwd: Path = PROJECT, **variables: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need(tool: str) -> str:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return tool


def compose() -> list[str]:
    """Return the command of Docker Compose, the plugin or the program."""
    plugin = ["docker", "compose", "version"]
    if shutil.which("docker") and subprocess.run(plugin, capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    return [need("docker-compose")]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A copy of compose's folder, with the secrets that its script makes."""
    shutil.copytree(DEPLOY / "compose", tmp_path / "compose", ignore=shutil.ignore_patterns("secrets"))
    run(tmp_path / "compose" / "make_secrets.sh")
    return tmp_path / "compose" / "secrets"


def test_secrets_are_random_kept_and_closed_to_others(secrets: Path) -> None:
    first = {name: (secrets / name).read_text(encoding="utf-8") for name in SECRETS}
    assert len(first["postgres_password"]) == 48
    assert first["prefect_auth"].startswith("admin:")
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    run(secrets.parent / "make_secrets.sh")
    assert {name: (secrets / name).read_text(encoding="utf-8") for name in SECRETS} == first


def test_the_entrypoint_hands_secrets_on_and_prints_none(secrets: Path) -> None:
    (secrets / "notify_urls").write_text("# team\njson://one\njson://two\n", encoding="utf-8")
    script = DEPLOY / "images" / "entrypoint.sh"
    seen = run(script, "env", SECRETS_FOLDER=str(secrets), POSTGRES_HOST="base")
    password = (secrets / "postgres_password").read_text(encoding="utf-8")
    auth = (secrets / "prefect_auth").read_text(encoding="utf-8")
    for line in (
        f"PREFECT_API_DATABASE_CONNECTION_URL=postgresql+asyncpg://prefect:{password}@base:5432/prefect",
        f"PREFECT_SERVER_API_AUTH_STRING={auth}",
        f"PREFECT_API_AUTH_STRING={auth}",
    ):
        assert line in seen.splitlines()
    assert "MINDPRETRAIN_NOTIFY_URLS=json://one json://two" in seen
    assert run(script, "true", SECRETS_FOLDER=str(secrets)) == ""
    assert "PREFECT_API_AUTH_STRING" not in run(script, "env", SECRETS_FOLDER="/nowhere")


def test_compose_reads_its_files_and_opens_nothing_to_the_outside(secrets: Path) -> None:
    command = compose()
    shown = run(*command, "--file", "compose.yaml", "config", cwd=secrets.parent)
    config: dict[str, Any] = yaml.safe_load(shown)
    assert set(config["services"]) == {"postgres", "server", "worker", "dask-scheduler", "dask-worker"}
    assert (secrets / "prefect_auth").read_text(encoding="utf-8") not in shown


def test_compose_publishes_on_loopback_alone() -> None:
    config = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    published = [port for service in config["services"].values() for port in service.get("ports", [])]
    assert published == ["${BIND:-127.0.0.1}:4200:4200"]
    ascend = yaml.safe_load((DEPLOY / "compose" / "compose.ascend.yaml").read_text(encoding="utf-8"))
    assert set(ascend["services"]) <= set(config["services"])


def test_kustomize_builds_what_kubernetes_takes(tmp_path: Path) -> None:
    need("kubectl")
    folder = tmp_path / "kubernetes"
    shutil.copytree(DEPLOY / "kubernetes", folder, ignore=shutil.ignore_patterns("secrets"))
    (folder / "secrets").mkdir()
    for name in SECRETS:
        (folder / "secrets" / name).write_text("x", encoding="utf-8")
    built = list(yaml.safe_load_all(run("kubectl", "kustomize", folder)))
    kinds = sorted(one["kind"] for one in built)
    assert kinds.count("Deployment") == 4
    assert {"StatefulSet", "Service", "Secret", "ConfigMap", "PersistentVolumeClaim", "Namespace"} <= set(kinds)
    assert {one["metadata"].get("namespace", "mindpretrain") for one in built} == {"mindpretrain"}
    for one in built:
        if one["kind"] in ("Deployment", "StatefulSet"):
            selector = one["spec"]["selector"]["matchLabels"].items()
            assert selector <= one["spec"]["template"]["metadata"]["labels"].items()


def test_systemd_reads_its_units(tmp_path: Path) -> None:
    need("systemd-analyze")
    for unit in (DEPLOY / "systemd").glob("*.service"):
        text = unit.read_text(encoding="utf-8").replace("/opt/mindpretrain/.venv", str(PROJECT / ".venv"))
        (tmp_path / unit.name).write_text(text.replace("User=mindpretrain\n", ""), encoding="utf-8")
    assert run("sh", "-c", "systemd-analyze verify *.service 2>&1", cwd=tmp_path) == ""


def test_every_deployment_names_a_flow_that_is_there() -> None:
    described = yaml.safe_load((DEPLOY / "prefect.yaml").read_text(encoding="utf-8"))
    names = [one["name"] for one in described["deployments"]]
    assert names == ["full", "smoke", "data", "nightly", "held-out"]
    for one in described["deployments"]:
        file, _, function = one["entrypoint"].partition(":")
        assert f"def {function}(" in (PROJECT / file).read_text(encoding="utf-8")
    nightly = described["deployments"][3]
    assert nightly["schedules"] == [{"cron": "0 2 * * *", "timezone": "Asia/Shanghai", "active": True}]
    assert nightly["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}


@pytest.mark.parametrize("name", ["pretrain", "incremental", "evaluate"])
def test_the_form_of_a_flow_explains_every_parameter(name: str) -> None:
    """Prefect takes descriptions from the docstring alone."""
    flow = getattr(import_module(f"flows.{name}"), name)
    fields = parameter_schema(flow).properties
    assert {"config", "overrides"} <= fields.keys()
    assert all(field.get("description") for field in fields.values())
