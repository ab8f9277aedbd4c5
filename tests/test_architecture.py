"""The house rules of CONTRIBUTING.md that a linter does not know: wings, names, purity, broad excepts, documents."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
VENDORED = ROOT / "serve" / "static" / "vendor"

# Where a broad except may stand, and what becomes of the error it catches. Anything that re-raises needs no entry.
BROAD_EXCEPTS = {
    "minder/edge/agent/sampling.py::_guarded": "one broken exporter must not silence the others: counted, logged",
    "minder/cli/__init__.py::main": "usage errors become one line; everything else is raised again",
    "minder/act/controller/stages.py::run": "a stage that fails must not stop the others: counted, logged, written to the ledger",
    "minder/diagnose/verdicts/judge.py::_ask": "one rule must not silence the others: handed out with its traceback, its episodes last",
    "minder/diagnose/verdicts/judge.py::_weighed": "as above, of a rule that weighs: what the others say stays as it is",
    "minder/edge/data/recipe.py::__getitem__": "what the dataset raises in a loader process is raised in the training process",
    "minder/edge/checkpoint/recovering.py::_settle": "what the thread that fetches raises is raised in the training thread",
    "minder/edge/worker/barrier.py::attempt": "whatever the script's main raises is reported to the launcher",
    "minder/edge/worker/bootstrap.py::_run_script": "the script's own failure is printed, reported, and ends the process",
    "minder/edge/worker/control.py::_serve": "the thread that brings the interrupt outlives a bad message: counted, printed",
    "minder/edge/worker/pulse.py::heartbeat": "a heartbeat cannot end a training step: counted",
    "minder/edge/worker/tracer.py::now": "the device's error is the training loop's to see: counted",
    "minder/edge/worker/teardown.py::_destroy_groups": "an aborted process group may complain while it goes: printed, looked at afterwards",
    "serve/scoring/worker.py::_answer": "what nobody foresaw in a stranger's upload is refused, and its traceback is logged",
}

PURE_ROOMS = ("ingest/windows", "diagnose/detectors", "diagnose/diagnostics", "diagnose/job_mode", "diagnose/verdicts", "act/policy")
IMPURE_MODULES = {
    "asyncio",
    "httpx",
    "os",
    "pathlib",
    "random",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
}
IMPURE_CALLS = {"open", "input", "print", "now", "utcnow", "today"}
LOOKED_FOR = (ast.Call, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)
FORBIDDEN_STEMS = {"utils", "util", "helpers", "helper", "common", "misc"}
FORBIDDEN_CLASS_ENDINGS = ("Manager", "Handler", "Processor")


@functools.cache
def tracked_files() -> tuple[Path, ...]:
    """Files of the project: git's list, and new files that git would not ignore; every file where this is no checkout."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not any(part.startswith(".venv") for part in path.parts)]
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(*folders: str) -> tuple[Path, ...]:
    return tuple(path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders)


@functools.cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """What the rules look for among the nodes of a file: walking its tree again for each of them takes longer than parsing it."""
    return tuple(node for node in ast.walk(syntax_tree(path)) if isinstance(node, LOOKED_FOR))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(path) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def place(path: Path, node: ast.AST | None = None) -> str:
    return str(path.relative_to(ROOT)) + (f":{node.lineno}" if isinstance(node, (ast.stmt, ast.expr, ast.excepthandler)) else "")


