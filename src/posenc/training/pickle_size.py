"""A limit on the number of values in a pickle, checked without unpickling it.

Tuples nested so that each contains the next one twice take only a few bytes per level, but the time
to hash, compare or print the outermost one doubles with each level.
"""

import errno
import pickletools
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc.config.errors import abbreviate

MAX_VALUES = 10_000_000
"""The maximum number of values, counting shared ones once per reference.

Hashing more would take seconds.
"""
MAX_PICKLE_BYTES, BYTES_PER_MEMBER = 10_000_000, 400
"""A pickle in an archive of n members may have MAX_PICKLE_BYTES + n * BYTES_PER_MEMBER bytes.

Each tensor is a member, and takes about 150 bytes and 32 opcodes of the pickle.
"""
MAX_OPCODES, OPCODES_PER_MEMBER = 2_000_000, 100
"""The same for opcodes; 2 million are simulated in a few seconds."""
ZIP_SIGNATURE = b"PK\x03\x04"
MEMBER_NAME = re.compile(
    r"[^/]+/(data\.pkl|data/\d+|version|byteorder|\.format_version|\.storage_alignment"
    r"|\.data/serialization_id)"
)
"""The members of an archive from `torch.save`, which does not compress them."""
APPENDING_OPCODES = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD")
"""The opcodes that add their arguments to the value below them instead of creating a value."""


@dataclass(eq=False)
class _Value:
    """The size of a value on the unpickler's stack (in values), and whether another contains it."""

    size: int = 1
    is_contained: bool = False


def check_checkpoint(path: Path) -> None:
    """Raise ValueError if a file is not from `torch.save`, or if its pickle is too large.

    The file must start with the zip signature, because torch would otherwise load a pickle at its
    start and ignore the archive after it. torch also ignores case in the names of members, so
    only the exact names are accepted.
    """
    with path.open("rb") as file:
        if file.read(len(ZIP_SIGNATURE)) != ZIP_SIGNATURE or not zipfile.is_zipfile(path):
            raise ValueError("it is not a zip file from torch.save")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise ValueError("two members of its zip archive have the same name")
            for name, member in members.items():
                if not MEMBER_NAME.fullmatch(name) or member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(
                        f"{abbreviate(name)} in its zip archive is not from torch.save"
                    )
                if name.endswith("/data.pkl"):
                    limit = MAX_PICKLE_BYTES + BYTES_PER_MEMBER * len(members)
                    if member.file_size > limit:
                        raise ValueError(f"{name} has over {limit:,} bytes")
                    check_pickle(archive.read(member), len(members))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ValueError("its zip central directory has an offset outside the file") from None


def check_pickle(data: bytes, members: int = 0) -> None:
    """Raise ValueError if a pickle has too many values, or a container that contains itself.

    The limits are MAX_VALUES values and MAX_OPCODES opcodes, plus OPCODES_PER_MEMBER for each of
    the archive's `members`. Simulates the unpickler's stack, with the sizes of the values instead
    of the values.
    """
    max_opcodes = MAX_OPCODES + OPCODES_PER_MEMBER * members
    stack: list[_Value | None] = []  # None is a mark
    memo: dict[Any, _Value] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count >= max_opcodes:
            raise ValueError(f"its pickle has more than {max_opcodes:,} opcodes")
        name = opcode.name
        if "PUT" in name or name == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = _top(stack)
        elif "GET" in name:
            stack.append(memo[argument])
        elif name == "MARK":
            stack.append(None)
        elif name == "DUP":
            stack.append(_top(stack))
        else:
            _execute(opcode, stack)


def _top(stack: list[_Value | None]) -> _Value:
    if not stack or (value := stack[-1]) is None:
        raise ValueError("its pickle is corrupt")
    return value


def _execute(opcode: Any, stack: list[_Value | None]) -> None:
    """Replace the arguments of an opcode on the stack with its result."""
    before, after = opcode.stack_before, opcode.stack_after
    count, contents = len(before), []
    if pickletools.markobject in before:
        count = before.index(pickletools.markobject)
        while stack and (value := stack.pop()) is not None:
            contents.append(value)
    below = [stack.pop() for _ in range(min(count, len(stack)))]
    arguments = [value for value in below if value is not None]
    if not after:
        return
    if opcode.name in APPENDING_OPCODES and arguments:
        result = arguments.pop()
        if result.is_contained or result in contents or result in arguments:
            raise ValueError("a container in it contains itself")
    else:
        result = _Value()
    for value in [*contents, *arguments]:
        value.is_contained = True
        result.size += value.size
    if result.size > MAX_VALUES:
        raise ValueError(
            f"it has more than {MAX_VALUES:,} values, counting shared ones once per reference"
        )
    stack.append(result)
