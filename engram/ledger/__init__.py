"""Run records: write one, read all, and the only "newest answer to this question". No torch."""

from engram.ledger.begin import current_commit, new_record, new_run_id, software_versions, utc_now
from engram.ledger.layout import readable
from engram.ledger.per_task import correctness, read_tasks, readable_tasks, trusted_records, write_tasks
from engram.ledger.queries import Answer, Ledger, Trainers, conflicts, newest
from engram.ledger.records import (
    LEDGER_VERSION,
    RESULTS,
    Evaluation,
    RunRecord,
    check_results_folder,
    read_ledger,
    read_record,
    record_path,
    run_stem,
    write_record,
)

__all__ = [
    "LEDGER_VERSION", "RESULTS", "Answer", "Evaluation", "Ledger", "RunRecord", "Trainers", "check_results_folder",
    "conflicts", "correctness", "current_commit", "new_record", "new_run_id", "newest", "read_ledger", "read_record",
    "read_tasks", "readable", "readable_tasks", "record_path", "run_stem", "software_versions", "trusted_records",
    "utc_now", "write_record", "write_tasks",
]  # fmt: skip
