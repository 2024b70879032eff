"""Instructions of the processor for loops that numba compiles: bytes at an address, and CRC-32C of its own.

Imported with such loops alone. What is at an address is not looked at twice: whoever gives one has checked it.
"""

import platform
from typing import Any

from llvmlite import binding, ir
from numba import config, types
from numba.extending import intrinsic

__all__ = ["crc32c_byte", "crc32c_word", "has_crc32c", "load_byte", "load_half", "load_int", "load_word", "store_byte",
           "store_word"]  # fmt: skip


def has_crc32c() -> bool:
    """Say whether `crc32c_word` and `crc32c_byte` may be compiled: what lacks them ends the program.

    It is for the processor that numba compiles for, which need not be this one (NUMBA_CPU_NAME, NUMBA_CPU_FEATURES).
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    features: str | None = getattr(config, "CPU_FEATURES", None)
    if features is not None:
        return "+crc32" in features.split(",")
    return bool(binding.get_host_cpu_features().get("crc32", False))


def _loading(bits: int, type_: Any) -> Any:
    def load(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)

        return type_(types.int64), generate

    return intrinsic(load)


def _storing(bits: int, type_: Any) -> Any:
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, type_), generate

    return intrinsic(store)


def _checking(name: str, crc_bits: int, bits: int, crc_type: Any, type_: Any) -> Any:
    def step(typingctx: Any, crc: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = ir.FunctionType(ir.IntType(crc_bits), [ir.IntType(crc_bits), ir.IntType(bits)])
            return builder.call(builder.module.declare_intrinsic(name, (), made), args)

        return crc_type(crc_type, type_), generate

    return intrinsic(step)


load_byte, load_half = _loading(8, types.uint8), _loading(16, types.uint16)
load_int, load_word = _loading(32, types.uint32), _loading(64, types.uint64)
store_byte, store_word = _storing(8, types.uint8), _storing(64, types.uint64)
# A checksum goes on by eight bytes, or by one. It begins with all bits set, and in the end all are turned over.
crc32c_word = _checking("llvm.x86.sse42.crc32.64.64", 64, 64, types.uint64, types.uint64)
crc32c_byte = _checking("llvm.x86.sse42.crc32.32.8", 32, 8, types.uint32, types.uint8)
