"""A query parameter that a route does not have is a typing error, and never quietly nothing."""

from __future__ import annotations

import difflib

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from minder.record.api.fields import Page
from serve.problems import refuse

__all__ = ["operation_id", "refuse_unknown"]

_OF_LISTS = {"limit", "cursor"}


async def refuse_unknown(request: Request) -> None:
    """A dependency of every route of /v1: 422 with the name that was meant."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.query_params:
        return
    known = _names(route.dependant) | (_OF_LISTS if _is_page(route.response_model) else set())
    for name in request.query_params:
        if name not in known:
            shown = name[:40].encode("ascii", "backslashreplace").decode()
            near = difflib.get_close_matches(name[:40], known, 1)
            meant = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known)) or 'none'}"
            raise refuse(422, f'no query parameter "{shown}" here: {meant}')


def _is_page(model: object) -> bool:
    """A list that always fits one page needs neither limit nor cursor, and clients that read pages send them."""
    return getattr(model, "__pydantic_generic_metadata__", {}).get("origin") is Page


def _names(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_names(part) for part in dependant.dependencies))


def operation_id(route: APIRoute) -> str:
    """The function's own name: what a generated client calls it."""
    return route.name
