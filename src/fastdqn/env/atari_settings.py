"""Every choice about an Atari environment: two named protocols, and what may be changed in them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fastdqn.env.atari_games import ProtocolName, protocol_of
from fastdqn.errors import UserError, nearest

# Who shrinks the image, and how: area and box average, linear and nearest look at a few pixels only
ResizeMethod = Literal["cv2_area", "cv2_linear", "cv2_nearest", "pillow", "torch"]

PROTOCOLS: dict[str, dict[str, Any]] = {
    # Nature 2015 as Baselines plays it; a lost life ends the learning episode
    "classic": {"repeat_action_probability": 0.0, "noop_max": 30, "fire_reset": True},
    # Machado et al. 2018: sticky actions are the only randomness, and lives are not told
    "machado": {"repeat_action_probability": 0.25, "noop_max": 0, "fire_reset": False},
}
# A score made under other values than these is not comparable with one made under the protocol
COMMON_RULES: dict[str, Any] = {
    "frame_skip": 4,
    "max_pool": True,
    "max_and_skip": True,
    "episodic_life": False,  # its extra FIRE and no-op at each life change the game
    "full_action_space": False,
    "max_frames_per_game": 108_000,
    "warp": True,  # this and the next two: another image is another game to the network
    "screen": 84,
    "resize": "cv2_area",
}
# The native lanes do these in C++, in this one way
NATIVE_WAY: dict[str, Any] = {"episodic_life": False, "warp": True, "to_channels_first": True, "resize": "cv2_area"}


class AtariSettings(BaseModel):
    """What is not given comes from the protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: ProtocolName = "classic"
    noop_max: int = Field(default=30, ge=0, le=1000)  # a game starts with 0 to noop_max frames of doing nothing
    fire_reset: bool = True  # press FIRE for one frame at the start of a game that has FIRE
    repeat_action_probability: float = Field(default=0.0, ge=0, lt=1)  # sticky actions, drawn every frame
    frame_skip: int = Field(default=4, ge=1, le=60)  # frames per step
    max_pool: bool = True  # a step's image is the maximum of its last two frames (sprites flicker)
    full_action_space: bool = False  # all 18 actions, or the ones that do something in this game
    max_frames_per_game: int = Field(default=108_000, ge=1, le=10**9)  # 30 minutes; then the game is truncated
    threads: int = Field(default=0, ge=0, le=1024)  # of each group of native lanes; 0: one per usable core
    screen: int = Field(default=84, ge=8, le=210)  # height and width of the image

    # The parts of the textbook chain, each of which can be left out
    max_and_skip: bool = True  # without it a step is one frame
    episodic_life: bool = False  # a lost life ends the Gymnasium episode; without it, it is told beside the step
    warp: bool = True  # without it the image keeps the console's size
    resize: ResizeMethod = "cv2_area"  # pillow: box filter; torch: area, by F.interpolate on one thread
    to_channels_first: bool = True  # without it a single environment gives (height, width, 1), or (height, width) unwarped
    clip_reward: bool = True  # learn from rewards clipped to [-1, 1]; scores never are
    frame_stack: int = Field(default=1, ge=1, le=16)  # 1: stacks are made when a batch is sampled, from single frames

    @property
    def frames_per_step(self) -> int:
        return self.frame_skip if self.max_and_skip else 1

    @property
    def tells_lives(self) -> bool:
        return self.protocol == "classic"

    @property
    def only_textbook(self) -> list[str]:
        """The settings that the native lanes cannot follow."""
        return [f"{name}={getattr(self, name)}" for name, value in NATIVE_WAY.items() if getattr(self, name) != value]

    @property
    def departures(self) -> dict[str, Any]:
        """The rules in which these settings differ from the protocol they are named after."""
        rules = COMMON_RULES | PROTOCOLS[self.protocol]
        return {name: getattr(self, name) for name, value in rules.items() if getattr(self, name) != value}

    @model_validator(mode="before")
    @classmethod
    def _fill_from_protocol(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return PROTOCOLS.get(str(given.get("protocol", "classic")), {}) | given

    @model_validator(mode="after")
    def _check_together(self) -> "AtariSettings":
        if self.frame_stack > 1 and not self.to_channels_first:
            raise ValueError("frame_stack joins images along their first axis, so it needs to_channels_first")
        if not self.warp and self.resize != COMMON_RULES["resize"]:
            raise ValueError(f"without warp no image is resized, so resize={self.resize} would do nothing")
        if self.episodic_life and not self.tells_lives:
            raise ValueError(f"the protocol {self.protocol} tells nothing of lives, so episodic_life cannot be on")
        return self


def read_settings(env_id: str, given: dict[str, Any]) -> AtariSettings:
    """Settings as the user typed them, completed by the protocol that the id stands for."""
    try:
        return AtariSettings(**({"protocol": protocol_of(env_id)} | given))
    except ValidationError as error:
        raise UserError(" ".join(_sentence(problem) for problem in error.errors())) from None


def _sentence(problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"Unknown Atari setting {name!r}.{nearest(name, AtariSettings.model_fields)}"
    if problem["type"] == "value_error":
        return f"Atari settings: {problem['ctx']['error']}."
    return f"Atari setting {name}={problem['input']!r}: {problem['msg']}."
