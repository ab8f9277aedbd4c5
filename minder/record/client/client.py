"""The typed client: one method per endpoint, answers as records of minder.record.api."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx

from minder.model.errors import BadInputError
from minder.record.api.access import Caller
from minder.record.api.decisions import Question, QuestionDetail
from minder.record.api.dumps import CollectivesResult, StacksResult
from minder.record.api.fields import Answer
from minder.record.api.incidents import Capture, Event, IncidentDetail, IncidentSummary, Recorded
from minder.record.api.jobs import Job, JobDetail, StandbyRequest
from minder.record.api.machines import Machine, MachineDetail
from minder.record.api.maintenance import MaintenanceRequest, MaintenanceWindow
from minder.record.api.pauses import Pause
from minder.record.api.policy import DryRun, PolicySettings
from minder.record.api.scores import PARTS, ScoreResult
from minder.record.api.standbys import Models, Standby
from minder.record.client.calls import Calls
from minder.record.client.code import send_code
from minder.record.client.dumps import send_dumps

__all__ = ["Client"]

Item = TypeVar("Item", bound=Answer)
_TABLES = {".parquet": "application/vnd.apache.parquet", ".arrow": "application/vnd.apache.arrow.file"}


def _demand_token(token: str) -> str:
    """Blanks around it, such as a file's line break, do not belong to it."""
    found = token.strip()
    if not found:
        raise BadInputError("the token is empty: give the one that `minder token create` printed")
    if not (found.isascii() and found.isprintable()) or " " in found:
        raise BadInputError("the token holds a character that no token has: give the one that `minder token create` printed")
    return found


