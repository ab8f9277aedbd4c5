"""What names the machine: where two readings are possible, the one that can be wrong is not taken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minder.doctor.identity import Identity, find_identity
from minder.doctor.series import Found

METRICS = {
    "minder_memory_usage_ratio": "memory_usage_ratio",
    "util": "gpu_duty_cycle_ratio",
    "mem": "memory_usage_ratio",
    "net": "tcp_throughput_bytes_per_second",
}


def found(name: str, job: str, instance: str, **labels: str) -> Found:
    return Found(name, {key: value for key, value in {"job": job, "instance": instance, **labels}.items() if value}, 1.0, 0.0)


def gpus(machines: Sequence[str], **more: str) -> list[Found]:
    return [
        found("util", "dcgm", f"10.0.0.{number}:9400", gpu=str(gpu), Hostname=name, **more)
        for number, name in enumerate(machines, start=1)
        for gpu in range(2)
    ]


def hosts(count: int, **labels: str) -> list[Found]:
    """{} in a label's value becomes the machine's number."""
    return [
        found("mem", "node", f"10.9.0.{number}:9100", **{name: value.format(number) for name, value in labels.items()})
        for number in range(1, count + 1)
    ]


def unames(count: int, nodename: str) -> list[Found]:
    return [found("node_uname_info", "node", f"10.9.0.{number}:9100", nodename=nodename.format(number)) for number in range(1, count + 1)]


def identify(series: Sequence[Found], infos: Sequence[Found] = ()) -> Identity:
    identity = find_identity(series, infos, METRICS)
    assert identity is not None
    return identity


def test_a_label_of_all_exporters_is_taken_before_an_address() -> None:
    identity = identify([*gpus(["n1", "n2", "n3"], cluster="a"), *hosts(3, Hostname="n{}")])
    assert (identity.labels, identity.machines, identity.joins) == (("Hostname",), ("n1", "n2", "n3"), ())
    assert set(identity.families.values()) == {frozenset({"gpu", "host"})}


def test_labels_of_different_names_are_joined_by_their_values() -> None:
    identity = identify([*gpus(["n1", "n2"]), *hosts(2, kubernetes_node="n{}")])
    assert set(identity.labels) == {"Hostname", "kubernetes_node"} and identity.machines == ("n1", "n2") and not identity.left_out


def test_an_address_finds_its_name_in_a_metric_that_knows_both() -> None:
    identity = identify([*gpus(["n1", "n2"]), *hosts(2)], unames(2, "n{}"))
    assert identity.labels == ("Hostname",) and [join.series for join in identity.joins] == ["node_uname_info"]


def test_targets_of_one_address_are_joined_by_what_the_scrape_of_one_is_called() -> None:
    ups = [found("up", "dcgm", f"10.9.0.{number}:9400", srv=f"n{number}") for number in (1, 2)]
    series = [found("util", "dcgm", f"10.9.0.{number}:9400", gpu="0", srv=f"n{number}") for number in (1, 2)]
    identity = identify([*series, *hosts(2)], ups)
    assert identity.labels == ("srv",) and identity.joins[0].series == "up" and identity.machines == ("n1", "n2")


@pytest.mark.parametrize("which", ["gpus", "hosts"])
def test_a_name_with_its_domain_is_the_short_one_s_machine(which: str) -> None:
    long = "n{}.cluster.local"
    series = gpus([long.format(1), long.format(2)] if which == "gpus" else ["n1", "n2"])
    identity = identify([*series, *hosts(2)], unames(2, "n{}" if which == "gpus" else long))
    assert identity.short_names and identity.machines == ("n1", "n2") and not identity.left_out


def test_a_name_that_is_the_pods_is_not_taken() -> None:
    series = [
        found("util", "dcgm", f"10.244.0.{n}:9400", gpu="0", Hostname=f"dcgm-x{n}", pod=f"dcgm-x{n}", namespace="gpu") for n in (1, 2)
    ]
    infos = [found("kube_pod_info", "ksm", "10.1.1.1:8080", namespace="gpu", pod=f"dcgm-x{n}", node=f"n{n}") for n in (1, 2)]
    identity = identify(series, infos)
    assert identity.machines == ("n1", "n2") and identity.labels == () and identity.joins[0].take == "node"


def test_one_collector_in_front_of_all_hosts_speaks_for_many_machines() -> None:
    pushed = [found("util", "otel", "collector:8889", host_name=f"n{n}", gpu=str(gpu)) for n in (1, 2, 3) for gpu in (0, 1)]
    assert identify(pushed).labels == ("host_name",) and identify(pushed).machines == ("n1", "n2", "n3")


def test_scrapers_that_all_report_localhost_are_distinguished_by_another_label() -> None:
    series = [found("util", "dcgm", "localhost:9400", gpu=str(gpu), agent_hostname=f"n{n}", cluster="a") for n in (1, 2) for gpu in (0, 1)]
    assert identify(series).labels == ("agent_hostname",)
    assert find_identity([found("util", "dcgm", "localhost:9400", gpu="0", cluster="a")], [], METRICS) is None


@pytest.mark.parametrize("label", ["rack", "cluster", "node"])
def test_a_label_that_two_targets_of_one_exporter_share_names_no_machine(label: str) -> None:
    series = [found("util", "dcgm", f"10.0.0.{number}:9400", **{label: "r1" if number < 3 else "r2"}) for number in (1, 2, 3)]
    assert identify(series).labels == ("instance",) and len(identify(series).machines) == 3


def test_an_exporter_that_nothing_joins_takes_no_part_and_is_named() -> None:
    identity = identify([*gpus(["n1", "n2"]), *hosts(2)])
    assert identity.left_out == ("node",) and identity.machines == ("n1", "n2") and set(identity.families["n1"]) == {"gpu"}


def test_hosts_without_gpus_are_no_machines_of_the_job() -> None:
    identity = identify([*gpus(["n1", "n2"]), *hosts(4, Hostname="n{}")])
    assert identity.machines == ("n1", "n2") and identity.others == ("n3", "n4")


def test_a_machine_with_an_agent_is_one_of_the_jobs_without_a_gpu_exporter_too() -> None:
    agents = [found("minder_memory_usage_ratio", "minder-agent", f"10.9.0.{number}:9401", Hostname=f"n{number}") for number in (1, 2, 3)]
    identity = identify([*gpus(["n1", "n2"]), *agents, *hosts(4, Hostname="n{}")])
    assert identity.machines == ("n1", "n2", "n3") and identity.others == ("n4",)


def test_two_pools_of_one_kind_are_both_taken() -> None:
    second = [found("util", "dcgm-b", f"10.0.1.{n}:9400", gpu="0", Hostname=f"m{n}") for n in (1, 2)]
    assert identify([*gpus(["n1", "n2"]), *second]).machines == ("m1", "m2", "n1", "n2")


def test_a_second_scrape_of_the_same_exporters_is_named() -> None:
    again = [found("util", "pods", f"10.0.0.{n}:9400", gpu="0", Hostname=f"n{n}") for n in (1, 2)]
    assert identify([*gpus(["n1", "n2"]), *again]).twice == ("pods",)


def test_without_series_there_is_no_identity() -> None:
    assert find_identity([], [], METRICS) is None
