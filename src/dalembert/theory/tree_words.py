"""The terms of a step's series in words, for those who do not know the notation of trees."""

import re
from collections import Counter

from dalembert.theory.text import listed

_TOKEN = re.compile(r"(\d+)(?:\(([^)]*)\))?|[\[\]]")

PARTS = {
    **{"H_p": "∂H/∂p", "H_q": "−∂H/∂q", "F": "F"},
    **{"h_p": "∂h/∂p", "h_q": "−∂h/∂q", "f": "f"},
}

TIMES = {1: "", 2: " twice", 3: " three times", 4: " four times"}


def term_in_words(forest: str, *others: str) -> str:
    """What E[…] of a term means, such as of "1(h_p)[0 1] · 2", and the signs of all terms."""
    shown = " ".join((forest, *others))
    trees = forest.split(" · ")
    words = [_of_tree(tree) for tree in trees]
    if len(words) == 1:
        text = f"E[{forest}] is the mean of one term of the step's series: {words[0]}"
    else:
        text = f"E[{forest}] is the mean of a product of terms of the step's series: "
        text += " × ".join(f"({one})" if "," in one else one for one in words)
    signs = ["0 is the drift, 1, 2, … are noises"]
    if "[" in shown:
        signs.append("brackets hold what moves the argument of a field")
    if "·" in shown:
        signs.append("· is a product")
    if named := dict.fromkeys(re.findall(r"\(([^)]*)\)", shown)):
        first = next(iter(named))
        signs.append(f"({first}) is the part of a field that is {_part(first)}")
    return f"{text}; {listed(signs)}"


def _part(kinds: str) -> str:
    return " + ".join(PARTS.get(kind, kind) for kind in kinds.split("+")).replace("+ −", "− ")


def _of_tree(tree: str) -> str:
    """A rooted tree, written with brackets, in words."""
    stack: list[list[str]] = [[]]
    for match in _TOKEN.finditer(tree):
        if match[0] == "[":
            stack.append([])
        elif match[0] == "]":
            below = stack.pop()
            stack[-1][-1] += f", moved by {_movers(below)}"
        else:
            colour, kinds = match[1], match[2]
            name = f"noise {colour}" if int(colour) else "the drift"
            stack[-1].append(f"{kinds} of {name}" if kinds else name)
    return stack[0][0]


def _movers(below: list[str]) -> str:
    counts = Counter(f"({one})" if "," in one else one for one in below)
    return listed([one + TIMES.get(count, f" {count} times") for one, count in counts.items()])
