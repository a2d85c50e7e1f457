import { describe, expect, it } from 'vitest'
import * as dist from '../../../src/entries/distributed.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing } from '../../support/memory-ring.ts'

/**
 * Two calls, one begun right after the other, match on all ranks, though ranks read their tensors or come at different times: with each pair the results are
 * those of the same two calls with an await between them.
 */

const size = 3
const parts = 2

/** A tensor that is an array, or a parameter, whose reading takes a while. */
type Kind = 'array' | 'parameter'
interface Tensor {
  readonly contents: Float32Array<ArrayBuffer> | Parameter
  read(): Promise<number[]>
}

function tensor(kind: Kind, values: readonly number[]): Tensor {
  const array = Float32Array.from(values)
  if (kind === 'array') return { contents: array, read: async () => [...array] }
  const parameter = new Parameter([values.length], array)
  return {
    contents: parameter,
    read: async () => [...((await parameter.read()) as Float32Array)],
  }
}

interface Begun {
  wait(): Promise<unknown>
  read(): Promise<unknown>
}

/** A call of one rank; `of` makes its tensors differ from those of the other call. */
type Call = (group: ProcessGroup, kind: Kind, of: number) => Begun

/** A call that fills tensors: they are read when it is over. */
const filling = (
  make: (
    group: ProcessGroup,
    one: (values: readonly number[]) => Tensor,
    of: number,
  ) => readonly [dist.Work, readonly Tensor[]],
): Call => {
  return (group, kind, of) => {
    const [work, outputs] = make(group, (values) => tensor(kind, values), of)
    return {
      wait: () => work.wait(),
      read: () => Promise.all(outputs.map((output) => output.read())),
    }
  }
}

const own = (group: ProcessGroup, of: number) => [of + group.rank, of + 10 * group.rank]
const zeros = [0, 0]
const asyncOp = true as const
const everyone = <T>(make: (rank: number) => T): T[] =>
  Array.from({ length: size }, (_, r) => make(r))

const calls: Readonly<Record<string, Call>> = {
  allReduce: filling((group, one, of) => {
    const x = one(own(group, of))
    return [dist.allReduce(x.contents, { group, asyncOp }), [x]]
  }),
  reduce: filling((group, one, of) => {
    const x = one(own(group, of))
    return [dist.reduce(x.contents, 1, { group, asyncOp }), group.rank === 1 ? [x] : []]
  }),
  reduceScatter: filling((group, one, of) => {
    const [x, list] = [one(zeros), everyone((rank) => one(own(group, of + rank)))]
    const inputs = list.map(({ contents }) => contents)
    return [dist.reduceScatter(x.contents, inputs, { group, asyncOp }), [x]]
  }),
  reduceScatterTensor: filling((group, one, of) => {
    const [x, all] = [one(zeros), one(everyone(() => own(group, of)).flat())]
    return [dist.reduceScatterTensor(x.contents, all.contents, { group, asyncOp }), [x]]
  }),
  broadcast: filling((group, one, of) => {
    const x = one(own(group, of))
    return [dist.broadcast(x.contents, 1, { group, asyncOp }), [x]]
  }),
  gather: filling((group, one, of) => {
    const list = group.rank === 2 ? everyone(() => one(zeros)) : []
    const outputs = list.map(({ contents }) => contents)
    return [dist.gather(one(own(group, of)).contents, outputs, 2, { group, asyncOp }), list]
  }),
  scatter: filling((group, one, of) => {
    const list = group.rank === 2 ? everyone((rank) => one([of + rank, of - rank]).contents) : []
    const x = one(zeros)
    return [dist.scatter(x.contents, list, 2, { group, asyncOp }), [x]]
  }),
  allGather: filling((group, one, of) => {
    const list = everyone(() => one(zeros))
    const outputs = list.map(({ contents }) => contents)
    return [dist.allGather(outputs, one(own(group, of)).contents, { group, asyncOp }), list]
  }),
  allGatherIntoTensor: filling((group, one, of) => {
    const all = one(Array(size * parts).fill(0))
    const input = one(own(group, of)).contents
    return [dist.allGatherIntoTensor(all.contents, input, { group, asyncOp }), [all]]
  }),
  allToAll: filling((group, one, of) => {
    const list = everyone(() => one(zeros))
    const inputs = everyone((rank) => one(own(group, of + 100 * rank)).contents)
    const outputs = list.map(({ contents }) => contents)
    return [dist.allToAll(outputs, inputs, { group, asyncOp }), list]
  }),
  allToAllSingle: filling((group, one, of) => {
    const [to, from] = [(group.rank + 1) % size, (group.rank + size - 1) % size]
    const sizes = (rank: number) => everyone((r) => (r === rank ? parts : 0))
    const x = one(zeros)
    const input = one(own(group, of)).contents
    return [dist.allToAllSingle(x.contents, input, sizes(from), sizes(to), { group, asyncOp }), [x]]
  }),
  barrier: filling((group) => [dist.barrier({ group, asyncOp }), []]),
  isendIrecv: (group, kind, of) => {
    const x = tensor(kind, zeros)
    const to = dist.isend(tensor(kind, own(group, of)).contents, (group.rank + 1) % size, { group })
    const from = dist.irecv(x.contents, (group.rank + size - 1) % size, { group })
    return { wait: () => Promise.all([to.wait(), from.wait()]), read: () => x.read() }
  },
  allGatherObject: (group, _, of) =>
    received(
      dist.allGatherObject(
        everyone(() => 0),
        of + group.rank,
        { group },
      ),
    ),
  gatherObject: (group, _, of) =>
    received(dist.gatherObject(of + group.rank, group.rank === 1 ? [0, 0, 0] : null, 1, { group })),
  broadcastObjectList: (group, _, of) => {
    const list = [of + group.rank, 'x'.repeat(of)]
    return received(dist.broadcastObjectList(list, 1, { group }).then(() => list))
  },
  scatterObjectList: (group, _, of) =>
    received(
      dist.scatterObjectList([0], group.rank === 1 ? [of, of + 1, of + 2] : null, 1, { group }),
    ),
}

