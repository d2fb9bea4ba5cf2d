"""Sets up a seccomp filter for what Landlock does not reach: datagrams, raw sockets, io_uring, and
the changing of file modes.

A filter sees numbers, no paths and no addresses. So it can't ask where: a kind of call works everywhere or nowhere. The
changing of modes, owners, times and extended attributes seems to work and does nothing, since programs that copy a file
do it without need; all else is refused.

Programs of another architecture than the kernel's own (32-bit ones) get nothing done at all.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

SET_SECCOMP, FILTER = 22, 2
"""prctl's number, and the mode"""
ALLOW, RETURN_ERROR = 0x7FFF0000, 0x00050000
"""What a filter returns, of linux/seccomp.h"""
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Places in seccomp_data"""
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_IF_SET, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
"""Codes of the filter's instructions, of linux/bpf_common.h"""
X32 = 0x40000000
"""Numbers from here on are those of x86's x32 calls"""
SET_FILE_FLAGS = (0x40086602, 0x401C5820)
"""ioctl: FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR, chattr's"""
KIND_OF_SOCKET = 0xF
"""The bits of a socket's type that say its kind; the others are flags"""
FAST_OPEN = 0x20000000
"""MSG_FASTOPEN"""


@dataclass(frozen=True, slots=True)
class SystemCallNumbers:
    """The numbers of the system calls of an architecture."""

    identity: int
    socket: int
    ioctl: int
    pretended: tuple[int, ...]
    """chmod, chown, utime, setxattr, removexattr, in all their forms"""
    sends: tuple[tuple[int, int], ...]
    """sendto, sendmsg and sendmmsg, each with the place of its flags"""
    refused: tuple[int, ...] = (425, 426, 427)
    """io_uring, which can do what a filter does not see"""


NEWER_CALLS = (452, 463, 466, 469)
"""fchmodat2, setxattrat, removexattrat, file_setattr"""
MACHINES = {
    "x86_64": SystemCallNumbers(
        identity=0xC000003E,
        socket=41,
        ioctl=16,
        pretended=(
            90,
            91,
            92,
            93,
            94,
            132,
            188,
            189,
            190,
            197,
            198,
            199,
            235,
            260,
            261,
            268,
            280,
            *NEWER_CALLS,
        ),
        sends=((44, 3), (46, 2), (307, 3)),
    ),
    "aarch64": SystemCallNumbers(
        identity=0xC00000B7,
        socket=198,
        ioctl=29,
        pretended=(5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88, *NEWER_CALLS),
        sends=((206, 3), (211, 2), (269, 3)),
    ),
}

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand"""


class SeccompError(OSError):
    """Raised where the filter can't be set up."""


def knows_this_architecture() -> bool:
    """Are the system call numbers of this machine's architecture known?"""
    return platform.machine() in MACHINES


def restrict_system_calls(*, tcp: bool = True) -> None:
    """Set up the filter for this process and all that it starts, for good, after no_new_privs.

    Args:
        tcp: May sockets of TCP be made? Those of UDP, and raw ones, never are. Unix sockets always may.

    Raises SeccompError where the kernel refuses, or the machine's numbers are not known.
    """
    # Fail closed: with the numbers of another machine the filter would stop the wrong calls.
    if not knows_this_architecture():
        raise SeccompError(
            errno.EOPNOTSUPP, f"the system calls of {platform.machine()} are not known"
        )
    program = build_filter(MACHINES[platform.machine()], tcp)
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    # The kernel copies the program; until then Python must not free it.
    held = ctypes.create_string_buffer(code, len(code))
    record = struct.pack("@HP", len(program), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_SECCOMP, ctypes.c_ulong(FILTER), ctypes.c_char_p(record), 0, 0):
        number = ctypes.get_errno()
        raise SeccompError(number, f"the kernel refuses a seccomp filter: {os.strerror(number)}")


