"""The answer to `kip33 retention`, from either engine."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from kip33.errors import ExitCode, Kip33Error

RESULT_TABLES: Final = ("segments", "partitions", "freed")  # the folders of --output


class RetentionAnswer(Protocol):
    """A judged catalog. Its rows have the column names of the results in `kip33.spark`."""

    @property
    def totals(self) -> Mapping[str, Any]:
        """Return the sums over all partitions."""

    @property
    def workers(self) -> int:
        """Return the number of processes or cores that were used."""

    @property
    def tells_freed(self) -> bool:
        """Return whether `freed` was asked for."""

    def worst(self, most: int) -> Sequence[Mapping[str, Any]]:
        """Return partitions; those with the most blocked bytes are first."""

    def freed(self) -> Sequence[Mapping[str, Any]]:
        """Return what becomes deletable at which time."""

    def broker_differences(self, most: int) -> Sequence[Mapping[str, Any]]:
        """Return segments whose index differs from the log; those judged differently are first."""

    def segment_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the segments as JSON, by partition, oldest first; `kind` is a field of each."""

    def partition_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the partitions as JSON."""

    def freed_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the rows of `freed` as JSON."""

    def csv_lines(self) -> Iterator[str]:
        """Yield a header and the segments as CSV."""

    def delete_records(
        self, *, trust_last_modified: bool, left_out: Collection[tuple[str, int]]
    ) -> dict[str, Any]:
        """Return the input of `kafka-delete-records.sh`."""


class EnginesDifferError(Kip33Error):
    """Spark and the rule in this process have different totals."""

    exit_code = ExitCode.INCOMPLETE


def require_equal_totals(by_spark: Mapping[str, Any], by_rule: Mapping[str, Any]) -> None:
    """Raise EnginesDifferError, naming one total, if the two are not equal."""
    for name, found in by_rule.items():
        if by_spark.get(name) != found:
            raise EnginesDifferError(
                f"{name}: Spark found {by_spark.get(name)}, the rule in this process {found}; "
                "nothing was planned or printed: report this with the version of kip33"
            )