def imported_modules(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, node.module or ""


# Names


def test_no_file_has_a_name_that_says_nothing() -> None:
    found = [
        place(path)
        for path in python_files("minder", "serve", "tests", "bench")
        if FORBIDDEN_STEMS & {*path.relative_to(ROOT).parts, path.stem}
    ]
    assert found == []


def test_no_class_has_a_name_that_says_nothing() -> None:
    found = [
        f"{place(path, node)} {node.name}"
        for path in python_files("minder", "serve")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and node.name.endswith(FORBIDDEN_CLASS_ENDINGS)
    ]
    assert found == []


DIALECT = re.compile(r"\b(?:told|tells|nobody|somebody)\b", re.IGNORECASE)
# The record of the decision, which counts the words.
MAY_SAY = {"docs/adr/0019-wings.md"}


def test_what_readers_see_is_in_plain_words() -> None:
    """The words that ADR 19 counts do not come back."""
    roots, endings = {"minder", "serve", "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md"}, {".py", ".md", ".html", ".toml"}
    paths = [path for path in tracked_files() if path.relative_to(ROOT).parts[0] in roots and path.suffix in endings]
    found = {place(path) for path in paths if DIALECT.search(path.read_text(encoding="utf-8"))}
    assert found == MAY_SAY


def test_folders_beside_the_package_are_no_packages() -> None:
    """A package named `datasets` or `tests` would shadow another project's."""
    parts = [path.relative_to(ROOT).parts for path in tracked_files() if path.name == "__init__.py"]
    found = [
        part for part in parts if part[0] not in ("minder", "serve") and (len(part) == 2 or part[0] in ("datasets", "models", "notebooks"))
    ]
    assert found == []


def test_public_names() -> None:
    import minder

    assert set(minder.__all__) == {
        "Checkpointer", "DataLoader", "__version__", "heartbeat", "keep_dumps", "phase", "replay", "run", "skipped_batches", "trace_step",
    }  # fmt: skip
    assert all(hasattr(minder, name) for name in minder.__all__)


# What the job is doing has one owner

TRACKED = {"Activity", "CommonLevel", "DeclaredPhases", "Halt", "IdlePhases", "Outage", "Pace", "Silence", "SlowSpell", "StepClock"}
MAKE_TRACKERS = {"minder/app/build.py", "minder/offline/evaluation/replay.py", "minder/offline/evaluation/sighted.py"}


def test_no_rule_follows_the_job_by_itself() -> None:
    made = [
        (str(path.relative_to(ROOT)), node.func.id)
        for path in python_files("minder")
        if "job_mode" not in path.parts
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {*TRACKED, "JobTracker"}
    ]
    assert [item for item in made if item[1] in TRACKED] == []
    assert {place for place, _ in made} == MAKE_TRACKERS


# Imports

WINGS = {"act", "app", "cli", "config", "diagnose", "doctor", "edge", "ingest", "model", "offline", "record", "simulate", "wire"}


def test_every_module_stands_in_a_wing() -> None:
    """A folder that .importlinter does not list would import whatever it likes."""
    inside = [path.relative_to(ROOT / "minder") for path in python_files("minder")]
    assert {path.parts[0] for path in inside if len(path.parts) > 1} == WINGS
    assert {path.stem for path in inside if len(path.parts) == 1} == {"__init__", "__main__"}


def only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def run_imports(node: ast.AST) -> Iterator[str]:
    """Names that importing or calling this code imports: an import inside a function hides a circle, it does not mend it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not isinstance(child, ast.expr) and not only_for_types(child):
            yield from run_imports(child)


def find_circle(imports: Mapping[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_of_imports_is_seen() -> None:
    code = "if TYPE_CHECKING:\n    from a import x\ndef f():\n    from b import y\nimport c"
    assert set(run_imports(ast.parse(code))) == {"b.y", "c"}
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in python_files("minder", "serve")
    }
    modules = set(names.values())
    imports = {
        module: {found if found in modules else found.rpartition(".")[0] for found in run_imports(syntax_tree(path))} & modules - {module}
        for path, module in names.items()
    }
    assert any(imports.values())
    assert find_circle(imports) == []


def loaded_by(statements: str, suspects: set[str]) -> set[str]:
    code = f"{statements}\nimport sys\nprint(*sorted({suspects!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return set(answer.stdout.split())


def test_what_runs_inside_training_processes_is_light() -> None:
    assert loaded_by("import minder; minder.heartbeat", {"numpy", "polars", "pydantic", "torch", "httpx"}) == set()


def test_the_stacks_of_a_hung_job_are_read_without_waiting_for_arrays() -> None:
    assert loaded_by("import minder.offline.evaluation.stacks", {"numpy", "polars", "sqlalchemy", "torch"}) == set()


@pytest.mark.parametrize(
    ("room", "verb"), [("agent", "agent"), ("cache", "cache"), ("launcher", "launch")], ids=["agent", "cache", "launcher"]
)
def test_what_runs_beside_jobs_is_light(room: str, verb: str) -> None:
    """Neither heavy libraries, nor what reads detector.toml as it is loaded."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in python_files("minder")
        if path.parent == ROOT / "minder" / "edge" / room
    ]
    assert modules
    names = [module.removesuffix(".__init__") for module in modules if not module.endswith("__main__")] + [f"minder.cli.{verb}"]
    heavy = {"numpy", "polars", "sqlalchemy", "fastapi", "torch", "matplotlib", "pandas", "minder.diagnose.detectors.numbers"}
    assert loaded_by("import " + ", ".join(names), heavy) == set()


