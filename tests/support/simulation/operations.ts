import { type Algorithm, algorithms } from '../../../src/peer/algorithms/operations.ts'
import { chunkRange } from '../../../src/peer/algorithms/plan.ts'
import { hasAlgorithm } from '../../../src/peer/algorithms/plan-collective.ts'
import type { CollectiveOptions } from '../../../src/peer/collective/collectives.ts'
import type { ElementArray, ReduceOp } from '../../../src/peer/collective/element.ts'
import type { CollectiveGroup } from '../../../src/peer/group/collective-group.ts'
import { bytes, elements, opsOf, reduced, reducedByMachines } from '../collective-reference.ts'
import { Draw } from './draw.ts'

/** One call on one rank: how it goes, and, once it has ended well, whether what it left is what plain loops say. */
export interface Call {
  readonly promise: Promise<unknown>
  isRight(): boolean
}

/** One operation of a program, the same on all ranks that take part. */
export interface Operation {
  readonly name: string
  /** Which of the program's groups; 0 is all ranks. */
  readonly group: number
  /** Who makes the call, by rank in the group. */
  readonly ranks: readonly number[]
  /** Operations of one lane are launched in the same order on all ranks. */
  readonly lane: string
  /** Whether no rank may end before all have begun. */
  readonly isBarrier: boolean
  /** Whether ranks must agree on its length. */
  readonly canBeOdd: boolean
  /** `isOdd`: the call of a rank that does not do as the others. */
  start(rank: number, group: CollectiveGroup, onstarted: () => void, isOdd: boolean): Call
}

export interface GroupShape {
  readonly index: number
  readonly size: number
  readonly isFullyLinked: boolean
  /** By rank. */
  readonly machines: readonly number[]
}

const operationNames = [
  'allReduce',
  'allReduce',
  'bucket',
  'reduceScatter',
  'allGather',
  'broadcast',
  'reduce',
  'gather',
  'scatter',
  'allToAll',
  'allGatherConcat',
  'allGatherU32',
  'allGatherBytes',
  'barrier',
  'message',
] as const
export type OperationName = (typeof operationNames)[number]

/** What is drawn of an operation before it begins. */
interface Shape {
  name: OperationName
  size: number
  type: string
  op: ReduceOp
  length: number
  root: number
  alignment: number
  options: CollectiveOptions
  machines: readonly number[]
  seed: number
}

const withAlgorithms: Partial<Record<OperationName, Parameters<typeof hasAlgorithm>[0]>> = {
  allReduce: 'allReduce',
  reduceScatter: 'reduceScatter',
  allGather: 'allGather',
  broadcast: 'broadcast',
  reduce: 'reduce',
  barrier: 'barrier',
  allGatherConcat: 'allGather',
}

function drawAlgorithm(draw: Draw, name: OperationName, shape: GroupShape): Algorithm | undefined {
  const planned = withAlgorithms[name]
  if (!planned || draw.isOneIn(2)) return undefined
  if (!shape.isFullyLinked && shape.size > 1) return 'ring'
  return draw.pick(algorithms.filter((one) => hasAlgorithm(planned, one)))
}

/** Mostly few elements, sometimes more than all windows hold; `max` of them in all. */
function drawLength(draw: Draw, max: number): number {
  if (draw.isOneIn(6)) return draw.whole(0, 2)
  if (draw.isOneIn(4)) return draw.whole(0, max)
  return draw.whole(1, Math.min(max, 60))
}

