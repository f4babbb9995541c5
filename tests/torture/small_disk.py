"""A small file system for the data of a node, which a test can fill."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path


class SmallDisk:
    """A file system in memory, if this user may mount one. Otherwise it is a plain directory that cannot be filled."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        self.is_mounted = done.returncode == 0
        self._filler = path / "filler"

    def fill(self, left_bytes: int) -> None:
        """Takes all space but about `left_bytes`."""
        with self._filler.open("wb") as filler:
            while not self._take(filler.fileno(), left_bytes):
                # The node took space in the meantime.
                pass

    def free(self) -> None:
        """Gives the space back."""
        self._filler.unlink(missing_ok=True)

    def close(self, *, keeps: bool) -> None:
        """Unmounts the file system. If `keeps` is true, its files stay in the directory."""
        if not self.is_mounted:
            return
        self.free()
        copy = self.path.with_suffix(".kept")
        if keeps:
            shutil.copytree(self.path, copy)
        subprocess.run(["umount", str(self.path)], check=True)
        if keeps:
            self.path.rmdir()
            copy.rename(self.path)

    def _take(self, file: int, left_bytes: int) -> bool:
        space = os.statvfs(self.path)
        wanted = space.f_bavail * space.f_frsize - left_bytes
        try:
            if wanted > 0:
                os.posix_fallocate(file, 0, wanted)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True
