"""Confines a process by namespaces of Linux: it gets a view of the files in which its writes go
elsewhere, and a network of its own.

`isolate_files` gives the calling process

- **files**: everything is mounted read-only. Over each folder of the user's
(`folders_for_overlays`) lies an overlay: what
  is written there can be read back as usual, and lies in a scratch folder in truth. The folders in `kept` stay as they
  are.
- **devices**: those without a store behind them (DEVICES), and an empty /dev/shm.
- **network**: one of its own, which has nothing but a loopback interface.
- **System V shared memory and message queues** of its own.

It needs no rights, but a kernel and a system that let users make user namespaces: most distributions do; Docker's
usual seccomp profile and Ubuntu's AppArmor (from 23.10 on) don't. Overlays of a user's own need Linux 5.11,
mount_setattr 5.12.
Where a folder's file system can't be covered (some network file systems), it is read-only.

The caller forks, and its parent calls `map_user_into_namespace`, since only from outside can more
than one user be mapped.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
RECURSIVE, PRIVATE, BIND = 0x4000, 0x40000, 0x1000
MOUNT_SETATTR = 442
"""Number of the system call, the same on every architecture"""
READ_ONLY = 1
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
DROP_FROM_BOUNDING_SET = 24
LAST_CAPABILITY = 63
KEPT_CAPABILITIES = {0, 1, 3, 4, 6, 7}
"""chown, dac_override, fowner, fsetid, setgid, setuid: root's usual access to files, which the mounts still hold"""
SET_INTERFACE_FLAGS, INTERFACE_UP = 0x8914, 1
ALL_USERS = 4294967295
SYSTEM_FOLDERS = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/lost+found",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)
"""Not covered, and read-only: no program of a user's writes there"""
PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
SHARED_MEMORY = "/dev/shm"


class NamespaceError(OSError):
    """Raised where this system lets us make no such namespaces."""


@dataclass(frozen=True, slots=True)
class FileView:
    """Where the process may write, in its view of the files."""

    covered: tuple[str, ...]
    """Folders under an overlay"""
    read_only: tuple[str, ...]
    """Folders of the user's that could not be covered"""


