"""One replica: continuous batching over a paged KV cache, stepped from event to event.

The scheduler is vLLM's V1 in outline: each step gives every sequence in decode one token, then fills the rest of the
token budget with prompt chunks, first of those begun, then of waiting requests in order of arrival, as long as
blocks and sequences allow. A sequence that needs a block when none is free preempts the newest one, which gives up
all its blocks, goes back to the head of the queue, and later recomputes its prompt and its answer so far.

Steps with prompt tokens are taken one by one. Pure decode needs no step by step: between two events (a completion,
an arrival, a sample, the last free block) all sequences gain one token a step, so time and blocks of ``m`` steps have
closed forms. Only whole steps happen: a replica's own clock stands at a step's end, and a request that arrives within a
step is seen at its end.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

from obs.simulate.hardware import Engine

_TINY = 1e-9
_new = tuple.__new__
"""A NamedTuple without the call of its own constructor: one is made each second for each replica."""


class Request:
    """One request. Times are seconds, -1 is "not yet"; ``failed`` says why it will never be answered."""

    __slots__ = ("arrival", "failed", "finish", "finish_step", "first", "generated", "left", "output", "preempted",
                 "prompt", "stalled")

    def __init__(self, arrival: float, prompt: int, output: int) -> None:
        self.arrival = arrival
        self.prompt = prompt
        self.output = output
        self.generated = 0
        self.left = 0
        """Tokens still to prefill."""
        self.finish_step = -1
        """The step at whose end the last token is there, while in decode; -1 otherwise."""
        self.first = -1.0
        self.finish = -1.0
        self.stalled = -1.0
        """When its last token came, if it was preempted since."""
        self.preempted = 0
        self.failed = ""

    @property
    def ttft(self) -> float:
        """Time to first token, seconds."""
        return self.first - self.arrival

    @property
    def itl(self) -> float:
        """Mean gap between its tokens, seconds; 0 for one token."""
        return (self.finish - self.first) / (self.output - 1) if self.output > 1 else 0.0


class Record(NamedTuple):
    """The engine's own figures at one moment: what its metrics page is made of. Sums are of the engine's life."""

    at: float
    running: int
    waiting: int
    usage: float
    generation: int
    prompt: int
    computed: int
    finished: int
    preemptions: int
    ttft_sum: float
    ttft_count: int
    itl_sum: float
    itl_count: int
    e2e_sum: float
    input_sum: int
    output_sum: int
    busy: float


class Replica:
    """A running engine. ``advance(t)`` is the only way of time; ``on_finish`` hears of each request that ended."""

    def __init__(
        self, engine: Engine, start: float = 0.0, *, on_finish: Callable[[Request], None] | None = None,
        sample_interval: float = 0.0, sample_phase: float = 0.0,
    ) -> None:
        self.engine = engine
        self.on_finish = on_finish
        self.time = start
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, int] = {}
        """Sequences that hold blocks, oldest first, and how many blocks each was given when it was admitted."""
        self.free = engine.blocks
        self.samples: list[Record] = []
        """What was sampled since somebody took it: one Record per ``sample_interval``."""
        self.frozen = False
        self.requests = 0
        """Requests here, running and waiting, as of the last step."""
        self.stable_until = start
        """Until then ``requests`` cannot change by itself."""
        self._step_end = start
        """When the step under way ends: until then there is nothing to do."""
        cost = engine.cost
        self._blocks, self._block = engine.blocks, engine.block
        self._base, self._per_sequence, self._per_resident = cost.base, cost.sequence, cost.resident
        self._interval = sample_interval
        self._next_sample = start + sample_phase if sample_interval > 0 else math.inf
        self._composed: tuple[list[tuple[Request, int]], float] | None = None
        """The step with prompt tokens that is under way."""
        self._step = 0
        self._barred = -1
        """The step in which a sequence was preempted last."""
        self._decoding = 0
        self._resident = 0
        self._prefilling: deque[Request] = deque()
        self._finish: list[tuple[int, int, Request]] = []
        self._serial = 0
        self._phases = [0] * (2 * engine.block)
        """How many sequences take a block in the step whose number has this remainder; twice over, so that a run of
        steps is one slice."""
        self._reserve = int(engine.watermark * engine.blocks)
        # sums of the engine's life, in the order of Record
        self.generation = self.prompt = self.computed = self.finished = self.preemptions = 0
        self.ttft_sum = self.itl_sum = self.e2e_sum = self.busy = 0.0
        self.ttft_count = self.itl_count = self.input_sum = self.output_sum = 0

    # --- outside --------------------------------------------------------------------------------

    @property
    def usage(self) -> float:
        """Share of blocks in use, 0 to 1."""
        return 1 - self.free / self.engine.blocks

    def submit(self, request: Request) -> None:
        """Take a request at its arrival; the caller has advanced the replica to then."""
        self.waiting.append(request)
        self._composed = None
        self.requests += 1
        self.stable_until = 0.0

    def advance(self, until: float) -> None:
        """Do all steps that end by ``until``, and take the samples on the way."""
        while True:
            if self._decoding and not self.waiting and not self._prefilling and not self.frozen:
                self._glide(until)
            sample = self._next_sample
            due = sample <= until
            target = sample if due else until
            if target >= self._step_end and self._run(target):
                continue
            if not due:
                return
            self.samples.append(self.record(sample))
            self._next_sample = sample + self._interval

    def record(self, at: float) -> Record:
        """The figures as they stand."""
        return _new(Record, (
            at, len(self.running), len(self.waiting), 1 - self.free / self._blocks, self.generation, self.prompt,
            self.computed, self.finished, self.preemptions, self.ttft_sum, self.ttft_count, self.itl_sum, self.itl_count,
            self.e2e_sum, self.input_sum, self.output_sum, self.busy,
        ))

    def thaw(self, at: float) -> None:
        """Go on after having been frozen."""
        self.frozen = False
        self._composed = None
        self.time = max(self.time, at)
        self._step_end = self.time

    def drop_all(self, why: str) -> list[Request]:
        """The engine dies: every request here fails."""
        lost = [*self.running, *self.waiting]
        for request in lost:
            request.failed = why
        self.running.clear()
        self.waiting.clear()
        self.requests = 0
        self._prefilling.clear()
        self._composed = None
        self._finish.clear()
        self._phases = [0] * (2 * self.engine.block)
        self._decoding = self._resident = 0
        self.free = self.engine.blocks
        return lost

    def check(self) -> None:
        """Assert the accounting; for tests."""
        blocks = sum(self.held(request) for request in self.running)
        assert self.free >= 0, "more blocks in use than there are"
        assert blocks + self.free == self.engine.blocks, (blocks, self.free, self.engine.blocks)
        assert self._decoding == sum(1 for request in self.running if request.finish_step >= 0)
        assert self._decoding + len(self._prefilling) == len(self.running)
        assert self.requests == len(self.running) + len(self.waiting)

    def held(self, request: Request) -> int:
        """Blocks of a running sequence."""
        if request.finish_step < 0:
            return self.running[request]
        return -(-self._context(request) // self.engine.block)

    # --- inside ---------------------------------------------------------------------------------

    def _context(self, request: Request) -> int:
        """Tokens in the KV cache of a sequence in decode: all but its last one."""
        return request.prompt + request.output - (request.finish_step - self._step) - 1

    def _run(self, until: float) -> bool:
        """All steps until then; True when it left off before, since all that is left for now is pure decode."""
        if self.frozen or until < self._step_end:
            return False
        while True:
            waiting = self.waiting
            if not self.running:
                if not waiting or waiting[0].arrival > until:
                    self.stable_until = math.inf if not waiting else 0.0
                    return False
                if self.time < waiting[0].arrival:
                    self.time = waiting[0].arrival
            if self._prefilling or (waiting and waiting[0].arrival <= self.time and self._admissible()):
                if not self._mixed_step(until):
                    return False
                if not waiting and not self._prefilling and self._decoding:
                    self._step_end = self.time
                    return True
            elif self.running and not self._decode(until):
                return False

    def _admissible(self) -> bool:
        request = self.waiting[0]
        engine = self.engine
        need = -(-(request.prompt + request.generated) // engine.block)
        if not self.running:
            if need <= engine.blocks:
                return True
            self.waiting.popleft()
            request.failed = "too long for the KV cache"
            self._ended(request)
            return False
        taken = self._phases[self._step % engine.block]  # those in decode come first
        return (self._barred != self._step and len(self.running) < engine.max_sequences
                and need <= self.free - taken - self._reserve and self._decoding < engine.batch_tokens)

    def _mixed_step(self, until: float) -> bool:
        """A step with prompt tokens; False, and nothing done, when it would end after ``until``.

        Whether it fits is known only once it is composed. What composing changed (admissions, preemptions) stays: it
        was decided at the step's begin, and only requests that arrived by then take part.
        """
        composed = self._composed
        if composed is None:
            composed = self._compose()
        chunks, seconds = composed
        if not self.running:
            return True
        if self.time + seconds > until + _TINY:
            self.stable_until = self._step_end = self.time + seconds
            self._composed = composed if chunks else None  # without prompts it is no such step next time
            return False
        self._composed = None
        self._pass(1, seconds)
        for request, chunk in chunks:
            request.left -= chunk
            self.computed += chunk
            if request.left <= 0:
                self._begin_decode(request)
        while self._prefilling and self._prefilling[0].left <= 0:
            self._prefilling.popleft()
        if self._finish and self._finish[0][0] <= self._step:
            self._complete()
        return True

    def _compose(self) -> tuple[list[tuple[Request, int]], float]:
        """What the step at hand takes of which prompts, and how long it takes."""
        engine, cost = self.engine, self.engine.cost
        self._make_room()
        budget = engine.batch_tokens - self._decoding
        chunks = []
        tokens = 0
        for request in self._prefilling:
            if budget <= 0:
                break
            chunk = min(request.left, budget)
            chunks.append((request, chunk))
            tokens += chunk
            budget -= chunk
        while budget > 0 and self.waiting and self.waiting[0].arrival <= self.time and self._admissible():
            request = self.waiting.popleft()
            request.left = request.prompt + request.generated
            blocks = -(-request.left // engine.block)
            self.running[request] = blocks
            self.free -= blocks
            self._prefilling.append(request)
            chunk = min(request.left, budget)
            chunks.append((request, chunk))
            tokens += chunk
            budget -= chunk
        return chunks, (cost.base + cost.prefill * tokens + cost.sequence * self._decoding
                        + cost.resident * (self._resident + tokens))

    def _decode(self, until: float) -> bool:
        """As many pure decode steps as fit before the next event; False when time or work is used up."""
        count, now, step = self._decoding, self.time, self._step
        finish = self._finish
        last, _, request = finish[0]
        while request.finish_step != last:
            heapq.heappop(finish)  # preempted since
            last, _, request = finish[0]
        steps = last - step
        first = self._base + self._per_sequence * count + self._per_resident * self._resident
        growth = self._per_resident * count
        stable = now + steps * first  # a lower bound of when the next completion comes
        if self.waiting and self.waiting[0].arrival > now:  # it is seen at the end of the step it arrives in
            steps = min(steps, _steps_within(self.waiting[0].arrival - now - _TINY, first, growth) + 1)
            stable = 0.0
        left = until - now + _TINY
        seconds = steps * first + growth * steps * (steps - 1) / 2
        late = seconds > left
        if late:
            steps = _steps_within(left, first, growth)
            self.stable_until = stable
            seconds = steps * first + growth * steps * (steps - 1) / 2
        if steps > 0:
            # what _blocks_for does, written out as _pass is below: these are the most frequent of all
            size = self._block
            if steps >= size:
                cycles, rest = divmod(steps, size)
                blocks = cycles * count
            else:
                blocks, rest = 0, steps
            if rest:
                at = step % size
                blocks += sum(self._phases[at:at + rest])
            if blocks > self.free and (room := self._room(steps)) < steps:
                if room <= 0:
                    self._make_room()
                    return True
                steps, late = room, False
                seconds = steps * first + growth * steps * (steps - 1) / 2
                blocks = self._blocks_for(steps)
            gained = steps * count
            self.free -= blocks
            self._resident += gained
            self.generation += gained
            self.itl_sum += seconds * count
            self.itl_count += gained
            step += steps
            self._step = step
            self.time = now = now + seconds
            self.busy += seconds
        if late:
            self._step_end = now + first + growth * steps
            return False
        if last <= step:
            self._complete()
        return True

    def _glide(self, until: float) -> None:
        """Pure decode with nobody waiting, samples and completions on the way: what ``advance`` and ``_decode`` do, at once.

        That is most of a replica's life. It is written out with its state in local variables, and leaves all else (free
        blocks that run out, the last completion) to the others.
        """
        interval, sample, step_end = self._interval, self._next_sample, self._step_end
        if sample > until and until < step_end:
            return
        finish, phases, size, samples = self._finish, self._phases, self._block, self.samples
        base, per_sequence, per_resident, all_blocks = self._base, self._per_sequence, self._per_resident, self._blocks
        computed, prompt, preemptions = self.computed, self.prompt, self.preemptions
        ttft_sum, ttft_count = self.ttft_sum, self.ttft_count
        free, resident, generation, step, now = self.free, self._resident, self.generation, self._step, self.time
        itl_sum, itl_count, busy, stable = self.itl_sum, self.itl_count, self.busy, self.stable_until
        going = True
        while going:
            # one round between two completions
            last, _, request = finish[0]
            while request.finish_step != last:
                heapq.heappop(finish)  # preempted since
                last, _, request = finish[0]
            count, finished, e2e_sum = self._decoding, self.finished, self.e2e_sum
            input_sum, output_sum = self.input_sum, self.output_sum
            growth = per_resident * count
            fixed = base + per_sequence * count
            while True:
                target = sample if sample <= until else until
                if target >= step_end:
                    steps = last - step
                    first = fixed + per_resident * resident
                    left = target - now + _TINY
                    seconds = steps * first + growth * steps * (steps - 1) / 2
                    late = seconds > left
                    if late:
                        stable = now + steps * first
                        if growth > 0:  # as _steps_within has it
                            half = first - growth / 2
                            steps = int((sqrt(half * half + 2 * growth * left) - half) / growth) if left >= first else 0
                            while (seconds := steps * first + growth * steps * (steps - 1) / 2) > left:
                                steps -= 1
                        else:
                            steps = _steps_within(left, first, growth)
                            seconds = steps * first
                    if steps > 0:
                        if steps >= size:
                            cycles, rest = divmod(steps, size)
                            blocks = cycles * count
                        else:
                            blocks, rest = 0, steps
                        if rest:
                            at = step % size
                            blocks += sum(phases[at:at + rest])
                        if blocks > free:
                            going = False
                            break
                        gained = steps * count
                        free -= blocks
                        resident += gained
                        generation += gained
                        itl_sum += seconds * count
                        itl_count += gained
                        step += steps
                        now += seconds
                        busy += seconds
                    if not late:
                        break
                    step_end = now + first + growth * steps
                if sample > until:
                    going = False
                    break
                samples.append(_new(Record, (
                    sample, count, 0, 1 - free / all_blocks, generation, prompt, computed, finished, preemptions, ttft_sum,
                    ttft_count, itl_sum, itl_count, e2e_sum, input_sum, output_sum, busy)))
                sample += interval
            self.free, self._resident, self.generation, self._step, self.time = free, resident, generation, step, now
            if going:
                self._complete()
                free, resident = self.free, self._resident
                going = self._decoding > 0
        self.itl_sum, self.itl_count, self.busy, self.stable_until = itl_sum, itl_count, busy, stable
        self._next_sample, self._step_end = sample, step_end

    def _pass(self, steps: int, seconds: float) -> None:
        """Time goes by and every sequence in decode gains ``steps`` tokens."""
        count = self._decoding
        if count:
            self.free -= self._blocks_for(steps)
            self._resident += steps * count
            self.generation += steps * count
            self.itl_sum += seconds * count
            self.itl_count += steps * count
        self._step += steps
        self.time += seconds
        self.busy += seconds

    def _blocks_for(self, steps: int) -> int:
        """Blocks that the next steps take."""
        size = self._block
        blocks = 0
        if steps >= size:
            cycles, steps = divmod(steps, size)
            blocks = cycles * self._decoding
        if steps:
            at = self._step % size
            blocks += sum(self._phases[at:at + steps])
        return blocks

    def _room(self, steps: int) -> int:
        """How many of the next steps the free blocks allow."""
        if self._blocks_for(steps) <= self.free:
            return steps
        low, high = 0, steps  # the blocks of `low` steps fit, those of `high` do not
        while high - low > 1:
            middle = (low + high) // 2
            if self._blocks_for(middle) <= self.free:
                low = middle
            else:
                high = middle
        return low

    def _make_room(self) -> None:
        """Preempt until the next step's blocks are there."""
        while self._phases[self._step % self.engine.block] > self.free:
            self._preempt()

    def _preempt(self) -> None:
        """The newest sequence gives up its blocks; nobody is admitted in the same step."""
        self._barred = self._step
        request = next(reversed(self.running))
        self.free += self.held(request)
        if request.finish_step >= 0:
            self._leave_decode(request)
            request.generated = request.output - (request.finish_step - self._step)
            request.finish_step = -1
            request.stalled = self.time
        else:
            self._prefilling.remove(request)
        del self.running[request]
        request.preempted += 1
        self.preemptions += 1
        self.waiting.appendleft(request)

    def _begin_decode(self, request: Request) -> None:
        """The prompt is done: its step gave a token too."""
        request.generated += 1
        self.generation += 1
        if request.first < 0:
            request.first = self.time
            self.prompt += request.prompt
            self.ttft_sum += self.time - request.arrival
            self.ttft_count += 1
        elif request.stalled >= 0:
            self.itl_sum += self.time - request.stalled
            self.itl_count += 1
            request.stalled = -1.0
        request.finish_step = self._step + request.output - request.generated
        self._serial += 1
        heapq.heappush(self._finish, (request.finish_step, self._serial, request))
        context = self._context(request)
        self._decoding += 1
        self._resident += context
        self._shift((self._step - context) % self.engine.block, 1)

    def _leave_decode(self, request: Request) -> None:
        context = self._context(request)
        self._decoding -= 1
        self._resident -= context
        self._shift((self._step - context) % self.engine.block, -1)

    def _shift(self, phase: int, by: int) -> None:
        self._phases[phase] += by
        self._phases[phase + self.engine.block] += by

    def _complete(self) -> None:
        finish, step, size, phases = self._finish, self._step, self._block, self._phases
        while finish and finish[0][0] <= step:
            wanted, _, request = heapq.heappop(finish)
            if request.finish_step != wanted:
                continue
            # what held and _leave_decode do, for a sequence in decode
            context = request.prompt + request.output - (wanted - step) - 1
            self.free += -(-context // size)
            self._decoding -= 1
            self._resident -= context
            phase = (step - context) % size
            phases[phase] -= 1
            phases[phase + size] -= 1
            request.finish_step = -1
            request.generated = request.output
            request.finish = self.time
            del self.running[request]
            self.finished += 1
            self.e2e_sum += self.time - request.arrival
            self.input_sum += request.prompt
            self.output_sum += request.output
            self._ended(request)

    def _ended(self, request: Request) -> None:
        self.requests -= 1
        if self.on_finish is not None:
            self.on_finish(request)


def _steps_within(seconds: float, first: float, growth: float) -> int:
    """The most steps that take at most ``seconds`` when the first takes ``first`` and each next one ``growth`` more."""
    if seconds < first:
        return 0
    if growth <= 0:
        return int(seconds / first)
    half = first - growth / 2
    steps = int((math.sqrt(half * half + 2 * growth * seconds) - half) / growth)
    while steps * first + growth * steps * (steps - 1) / 2 > seconds:
        steps -= 1
    return steps
