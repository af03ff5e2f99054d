"""When a dead role is replaced and when a silent one counts as hung: plain rules, told the time by whoever asks."""

DELAYS = (0.0, 1.0, 2.0, 4.0)  # seconds before a role that keeps dying is tried again
MOST_DEATHS_AT_BIRTH = 5  # in a row, without having played: then the run ends
LATE = 1.0  # seconds: a parent that was not run for so long cannot blame others for their silence


class Lives:
    """One role's deaths. A life in which it has played makes good for all deaths before."""

    def __init__(self) -> None:
        self.deaths = 0  # in all
        self._in_a_row = 0  # without having played

    def died(self, played: bool) -> float | None:
        """Seconds to wait before the next life; None: it is not tried again."""
        self.deaths += 1
        self._in_a_row = 1 if played else self._in_a_row + 1
        if self._in_a_row >= MOST_DEATHS_AT_BIRTH:
            return None
        return DELAYS[min(self._in_a_row, len(DELAYS)) - 1]


class Watch:
    """Beats of all roles. A role is hung when its count has stood still for too long."""

    def __init__(self, seconds: float, first_seconds: float, now: float) -> None:
        self._seconds, self._first = seconds, first_seconds
        self._heard: dict[int, tuple[int, float, bool]] = {}  # role -> beats, when they changed, whether it has played
        self._looked = now

    def born(self, role: int, beats: int, now: float) -> None:
        self._heard[role] = (beats, now, False)

    def gone(self, role: int) -> None:
        self._heard.pop(role, None)

    def hung(self, beats: dict[int, tuple[int, bool]], now: float) -> list[int]:
        """`beats`: role -> its count and whether it has played in this life. Asked several times a second; if it was not,
        the machine slept or was stopped, and everybody gets that time as well."""
        if now - self._looked > LATE:
            late = now - self._looked
            self._heard = {role: (count, at + late, played) for role, (count, at, played) in self._heard.items()}
        self._looked = now
        silent = []
        for role, (count, at, _) in list(self._heard.items()):
            newest, played = beats[role]
            if newest != count:
                self._heard[role] = (newest, now, played)
            elif now - at > (self._seconds if played else self._first):
                silent.append(role)
        return silent