def enter_namespaces() -> None:
    """Move this process into new namespaces. Raises NamespaceError where that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    _raise_if_call_failed(
        libc.unshare(NEW_USER | NEW_MOUNTS | NEW_NETWORK | NEW_IPC), "new namespaces"
    )


def map_user_into_namespace(process: int) -> None:
    """Let a process that has entered stay the user that it was; called by its parent.

    Root keeps all users, so that files of others stay readable. Raises OSError where the system refuses.
    """
    folder = Path("/proc", str(process))
    if os.getuid() == 0:
        with suppress(OSError):  # root of a container, who has a part of all users only
            folder.joinpath("uid_map").write_text(f"0 0 {ALL_USERS}")
            folder.joinpath("gid_map").write_text(f"0 0 {ALL_USERS}")
            return
    # Since Linux 3.19 a group can be mapped only where setgroups is given up; older kernels have no such file.
    with suppress(FileNotFoundError):
        folder.joinpath("setgroups").write_text("deny")
    for name, number in (("uid_map", os.getuid()), ("gid_map", os.getgid())):
        if not folder.joinpath(name).read_text().strip():
            folder.joinpath(name).write_text(f"{number} {number} 1")


def isolate_files(kept: Iterable[str], scratch: str, used: Iterable[str] = ()) -> FileView:
    """Give the process the view of the files that the module's text describes, after
    `enter_namespaces` and `map_user_into_namespace`.

    Args:
        kept: Folders that stay as they are, and writable.
        scratch: A folder below one of `kept` that takes what is written elsewhere.
        used: Folders that the program will surely write to; they get an overlay of their own where they need one.

    Raises NamespaceError where it can't be made; the process must end then, since half of it may stand.
    """
    here = os.getcwd()
    _mount(None, "/", None, RECURSIVE | PRIVATE, None)
    kept, scratch = [os.path.realpath(folder) for folder in kept], os.path.realpath(scratch)
    # Opened before anything is covered: through these the folders can be mounted where they were.
    handles = [(folder, os.open(folder, os.O_PATH | os.O_CLOEXEC)) for folder in kept]
    covered: list[str] = []
    read_only: list[str] = []
    folders = list(folders_for_overlays(_list_mount_points(), kept))
    _replace_dev_by_minimal_one(os.path.join(scratch, "devices"))
    # The one with `scratch` in it last: under an overlay `scratch` would be another folder.
    folders.sort(key=lambda folder: _is_below(scratch, [folder]))
    for folder in folders:
        (covered if _cover_folder_by_overlay(folder, scratch, len(covered)) else read_only).append(
            folder
        )
    _remount_folders(handles)  # `scratch` is there again
    for folder in _own_folders_below_other_users_folder(used, covered, kept):
        if _cover_folder_by_overlay(folder, scratch, len(covered)):
            covered.append(folder)
    # First everything read-only, then the few writable ones back: what is forgotten is safe.
    _set_mount_attributes("/", AT_RECURSIVE, READ_ONLY, 0)
    _remount_folders(handles)
    for _, handle in handles:
        os.close(handle)
    for folder in (*covered, *kept, SHARED_MEMORY):
        _set_mount_attributes(folder, 0, 0, READ_ONLY)
    _bring_loopback_up()
    os.chdir(here)  # or we would still stand in the folder below the overlay
    return FileView(tuple(covered), tuple(read_only))


def drop_capabilities() -> None:
    """Give up the rights of root, or those that a new user namespace gave: without them no mount
    can be made, changed or removed.

    Landlock does not see a change of a mount's attributes. Works with the next exec; nothing happens for other users.
    """
    # From the bounding set, which bounds what the next exec may get; what this process has it still needs.
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(LAST_CAPABILITY + 1):
        if capability not in KEPT_CAPABILITIES:
            libc.prctl(DROP_FROM_BOUNDING_SET, ctypes.c_ulong(capability), 0, 0, 0)


def folders_for_overlays(mount_points: Mapping[str, bool], kept: Iterable[str]) -> Iterator[str]:
    """The largest folders that can lie under an overlay: one must hold no mount point. Read-only mounts need none.

    The system's own are left out, and what is kept, unless it lies below. `mount_points` says of each whether it is
    read-only.
    """
    mounts = [point for point in mount_points if not _is_below(point, SYSTEM_FOLDERS)]
    left_out = {*kept, *SYSTEM_FOLDERS, *(point for point, is_ro in mount_points.items() if is_ro)}

    def walk(folder: str) -> Iterator[str]:
        if folder in left_out or os.path.islink(folder):
            return
        # An overlay does not show what is mounted below its lower folder: that would look empty.
        if any(point != folder and _is_below(point, [folder]) for point in mounts):
            with suppress(OSError):
                for inner in _list_subfolders(folder):
                    yield from walk(inner)
            return
        yield folder

    for folder in _list_subfolders("/"):
        yield from walk(folder)


def _list_subfolders(folder: str) -> list[str]:
    """The folders in a folder, by name, without links. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))


def _remount_folders(handles: Iterable[tuple[str, int]]) -> None:
    """Mount folders where they were, on top of what covers them."""
    for folder, handle in handles:
        _mount(f"/proc/self/fd/{handle}", folder, None, BIND, None)


def _own_folders_below_other_users_folder(
    used: Iterable[str], covered: Iterable[str], kept: Iterable[str]
) -> list[str]:
    """The folders of the user's own, on the way to those in `used`, that lie below a folder of another user's.

    The overlay above can't hold a copy of that one: its owner is nobody in our namespace. Root has all owners.
    """
    hidden: list[str] = []
    for path in map(os.path.realpath, used if os.getuid() else ()):
        if not os.path.isdir(path) or _is_below(path, kept):
            continue
        place = _highest_own_folder_below_other_users(path, covered)
        if place is not None and place not in hidden and os.access(place, os.W_OK):
            hidden.append(place)
    return hidden


def _highest_own_folder_below_other_users(path: str, covered: Iterable[str]) -> str | None:
    """The highest folder above `path` that no folder of another user's lies between; None where the
    whole way up to the covered folder is the user's.
    """
    above = [path, *map(str, Path(path).parents)]
    root = next((folder for folder in above if folder in covered), None)
    if root is None:
        return None
    between = above[: above.index(root)]
    others = [folder for folder in between if os.stat(folder).st_uid != os.getuid()]
    if not others:
        return None
    below = between[: between.index(others[0])]
    return below[-1] if below else path


