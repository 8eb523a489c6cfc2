"""What the CPU that compiled code runs on has, by LLVM's names of features."""

import llvmlite.binding
from numba.core import config


def features() -> str:
    """Return `+sse4.2,-avx,...`: what NUMBA_CPU_FEATURES says, else this CPU's."""
    asked: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
    return llvmlite.binding.get_host_cpu_features().flatten() if asked is None else asked


def has_crc32c() -> bool:
    """Return whether there is a CRC-32C instruction: `crc32` on x86-64, `crc32cx` on aarch64."""
    # Of "+sse4.2" alone LLVM selects no crc32: it ends the process.
    return not {"+crc32", "+crc"}.isdisjoint(features().split(","))


def has_carryless_multiplication() -> bool:
    """Return whether there is x86-64's `pclmulqdq`."""
    return "+pclmul" in features().split(",")


def has_wide_multiplication() -> bool:
    """Return whether four multiplications without carries are one: AVX-512 and `vpclmulqdq`."""
    return {"+vpclmulqdq", "+avx512f", "+avx512bw"} <= set(features().split(","))
