"""The names of the engines that process bins (`kip33.archive.bins`)."""

from enum import StrEnum


class EngineName(StrEnum):
    """The engine that processes bins."""

    LOCAL = "local"
    SPARK = "spark"
