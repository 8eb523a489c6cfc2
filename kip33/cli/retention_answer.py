"""What `kip33 retention` is answered, whichever engine answers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from kip33.errors import Kip33Error

RESULT_TABLES: Final = ("segments", "partitions", "freed")  # the folders of --output


class RetentionAnswer(Protocol):
    """A judged catalog. Rows have the names of `kip33.spark.summarize_partitions` and others."""

    @property
    def totals(self) -> Mapping[str, Any]:
        """Return the sums over all partitions."""

    @property
    def workers(self) -> int:
        """Return how many processes or cores worked."""

    @property
    def tells_freed(self) -> bool:
        """Return whether it was asked what is freed when."""

    def worst(self, most: int) -> Sequence[Mapping[str, Any]]:
        """Return partitions, those with most bytes blocked first."""

    def freed(self) -> Sequence[Mapping[str, Any]]:
        """Return what is freed when."""

    def broker_differences(self, most: int) -> Sequence[Mapping[str, Any]]:
        """Return segments that a broker misreads, first those it judges otherwise."""

    def segment_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the segments as JSON, by partition and oldest first; `kind` is a field of each."""

    def partition_lines(self, kind: str | None) -> Iterator[str]:
        """Yield the partitions as JSON."""

    def freed_lines(self, kind: str | None) -> Iterator[str]:
        """Yield what is freed when as JSON."""

    def csv_lines(self) -> Iterator[str]:
        """Yield a header and the segments."""

    def delete_records(
        self, *, trust_last_modified: bool, left_out: Collection[tuple[str, int]]
    ) -> dict[str, Any]:
        """Return what `kafka-delete-records.sh` takes."""


class EnginesDifferError(Kip33Error):
    """Spark and the rule in this process have different totals."""

    exit_code = 1


def require_equal_totals(by_spark: Mapping[str, Any], by_rule: Mapping[str, Any]) -> None:
    """Raise EnginesDifferError, naming a total, where the two are not equal."""
    for name, found in by_rule.items():
        if by_spark.get(name) != found:
            raise EnginesDifferError(
                f"{name}: Spark found {by_spark.get(name)}, the rule in this process {found}; "
                "nothing was planned or printed: report this with the version of kip33"
            )
