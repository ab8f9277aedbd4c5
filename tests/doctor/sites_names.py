"""Machines by their names: Kubernetes, spellings, addresses, clusters."""

from __future__ import annotations

from tests.doctor.exporters import dcgm, labelled, node, pods
from tests.doctor.recorded import Target
from tests.doctor.situation import GPU, NAMES, WORK, bare, each, full, site

# Kubernetes.
_old = [
    {"namespace": "gpu", "pod": f"dcgm-{n}", "node": name, "pod_ip": f"10.244.{n}.9", "host_ip": f"10.0.3.{n}", "uid": f"a{n}"}
    for n, name in enumerate(NAMES, start=1)
]
_churn = [*_old, {"namespace": "gpu", "pod": "train-7", "node": "gpu-4", "pod_ip": "10.244.1.9", "host_ip": "10.0.3.4", "uid": "b1"}]
site(
    "Kubernetes: Hostname is the pod, an address was another pod's before",
    *(
        Target("dcgm", dcgm(name, f"dcgm-{n}"), {"instance": f"10.244.{n}.9:9400", "namespace": "gpu", "pod": f"dcgm-{n}"})
        for n, name in enumerate(NAMES, start=1)
    ),
    *each("node-exporter", node, "10.0.3.{n}:9100", namespace="monitoring", pod="node-exporter-{n}"),
    Target("kube-state-metrics", pods(_churn), {"instance": "10.244.9.9:8080"}, True),
    values=WORK,
)
site(
    "Kubernetes: the exporter's pod was restarted a minute ago, and its old series have no stale marker",
    *each("dcgm", full, "10.244.{n}.9:9400", namespace="gpu", pod="dcgm-{n}"),
    Target("dcgm", dcgm("gpu-2", "gpu-2"), {"instance": "10.244.2.88:9400", "namespace": "gpu", "pod": "dcgm-old"}, age_s=100.0),
    *each("node-exporter", node, "10.0.3.{n}:9100", namespace="monitoring", pod="node-exporter-{n}"),
    values=WORK,
)
site(
    "Kubernetes: GPU series carry the pod and container that use them",
    *(
        Target(
            "dcgm", dcgm(name, name, more=f'pod="train-{n}",namespace="ml",container="main"'),
            {"instance": f"10.244.{n}.9:9400", "pod": f"dcgm-{n}", "namespace": "gpu", "container": "exporter"},
        )
        for n, name in enumerate(NAMES, start=1)
    ),
    *each("node-exporter", node, "10.0.3.{n}:9100", node="{m}"),
    values=WORK,
)  # fmt: skip

