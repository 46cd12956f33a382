"""Where Python looks for modules: not in the working folder."""

import os
import sys


def leave_out_working_folder() -> None:
    """Take off ``sys.path`` what Python put there unasked: the working folder (``-m``), or the folder of the script.

    A checkout of PyTorch has a folder ``torch``: it is not the torch that the workers import, since those are started with ``-P``.
    """
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd(), os.path.dirname(os.path.realpath(sys.argv[0]))):
        del sys.path[0]
    search = os.environ.get("PYTHONPATH", "")
    if search and not sys.flags.ignore_environment and "" in search.split(os.pathsep):
        # an empty entry means the working folder to Python; a .pth file may name it too, whose entries are the last
        working_folder = os.getcwd()
        if working_folder in sys.path and working_folder not in [os.path.abspath(entry) for entry in search.split(os.pathsep) if entry]:
            sys.path.remove(working_folder)
            sys.path.append(working_folder)
