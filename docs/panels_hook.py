"""Cuts pictures of two panels side by side in two, which stand one above the other on a phone.

A picture that is shrunk to the width of a phone cannot be read. One that is marked with `.halves`,
as all of the tutorials are, becomes two pictures between which a line may break, if it has two
panels: where nothing white runs down the middle, it stays whole.
"""

import posixpath
import re
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

PICTURE = re.compile(
    r"^!\[(?P<says>[^\]\n]*)\]\((?P<path>[\w./-]+\.png)\)\{ \.halves(?P<how>[^}\n]*)\}$", re.M
)
WIDE = 1.5
"""Width over height from which a picture may have panels side by side."""
MIDDLE = (0.4, 0.6)
"""Where the gap between them is, as shares of the width."""
TOGETHER = 34
"""Room in rem below which the halves stand one above the other."""
GAP = 0.008
"""How wide it is at least: the gaps between the words of a title over both are narrower."""


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace pictures of two panels by two pictures."""
    from mkdocs.structure.files import File

    folder = posixpath.dirname(page.file.src_uri)

    def halve(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found["path"]))
        whole = files.get_file_from_path(path)
        halves = cut(whole.content_bytes) if whole else None
        if halves is None:
            return found[0]
        given = re.search(r"width=\W?(\d+)", found["how"])
        both = sum(width for width, _ in halves)
        share = both / int(given[1]) if given else 2
        shown = []
        for side, (width, png) in zip(("left", "right"), halves, strict=True):
            name = f"{path.removesuffix('.png')}_{side}.png"
            files.append(File.generated(config, name, content=png))
            says = found["says"] and f"{found['says']}, {side}"
            link = posixpath.relpath(name, folder or ".")
            room = f'style="flex: {width} 1 {TOGETHER * width / both:.1f}rem"'
            shown.append(f"![{says}]({link}){{ width={width / share:.0f} {room} }}")
        return "\n".join([*shown, "{ .panels }"])

    return PICTURE.sub(halve, markdown)


def cut(png: bytes) -> list[tuple[int, bytes]] | None:
    """The left and the right half of a picture with their widths, None for a picture in one."""
    with Image.open(BytesIO(png)) as picture:
        picture.load()
    width, height = picture.size
    if width < WIDE * height:
        return None
    pixels = np.asarray(picture.convert("RGB")).astype(int)
    white = np.all(np.abs(pixels - pixels[0, 0]) < 8, axis=(0, 2))
    # The widest white run: the ones around the labels of the right panel are narrower.
    edges = np.flatnonzero(np.diff(np.concatenate(([False], white, [False])).astype(int)))
    runs = [
        (end - start, (start + end) // 2)
        for start, end in edges.reshape(-1, 2)
        if MIDDLE[0] * width < (start + end) / 2 < MIDDLE[1] * width and end - start > GAP * width
    ]
    if not runs:
        return None
    _, middle = max(runs)
    halves = []
    for left, right in ((0, middle), (middle, width)):
        file = BytesIO()
        picture.crop((left, 0, right, height)).save(file, "PNG", optimize=True)
        halves.append((int(right - left), file.getvalue()))
    return halves