/** `serial` is different for each of a program. */
export function drawOperation(
  draw: Draw,
  shape: GroupShape,
  serial: number,
  max: number,
): Operation {
  const { size } = shape
  const name = draw.pick(
    operationNames.filter((one) => one !== 'message' || (shape.isFullyLinked && size > 1)),
  )
  const isRecord = name === 'allGatherU32' || name === 'allGatherBytes'
  const type = isRecord ? 'uint32' : draw.pick(Object.keys(elements))
  const isKeyed = name === 'bucket' || (name !== 'message' && draw.isOneIn(2))
  const algorithm = drawAlgorithm(draw, name, shape)
  const canAlign = ['allReduce', 'bucket', 'reduceScatter', 'allGather'].includes(name)
  const alignment = canAlign && draw.isOneIn(4) ? draw.pick([2, 4, 64]) : 1
  const op = draw.pick(opsOf(type))
  const hasOp = ['allReduce', 'bucket', 'reduceScatter', 'reduce'].includes(name)
  const drawn: Shape = {
    name,
    size,
    type,
    op: hasOp ? op : 'sum',
    length: drawLength(draw, Math.ceil(max / size)),
    root: draw.whole(0, size - 1),
    alignment,
    options: {
      ...(isKeyed && { sequence: 1 + serial, bucket: draw.pick([0, 0, 3, 65_000 - 1]) }),
      ...(alignment > 1 && { alignment }),
      ...(hasOp && { op }),
      ...(algorithm && { algorithm }),
    },
    machines: shape.machines,
    seed: draw.whole(0, 2 ** 31),
  }
  const lane = isKeyed ? `key ${serial}` : `counted ${shape.index}`
  const common = {
    group: shape.index,
    isBarrier: name === 'barrier',
    canBeOdd: name !== 'barrier' && name !== 'allGatherBytes',
  }
  if (name === 'message') return message(draw, drawn, common, shape)
  const cases = memo(() => casesOf(drawn))
  return {
    ...common,
    name: `${name} ${type} ${drawn.op} x${drawn.length} of group ${shape.index} (${size} ranks) by ${algorithm ?? 'choice'}`,
    ranks: Array.from({ length: size }, (_, rank) => rank),
    lane,
    start(rank, group, onstarted, isOdd) {
      const options = { ...drawn.options, onstarted }
      if (isOdd) return casesOf({ ...drawn, length: drawn.length + 1 }).start(rank, group, options)
      return cases().start(rank, group, options)
    },
  }
}

function memo<T>(make: () => T): () => T {
  let made: { value: T } | undefined
  return () => {
    made ??= { value: make() }
    return made.value
  }
}

interface Cases {
  start(rank: number, group: CollectiveGroup, options: CollectiveOptions): Call
}

const isSame = (a: ElementArray, b: ElementArray): boolean =>
  a.length === b.length && Buffer.compare(bytes(a), bytes(b)) === 0

