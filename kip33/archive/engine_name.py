"""The names of the engines that work on bins (`kip33.archive.bins`)."""

from enum import StrEnum


class EngineName(StrEnum):
    """Where bins are worked on."""

    LOCAL = "local"
    SPARK = "spark"