class Client:
    """Every method raises BadInputError where the service refuses, WireError where it does not answer; both with one line."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 120.0, http: httpx.Client | None = None) -> None:
        """`url`: like "http://127.0.0.1:9400". `http`: another transport, which is closed with this client.

        Raises BadInputError for a token that cannot be one, before anything is sent.
        """
        bearer = _demand_token(token)
        self._http = http or httpx.Client(base_url=url, timeout=httpx.Timeout(timeout_s, connect=5.0))
        self._http.headers["Authorization"] = f"Bearer {bearer}"
        self.calls = Calls(self._http)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def whoami(self) -> Caller:
        return Caller.model_validate(self.calls.get("/v1/whoami"))

    # Reads

    def incidents(
        self, *, job: str | None = None, state: str | None = None, since: str | None = None, limit: int | None = None
    ) -> Iterator[IncidentSummary]:
        """Newest first, page after page. since: ISO 8601; limit: at most so many."""
        return self._pages(IncidentSummary, "/v1/incidents", {"job": job, "state": state, "since": since}, limit)

    def incident(self, name: str) -> IncidentDetail:
        return IncidentDetail.model_validate(self.calls.get(f"/v1/incidents/{name}"))

    def captures(self, incident: str) -> Iterator[Capture]:
        return self._pages(Capture, f"/v1/incidents/{incident}/captures", {}, None)

    def bundle(self, incident: str) -> bytes:
        """The vendor's ZIP."""
        return self.calls.read(f"/v1/incidents/{incident}/bundle")

    def events(
        self,
        *,
        job: str | None = None,
        incident: str | None = None,
        kinds: Sequence[str] | None = None,
        incidents_since: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """The ledger, oldest first. incidents_since: only of incidents opened since (ISO 8601)."""
        wanted = {"job": job, "incident": incident, "kind": list(kinds) if kinds else None, "incidents_since": incidents_since}
        return self._pages(Event, "/v1/events", wanted, limit, 1000)

    def machines(self, *, barred: bool | None = None) -> Iterator[Machine]:
        return self._pages(Machine, "/v1/machines", {"barred": barred}, None)

    def machine(self, name: str) -> MachineDetail:
        return MachineDetail.model_validate(self.calls.get(f"/v1/machines/{name}"))

    def jobs(self) -> Iterator[Job]:
        return self._pages(Job, "/v1/jobs", {}, None)

    def job(self, name: str) -> JobDetail:
        return JobDetail.model_validate(self.calls.get(f"/v1/jobs/{name}"))

    def decisions(self, *, job: str | None = None, state: str | None = None) -> Iterator[Question]:
        """Evictions that operators were asked about, newest first. state: "waiting" for those that are not answered yet."""
        return self._pages(Question, "/v1/decisions", {"job": job, "state": state}, None)

    def decision(self, name: str) -> QuestionDetail:
        return QuestionDetail.model_validate(self.calls.get(f"/v1/decisions/{name}"))

    def pauses(self) -> Iterator[Pause]:
        return self._pages(Pause, "/v1/pauses", {}, None)

    def maintenance(self) -> Iterator[MaintenanceWindow]:
        return self._pages(MaintenanceWindow, "/v1/maintenance", {}, None)

    def standbys(self, job: str | None = None) -> Iterator[Standby]:
        return self._pages(Standby, "/v1/standbys", {"job": job}, None)

    def models(self) -> Models:
        return Models.model_validate(self.calls.get("/v1/models"))

    def policy(self, job: str | None = None) -> PolicySettings:
        return PolicySettings.model_validate(self.calls.get("/v1/policy", {"job": job}))

    # Actions: each is in the ledger under the token's name

    def pause(self, scope: str, target: str | None, seconds: float, reason: str) -> Recorded:
        """scope: "all" (target None), "job" or "rack"."""
        body = {"scope": scope, "target": target, "seconds": seconds, "reason": reason}
        return Recorded.model_validate(self.calls.act("/v1/pauses", body))

    def end_pause(self, scope: str, target: str | None, reason: str) -> Recorded:
        return Recorded.model_validate(self.calls.act("/v1/pauses/end", {"scope": scope, "target": target, "reason": reason}))

    def approve(self, decision: str, reason: str) -> Recorded:
        """Let the controller carry an eviction out, if it still holds at its next tick."""
        return Recorded.model_validate(self.calls.act(f"/v1/decisions/{decision}/approve", {"reason": reason}))

    def reject(self, decision: str, reason: str) -> Recorded:
        return Recorded.model_validate(self.calls.act(f"/v1/decisions/{decision}/reject", {"reason": reason}))

    def add_maintenance(self, window: MaintenanceRequest) -> Recorded:
        return Recorded.model_validate(self.calls.act("/v1/maintenance", window.model_dump(mode="json")))

    def end_maintenance(self, window: str, reason: str) -> Recorded:
        return Recorded.model_validate(self.calls.act(f"/v1/maintenance/{window}/end", {"reason": reason}))

    def tell_outcome(self, machine: str, outcome: str, note: str, incident: str | None = None) -> Recorded:
        """outcome: "confirmed" or "no-fault-found"."""
        body = {"outcome": outcome, "note": note, "incident": incident}
        return Recorded.model_validate(self.calls.act(f"/v1/machines/{machine}/outcome", body))

    def give_back(self, machine: str, reason: str, job: str | None = None, *, force: bool = False) -> Recorded:
        """force: although the machine's newest test failed or has not ended."""
        body = {"reason": reason, "job": job} | ({"force": True} if force else {})
        return Recorded.model_validate(self.calls.act(f"/v1/machines/{machine}/return", body))

    def evict(self, machine: str, job: str, reason: str) -> Recorded:
        """Order a machine out of a job that runs. The controller's policy still says whether: budgets, pauses, dry run."""
        return Recorded.model_validate(self.calls.act(f"/v1/machines/{machine}/evict", {"reason": reason, "job": job}))

    def retest(self, machine: str, reason: str, job: str | None = None) -> Recorded:
        """Have the site's test of a machine run by its agent; `machine(name).retest` says what came of it."""
        return Recorded.model_validate(self.calls.act(f"/v1/machines/{machine}/retest", {"reason": reason, "job": job}))

    def restart_job(self, job: str, reason: str) -> Recorded:
        """Have a job started again in place. The controller's policy still says whether: restarts that are left, pauses, dry run."""
        return Recorded.model_validate(self.calls.act(f"/v1/jobs/{job}/restart", {"reason": reason}))

    def send_code(self, job: str, folder: str | Path) -> str:
        """A version of a job's code into the service's store; its digest, for `update_job`. Nothing runs of it."""
        return send_code(self.calls, job, Path(folder))

    def update_job(
        self, job: str, reason: str, *, code: str = "", env: Mapping[str, str] | None = None, args: Sequence[str] | None = None,
        urgent: bool = False,
    ) -> Recorded:  # fmt: skip
        """Give a running job another version of its code, arguments or variables; its next generation runs it, an urgent one now."""
        body = {"code": code or None, "env": dict(env or {}), "args": None if args is None else list(args), "urgent": urgent}
        return Recorded.model_validate(self.calls.act(f"/v1/jobs/{job}/updates", {**body, "reason": reason}))

    def roll_back_job(self, job: str, reason: str, *, to: int | None = None, urgent: bool = True) -> Recorded:
        """Take the last update of a job back, or go back to an earlier version."""
        return Recorded.model_validate(self.calls.act(f"/v1/jobs/{job}/rollback", {"to": to, "urgent": urgent, "reason": reason}))

    def skip_batches(self, job: str, reason: str, *, batches: str | None = None, undo: bool = False) -> Recorded:
        """Leave batches ("120-123") out of a job, or train on them again; it goes back to a checkpoint from before them."""
        return Recorded.model_validate(self.calls.act(f"/v1/jobs/{job}/skips", {"batches": batches, "undo": undo, "reason": reason}))

    def add_standby(self, job: str, standby: StandbyRequest) -> Recorded:
        """Give a running job one more standby, where the service's settings allow its hosts."""
        return Recorded.model_validate(self.calls.act(f"/v1/jobs/{job}/standbys", standby.model_dump(mode="json")))

    def register_job(self, content: bytes, reason: str) -> Recorded:
        """Have the service watch a job. content: of its job.toml, as TOML."""
        headers = {"Content-Type": "application/toml"}
        return Recorded.model_validate(self.calls.act("/v1/jobs", params={"reason": reason}, content=content, headers=headers))

    def end_job(self, name: str, reason: str) -> Recorded:
        """Watch a registered job no longer; its history stays."""
        return Recorded.model_validate(self.calls.act(f"/v1/jobs/{name}", method="DELETE", params={"reason": reason}))

    def add_note(self, incident: str, text: str) -> Recorded:
        return Recorded.model_validate(self.calls.act(f"/v1/incidents/{incident}/notes", {"text": text}))

    # What would be concluded, or decided; nothing is written

    def score(self, path: str | Path, *, name: str | None = None, until: str | None = None) -> ScoreResult:
        """Score a recording folder, a Parquet or Arrow table, or a JSON document. until: ISO 8601."""
        given = Path(path)
        params = {"name": name or (given.resolve().name if given.is_dir() else given.stem), "until": until}
        query = {key: value for key, value in params.items() if value is not None}
        with ExitStack() as opened:
            if given.is_dir():
                parts = {part: given / file for part, file in PARTS.items() if (given / file).exists()}
                files = {part: (file.name, opened.enter_context(file.open("rb"))) for part, file in parts.items()}
                if "job" not in files:
                    raise BadInputError(f"{given} has no job.toml: name a recording")
                return ScoreResult.model_validate(self.calls.post("/v1/scores", params=query, files=files))
            try:
                content = given.read_bytes()
            except OSError as error:
                raise BadInputError(f"{given}: {error.strerror}") from error
            headers = {"Content-Type": _TABLES.get(given.suffix, "application/json")}
            return ScoreResult.model_validate(self.calls.post("/v1/scores", params=query, content=content, headers=headers))

    def stacks(self, folder: str | Path) -> StacksResult:
        """What the stack dumps in a folder say, as `minder stacks` reads them."""
        return StacksResult.model_validate(send_dumps(self.calls, "/v1/stacks", Path(folder)))

    def collectives(self, folder: str | Path) -> CollectivesResult:
        """What the Flight Recorder dumps in a folder say, as `minder collectives` reads them."""
        return CollectivesResult.model_validate(send_dumps(self.calls, "/v1/collectives", Path(folder)))

    def dry_run(self, job: str, policy: Mapping[str, Any]) -> DryRun:
        """What these settings would have decided about the job's past."""
        return DryRun.model_validate(self.calls.post("/v1/policy/dry-run", json={"job": job, "policy": dict(policy)}))

    def _pages(self, cls: type[Item], path: str, params: Mapping[str, Any], limit: int | None, most: int = 200) -> Iterator[Item]:
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            page = self.calls.get(path, {**params, "cursor": cursor, "limit": min(most, left or most)})
            items = [cls.model_validate(item) for item in page["items"]]
            yield from items
            left = None if left is None else left - len(items)
            cursor = page.get("next")
            if cursor is None:
                return