def build_filter(machine: SystemCallNumbers, tcp: bool) -> list[Instruction]:
    """The filter program for the kernel: blocks that each test one thing, and return or fall
    through to the next.
    """
    # The architecture first: the same number is another call on another one (32-bit programs on a 64-bit kernel).
    program: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, machine.identity),
        _return_errno_instruction(errno.EPERM),
        (LOAD, 0, 0, NUMBER),
        (JUMP_AT_LEAST, 0, 1, X32),
        _return_errno_instruction(errno.ENOSYS),
    ]
    # Success that does nothing: `cp -p` and installers would fail for a mode that they do not need.
    for number in machine.pretended:
        program += [(JUMP_EQUAL, 0, 1, number), _return_errno_instruction(0)]
    for number in machine.refused:
        program += [(JUMP_EQUAL, 0, 1, number), _return_errno_instruction(errno.EPERM)]
    program += _block_for_call(machine.ioctl, _filter_chattr_requests())
    program += _block_for_call(machine.socket, _filter_sockets(tcp))
    for number, place in machine.sends:
        program += _block_for_call(number, _filter_sends_that_connect(place))
    return [*program, (RETURN, 0, 0, ALLOW)]


def _block_for_call(number: int, body: Sequence[Instruction]) -> list[Instruction]:
    """A block of the filter that runs `body` for this call alone; it ends by returning."""
    return [(JUMP_EQUAL, 0, len(body), number), *body]


def _filter_chattr_requests() -> list[Instruction]:
    """The block that refuses requests of chattr, and lets all others pass."""
    # The lower 32 bits of the second argument: the kernel reads no more of a request.
    body: list[Instruction] = [(LOAD, 0, 0, ARGUMENTS + 8)]
    for request in SET_FILE_FLAGS:
        body += [(JUMP_EQUAL, 0, 1, request), _return_errno_instruction(errno.EPERM)]
    return [*body, (RETURN, 0, 0, ALLOW)]


def _filter_sockets(tcp: bool) -> list[Instruction]:
    """The block that allows Unix sockets, netlink (which the C library asks for the machine's
    addresses), and TCP.
    """
    allowed: Instruction = (RETURN, 0, 0, ALLOW)
    refused = _return_errno_instruction(errno.EACCES)
    body: list[Instruction] = [(LOAD, 0, 0, ARGUMENTS)]
    for family in (socket.AF_UNIX, socket.AF_NETLINK):
        body += [(JUMP_EQUAL, 0, 1, int(family)), allowed]
    # Landlock holds TCP to ports where the kernel knows that; otherwise no internet socket is given at all.
    if not tcp:
        return [*body, refused]
    return [
        *body,
        (JUMP_EQUAL, 2, 0, int(socket.AF_INET)),
        (JUMP_EQUAL, 1, 0, int(socket.AF_INET6)),
        refused,
        (LOAD, 0, 0, ARGUMENTS + 8),
        (AND, 0, 0, KIND_OF_SOCKET),
        (JUMP_EQUAL, 1, 0, int(socket.SOCK_STREAM)),
        refused,
        (LOAD, 0, 0, ARGUMENTS + 16),
        (JUMP_EQUAL, 2, 0, 0),
        (JUMP_EQUAL, 1, 0, socket.IPPROTO_TCP),  # Landlock does not see others, as multipath TCP
        refused,
        allowed,
    ]


def _filter_sends_that_connect(place: int) -> list[Instruction]:
    """The block that refuses a connection which is opened by sending (TCP Fast Open), and which
    Landlock does not see. `place` is that of the flags' argument.
    """
    return [
        (LOAD, 0, 0, ARGUMENTS + 8 * place),
        (JUMP_IF_SET, 0, 1, FAST_OPEN),
        _return_errno_instruction(errno.EACCES),
        (RETURN, 0, 0, ALLOW),
    ]


def _return_errno_instruction(number: int) -> Instruction:
    """The instruction by which a call returns at once with this errno; 0 means that it seems to
    have worked.
    """
    return (RETURN, 0, 0, RETURN_ERROR | number)
