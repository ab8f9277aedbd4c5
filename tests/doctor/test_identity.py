"""Which label names the machine: where two readings are possible, the one that can be wrong is not taken."""

from __future__ import annotations

from collections.abc import Sequence

from minder.doctor.identity import find_identity
from minder.doctor.series import Found


def found(name: str, job: str, instance: str, **labels: str) -> Found:
    return Found(name, {"job": job, "instance": instance, **labels}, 1.0, 0.0)


def gpus(machines: Sequence[str], **more: str) -> list[Found]:
    return [
        found("util", "dcgm", f"10.0.0.{number}:9400", gpu=str(gpu), Hostname=name, **more)
        for number, name in enumerate(machines, start=1)
        for gpu in range(2)
    ]


def test_a_label_of_all_exporters_is_taken_before_an_address() -> None:
    hosts = [found("mem", "node", f"10.0.0.{number}:9100", Hostname=f"n{number}") for number in (1, 2, 3)]
    identity = find_identity([*gpus(["n1", "n2", "n3"], cluster="a"), *hosts])
    assert identity is not None and (identity.label, identity.machines, identity.machine_map) == ("Hostname", ("n1", "n2", "n3"), {})
    assert identity.brought_together == 2


def test_targets_without_the_label_are_matched_by_their_host() -> None:
    hosts = [found("mem", "node", f"10.0.0.{number}:9100") for number in (1, 2)]
    identity = find_identity([*gpus(["n10", "n2"]), *hosts])
    assert identity is not None and identity.label == "Hostname" and identity.machines == ("n2", "n10")
    assert identity.machine_map == {"10.0.0.1:9100": "n10", "10.0.0.2:9100": "n2"} and identity.unnamed == ()


def test_a_label_that_two_targets_of_one_exporter_share_names_no_machine() -> None:
    series = [found("util", "dcgm", f"10.0.0.{number}:9400", rack="r1" if number < 3 else "r2") for number in (1, 2, 3)]
    identity = find_identity(series)
    assert identity is not None and identity.label == "instance" and len(identity.machines) == 3


def test_targets_of_which_nothing_tells_the_machine_are_said_so() -> None:
    identity = find_identity([*gpus(["n1", "n2"]), found("mem", "node", "pod-7:9100"), found("mem", "node", "pod-8:9100")])
    assert identity is not None
    assert identity.label == "instance" or identity.unnamed == ("pod-7:9100 of job node", "pod-8:9100 of job node")


def test_one_target_that_speaks_for_many_machines_is_not_guessed_at() -> None:
    pushed = [found("util", "gateway", "gw:9091", node=f"n{number}") for number in (1, 2, 3)]
    assert find_identity(pushed) is None or find_identity(pushed).label != "node"  # type: ignore[union-attr]
    assert find_identity([]) is None
