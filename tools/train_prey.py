"""Train the prey of simple_tag with PPO against scripted predators and write its weights.

The worlds are simulated in numpy, many at once, by the rules of mpe2; the final table is measured in
mpe2 itself, with the weights already rounded to the grid of `epymarl_fairtest.tasks.tag.prey`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.core.files import write_arrays
from epymarl_fairtest.tasks.tag.prey import SHAPES, Prey, to_grid

EPISODE = 50
PREY = 3
SIZES = np.array([0.075, 0.075, 0.075, 0.05, 0.2, 0.2])
ACCEL = np.array([3.0, 3.0, 3.0, 4.0])
MAX_SPEED = np.array([1.0, 1.0, 1.0, 1.3])
DIRECTIONS = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])


def toward(delta: np.ndarray, along_x: np.ndarray) -> np.ndarray:
    """The discrete action that reduces `delta` on the chosen axis."""
    return np.where(along_x, np.where(delta[..., 0] < 0, 1, 2), np.where(delta[..., 1] < 0, 3, 4))


class Worlds:
    """A batch of simple_tag worlds: entities 0-2 predators, 3 prey, 4-5 obstacles."""

    def __init__(self, batch: int, rng: np.random.Generator) -> None:
        self.rng, self.batch = rng, batch
        self.pos, self.vel = np.zeros((batch, 6, 2)), np.zeros((batch, 4, 2))
        self.age = np.zeros(batch, dtype=np.int64)
        self.lag, self.noise = np.zeros((batch, 3), dtype=np.int64), np.zeros((batch, 3))
        self.lead, self.blur = np.zeros((batch, 3)), np.zeros((batch, 3))
        self.flank = np.zeros((batch, 3, 2))
        self.trail = np.zeros((5, batch, 2))
        self.reset(np.ones(batch, dtype=bool))
        self.age[:] = rng.integers(0, EPISODE, batch)  # staggered: a rollout sees every phase of episodes

    def reset(self, which: np.ndarray) -> None:
        """New worlds with new predators: each draws its own delay, noise, lead and flanking side."""
        n, rng = int(which.sum()), self.rng
        self.pos[which, :4] = rng.uniform(-1, 1, (n, 4, 2))
        self.pos[which, 4:] = rng.uniform(-0.9, 0.9, (n, 2, 2))
        self.vel[which], self.age[which] = 0.0, 0
        self.lag[which] = rng.integers(0, 5, (n, 3)) * (rng.random((n, 3)) < 0.4)
        self.noise[which] = rng.choice([0.0, 0.1, 0.3, 1.0], (n, 3), p=[0.5, 0.25, 0.15, 0.1])
        self.lead[which] = rng.uniform(0, 1.0, (n, 3)) * (rng.random((n, 3)) < 0.5)
        self.blur[which] = rng.random((n, 3)) < 0.4
        self.flank[which] = rng.normal(0, 0.4, (n, 3, 2)) * (rng.random((n, 3, 1)) < 0.3)
        self.trail[:, which] = self.pos[which, PREY]

    def predators(self) -> np.ndarray:
        """Chase a delayed, led or flanked target along the longer axis, or at times any axis."""
        seen = self.trail[self.lag, np.arange(self.batch)[:, None]]
        delta = seen - self.pos[:, :3]
        reach = np.minimum(np.linalg.norm(delta, axis=2, keepdims=True), 1.0)
        delta = delta + reach * (self.lead[..., None] * self.vel[:, None, PREY] + self.flank)
        share = np.abs(delta[..., 0]) / (np.abs(delta).sum(axis=2) + 1e-9)
        greedy = toward(delta, share > np.where(self.blur > 0, self.rng.random(share.shape), 0.5))
        wild = self.rng.random(share.shape) < self.noise
        return np.where(wild, self.rng.integers(0, 5, share.shape), greedy)

    def physics(self, actions: np.ndarray) -> None:
        """One step of mpe2's world for actions [B, 4]."""
        delta = self.pos[:, :4, None] - self.pos[:, None]
        dist = np.sqrt((delta**2).sum(axis=3))
        dist[:, range(4), range(4)] = np.inf
        push = 100.0 * np.logaddexp(0.0, (SIZES[:4, None] + SIZES - dist) / 1e-3) * 1e-3
        force = DIRECTIONS[actions] * ACCEL[:, None] + ((push / dist)[..., None] * delta).sum(axis=2)
        self.pos[:, :4] += self.vel * 0.1
        self.vel = self.vel * 0.75 + force * 0.1
        speed = np.sqrt((self.vel**2).sum(axis=2))
        self.vel *= np.minimum(1.0, MAX_SPEED / np.maximum(speed, 1e-12))[..., None]

    def step(self, prey_actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards of the prey, with a small term for distance to guide it early, and whose time is up."""
        self.physics(np.concatenate([self.predators(), prey_actions[:, None]], axis=1))
        self.trail = np.concatenate([self.pos[None, :, PREY], self.trail[:-1]])
        dist = np.linalg.norm(self.pos[:, :3] - self.pos[:, PREY, None], axis=2)
        away = np.abs(self.pos[:, PREY])
        fence = np.where(away < 1, np.maximum(0, away - 0.9) * 10, np.minimum(np.exp(2 * away - 2), 10))
        reward = -10.0 * (dist < 0.125).sum(axis=1) - fence.sum(axis=1) + 0.2 * dist.min(axis=1).clip(max=1.0)
        self.age += 1
        return reward, self.age >= EPISODE

    def observe(self) -> np.ndarray:
        """The prey's 14 numbers, then the predators' velocities, which only the critic is shown."""
        here = self.pos[:, PREY]
        others = self.pos[:, [4, 5, 0, 1, 2]] - here[:, None]
        parts = [self.vel[:, PREY], here, others.reshape(-1, 10), self.vel[:, :3].reshape(-1, 6)]
        return np.concatenate(parts, axis=1)


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def train(steps: int, seed: int, batch: int = 256, horizon: int = 32) -> dict[str, np.ndarray]:
    """PPO with a wide critic and the small actor; returns the actor's weights on the grid."""
    torch.manual_seed(seed)
    worlds = Worlds(batch, np.random.default_rng(seed))
    actor, critic = mlp(14, 32, 32, 5), mlp(20, 128, 128, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=1e-3)
    rounds, start, gamma, lam = max(1, steps // (batch * horizon)), time.time(), 0.97, 0.95
    seen, after = torch.zeros(horizon, batch, 20), torch.zeros(horizon, batch, 20)
    rewards, cut = torch.zeros(horizon, batch), torch.zeros(horizon, batch)
    chosen = torch.zeros(horizon, batch, dtype=torch.int64)
    for k in range(rounds):
        left = 1.0 - k / rounds
        optimiser.param_groups[0]["lr"] = 1e-3 * left + 1e-5
        with torch.no_grad():
            for t in range(horizon):
                seen[t] = torch.from_numpy(worlds.observe())
                chosen[t] = torch.distributions.Categorical(logits=actor(seen[t, :, :14])).sample()
                reward, over = worlds.step(chosen[t].numpy())
                rewards[t], cut[t] = torch.from_numpy(0.1 * reward), torch.from_numpy(over)
                after[t] = torch.from_numpy(worlds.observe())
                worlds.reset(over)
            value, ahead = critic(seen)[..., 0], critic(after)[..., 0]
            advantage, carry = torch.zeros(horizon, batch), torch.zeros(batch)
            for t in reversed(range(horizon)):  # an episode's end is a time limit: bootstrap through it
                carry = rewards[t] + gamma * ahead[t] - value[t] + gamma * lam * (1 - cut[t]) * carry
                advantage[t] = carry
            goal = (advantage + value).flatten()
            advantage = ((advantage - advantage.mean()) / (advantage.std() + 1e-6)).flatten()
            x, a = seen.reshape(-1, 20), chosen.flatten()
            old = torch.log_softmax(actor(x[:, :14]), 1).gather(1, a[:, None])[:, 0]
        for _ in range(3):
            for part in torch.randperm(len(a)).split(2048):
                logp = torch.log_softmax(actor(x[part, :14]), 1)
                ratio = (logp.gather(1, a[part, None])[:, 0] - old[part]).exp()
                gain = torch.minimum(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part])
                entropy = -(logp.exp() * logp).sum(1)
                error = (critic(x[part])[:, 0] - goal[part]).pow(2)
                optimiser.zero_grad()
                (-gain - 0.01 * left * entropy + 0.5 * error).mean().backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimiser.step()
        if k % max(1, rounds // 20) == 0 or k == rounds - 1:
            mean, spent = 10 * rewards.mean().item(), time.time() - start
            print(f"round {k + 1}/{rounds}  reward per step {mean:.3f}  {spent:.0f} s", flush=True)
    trained = zip(SHAPES, actor.parameters(), strict=True)
    return {name: to_grid(p.detach().numpy().T).copy() for name, p in trained}


def measure(choose: Callable[[np.ndarray], int], episodes: int, seed: int) -> tuple[float, float, float]:
    """In mpe2, against three greedy chasers: caught steps per episode, mean and greatest |position|."""
    from mpe2 import simple_tag_v3

    env = simple_tag_v3.parallel_env(max_cycles=EPISODE)
    caught, places = 0, []
    for episode in range(episodes):
        env.reset(seed=seed + episode)
        raw = env.unwrapped
        *hunters, prey = raw.world.agents
        for _ in range(EPISODE):
            delta = np.array([prey.state.p_pos - hunter.state.p_pos for hunter in hunters])
            moves = toward(delta, np.abs(delta[:, 0]) > np.abs(delta[:, 1]))
            actions = {hunter.name: int(move) for hunter, move in zip(hunters, moves, strict=True)}
            env.step({**actions, prey.name: choose(raw.scenario.observation(prey, raw.world))})
            caught += any(raw.scenario.is_collision(prey, hunter) for hunter in hunters)
            places.append(np.linalg.norm(prey.state.p_pos))
    return caught / episodes, float(np.mean(places)), float(np.max(places))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("prey.npz"), help="where the weights go")
    parser.add_argument("--steps", type=int, default=20_000_000, help="decisions of the prey in training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=300, help="episodes per row of the final table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    write_arrays(Path(options.out), train(options.steps, options.seed))
    rng, ours = np.random.default_rng(options.seed), Prey.load(options.out)
    rows = {"motionless": lambda _: 0, "random": lambda _: int(rng.integers(5)), "ours": ours.act}
    print("\n| prey | caught steps of 50 | mean distance from the centre | greatest |")
    print("|---|---|---|---|")
    for name, choose in rows.items():
        print("| {} | {:.2f} | {:.2f} | {:.2f} |".format(name, *measure(choose, options.episodes, 10_000)))


if __name__ == "__main__":
    main()
