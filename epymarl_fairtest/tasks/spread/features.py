"""What a start of spread means for each agent: the landmarks around it, and who else is near them."""

from __future__ import annotations

from epymarl_fairtest.tasks.views import Array, nearest_first, numbered, pick, straight, without_oneself

LANDMARKS, OTHERS, RIVALS = 4, 3, 2  # the nearest ones that count


def features(agents: Array, landmarks: Array) -> Array:
    """Positions (B, N, 2) and (B, L, 2) to (B, N, F)."""
    arrows = landmarks[:, None] - agents[:, :, None]  # (B, N, L, 2)
    apart = straight(agents[:, :, None], landmarks[:, None])  # (B, N, L)
    order = nearest_first(apart, LANDMARKS)
    parts = [agents, pick(arrows, order), pick(apart[..., None], order)]
    if agents.shape[1] > 1:
        towards = without_oneself(agents[:, None] - agents[:, :, None])  # (B, N, N - 1, 2)
        away = straight(towards, 0 * towards)
        near = nearest_first(away, OTHERS)
        parts += [pick(towards, near), pick(away[..., None], near)]
        rivals = without_oneself(apart[:, None].repeat(agents.shape[1], axis=1))  # (B, N, N - 1, L)
        rivals.sort(axis=2)
        parts += [pick(rivals[:, :, rank, :, None], order) for rank in range(min(RIVALS, rivals.shape[2]))]
    return numbered(parts)
