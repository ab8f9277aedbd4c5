"""How series reach the Prometheus: replicas, second scrapes, gateways, federation."""

from __future__ import annotations

from tests.doctor.exporters import dcgm, labelled, node
from tests.doctor.recorded import Target
from tests.doctor.situation import NAMES, WORK, each, full, site

# One scraper too many, or one too few.
for _label in ("thanos_replica", "__replica__", "prometheus", "receive", "replica_id"):
    site(
        f"every series twice, by replicas that differ in {_label}",
        *(
            target
            for value in ("k8s-0", "k8s-1")
            for target in (
                *each("dcgm", full, "10.1.0.{n}:9400", **{_label: value}),
                *each("node", node, "10.1.0.{n}:9100", **{_label: value}),
            )
        ),
        values=WORK,
    )
site(
    "a second scrape job asks the same exporters more often",
    *each("dcgm", full, "10.1.0.{n}:9400", every="60s"),
    *each("dcgm-fast", full, "10.1.0.{n}:9400", every="5s"),
    *each("node", node, "10.1.0.{n}:9100", every="15s"),
    values=WORK,
    says=("scraped every 15 s", "dcgm: asks exporters that"),
)
site(
    "an exporter for each half of a machine's GPUs",
    *each("dcgm", lambda name: dcgm(name, name, (0, 1)), "10.1.0.{n}:9400"),
    *each("dcgm", lambda name: dcgm(name, name, (2, 3)), "10.1.0.{n}:9401"),
    *each("node", node, "10.1.0.{n}:9100"),
    values=WORK,
)
site(
    "two exporters on each machine give the same GPUs",
    *each("dcgm", full, "10.1.0.{n}:9400"),
    *each("dcgm", full, "10.1.0.{n}:19400"),
    *each("node", node, "10.1.0.{n}:9100"),
    values=WORK,
    says=("each reading comes from several ports",),
)
site(
    "all hosts behind one push gateway, labels honoured",
    Target(
        "pushgateway",
        "".join(labelled(dcgm(name) + node(name) + "push_time_seconds 1.8e9\n", job="node", instance=name) for name in NAMES),
        {"instance": "gateway:9091"}, True,
    ),
    values=WORK,
)  # fmt: skip
site(
    "all hosts behind one push gateway, labels not honoured",
    Target(
        "pushgateway", "".join(labelled(dcgm(name) + node(name), job="node", instance=name) for name in NAMES), {"instance": "gateway:9091"}
    ),
    values=WORK,
)
site(
    "exported_instance for the GPUs, instance for the hosts",
    Target("federate", "".join(labelled(dcgm(name), job="dcgm", instance=f"{name}:9400") for name in NAMES), {"instance": "lower:9090"}),
    *each("node", node, "{m}:9100"),
    values=WORK,
)
site(
    "federated: only sums by cluster are left",
    Target(
        "federate",
        labelled("cluster:dcgm_gpu_utilization:avg 91\ncluster:gpu_power_watts:sum 4900\ncluster:gpu_util_percent:avg 91\n", cluster="a"),
        {"instance": "lower:9090"}, True,
    ),
    machines=(),
    families=None,
    says=("nothing names the machine",),
    fine=False,
)  # fmt: skip
site(
    "sums by cluster beside the machines' own series",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target("rules", 'cluster:gpu_sm_active:avg{cluster="a"} 0.7\ncluster:gpu_mem_copy_util_percent:avg{cluster="a"} 20\n', {}, True),
    values=WORK,
    absent=("gpu_sm_activity_ratio", "gpu_memory_bandwidth_ratio"),
)