# Names.
site(
    "names in upper case against lower case",
    *each("dcgm", lambda name: dcgm(name, name.upper()), "10.1.0.{n}:9400"),
    *each("node", node, "10.2.0.{n}:9100"),
    machines=tuple(name.upper() for name in NAMES),
    values=WORK,
)
site(
    "FQDN in mixed case against short names",
    *each("dcgm", lambda name: dcgm(name, f"{name.upper()}.Cluster.Local"), "10.1.0.{n}:9400"),
    *each("node", node, "10.2.0.{n}:9100"),
    machines=tuple(name.upper() for name in NAMES),
    values=WORK,
)
site(
    "IPv6 addresses, in brackets and with ports",
    *each("dcgm", bare, "[fd00::{n}]:9400"),
    *each("node", lambda name: node(name, uname=False), "[fd00::{n}]:9100"),
    machines=tuple(f"fd00::{n}" for n in (1, 2, 3, 4)),
    values=WORK,
)
site(
    "IPv6 addresses without brackets as a label",
    *each("dcgm", bare, "fd00::{n}"),
    *each("node", lambda name: node(name, uname=False), "fd00::{n}"),
    machines=tuple(f"fd00::{n}" for n in (1, 2, 3, 4)),
    values=WORK,
)
site(
    "one address for all machines, ports differ: Hostname and nodename",
    *each("dcgm", full, "203.0.113.5:940{n}"),
    *each("node", node, "203.0.113.5:910{n}"),
    values=WORK,
)
site(
    "one address for all machines, ports differ, and no name of a GPU's machine",
    *each("dcgm", bare, "203.0.113.5:940{n}"),
    *each("node", node, "203.0.113.5:910{n}"),
    families=frozenset({"host", "network"}),
    says=("dcgm: nothing joins",),
    fine=False,
)
site(
    "names with quotes and letters of other scripts",
    *(
        Target("dcgm", dcgm("x").replace('gpu="', f'host="{name}",gpu="'), {"instance": f"10.1.0.{n}:9400"})
        for n, name in enumerate(("knoten-ä", "узел-2", '计算\\"3', "r\\\\4"), start=1)
    ),
    machines=("r\\4", "knoten-ä", "узел-2", '计算"3'),
    families=GPU,
    values=WORK,
)
site(
    "two clusters whose machines have the same names",
    *(
        target
        for cluster, net in (("a", 1), ("b", 2))
        for target in (
            *each("dcgm", lambda name, c=cluster: dcgm(c + name, name), f"10.{net}.0.{{n}}:9400", cluster=cluster),
            *each("node", node, f"10.{net}.0.{{n}}:9100", cluster=cluster),
        )
    ),
    machines=(),
    families=None,
    says=('cluster="a"', "--selector"),
    fine=False,
)
site(
    "two clusters whose machines have the same names, one of them selected",
    *(
        target
        for cluster, net in (("a", 1), ("b", 2))
        for target in (
            *each("dcgm", lambda name, c=cluster: dcgm(c + name, name), f"10.{net}.0.{{n}}:9400", cluster=cluster),
            *each("node", node, f"10.{net}.0.{{n}}:9100", cluster=cluster),
        )
    ),
    selector='cluster="b"',
    values=WORK,
)
site(
    "two clusters with the same names and the same addresses",
    *(
        target
        for cluster in ("a", "b")
        for target in (
            *each("dcgm", lambda name, c=cluster: dcgm(c + name, name), "10.1.0.{n}:9400", cluster=cluster),
            *each("node", node, "10.1.0.{n}:9100", cluster=cluster),
        )
    ),
    machines=(),
    families=None,
    says=('cluster="a"', "--selector"),
    fine=False,
)
for _more, _label in (({}, "cluster"), ({"env": "prod"}, "dc")):
    site(
        f"two clusters whose machines have names of their own, by {_label}",
        *each("dcgm", full, "{m}:9400", names=("a-1", "a-2"), **{_label: "a"}, **_more),
        *each("dcgm", full, "{m}:9400", names=("b-1", "b-2"), **{_label: "b"}, **_more),
        machines=("a-1", "a-2", "b-1", "b-2"),
        families=GPU,
        values=WORK,
        says=(f'{_label}="a" (2 machines)',),
    )
