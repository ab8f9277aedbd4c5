"""The entry of docs/benchmark.md works to the letter, and the others answer in the benchmark's words."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from minder.offline.benchmark.card import PARTS, TIMED, benchmark_folder
from minder.offline.benchmark.program import Program

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = benchmark_folder() / "sample" / "inputs"
ENTRIES = benchmark_folder() / "entries"


def test_the_program_of_the_page_answers(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/benchmark.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block == (ENTRIES / "first.py").read_text(encoding="utf-8")
    (tmp_path / "my.py").write_text(block, encoding="utf-8")
    program = Program((sys.executable, str(tmp_path / "my.py")), "my.py")
    answers = {name: program.answer(SAMPLE / name, name.partition("-")[0], 60.0) for name in ("telemetry-9399eb70", "stacks-13")}
    assert [answer.problem for answer in answers.values()] == [None, None]
    assert answers["stacks-13"].word == "unknown"


@pytest.mark.parametrize("name", ["launch_counts.py"])
def test_an_entry_names_the_rank_of_the_sample(name: str) -> None:
    answer = Program((sys.executable, str(ENTRIES / name)), name).answer(SAMPLE / "dumps-08", "dumps", 60.0)
    assert [item.names for item in answer.accusations] == [(2,)]


def test_the_results_say_of_each_entry_and_part_what_came_of_it_or_why_there_is_nothing(script: ModuleType) -> None:
    text = (benchmark_folder() / "RESULTS.md").read_text(encoding="utf-8")
    sections = dict(section.split("\n", 1) for section in text.split("\n## ")[1:])
    assert set(sections) == set(PARTS)
    for part, section in sections.items():
        without = re.findall(r"^(?:Not run on this part|Not made for it): .*", section, re.MULTILINE)
        for name, (_, parts) in script.ENTRIES.items():
            row = f"| {name} |" in section
            assert row is not any(name in line for line in without), (part, name)
            assert not row or part in parts


@pytest.mark.release
@pytest.mark.package
def test_pyod_answers_a_recording() -> None:
    pytest.importorskip("pyod")
    program = Program((sys.executable, str(ENTRIES / "pyod_detector.py"), "ecod"), "PyOD")
    answer = program.answer(SAMPLE / "telemetry-9399eb70", TIMED[0], 60.0)
    assert answer.problem is None and answer.said
