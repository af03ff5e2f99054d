"""When a dead role is restarted and when a silent one counts as hung: plain rules, the caller passes the time."""

DELAYS = (0.0, 1.0, 2.0, 4.0)  # seconds before a role that keeps dying is restarted
MOST_DEATHS_AT_BIRTH = 5  # in a row, without having played: then the run ends
LATE = 1.0  # seconds: if the parent itself did not run for so long, silent roles are not to blame


class Lives:
    """One role's deaths. A life in which it has played cancels all deaths before."""

    def __init__(self) -> None:
        self.deaths = 0  # in total
        self._in_a_row = 0  # without having played

    def died(self, played: bool) -> float | None:
        """Seconds to wait before the restart; None: it is not restarted."""
        self.deaths += 1
        self._in_a_row = 1 if played else self._in_a_row + 1
        if self._in_a_row >= MOST_DEATHS_AT_BIRTH:
            return None
        return DELAYS[min(self._in_a_row, len(DELAYS)) - 1]


class Watch:
    """Heartbeats of all roles. A role is hung when its count has not changed for too long."""

    def __init__(self, seconds: float, first_seconds: float, now: float) -> None:
        self._seconds, self._first = seconds, first_seconds
        self._heard: dict[int, tuple[int, float, bool]] = {}  # role -> beats, when they changed, whether it has played
        self._looked = now

    def born(self, role: int, beats: int, now: float) -> None:
        self._heard[role] = (beats, now, False)

    def gone(self, role: int) -> None:
        self._heard.pop(role, None)

    def hung(self, beats: dict[int, tuple[int, bool]], now: float) -> list[int]:
        """`beats`: role -> its count and whether it has played in this life. Called several times a second; after a longer
        gap the machine slept or was stopped, and all roles get that time in addition."""
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
