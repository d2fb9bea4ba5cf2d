"""Confines a process by Landlock: it gives up rights for good, for itself and for all that it
starts. The kernel of Linux enforces it.

    from truetune.confinement import landlock

    landlock.confine_writes(["/var/job"])                 # reads anything, writes below /var/job alone
    landlock.confine_writes([], readable=[sys.prefix, "/usr"])  # reads these, writes nothing
    landlock.landlock_version()                                 # 0: this kernel has no Landlock

What is given up can't be had back: call it in a process that is made for the purpose, early, before it starts a thread.
Files that are open already stay as they were opened, pipes and sockets too. Any code is bound by it, of any language.

How far it reaches depends on the kernel (`list_landlock_refusals` says it in words):

| version | since Linux | what it adds |
|---|---|---|
| 1 | 5.13 | opening for writing, making, removing; reading if `readable` is given; no move from folder to folder |
| 2 | 5.19 | moving and linking between two writable folders is possible |
| 3 | 6.2 | truncate(2) of a file by its path |
| 4 | 6.7 | TCP: binding and connecting, by the number of the port (an address can't be told apart) |
| 5 | 6.10 | ioctl on devices |
| 6 | 6.12 | signals to processes outside, and abstract Unix sockets of processes outside |

What no version up to 7 reaches: chmod, chown, utime and setxattr on files that the process may see; UDP; Unix sockets
that have a path; memory that is shared already. A seccomp filter or namespaces are there for those.

It uses the standard library alone: three system calls by their number, which is the same on every architecture.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls"""
ASK_VERSION = 1
"""The flag of CREATE_RULESET that asks for the version of the interface"""
PATH_BENEATH, NET_PORT = 1, 2
"""Kinds of rules"""
SET_NO_NEW_PRIVILEGES = 38
"""prctl: no program that is started gets more rights than its parent. Landlock asks for it."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
"""Rights to files, as bits of linux/landlock.h"""
MAKE_ANY = sum(1 << bit for bit in range(6, 13))
"""Character devices, folders, files, sockets, pipes, block devices and symbolic links"""
REFER, TRUNCATE, DEVICE_IOCTL = 1 << 13, 1 << 14, 1 << 15
READING = EXECUTE | READ_FILE | READ_DIR
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_IOCTL
"""Rights that make sense for what is no folder; the kernel refuses others"""
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
ABSTRACT_SOCKETS, SIGNALS = 1 << 0, 1 << 1
"""What stays within the confined processes, as bits of linux/landlock.h"""

Path = str | os.PathLike[str]


class LandlockError(OSError):
    """Raised where the kernel has no Landlock, or refuses a rule: nothing is confined."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What Landlock confines from now on."""

    version: int
    """Of the kernel's Landlock"""
    truncation: bool
    """truncate(2) by a path is refused outside of the writable folders"""
    tcp: bool
    """TCP is held to the ports that were given"""
    scoped: bool
    """Signals and abstract Unix sockets reach no process outside"""


def landlock_version() -> int:
    """The version of Landlock's interface that this kernel has, and uses; 0 where there is none."""
    return max(
        0, _system_call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(ASK_VERSION))
    )


def list_landlock_refusals(number: int) -> list[str]:
    """What this version of Landlock refuses outside of what is allowed, in words."""
    levels = (
        (1, "files are neither opened for writing, made, removed nor moved"),
        (3, "files are not truncated by their path"),
        (4, "TCP is held to the ports that are allowed"),
        (6, "no signal, and no abstract Unix socket, reaches a process outside"),
    )
    return [text for least, text in levels if number >= least]