def test_pure_rooms_do_no_io_and_read_no_clock() -> None:
    paths = [path for path in python_files("minder") if "/".join(path.relative_to(ROOT).parts[1:3]) in PURE_ROOMS]
    assert paths
    found = [
        f"{place(path, node)} imports {name}"
        for path in paths
        for node, name in imported_modules(path)
        if name.split(".")[0] in IMPURE_MODULES
    ]
    for path in paths:
        for node in nodes(path):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                found += [f"{place(path, node)} calls {name}"] if name in IMPURE_CALLS else []
    assert found == []


# Errors


def is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {node.id for node in caught if isinstance(node, ast.Name)}
    return handler.type is None or bool(names & {"Exception", "BaseException"})


def reraises(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def broad_excepts() -> Iterator[tuple[str, ast.ExceptHandler, Path]]:
    for path in python_files("minder", "serve"):
        for function in functions(path):
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and is_broad(node) and not reraises(node):
                    yield f"{path.relative_to(ROOT)}::{function.name}", node, path


def test_broad_excepts_stand_only_where_they_are_listed() -> None:
    """A swallowed error looks like "all is well": each place that swallows is listed above, with what it does instead."""
    every = [(name, place(path, handler)) for name, handler, path in broad_excepts()]
    found = dict(every)
    assert len(found) == len(set(every)), "a function of these has a second one, which its reason does not speak of"
    assert {name: where for name, where in found.items() if name not in BROAD_EXCEPTS} == {}
    assert set(BROAD_EXCEPTS) - set(found) == set(), "these are listed, but catch nothing broadly any more"


# Dependencies


def declared_distributions() -> dict[str, str]:
    """Distribution name to the extra that asks for it; "" for the base."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    by_extra = {"": project["dependencies"], **project["optional-dependencies"]}
    by_extra.pop("all")
    named = {re.split(r"[<>=\[;~! ]", requirement)[0]: extra for extra, requirements in by_extra.items() for requirement in requirements}
    named.pop(project["name"])  # an extra that includes another one
    return named


IMPORTED_AS = {
    "import-linter": "importlinter",
    "mkdocs-material": "material",
    "nvidia-ml-py": "pynvml",
    "pyjwt": "jwt",
    "python-multipart": "multipart",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
}
# What runs on every machine of a job, or asks a service from anywhere: what these import is the base.
LIGHT_PLACES = {"cli", "edge", "record", "wire"}


def dependency_rows() -> dict[str, tuple[str, set[str]]]:
    """Distribution to its extra and the places that import it, as docs/dependencies.md has them."""
    text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| ?([a-z]*) ?\| ?([a-z, ]*?) ?\|", text, re.MULTILINE)
    return {name: (extra, set(places.split(", ")) - {""}) for name, extra, places in rows if name != "distribution"}


def places_that_import() -> dict[str, set[str]]:
    """Module to the wings of minder, "serve" or "models" that import it."""
    found: dict[str, set[str]] = {}
    for path in python_files("minder", "serve", "models"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        place = parts[1] if parts[0] == "minder" else parts[0]
        for _, name in imported_modules(path):
            found.setdefault(name.split(".")[0], set()).add(place)
    return found


def test_every_dependency_says_what_it_is_for() -> None:
    rows = dependency_rows()
    assert {name: extra for name, (extra, _) in rows.items()} == declared_distributions()
    found = places_that_import()
    named = {name: found.get(IMPORTED_AS.get(name, name.replace("-", "_")), set()) for name in rows}
    assert {name: places for name, (_, places) in rows.items()} == named


def test_every_base_dependency_is_used_where_it_is_installed() -> None:
    """py-spy is called as a command."""
    base = {name: places for name, (extra, places) in dependency_rows().items() if extra == "" and name != "py-spy"}
    assert base
    assert {name for name, places in base.items() if not places & LIGHT_PLACES} == set()


def test_every_library_of_the_controller_is_used() -> None:
    assert {name for name, (extra, places) in dependency_rows().items() if extra in ("controller", "torch") and not places} == set()


def test_pins_carry_no_local_build_tag() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []


# Documents


def test_links_in_documents_lead_somewhere() -> None:
    found = []
    for path in tracked_files():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            file = target.split("#")[0]
            if file and "://" not in file and not (path.parent / file).exists():
                found.append(f"{place(path)}: {target}")
    assert found == []


def test_pages_that_the_code_cites_are_in_the_repository() -> None:
    """A source that no reader can open is none: papers are cited by title, arXiv id and part."""
    written = {"report.md"}  # by minder demo
    there = {path.name for path in tracked_files()} | written
    cited = {
        (str(path.relative_to(ROOT)), name)
        for path in python_files("minder", "serve", "models")
        for name in re.findall(r"[\w-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert {(place, name) for place, name in cited if name not in there} == set()


def docstrings(path: Path) -> Iterator[str]:
    documented = (node for node in nodes(path) if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))
    yield from (text for node in (syntax_tree(path), *documented) if (text := ast.get_docstring(node, clean=False)))


def names_of(path: Path) -> set[str]:
    """What a module defines or imports at its top."""
    found: set[str] = set()
    for node in syntax_tree(path).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            found |= {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
        else:
            found |= {alias.asname or alias.name for child in ast.walk(node) if isinstance(child, ast.ImportFrom) for alias in child.names}
    return found


def cited_names(text: str) -> Iterator[tuple[str, str]]:
    """(module or its end, name in it) as docstrings write them: minder.wing.module, minder.wing.module.Name, module.Name."""
    for dotted in re.findall(r"\b(?:minder|serve)(?:\.\w+)+", text):
        if dotted.split(".")[1] in WINGS:
            module, _, name = dotted.rpartition(".")
            yield (module, name) if name[0].isupper() else (dotted, "")
    for module, name in re.findall(r"(?<![\w./])([a-z_]+)\.([A-Z]\w+)", text):
        if module not in {*IMPORTED_AS.values(), *declared_distributions(), "minder"} and not is_pythons(module, name):
            yield module, name


def is_pythons(module: str, name: str) -> bool:
    return module in sys.stdlib_module_names and hasattr(importlib.import_module(module), name)


def test_names_that_the_code_cites_are_in_the_repository() -> None:
    """A class that was renamed, or a module that was moved, is not looked for in vain."""
    paths = python_files("minder", "serve")
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}

    def leads_somewhere(module: str, name: str) -> bool:
        if not name:
            return module in modules or module.rpartition(".")[2] in names_of(modules.get(module.rpartition(".")[0], ROOT / __file__))
        return any(name in names_of(path) for full, path in modules.items() if full == module or full.endswith(f".{module}"))

    cited = {(place(path), found) for path in paths for text in docstrings(path) for found in cited_names(text)}
    assert len(cited) > 50
    assert {(where, found) for where, found in cited if not leads_somewhere(*found)} == set()


def test_every_document_is_reachable_from_the_readme() -> None:
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        path = queue.pop()
        if path in seen or path.suffix != ".md" or not path.is_file():
            continue
        seen.add(path)
        links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", path.read_text(encoding="utf-8"))
        queue += [(path.parent / link).resolve() for link in links if "://" not in link]
    documents = {
        path for path in tracked_files() if path.suffix == ".md" and path.relative_to(ROOT).parts[0] not in ("tests", "datasets", "models")
    }
    assert {place(path) for path in documents - seen} == set()


def written_texts() -> Iterator[tuple[Path, str]]:
    """What people wrote: not recorded data, which says what it said when it was recorded, nor other projects' files."""
    for path in tracked_files():
        parts = path.relative_to(ROOT).parts
        if parts[0] != "datasets" and "data" not in parts and (path.parent != VENDORED or path.suffix == ".toml"):
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def test_nothing_tracked_knows_the_machine_it_was_written_on() -> None:
    pattern = re.compile(r"(?<![\w./-])/(?:[w]ork|[r]oot|[h]ome/\w+|[U]sers/\w+)/[\w.]")
    assert [place(path) for path, text in written_texts() if pattern.search(text)] == []


def test_texts_are_about_the_project_and_not_about_its_making() -> None:
    pattern = re.compile(r"\b(?:A[I]|[c]o-authored-by|[c]oding assistants?|[c]hat ?bots?)\b", re.IGNORECASE)
    found = [f"{place(path)}: {match.group()}" for path, text in written_texts() if (match := pattern.search(text))]
    assert found == []
