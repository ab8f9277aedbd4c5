"""A registered detector as an MLflow model "from code": nothing is pickled, and the online pipeline does not load this file at all.

predict: rows of (timestamp, machine, metrics of the catalogue) of one job to the verdicts of `minder replay`. The parameter interval_s is
the time between samples in seconds; 0: the median gap.
"""

from __future__ import annotations

from typing import Any

import mlflow
import pandas as pd


class Scorer(mlflow.pyfunc.PythonModel):
    def load_context(self, context: Any) -> None:
        self._folder = context.artifacts["detector"]

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        from minder.offline.evaluation.table import COLUMNS, judge_table

        interval_s = float((params or {}).get("interval_s") or 0.0)
        return pd.DataFrame(judge_table(model_input, self._folder, interval_s), columns=list(COLUMNS))


mlflow.models.set_model(Scorer())