const received = (promise: Promise<unknown>): Begun => {
  promise.catch(() => undefined)
  return { wait: () => promise, read: () => promise }
}

type Named = readonly [name: string, kind: Kind, of: number]

/** What all ranks have after calls that begin one right behind the other. `lateMs`: how long rank 1 takes from one to the next. */
function results(isRing: boolean, named: readonly Named[], lateMs = 0): Promise<unknown[][]> {
  const env = new VirtualEnv(7)
  const edge = () => ({ delayMs: () => 5 * env.chance() })
  const groups = isRing ? memoryRing(env, size, edge).groups : memoryMesh(env, size, edge)
  const pause = (ms: number) => new Promise<void>((resolve) => env.after(ms, resolve))
  return env.until(
    Promise.all(
      groups.map(async (group) => {
        const begun: Begun[] = []
        for (const [name, kind, of] of named) {
          if (begun.length > 0 && group.rank === 1 && lateMs > 0) await pause(lateMs)
          begun.push(calls[name]!(group, kind, of))
        }
        await Promise.all(begun.map((one) => one.wait()))
        return Promise.all(begun.map((one) => one.read()))
      }),
    ),
  )
}

describe.each([false, true])('calls one right behind the other, in a ring: %o', (isRing) => {
  const known = new Map<string, Promise<unknown[][]>>()
  /** What all ranks have after one call, with no other on its group. */
  const alone = (named: Named) => {
    const key = named.join()
    const found = known.get(key) ?? results(isRing, [named])
    known.set(key, found)
    return found
  }
  it.each(Object.keys(calls))('%s, and then any other', async (first) => {
    for (const second of Object.keys(calls))
      for (const kinds of [
        ['parameter', 'array'],
        ['array', 'parameter'],
      ] as const) {
        const pair = [
          [first, kinds[0], 1],
          [second, kinds[1], 7],
        ] as const
        const each = await Promise.all(pair.map(alone))
        const wanted = everyone((rank) => each.flatMap((ranks) => ranks[rank]))
        for (const lateMs of [0, 20])
          expect(
            await results(isRing, pair, lateMs),
            `${pair.join('; ')}; rank 1 late by ${lateMs} ms`,
          ).toEqual(wanted)
      }
  })
})
