"""Features of the CPU on which compiled code runs, by LLVM's names."""

import llvmlite.binding
from numba.core import config


def features() -> str:
    """Return `+sse4.2,-avx,...`: the value of NUMBA_CPU_FEATURES, else this CPU's features."""
    given: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
    return llvmlite.binding.get_host_cpu_features().flatten() if given is None else given


def has_crc32c() -> bool:
    """Return whether there is a CRC-32C instruction: `crc32` on x86-64, `crc32cx` on aarch64."""
    # With "+sse4.2" alone LLVM cannot select crc32 and ends the process.
    return not {"+crc32", "+crc"}.isdisjoint(features().split(","))


def has_carryless_multiplication() -> bool:
    """Return whether there is x86-64's `pclmulqdq`."""
    return "+pclmul" in features().split(",")


def has_wide_multiplication() -> bool:
    """Return whether one instruction does four carry-less multiplications: AVX-512 `vpclmulqdq`."""
    return {"+vpclmulqdq", "+avx512f", "+avx512bw"} <= set(features().split(","))