site(
    "half of the machines say Hostname, half hostname, as exporters of two versions do",
    *each("dcgm", full, "10.1.0.{n}:9400", names=("gpu-1", "gpu-2")),
    *each("dcgm", lambda name: full(name).replace("Hostname", "hostname"), "10.1.1.{n}:9400", names=("gpu-3", "gpu-4")),
    *each("node", node, "10.2.0.{n}:9100"),
    values=WORK,
)
site(
    "series without a job, of which each exporter names the machine by a label of its own",
    Target(
        "",
        "".join(labelled(dcgm(name), gpu_host=name) + labelled(node(name, uname=False), host=name) for name in NAMES).replace(
            "gpu_host", "Hostname"
        ),
        {},
        True,
    ),
    values=WORK,
)
site(
    "machines of one disk image, all of which call themselves ubuntu",
    *each("dcgm", lambda name: dcgm(name, "ubuntu"), "10.1.0.{n}:9400"),
    *each("node", lambda name: node("ubuntu"), "10.1.0.{n}:9100"),
    machines=tuple(f"10.1.0.{n}" for n in (1, 2, 3, 4)),
    values=WORK,
)
_IDS = {name: f"3f2a9c8b1d7{number}" for number, name in enumerate(NAMES)}
site(
    "Hostname is a container's id",
    *each("dcgm", lambda name: dcgm(name, _IDS[name]), "{m}:9400"),
    families=GPU,
    values=WORK,
)
site(
    "Hostname is a container's id, and node_exporter knows the host",
    *each("dcgm", lambda name: dcgm(name, _IDS[name]), "10.1.0.{n}:9400"),
    *each("node", node, "10.1.0.{n}:9100"),
    values=WORK,
)
site(
    "names that end in a dot, as a name server writes them",
    *each("dcgm", lambda name: dcgm(name, f"{name}.cluster.local."), "10.1.0.{n}:9400"),
    *each("node", node, "10.2.0.{n}:9100"),
    values=WORK,
)
site(
    "the host's network: exporter's pods share the node's address with others",
    *each("dcgm", bare, "10.0.3.{n}:9400", namespace="gpu", pod="dcgm-{n}"),
    *each("node", lambda name: node(name, uname=False), "10.0.3.{n}:9100", namespace="mon", pod="node-exporter-{n}"),
    Target(
        "ksm",
        pods(
            [
                {"namespace": space, "pod": f"{pod}-{n}", "node": name, "pod_ip": f"10.0.3.{n}", "host_ip": f"10.0.3.{n}"}
                for n, name in enumerate(NAMES, start=1)
                for space, pod in (("gpu", "dcgm"), ("mon", "node-exporter"), ("kube-system", "proxy"))
            ]
        ),
        {"instance": "10.9.9.9:8080"},
        True,
    ),
    values=WORK,
)
site(
    "instance is a management name, the host calls itself otherwise",
    *each("dcgm", bare, "mgmt-{n}:9400"),
    *each("node", node, "mgmt-{n}:9100"),
    values=WORK,
)
site(
    "an address for a name in EKS: the GPU exporter says the node's private name, node_exporter its address",
    *each("dcgm", lambda name: dcgm(name, f"ip-10-0-1-{name[-1]}.ec2.internal"), "10.244.0.{n}:9400", namespace="gpu", pod="dcgm-{n}"),
    *each("node", lambda name: node(f"ip-10-0-1-{name[-1]}.ec2.internal"), "10.0.1.{n}:9100", namespace="mon", pod="ne-{n}"),
    machines=tuple(f"ip-10-0-1-{n}.ec2.internal" for n in (1, 2, 3, 4)),
    values=WORK,
)
site(
    "nodes that are known to kube_node_info by their internal address only",
    *each("dcgm", bare, "10.0.3.{n}:9400"),
    *each("node", lambda name: node(name, uname=False), "10.0.3.{n}:9100"),
    Target(
        "ksm",
        "".join(f'kube_node_info{{node="{name}",internal_ip="10.0.3.{n}"}} 1\n' for n, name in enumerate(NAMES, start=1)),
        {"instance": "10.9.9.9:8080"},
        True,
    ),
    values=WORK,
)
site(
    "three labels for a host that agree, and one that is the rack's",
    *each("dcgm", full, "{m}:9400", node="{m}", nodename="{m}", host="rack-1"),
    *each("node", node, "{m}:9100", node="{m}", nodename="{m}", host="rack-1"),
    values=WORK,
)
site(
    "a label that means the machine on one exporter and the cluster on another",
    *each("dcgm", bare, "10.1.0.{n}:9400", node="{m}"),
    *each("node", node, "10.2.0.{n}:9100", node="prod"),
    values=WORK,
)
site(
    "one machine with eight GPUs",
    *each("dcgm", lambda name: dcgm(name, name, range(8)), "{m}:9400", names=("solo",)),
    *each("node", node, "{m}:9100", names=("solo",)),
    machines=("solo",),
    says=("no peers to compare with",),
    values=WORK,
)
site(
    "machines numbered without leading zeros, one label in upper case with spaces around it",
    *each("dcgm", lambda name: dcgm(name, name), "10.1.0.{n}:9400", names=("n1", "n2", "n10")),
    *each("node", node, "10.2.0.{n}:9100", names=("n1", "n2", "n10")),
    machines=("n1", "n2", "n10"),
    values=WORK,
)
