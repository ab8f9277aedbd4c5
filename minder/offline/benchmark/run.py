"""An entry's program over all inputs, each answer written down when it comes, so that a run that is cut off goes on where it ended.

OUT/inputs-<version>-<seed>/          inputs and truths, shared by all entries
OUT/entry-<name>-<hash>/answers.jsonl one line per input
OUT/entry-<name>-<hash>/result.json   the end: figures and every input
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError
from minder.offline.benchmark.answers import Answer, Said
from minder.offline.benchmark.card import TIMED, Card
from minder.offline.benchmark.cut import cut_recording
from minder.offline.benchmark.inputs import GENERATED, judging_orders, orders_of, prepare, whole_parts
from minder.offline.benchmark.judging import Row, judge
from minder.offline.benchmark.program import Program
from minder.offline.benchmark.right import Right
from minder.offline.benchmark.seeds import Secret
from minder.offline.benchmark.table import figures, read_rows
from minder.offline.evaluation.report import finite

__all__ = ["OWN", "Result", "default_parts", "read_result", "run_benchmark"]

OWN = Program((sys.executable, "-m", "minder.offline.benchmark.own"), "minder default")
OnProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """document: what result.json holds. problems: one line per input that was not answered, or whose verdict looked ahead."""

    rows: tuple[Row, ...]
    document: dict[str, Any]
    problems: tuple[str, ...]
    file: Path


def default_parts(secret: Secret | None) -> list[str]:
    """All parts that can be had here; of a judging part those that its seed makes."""
    return whole_parts() if secret is None else list(GENERATED)


def run_benchmark(
    card: Card,
    program: Program,
    parts: Sequence[str],
    out: Path,
    jobs: int = 1,
    secret: Secret | None = None,
    on_progress: OnProgress = lambda line: None,
) -> Result:
    """One entry over these parts. secret: of the judging part, else the development part. on_progress: gets a line.

    Raises BadInputError for a part that there is not, or that a judging part does not have, and where `out` cannot be written.
    """
    seed = secret.seed if secret is not None else card.development_seed
    kept = [part for part in parts if part not in GENERATED]
    if secret is not None and kept:
        raise BadInputError(f'part "{kept[0]}" is public: a judging part has {", ".join(GENERATED)}')
    orders = orders_of(card, parts, seed) if secret is None else judging_orders(card, parts, seed)
    mark = hashlib.sha256(seed.encode()).hexdigest()[:8]
    place = out / f"inputs-{card.version}-{mark}"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--out {out} cannot be written: {error.strerror}: name another folder") from error
    on_progress(f"making {len(orders)} inputs in {place}")
    rights = prepare(orders, place, jobs, lambda done, of: on_progress(f"{done} of {of} inputs made"))
    entry = _Entry(card, program, place, _folder(out, program, mark))
    rows = entry.run(rights, jobs, on_progress)
    document = {
        "benchmark": card.version, "part": "judging" if secret is not None else "development", "seed": mark, "program": program.name,
        "parts": list(parts), "figures": figures(rows), "inputs": [asdict(row) for row in rows],
    }  # fmt: skip
    document = finite(document)
    file = entry.finish(document)
    problems = tuple(f"{row.judged.recording}: {row.problem}" for row in rows if row.problem is not None)
    return Result(tuple(rows), document, problems, file)


def read_result(file: Path, version: str) -> list[Row]:
    """The inputs of an entry's result.json. Raises BadInputError for one that is none, or is of another version."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        found, rows = document["benchmark"], read_rows(document["inputs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{file} is no result of the benchmark ({error}): give an entry's result.json") from error
    if found != version:
        raise BadInputError(f"{file} is of version {found}, the benchmark here is {version}: figures of two versions are not compared")
    return rows


