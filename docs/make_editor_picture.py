"""Make the picture of the page on editors: Neovim with the language server, in a terminal of its own.

``python docs/make_editor_picture.py`` needs Neovim (0.7 or later) and the packages pyte and rich, and the extra ``editor``.
"""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from io import StringIO
from pathlib import Path

import pyte

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_pictures import SVG

PICTURE = Path(__file__).resolve().parent / "guides" / "pictures" / "editor.svg"
COLUMNS, LINES = 130, 18
SECONDS = 120
"""What the server, the diagnostics and the code lenses may take."""

SPEC = """\
summary: relu(x * y) equals eager and is captured as one graph
backends: [cpu]
function: |
  def fn(x, y):
      return (x * y).relu()
inputs: [{randn: [64, 64]}, {randn: [64, 64]}]
expect:
  - close: {to: eager}
  - counter: {stats.unique_graphs: 1}
"""

CONFIG = """\
vim.o.laststatus, vim.o.ruler, vim.o.showcmd, vim.o.signcolumn, vim.o.swapfile = 0, false, false, "yes", false
vim.api.nvim_create_autocmd("BufReadPost", { pattern = "*.yaml", callback = function(arguments)
  local client = vim.lsp.start_client({ name = "torch-conformance", cmd = { "%s", "-m", "runner", "lsp" }, root_dir = vim.fn.getcwd() })
  vim.lsp.buf_attach_client(arguments.buf, client)
  Timer = vim.loop.new_timer()
  Timer:start(1000, 2000, vim.schedule_wrap(function()
    if next(vim.lsp.buf_get_clients(0)) then vim.lsp.codelens.refresh() end
  end))
end })
"""

KEYS = (":%s/unique_graphs/unique_graph/\r", ":nohlsearch\r", "gg")
"""What the reader types: a name that torch does not have."""


def main() -> None:
    """Run the spec once, open it in the editor, make a mistake, and draw the screen."""
    editor = shutil.which("nvim")
    if editor is None:
        raise SystemExit("nvim is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "relu.yaml").write_text(SPEC)
        (folder / "init.lua").write_text(CONFIG % sys.executable)
        subprocess.run([sys.executable, "-m", "runner", "run", "relu.yaml"], cwd=folder, check=True, capture_output=True)
        screen = _screen([editor, "-u", "init.lua", "relu.yaml"], folder)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(_drawn(screen))


def _screen(command: list[str], folder: Path) -> pyte.Screen:
    """Return the screen of an editor when problems and outcomes stand in it."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        os.execvp(command[0], command)  # noqa: S606 - no shell is needed: the command is a list that this file makes, and the editor replaces the child that has the terminal
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    keys, ends = list(KEYS), time.monotonic() + SECONDS
    while time.monotonic() < ends:
        if select.select([terminal], [], [], 1)[0]:
            stream.feed(os.read(terminal, 1 << 16))
            continue
        shown = "\n".join(screen.display)
        if "last run" in shown and keys:
            os.write(terminal, keys.pop(0).encode())
        elif not keys and "did you mean 'stats.unique_graphs'" in shown and "last run" in shown:
            break
    else:
        raise SystemExit("the editor does not show what it should:\n" + "\n".join(screen.display))
    os.write(terminal, b"\x1b:qa!\r")
    os.waitpid(child, 0)
    return screen


def _drawn(screen: pyte.Screen) -> str:
    """Return a screen as SVG."""
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for number in range(LINES):
        text = Text(no_wrap=True)
        for column in range(COLUMNS):
            cell = screen.buffer[number][column]
            text.append(cell.data, Style(color=_color(cell.fg), bold=cell.bold, underline=cell.underscore))
        console.print(text)
    return console.export_svg(title="relu.yaml in Neovim", code_format=SVG, unique_id="editor")


def _color(name: str) -> str | None:
    """Return rich's name for a colour of pyte."""
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return {"brown": "yellow"}.get(name, name.replace("bright", "bright_").replace("bright_brown", "bright_yellow"))


if __name__ == "__main__":
    main()
