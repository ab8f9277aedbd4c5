"""NVIDIA's own diagnostic of level 1 (deployment and memory checks), where `dcgmi` is installed: `dcgmi diag -r 1 -j`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure", "read_report"]

PROBE = Probe(
    name="dcgm",
    version=1,
    says="dcgmi diag -r 1, where it is installed",
    limit_s=180.0,
    needs=("gpu",),
    measures={"dcgm_tests": "tests that were run", "dcgm_failed": "of them failed", "dcgm_warned": "of them with a warning"},
    source="NVIDIA DCGM diagnostics; ByteRobust's first rung",
    changes=("gpu",),  # a diagnostic is known to have left clocks unlocked (ByteRobust, section 10)
)


def measure(options: Mapping[str, Any], command: str = "dcgmi") -> Finding:
    """options: limit_s, of which dcgmi itself gets most."""
    found = shutil.which(command)
    if found is None:
        return Finding("not_applicable", "dcgmi is not installed")
    limit_s = max(1.0, float(options.get("limit_s", PROBE.limit_s)) - 5.0)
    ended = subprocess.run([found, "diag", "-r", "1", "-j"], capture_output=True, text=True, timeout=limit_s, check=False)
    return read_report(ended.stdout, ended.stderr)


def read_report(text: str, error: str = "") -> Finding:
    """Of any version: its categories stand below one key, whatever that is called. What is no report ends the probe (ValueError)."""
    data = json.loads(text[text.find("{") : text.rfind("}") + 1] or "null")
    report = next((item for item in data.values() if isinstance(item, dict) and "test_categories" in item), None) if data else None
    if report is None:
        last = (error.strip() or text.strip()).splitlines()
        raise ValueError(f"dcgmi wrote no report: {last[-1] if last else 'it said nothing'}")
    rows = list(_rows(report))
    failed = [f"{name}{where}: {why}" for name, where, status, why in rows if status == "fail"]
    warned = [name for name, _, status, _ in rows if status == "warn"]
    run_ = [row for row in rows if row[2] in ("pass", "fail", "warn")]
    if not run_:
        return Finding("not_applicable", "dcgmi skipped every test")
    counts = (("dcgm_tests", len(run_)), ("dcgm_failed", len(failed)), ("dcgm_warned", len(warned)))
    measures = tuple(Measurement(name, float(count), "tests") for name, count in counts)
    facts = {"dcgm": str(report.get("version") or "?"), "driver": str(report.get("Driver Version Detected") or "?")}
    return Finding("failed" if failed else "measured", "; ".join(failed)[:600], measures, facts)


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """(test, " gpu 3" or "", status in lower case, what was said) of each result."""
    for category in report["test_categories"]:
        for test in category.get("tests") or ():
            for result in test.get("results") or ():
                gpus = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id")))
                where = f" gpu {gpus}" if gpus not in (None, "") else ""
                yield str(test.get("name")), where, str(result.get("status")).lower(), _said(result)


def _said(result: Mapping[str, Any]) -> str:
    """Warnings are a text, a list of texts, or a list of objects with one."""
    warnings = result.get("warnings") or result.get("info") or "failed"
    parts = warnings if isinstance(warnings, list) else [warnings]
    return ", ".join(str(part.get("warning", part) if isinstance(part, dict) else part) for part in parts)


if __name__ == "__main__":
    run(PROBE, measure)