def _folder(out: Path, program: Program, mark: str) -> Path:
    """Of a command and of the files that it names, as they are now: a program that was changed begins anew."""
    digest = hashlib.sha256(f"{mark}\n".encode())
    for word in program.words:
        digest.update(f"{word}\n".encode())
        if Path(word).is_file():  # a compiled program has no suffix, and is changed as any other
            digest.update(Path(word).read_bytes())
    slug = re.sub(r"[^a-z0-9]+", "-", Path(program.words[-1]).stem.lower() if program is not OWN else "minder").strip("-")[:24]
    return out / f"entry-{slug or 'program'}-{digest.hexdigest()[:8]}"


@dataclass(slots=True)
class _Entry:
    """One program over the inputs. folder: where its answers stand."""

    card: Card
    program: Program
    inputs: Path
    folder: Path

    def run(self, rights: Sequence[Right], jobs: int, on_progress: OnProgress) -> list[Row]:
        """Answers of an unfinished run count; of a finished one they do not: it begins anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "answers.jsonl"
        if (self.folder / "result.json").exists():
            file.unlink(missing_ok=True)
            (self.folder / "result.json").unlink()
        known = _read_answers(file)
        missing = [right for right in rights if right.input not in known]
        spent_s = sum(answer.seconds for answer, _ in known.values())
        with ThreadPoolExecutor(jobs) as pool, file.open("a", encoding="utf-8") as log:
            for right, (answer, ahead) in zip(missing, pool.map(self._answer(spent_s), missing), strict=True):
                known[right.input] = (answer, ahead)
                log.write(_line(right.input, answer, ahead))
                log.flush()
                on_progress(f"{sum(each.input in known for each in rights)} of {len(rights)} answered")
        return [judge(right, *known[right.input]) for right in rights]

    def finish(self, document: dict[str, Any]) -> Path:
        file = self.folder / "result.json"
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return file

    def _answer(self, spent_s: float) -> Callable[[Right], tuple[Answer, bool]]:
        """Asks for one input, within what is left of all inputs' time."""
        left = [self.card.budget_s - spent_s]

        def ask(right: Right) -> tuple[Answer, bool]:
            if left[0] <= 0:
                return Answer((), f"the time for all inputs ({self.card.budget_s:g} s) was over"), False
            answer = self.program.answer(self.inputs / "inputs" / right.input, right.part, min(self.card.limit_s, left[0]))
            left[0] -= answer.seconds
            return answer, self._looks_ahead(right, answer)

        return ask

    def _looks_ahead(self, right: Right, answer: Answer) -> bool:
        """Whether its accusation fails to come again from the recording as it was known at its time. Asked of some recordings."""
        if right.part not in TIMED or not answer.accusations or not _is_checked(right.input, self.card.check_cut):
            return False
        first = answer.accusations[0]
        with tempfile.TemporaryDirectory(prefix="minder-benchmark-") as scratch:
            copy = Path(scratch) / right.input
            cut_recording(self.inputs / "inputs" / right.input, copy, first.time_s)
            again = self.program.answer(copy, right.part, self.card.limit_s)
        return not any(item.names == first.names and item.time_s <= first.time_s + 1e-3 for item in again.accusations)


def _is_checked(name: str, one_in: int) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % one_in == 0


def _line(name: str, answer: Answer, ahead: bool) -> str:
    said = [[list(item.names), item.word, None if math.isnan(item.time_s) else item.time_s] for item in answer.said]
    return json.dumps({"input": name, "said": said, "problem": answer.problem, "seconds": round(answer.seconds, 3), "ahead": ahead}) + "\n"


def _read_answers(file: Path) -> dict[str, tuple[Answer, bool]]:
    """Input to its answer, and whether it looked ahead. A last line that was cut off is left out."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            item = json.loads(line)
        except ValueError:
            continue
        said = tuple(Said(tuple(names), word, math.nan if time_s is None else time_s) for names, word, time_s in item["said"])
        found[item["input"]] = (Answer(said, item["problem"], item["seconds"]), bool(item["ahead"]))
    return found
