"""A copy that follows the watch is what a list would be, and what has expired is read anew."""

from __future__ import annotations

from typing import Any

import pytest

from minder.act.actuators.kubernetes.mirror import Mirror, list_all
from minder.act.actuators.kubernetes.records import NodeRecord, read_node
from minder.model.errors import EngineUnavailableError

NODES = "/api/v1/nodes"


def names(mirror: Mirror[NodeRecord]) -> list[str]:
    return sorted(node.name for node in mirror.records())


def test_changes_are_taken_without_another_list(cluster: Any) -> None:
    mirror = Mirror(cluster.api, NODES, read_node, {})
    assert names(mirror) == ["n1", "n2", "n3", "n4", "n5"]
    cluster.api.calls.clear()
    cluster.api.remove(NODES, "n2")
    cluster.site.add_node("n6", "serial-6")
    cluster.by_hand("n3", {"unschedulable": True})
    cluster.api.calls.clear()
    assert names(mirror) == ["n1", "n3", "n4", "n5", "n6"]
    assert [node.unschedulable for node in mirror.records() if node.name == "n3"] == [True]
    assert {method for method, _ in cluster.api.calls} == {"WATCH"}


def test_what_leaves_the_selection_leaves_the_copy(cluster: Any) -> None:
    mirror = Mirror(cluster.api, NODES, read_node, {"labelSelector": "nvidia.com/gpu.product=H100"})
    assert len(names(mirror)) == 5
    cluster.site.add_node("n5", "serial-5", {"nvidia.com/gpu.product": "A100"})
    assert names(mirror) == ["n1", "n2", "n3", "n4"]


def test_an_expired_watch_is_read_anew_and_silence_gives_nothing_old_out(cluster: Any) -> None:
    mirror = Mirror(cluster.api, NODES, read_node, {})
    names(mirror)
    cluster.api.remove(NODES, "n1")
    cluster.api.forget()
    assert names(mirror) == ["n2", "n3", "n4", "n5"]
    cluster.api.silent = 1
    with pytest.raises(EngineUnavailableError):
        mirror.records()


def test_pages_that_expire_half_way_are_begun_again(cluster: Any) -> None:
    ask = cluster.api.call
    turns: list[str] = []

    class Slow:
        """The second page comes too late, once."""

        def call(self, method: str, path: str, body: Any = None, query: Any = None) -> Any:
            if "continue" in query and not turns:
                turns.append(path)
                cluster.api.forget()
            return ask(method, path, body, query)

        watch = None

    items, _ = list_all(Slow(), NODES, {})  # type: ignore[arg-type]
    assert len(items) == 5 and turns


@pytest.mark.parametrize("said", [{}, {"items": []}, {"items": [{}], "metadata": {"resourceVersion": "1"}}])
def test_an_odd_answer_is_no_empty_cluster(said: dict[str, Any]) -> None:
    class Odd:
        def call(self, *unused: object) -> dict[str, Any]:
            return said

    with pytest.raises(EngineUnavailableError, match="cannot be read"):
        Mirror(Odd(), NODES, read_node, {}).records()  # type: ignore[arg-type]
