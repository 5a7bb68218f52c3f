from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bowstring.spark import session_config
from bowstring.spark.sessions import read_properties

MANIFEST = Path(__file__).parents[2] / "docker" / "spark-kubernetes.yaml"


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    """Return the manifest's documents by kind."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    if not MANIFEST.exists():
        pytest.skip("the source distribution has no docker folder")
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text("utf-8"))}


def pods(documents: dict[str, Any]) -> dict[str, Any]:
    """Return the specification of each pod."""
    import yaml

    return {
        "executor": yaml.safe_load(documents["ConfigMap"]["data"]["executor.yaml"])["spec"],
        "driver": documents["Job"]["spec"]["template"]["spec"],
        "depot": documents["DaemonSet"]["spec"]["template"]["spec"],
    }


def settings(documents: dict[str, Any]) -> dict[str, str]:
    return read_properties(documents["ConfigMap"]["data"]["spark-defaults.conf"])


def test_every_document_is_of_one_namespace(documents: dict[str, Any]) -> None:
    """Each kind is there once, and lies in the namespace that is made."""
    kinds = {"Namespace", "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Job", "DaemonSet"}
    assert set(documents) == kinds
    name = documents["Namespace"]["metadata"]["name"]
    assert {each["metadata"].get("namespace", name) for each in documents.values()} == {name}
    assert settings(documents)["spark.kubernetes.namespace"] == name


def test_mounts_are_of_volumes_that_are_there(documents: dict[str, Any]) -> None:
    """Every container mounts what its pod has, and all that a pod has is mounted; memory is bounded."""
    for pod in pods(documents).values():
        containers = [*pod["containers"], *pod.get("initContainers", [])]
        mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        for volume in pod["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]


def test_sockets_are_where_the_environment_says(documents: dict[str, Any]) -> None:
    """The folder of the depot is below a mount in every pod, by the same path for executors, driver and depot."""
    folder = settings(documents)["spark.executorEnv.BOWSTRING_DEPOT"]
    found = pods(documents)
    driver = {each["name"]: each.get("value") for each in found["driver"]["containers"][0]["env"]}
    assert driver["BOWSTRING_DEPOT"] == folder
    assert f"--folder={folder}" in found["depot"]["containers"][0]["command"]
    for pod in found.values():
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert folder.startswith(mounts["sockets"] + "/")
        assert pod["securityContext"]["runAsUser"] == 185


def test_settings_are_those_that_sessions_get(documents: dict[str, Any]) -> None:
    """What ``session_config`` would set for a cluster is set here as it sets it; the bound on workers is not."""
    here = settings(documents)
    wanted = session_config({"spark.master": here["spark.master"]})
    assert {name: here.get(name) for name in wanted} == wanted
    assert "spark.executor.pyspark.memory" not in here
    assert here["spark.executor.resource.gpu.vendor"] == "nvidia.com"
    template = here["spark.kubernetes.executor.podTemplateContainerName"]
    assert pods(documents)["executor"]["containers"][0]["name"] == template
    assert documents["ServiceAccount"]["metadata"]["name"] in here.values()


@pytest.mark.parametrize("gpus", [0, 1, 3])
def test_the_discovery_script_says_what_spark_reads(
    gpus: int, documents: dict[str, Any], tmp_path: Path
) -> None:
    """For any number of GPUs that nvidia-smi lists, it prints one JSON object with their numbers as text."""
    script, tool = tmp_path / "gpu-discovery.sh", tmp_path / "nvidia-smi"
    script.write_text(documents["ConfigMap"]["data"]["gpu-discovery.sh"])
    tool.write_text("#!/bin/sh\n" + "".join(f"echo {number}\n" for number in range(gpus)))
    tool.chmod(0o700)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    said = subprocess.run(
        ["sh", str(script)], env=environment, capture_output=True, timeout=60, check=True
    ).stdout
    assert json.loads(said) == {"name": "gpu", "addresses": [str(number) for number in range(gpus)]}