/** The inputs of all ranks, and how each operation is called with them and judged. */
function casesOf(shape: Shape): Cases {
  const { name, size, type, op, length, root, alignment, machines, seed } = shape
  const element = elements[type]!
  const isByMachines = shape.options.algorithm === 'hierarchical'
  const fill = (count: number) => {
    const draw = new Draw(seed, count)
    return Array.from({ length: size }, () => {
      const array = element.make(count)
      for (let i = 0; i < count; i++) array[i] = element.draw(() => draw.share())
      return array
    })
  }
  const chunk = (rank: number) => chunkRange(length, size, rank, alignment)
  const inputs = memo(() => fill(length))
  const wide = memo(() => fill(length * size))
  const joined = memo(() => {
    const out = element.make(length * size)
    for (const [rank, array] of inputs().entries()) out.set(array, rank * length)
    return out
  })
  /** Element i, as the ranks after `owner` combine it up to `owner`, or machine by machine. */
  const totals = (ownerOf: (rank: number) => number) => {
    const out = element.make(length)
    for (let rank = 0; rank < size; rank++)
      for (let { start: i, end } = chunk(rank); i < end; i++)
        out[i] = isByMachines
          ? reducedByMachines(element, inputs(), op, machines, ownerOf(rank), i)
          : reduced(element, inputs(), op, ownerOf(rank) + 1, i)
    return out
  }
  const total = memo(() => totals((rank) => rank))
  const totalAtRoot = memo(() => totals(() => root))
  const gathered = memo(() => {
    const out = element.make(length)
    for (let rank = 0; rank < size; rank++) {
      const { start, end } = chunk(rank)
      out.set(inputs()[rank]!.subarray(start, end), start)
    }
    return out
  })
  const ownPart = (array: ElementArray, rank: number) => {
    const { start, end } = chunk(rank)
    return array.subarray(start, end)
  }
  const call = (promise: Promise<unknown>, isRight: () => boolean): Call => ({ promise, isRight })

  const starts: Record<Exclude<OperationName, 'message'>, Cases['start']> = {
    allReduce(rank, group, options) {
      const buffer = inputs()[rank]!.slice()
      return call(group.allReduce(buffer, options), () => isSame(buffer, total()))
    },
    reduceScatter(rank, group, options) {
      const buffer = inputs()[rank]!.slice()
      return call(group.reduceScatter(buffer, options), () =>
        isSame(ownPart(buffer, rank), ownPart(total(), rank)),
      )
    },
    // As a step does it: both halves under one key.
    bucket(rank, group, options) {
      const buffer = inputs()[rank]!.slice()
      const { op: _op, onstarted: _onmet, ...gather } = options
      const both = group.reduceScatter(buffer, options).then(() => group.allGather(buffer, gather))
      return call(both, () => isSame(buffer, total()))
    },
    allGather(rank, group, options) {
      const buffer = element.make(length)
      ownPart(buffer, rank).set(ownPart(inputs()[rank]!, rank))
      return call(group.allGather(buffer, options), () => isSame(buffer, gathered()))
    },
    broadcast(rank, group, options) {
      const buffer = inputs()[rank]!.slice()
      return call(group.broadcast(buffer, root, options), () => isSame(buffer, inputs()[root]!))
    },
    reduce(rank, group, options) {
      const buffer = inputs()[rank]!.slice()
      return call(
        group.reduce(buffer, root, options),
        () => rank !== root || isSame(buffer, totalAtRoot()),
      )
    },
    gather(rank, group, options) {
      const input = inputs()[rank]!.slice()
      const output = rank === root ? element.make(length * size) : undefined
      return call(
        group.gather(input, output, root, options),
        () => isSame(input, inputs()[rank]!) && (!output || isSame(output, joined())),
      )
    },
    scatter(rank, group, options) {
      const input = rank === root ? joined().slice() : undefined
      const output = element.make(length)
      return call(
        group.scatter(input, output, root, options),
        () => isSame(output, inputs()[rank]!) && (!input || isSame(input, joined())),
      )
    },
    allToAll(rank, group, options) {
      const input = wide()[rank]!.slice()
      const output = element.make(length * size)
      return call(group.allToAll(input, output, options), () =>
        wide().every(
          (table, from) =>
            isSame(
              output.subarray(from * length, (from + 1) * length),
              table.subarray(rank * length, (rank + 1) * length),
            ) && isSame(input, wide()[rank]!),
        ),
      )
    },
    allGatherConcat(rank, group, options) {
      const input = inputs()[rank]!.slice()
      let all: ElementArray | undefined
      const promise = group.allGatherConcat(input, options).then((value) => {
        all = value
      })
      return call(promise, () => isSame(all!, joined()) && isSame(input, inputs()[rank]!))
    },
    allGatherU32(rank, group, options) {
      let all: ElementArray | undefined
      const promise = group
        .allGatherU32(inputs()[rank]!.slice() as Uint32Array, options)
        .then((value) => {
          all = value
        })
      return call(promise, () => isSame(all!, joined()))
    },
    // Each rank as many bytes as it has places before the root.
    allGatherBytes(rank, group, options) {
      const recordOf = (from: number) =>
        bytes(inputs()[from]!).slice(0, (4 * length * ((from + root) % size)) / size)
      let all: Uint8Array[] = []
      const promise = group.allGatherBytes(recordOf(rank), options).then((value) => {
        all = value
      })
      return call(
        promise,
        () => all.length === size && all.every((one, from) => isSame(one, recordOf(from))),
      )
    },
    barrier: (_rank, group, options) => call(group.barrier(options), () => true),
  }
  return { start: starts[name as Exclude<OperationName, 'message'>] }
}

/** From one rank to another: `root` sends. */
function message(
  draw: Draw,
  { type, length, root, size, seed }: Shape,
  common: { group: number; isBarrier: boolean; canBeOdd: boolean },
  shape: GroupShape,
): Operation {
  const receiver = (root + draw.whole(1, size - 1)) % size
  const tag = draw.pick([0, 0, 1, 7])
  const element = elements[type]!
  const input = memo(() => {
    const random = new Draw(seed)
    const array = element.make(length)
    for (let i = 0; i < length; i++) array[i] = element.draw(() => random.share())
    return array
  })
  return {
    ...common,
    name: `message ${type} x${length} from ${root} to ${receiver} tag ${tag} of group ${shape.index}`,
    ranks: [root, receiver],
    lane: `message ${shape.index} ${root} ${receiver} ${tag}`,
    start(rank, group, _onmet, isOdd) {
      const options = { tag }
      if (rank === root) {
        const buffer = isOdd ? element.make(length + 1) : input().slice()
        const isRight = () => isSame(buffer, input())
        return { promise: group.send(buffer, receiver, options), isRight }
      }
      const buffer = element.make(length + Number(isOdd))
      const isRight = () => isSame(buffer, input())
      return { promise: group.recv(buffer, root, options), isRight }
    },
  }
}
