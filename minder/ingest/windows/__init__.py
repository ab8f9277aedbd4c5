"""Windows: raw samples become rows of a common grid. Pure: no I/O, no clock, no environment; time is in the data.

Streaming: `Aligner`. A whole recording at once, with the same values: `align_recording`.
"""

from minder.ingest.windows.aligner import Aligner
from minder.ingest.windows.columns import Columns, align_columns, align_recording
from minder.ingest.windows.parts import cut_rows, keep_machines, rows_of

__all__ = ["Aligner", "Columns", "align_columns", "align_recording", "cut_rows", "keep_machines", "rows_of"]