def confine_writes(
    writable: Iterable[Path],
    *,
    readable: Iterable[Path] | None = None,
    connect_ports: Collection[int] | None = (),
    bind_ports: Collection[int] | None = (),
    scoped: bool = True,
) -> Confinement:
    """Confine this thread, and all processes that it starts, for good.

    Args:
        writable: Folders in which anything may be written, made and removed, and files and devices that may be written.
            They may be read too. What is not there is passed over.
        readable: Folders and files that may be read and executed; None: all.
        connect_ports: Ports to which TCP may connect, on any host; None: all.
        bind_ports: Ports at which TCP may listen; None: all. 0 stands for a port that the kernel picks.
        scoped: Are signals and abstract sockets kept from processes outside?

    Returns:
        What holds. Parts that this kernel's version does not know (see the table above) are left out, and it says so.

    Raises:
        LandlockError: where the kernel has no Landlock or refuses; then nothing is confined.
    """
    number = landlock_version()
    if number == 0:
        raise LandlockError(errno.EOPNOTSUPP, "this kernel has no Landlock, or it is switched off")
    # What is not handled stays free: rights that are never named in the ruleset are not taken away.
    handled = _rights_to_change_files(number) | (READING if readable is not None else 0)
    port_rules = _collect_port_rules(bind_ports, connect_ports)
    handled_tcp = sum(port_rules)
    scopes = ABSTRACT_SOCKETS | SIGNALS if scoped else 0
    ruleset = _create_ruleset(number, handled, handled_tcp, scopes)
    try:
        for path in writable:
            _allow_path(ruleset, path, handled)
        for path in readable or ():
            _allow_path(ruleset, path, READING)
        # Version 4 is the first that knows ports; an older kernel refuses the rule.
        if number >= 4:
            for right, ports in port_rules.items():
                _allow_ports(ruleset, right, ports)
        # The kernel takes rules only from who can't gain rights by starting a setuid program.
        forbid_new_privileges()
        _raise_if_call_failed(
            _system_call(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)), "the rules as a whole"
        )
    finally:
        os.close(ruleset)
    holds_tcp = number >= 4 and bool(handled_tcp)
    return Confinement(number, number >= 3, holds_tcp, number >= 6 and scoped)


def forbid_new_privileges() -> None:
    """No program started from here gets more rights than this process: sudo and its like do not work any more.

    Raises LandlockError where the kernel refuses.
    """
    zero = ctypes.c_ulong(0)
    libc = ctypes.CDLL(None, use_errno=True)
    _raise_if_call_failed(
        libc.prctl(SET_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero), "no_new_privs"
    )


def _rights_to_change_files(number: int) -> int:
    """All rights to change files that this version knows, as bits."""
    rights = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_ANY
    for least, right in ((2, REFER), (3, TRUNCATE), (5, DEVICE_IOCTL)):
        if number >= least:
            rights |= right
    return rights


def _create_ruleset(number: int, files: int, tcp: int, scopes: int) -> int:
    """Create a new set of rules; gives its file descriptor. An older kernel knows fewer fields, and
    refuses a longer record.
    """
    fields = [files]
    if number >= 4:
        fields.append(tcp)
    if number >= 6:
        fields.append(scopes)
    record = struct.pack(f"={len(fields)}Q", *fields)
    return _raise_if_call_failed(
        _system_call(CREATE_RULESET, record, ctypes.c_size_t(len(record)), ctypes.c_uint32(0)),
        "a set of rules",
    )


def _allow_path(ruleset: int, path: Path, rights: int) -> None:
    """Allow these rights at and below a path. Nothing is allowed where it can't be opened."""
    with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            # The kernel answers EINVAL to a right of folders on a file.
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= OF_A_FILE
            rule = struct.pack("=Qi", rights, place)
            _raise_if_call_failed(
                _system_call(ADD_RULE, ruleset, PATH_BENEATH, rule, 0), os.fspath(path)
            )
        finally:
            os.close(place)


def _collect_port_rules(
    bind_ports: Collection[int] | None, connect_ports: Collection[int] | None
) -> dict[int, Collection[int]]:
    """Right -> the ports at which it stays; a right with no entry is not taken away at all."""
    rights = ((BIND_TCP, bind_ports), (CONNECT_TCP, connect_ports))
    return {right: ports for right, ports in rights if ports is not None}


def _allow_ports(ruleset: int, right: int, ports: Iterable[int]) -> None:
    """Allow to bind, or to connect to, these ports; of any address, for a rule names ports alone."""
    for port in ports:
        rule = struct.pack("=QQ", right, port)
        _raise_if_call_failed(_system_call(ADD_RULE, ruleset, NET_PORT, rule, 0), f"port {port}")


def _system_call(number: int, *arguments: object) -> int:
    """A system call; -1 and the C library's errno where it fails, or where there are no such calls at all."""
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError, TypeError):  # not Linux
        return -1
    # ctypes returns an int of 32 bits by default, and a file descriptor or -1 must come back as it is.
    syscall.restype = ctypes.c_long
    return int(syscall(ctypes.c_long(number), *arguments))


def _raise_if_call_failed(result: int, subject: str) -> int:
    """The result of a call. Raises LandlockError, with the C library's reason, where it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise LandlockError(number, f"Landlock refuses {subject}: {os.strerror(number)}")
    return result
