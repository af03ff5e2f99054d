"""How a Snake board looks: a small image for films, a few lines of text for terminals."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

CELL = 24  # pixels; with these sizes the default board (10 x 10) makes an image of 256 x 288, whole blocks of a video
SIDE = 8  # left, right and below the board
HEADER = 40  # above the board, with the score
SMOOTH = 4  # drawn this many times larger, then shrunk: smooth edges

Cell = tuple[int, int]  # row, column
Colour = tuple[int, int, int]
Point = tuple[float, float]  # x, y in the enlarged image

FRAME: Colour = (48, 56, 72)
FLOOR: tuple[Colour, Colour] = ((16, 24, 32), (24, 32, 40))  # a chessboard, barely visible
TEXT: Colour = (226, 232, 240)
FOOD: Colour = (239, 68, 68)
SHINE: Colour = (254, 178, 178)
LEAF: Colour = (74, 222, 128)
EYE: Colour = (248, 250, 252)
PUPIL: Colour = (15, 23, 42)
SKINS: dict[str, tuple[Colour, Colour]] = {  # the colours of head and tail
    "playing": ((163, 240, 92), (16, 122, 112)),
    "won": ((255, 221, 87), (217, 119, 6)),
    "dead": ((160, 168, 184), (72, 80, 96)),
}
WORDS = {"won": "full board!", "dead": "crash", "time": "time is up"}
# Few colours keep a GIF small and free of dither: an image in play has under 256
SHADES = 10  # steps of the gradient along the body
KEPT_BITS = np.uint8(0b11111000)  # of each channel: smooth edges would else make hundreds of blends


class BoardView(NamedTuple):
    """What there is to see."""

    dim: int
    body: tuple[Cell, ...]  # the head first; empty before the first game
    direction: int  # 0 up, 1 right, 2 down, 3 left
    food: Cell | None
    score: int
    outcome: str  # playing, dead, won or time


def print_board(view: BoardView) -> str:
    """Text: a score line and a box, two characters a cell. The body fades towards the tail."""
    rows = [["  "] * view.dim for _ in range(view.dim)]
    if view.food is not None:
        rows[view.food[0]][view.food[1]] = "()"
    for i, (row, column) in enumerate(view.body):
        rows[row][column] = ("▓▓", "▒▒", "░░")[3 * i // len(view.body)]
    if view.body:
        row, column = view.body[0]
        rows[row][column] = "XX" if view.outcome == "dead" else "██"
    word = WORDS.get(view.outcome)
    lines = [f"score {view.score}" + (f"  {word}" if word else "")]
    lines.append("┌" + "──" * view.dim + "┐")
    lines += ["│" + "".join(row) + "│" for row in rows]
    lines.append("└" + "──" * view.dim + "┘")
    return "\n".join(lines) + "\n"


def paint_board(view: BoardView) -> npt.NDArray[np.uint8]:
    """An RGB image, uint8 (height, width, 3)."""
    from PIL import Image, ImageDraw

    width, height = view.dim * CELL + 2 * SIDE, view.dim * CELL + HEADER + SIDE
    image = Image.new("RGB", (width * SMOOTH, height * SMOOTH), FRAME)
    pen = ImageDraw.Draw(image)
    _floor(pen, view.dim)
    if view.food is not None:
        _food(pen, _centre(view.food), CELL * SMOOTH)
    skin = SKINS.get(view.outcome, SKINS["playing"])
    if view.body:
        _body(pen, view.body, skin)
        _head(pen, _centre(view.body[0]), view.direction, skin[0], is_dead=view.outcome == "dead")
    _header(pen, width, view.score, WORDS.get(view.outcome, ""), FOOD if view.outcome == "dead" else skin[0])
    return np.array(image.reduce(SMOOTH), np.uint8) & KEPT_BITS


def _centre(cell: Cell) -> Point:
    row, column = cell
    return (SIDE + (column + 0.5) * CELL) * SMOOTH, (HEADER + (row + 0.5) * CELL) * SMOOTH


def _disc(pen: "ImageDraw", centre: Point, radius: float, fill: Colour) -> None:
    x, y = centre
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)


def _blend(start: Colour, end: Colour, share: float) -> Colour:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(start, end, strict=True))
    return red, green, blue


def _floor(pen: "ImageDraw", dim: int) -> None:
    for row in range(dim):
        for column in range(dim):
            x, y = _centre((row, column))
            half = CELL * SMOOTH / 2
            pen.rectangle((x - half, y - half, x + half - 1, y + half - 1), fill=FLOOR[(row + column) % 2])


def _food(pen: "ImageDraw", centre: Point, cell: float) -> None:
    x, y = centre
    _disc(pen, (x, y + 0.04 * cell), 0.31 * cell, FOOD)
    _disc(pen, (x - 0.11 * cell, y - 0.07 * cell), 0.07 * cell, SHINE)
    pen.ellipse((x, y - 0.44 * cell, x + 0.24 * cell, y - 0.26 * cell), fill=LEAF)


def _body(pen: "ImageDraw", body: tuple[Cell, ...], skin: tuple[Colour, Colour]) -> None:
    """A chain of discs from the tail to the head, growing and brightening on the way: a tapered, rounded line."""
    discs_per_cell = 12
    count = (len(body) - 1) * discs_per_cell
    for i in range(count, -1, -1):
        before, share = divmod(i, discs_per_cell)
        (x1, y1), (x2, y2) = _centre(body[before]), _centre(body[min(before + 1, len(body) - 1)])
        point = x1 + (x2 - x1) * share / discs_per_cell, y1 + (y2 - y1) * share / discs_per_cell
        along = i / max(count, 1)  # 0 at the head, 1 at the tail
        colour = _blend(*skin, share=int(along * SHADES) / SHADES)
        _disc(pen, point, CELL * SMOOTH * (0.39 - 0.17 * along), colour)


def _head(pen: "ImageDraw", centre: Point, direction: int, colour: Colour, is_dead: bool) -> None:
    cell = CELL * SMOOTH
    ahead_x, ahead_y = ((0, -1), (1, 0), (0, 1), (-1, 0))[direction]
    x, y = centre
    _disc(pen, (x, y), 0.46 * cell, colour)
    for side in (-1, 1):
        # Beside the line of motion: (-ahead_y, ahead_x) is its right-hand side
        eye_x = x + cell * (0.12 * ahead_x - side * 0.20 * ahead_y)
        eye_y = y + cell * (0.12 * ahead_y + side * 0.20 * ahead_x)
        if is_dead:
            arm, thick = 0.10 * cell, round(0.06 * cell)
            pen.line((eye_x - arm, eye_y - arm, eye_x + arm, eye_y + arm), fill=PUPIL, width=thick)
            pen.line((eye_x - arm, eye_y + arm, eye_x + arm, eye_y - arm), fill=PUPIL, width=thick)
        else:
            _disc(pen, (eye_x, eye_y), 0.13 * cell, EYE)
            _disc(pen, (eye_x + 0.05 * cell * ahead_x, eye_y + 0.05 * cell * ahead_y), 0.07 * cell, PUPIL)


def _header(pen: "ImageDraw", width: int, score: int, word: str, word_colour: Colour) -> None:
    """The score beside a food, and how the game ended."""
    from PIL import ImageFont

    font = ImageFont.load_default(size=18 * SMOOTH)
    middle = HEADER / 2 * SMOOTH
    _food(pen, ((SIDE + 0.5 * CELL) * SMOOTH, middle), CELL * SMOOTH)
    pen.text(((SIDE + 1.25 * CELL) * SMOOTH, middle), str(score), font=font, fill=TEXT, anchor="lm")
    if word and width >= 10 * CELL:
        pen.text(((width - SIDE) * SMOOTH, middle), word, font=font, fill=word_colour, anchor="rm")