def _is_below(path: str, folders: Iterable[str]) -> bool:
    """Is a path one of the folders, or in one? By whole names: /tmpfile is not below /tmp."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _list_mount_points() -> dict[str, bool]:
    """Mount point -> is it read-only?"""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        fields[4].encode().decode("unicode_escape"): "ro" in fields[5].split(",")
        for fields in lines
    }


def _cover_folder_by_overlay(folder: str, scratch: str, number: int) -> bool:
    """Cover a folder by an overlay, with what is written in `scratch`, or in memory; False where
    neither works.

    In memory where `scratch` is below the folder, which the kernel takes for a circle, or where the file system of
    `scratch` can't hold it. False where the folder can't be covered at all.
    """
    if not os.access(folder, os.R_OK | os.X_OK):
        return False
    place = os.path.join(scratch, str(number))
    with suppress(OSError):  # of a file system that lets even its owner not look at its root, too
        if not _is_below(scratch, [folder]) and _mount_overlay(folder, place):
            return True
        place += "-memory"
        os.mkdir(place)
        _mount("tmpfs", place, "tmpfs", 0, None)
        return _mount_overlay(folder, os.path.join(place, "overlay"))
    return False


def _mount_overlay(folder: str, place: str) -> bool:
    """Mount an overlay over a folder, with what is written in `place`; False where the kernel refuses."""
    upper, work = os.path.join(place, "written"), os.path.join(place, "work")
    os.makedirs(upper)
    os.mkdir(work)
    seen = os.stat(folder)  # the folder will have the mode and owner of `upper`
    # Or a folder that others may not enter could be entered through the overlay.
    os.chmod(upper, seen.st_mode & 0o7777)
    with suppress(OSError):
        os.chown(upper, seen.st_uid, seen.st_gid)
    folders = (("lowerdir", folder), ("upperdir", upper), ("workdir", work))
    paths = ",".join(f"{name}={_escape_mount_option(path)}" for name, path in folders)
    # userxattr: without rights over the system, overlay may keep its notes in `user.` attributes alone.
    paths += ",userxattr"
    try:
        _mount("overlay", folder, "overlay", 0, paths)
    except NamespaceError:
        return False
    return True


def _escape_mount_option(path: str) -> str:
    """A path in the options of an overlay, where commas and colons part options and folders."""
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    """Mount a file system (mount(2)). Raises NamespaceError where it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    done = libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _raise_if_call_failed(done, f"mounting at {target}")


def _replace_dev_by_minimal_one(folder: str) -> None:
    """Replace /dev by one that holds DEVICES and shared memory of its own, made in `folder`. Disks
    and terminals are not in it.
    """
    os.mkdir(folder)
    # 755: in a sticky folder, others' devices can't be opened to create.
    _mount("tmpfs", folder, "tmpfs", 0, "mode=755")
    for device in PLAIN_DEVICES:
        place = os.path.join(folder, os.path.basename(device))
        with suppress(OSError):  # a system without this device
            if os.path.exists(device):
                Path(place).touch()
                _mount(device, place, None, BIND, None)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", os.path.join(folder, name))
    shared = os.path.join(folder, os.path.basename(SHARED_MEMORY))
    os.mkdir(shared)
    _mount("tmpfs", shared, "tmpfs", 0, "mode=1777")
    _mount(folder, "/dev", None, BIND | RECURSIVE, None)


def _set_mount_attributes(folder: str, flags: int, added: int, removed: int) -> None:
    """Set the attributes of a mount (mount_setattr(2))."""
    # By its number, for C libraries know the call only since glibc 2.36.
    libc = ctypes.CDLL(None, use_errno=True)
    record = struct.pack("=QQQQ", added, removed, 0, 0)
    done = libc.syscall(
        MOUNT_SETATTR, AT_FDCWD, os.fsencode(folder), flags, record, ctypes.c_size_t(len(record))
    )
    _raise_if_call_failed(done, f"the mount at {folder}")


def _bring_loopback_up() -> None:
    """Bring the loopback interface of a new network up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        fcntl.ioctl(opened, SET_INTERFACE_FLAGS, struct.pack("16sH14x", b"lo", INTERFACE_UP))


def _raise_if_call_failed(result: int, subject: str) -> None:
    """Raise NamespaceError, with the C library's reason, where the result of a call says that it
    failed.
    """
    if result < 0:
        number = ctypes.get_errno() or errno.EPERM
        raise NamespaceError(number, f"the system refuses {subject}: {os.strerror(number)}")
