"""The picture of the house: `python docs/images/house.py` writes `house.svg`."""

from pathlib import Path

FLOORS = [
    ["program\ncommands", "studies\nfigures, claims, reports"],
    ["answers\nexpectations to a tolerance", "fitting\nparameters from data"],
    ["ensemble\nblocks, engines, checkpoints, files", "theory\ncertificates, orders, balances"],
    [
        "statistics\nobserve, merge, result",
        "stepping\nplan, solvers, reports",
        "plasma\nfields, collisions",
    ],
    ["systems\nready-made", "methods\nfamilies: rows, increments, orders"],
    ["system\nH, F, h, f and their derivatives", "noise\npure functions of seed, path, step"],
    ["traces, digests, elementary functions, precision"],
]
WIDTH, HEIGHT, GAP = 720, 62, 14


def box(x: float, y: float, width: float, text: str) -> str:
    title, _, rest = text.partition("\n")
    middle = x + width / 2
    lines = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="6" class="room"/>',
        f'<text x="{middle:g}" y="{y + (26 if rest else 38):g}" class="title">{title}</text>',
    ]
    if rest:
        lines.append(f'<text x="{middle:g}" y="{y + 49:g}" class="what">{rest}</text>')
    return "\n".join(lines)


def main() -> None:
    parts = []
    for floor, rooms in enumerate(FLOORS):
        width = (WIDTH - GAP * (len(rooms) - 1)) / len(rooms)
        y = floor * (HEIGHT + GAP) + 1
        parts += [box(k * (width + GAP), y, width, text) for k, text in enumerate(rooms)]
    height = len(FLOORS) * (HEIGHT + GAP)
    style = (
        ".room{fill:#eef2fb;stroke:#4a63a8;stroke-width:1.2}"
        "text{font-family:sans-serif;text-anchor:middle;fill:#1d2a4d}"
        ".title{font-size:19px;font-weight:600}.what{font-size:16.5px}"
    )
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 0 {WIDTH + 2} {height}" role="img">\n'
        f"<title>Rooms of the package; each uses those below it</title>\n<style>{style}</style>\n"
    )
    Path(__file__).with_suffix(".svg").write_text(svg + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    main()
