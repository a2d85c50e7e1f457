import type { AlgorithmChoice } from '../../../src/peer/algorithms/algorithm-choice.ts'
import { Draw } from './draw.ts'
import { drawFault, type FaultPlan } from './fault-plan.ts'
import { drawOperation, type GroupShape, type Operation } from './operations.ts'
import { pipelineOperation } from './pipelines.ts'

/** What the ranks do together before the next phase: make a group, or launch operations. */
export interface Phase {
  /** Ranks of a new group, which later phases use. */
  readonly newGroup?: readonly number[]
  readonly operations: readonly Operation[]
  /** Whether ranks wait for its operations before the next phase. */
  readonly isAwaited: boolean
}

/** All that a seed decides before the clock runs. */
export interface Scenario {
  readonly seed: number
  readonly size: number
  /** Whether all ranks are linked, or each to its two neighbours. */
  readonly isMesh: boolean
  /** A message takes from `delayMs` to `delayMs + jitterMs`. */
  readonly delayMs: number
  readonly jitterMs: number
  readonly maxMessageBytes: number
  readonly highWaterBytes: number
  /** By rank. */
  readonly windowBytes: readonly number[]
  readonly deadlineMs: number
  readonly choice: AlgorithmChoice | undefined
  /** By rank: who shares a machine. */
  readonly machines: readonly number[]
  readonly phases: readonly Phase[]
  readonly faults: readonly FaultPlan[]
  /** Whether ranks wait for all others before they leave. */
  readonly leavesTogether: boolean
}

/** How large worlds are, and whether their links may all be there. */
export interface WorldBounds {
  readonly sizes: readonly [from: number, to: number]
  /** Beyond this many ranks they are linked in a ring. */
  readonly maxInMesh: number
  /** Elements of one operation over all ranks. */
  readonly maxElements: number
  readonly maxOperations: number
  /** Whether half of the operations are steps of pipelines, where all ranks of a group are linked. */
  readonly hasPipelines?: boolean
}

export const smallWorlds: WorldBounds = {
  sizes: [1, 6],
  maxInMesh: 6,
  maxElements: 12_000,
  maxOperations: 8,
}
export const pipelineWorlds: WorldBounds = { ...smallWorlds, sizes: [2, 6], hasPipelines: true }
export const middleWorlds: WorldBounds = {
  sizes: [7, 16],
  maxInMesh: 12,
  maxElements: 12_000,
  maxOperations: 6,
}
export const largeWorlds: WorldBounds = {
  sizes: [17, 64],
  maxInMesh: 20,
  maxElements: 16_000,
  maxOperations: 4,
}

/** `redrawn`: how often its faults are drawn again, as many as before, because some of them would never come. */
export function drawScenario(seed: number, bounds: WorldBounds, redrawn = 0): Scenario {
  const draw = new Draw(seed)
  const size = draw.whole(...bounds.sizes)
  const isMesh = size > 1 && size <= bounds.maxInMesh && draw.isOneIn(2)
  const isTight = draw.isOneIn(2)
  const maxMessageBytes = isTight ? 1024 : draw.pick([1024, 4096, 65_536])
  const windows = isTight ? [2048, 4096] : [4096, 16_384, 65_536, 524_288]
  const max = draw.whole(1, Math.min(size, 4))
  const machines = Array.from({ length: size }, () => draw.whole(0, max - 1))
  const phases = drawPhases(draw, machines, isMesh || size < 4, bounds)
  const faultsFrom = (from: Draw, count: number) =>
    drawFaults(from, count, { size, isMesh, programs: phases.length })
  const delayMs = draw.pick([0, 0.5, 2, 20])
  const jitterMs = draw.pick([0, 1, 4, 10])
  // In a ring a rank may rightly stand still while what it waits for comes round, behind a rank that was late.
  const roundMs = size * (delayMs + jitterMs)
  return {
    seed,
    size,
    isMesh,
    delayMs,
    jitterMs,
    maxMessageBytes,
    highWaterBytes: draw.pick([2048, 65_536, Number.POSITIVE_INFINITY]),
    windowBytes: Array.from({ length: size }, () => draw.pick(windows)),
    deadlineMs: Math.max(draw.pick([2000, 5000, 12_000, 20_000]), 2 * roundMs),
    choice: draw.isOneIn(2)
      ? { oneShotMaxBytes: 64, directMaxBytes: draw.pick([256, 2048]) }
      : undefined,
    machines,
    phases,
    faults: againDrawn(
      faultsFrom(draw, size === 1 ? 0 : draw.pick([0, 0, 0, 0, 1, 1, 1, 1, 1, 2])),
      redrawn,
      (planned) => faultsFrom(new Draw(seed, redrawn), planned),
    ),
    leavesTogether: draw.isOneIn(2),
  }
}

function drawPhases(
  draw: Draw,
  machines: readonly number[],
  isLinked: boolean,
  bounds: WorldBounds,
): Phase[] {
  const size = machines.length
  const groups: GroupShape[] = [{ index: 0, size, isFullyLinked: isLinked, machines }]
  const phases: Phase[] = []
  const world = Array.from({ length: size }, (_, rank) => rank)
  if (isLinked && size > 1 && draw.isOneIn(3))
    for (let made = draw.whole(1, 2); made > 0; made--) {
      const ranks = draw.some(world, draw.whole(1, size))
      phases.push({ newGroup: ranks, operations: [], isAwaited: true })
      const own = ranks.map((rank) => machines[rank]!)
      const shape = { index: groups.length, size: ranks.length, isFullyLinked: true }
      groups.push({ ...shape, machines: own })
    }
  let serial = 0
  for (let count = draw.whole(1, 3); count > 0; count--) {
    const operations = Array.from({ length: draw.whole(1, bounds.maxOperations) }, () => {
      serial += 1
      const shape = draw.pick(groups)
      const canPipeline = bounds.hasPipelines && shape.isFullyLinked && shape.size > 1
      return canPipeline && draw.isOneIn(2)
        ? pipelineOperation(draw, shape, serial, bounds.maxElements)
        : drawOperation(draw, shape, serial, bounds.maxElements)
    })
    phases.push({ operations, isAwaited: !draw.isOneIn(3) })
  }
  return phases
}

/** `first` where nothing is drawn again, else as many others. */
function againDrawn(
  first: FaultPlan[],
  redrawn: number,
  again: (count: number) => FaultPlan[],
): FaultPlan[] {
  return redrawn === 0 || first.length === 0 ? first : again(Math.min(2, first.length))
}

function drawFaults(
  draw: Draw,
  count: number,
  { size, isMesh, programs }: { size: number; isMesh: boolean; programs: number },
): FaultPlan[] {
  const faults = Array.from({ length: count }, () => drawFault(draw, size, isMesh, programs))
  // A fault while an epoch is ending needs something that ends it.
  const isEnding = faults.some(({ phase }) => phase === 'aborting')
  return isEnding && count === 1
    ? [...faults, { ...drawFault(draw, size, isMesh, programs), kind: 'abort', phase: 'data' }]
    : faults
}

/** The same operation may be anywhere in the order of its rank, but those of one lane stay in order. */
export function launchOrder(draw: Draw, operations: readonly Operation[]): Operation[] {
  const shuffled = draw.shuffled(operations)
  const lanes = new Map<string, Operation[]>()
  for (const one of operations) lanes.set(one.lane, [...(lanes.get(one.lane) ?? []), one])
  return shuffled.map(({ lane }) => lanes.get(lane)!.shift()!)
}
