import { expect, test } from 'vitest'
import {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
} from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { meshOf, ringOf } from '../../support/process-ring.ts'

// Ranks on which a step cannot be compiled or run, and what the others, which wait for it, come to know.

const runtime = new ReferenceRuntime()
const inputs = { x: tensorType([1, 2]) }

/** How a rank's step may end early. */
type Failing = 'before' | 'forward' | 'backward' | 'step' | 'never'

interface Rank {
  readonly ddp: DistributedDataParallel
  compile(failing?: Failing): Promise<string>
}

const reason = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => 'none',
    (error) => `${error.code ?? error.name}: ${error.message}`,
  )

function ranksOf(
  groups: Awaited<ReturnType<typeof ringOf>>,
  options: DistributedDataParallelOptions = {},
): Rank[] {
  return groups.map((processGroup): Rank => {
    const ddp = new DistributedDataParallel(new Linear(2, 2), { processGroup, ...options })
    const optimizer = new SGD(ddp.parameters(), { lr: 1 })
    const step =
      (failing: Failing) =>
      ({ x }: Record<string, Tensor>) => {
        const failAt = (place: Failing) => {
          if (place === failing) throw new RangeError(`mine, ${place}`)
        }
        failAt('before')
        const loss = ddp.forward(x).sum()
        failAt('forward')
        if (!ddp.training) return { loss }
        loss.backward()
        failAt('backward')
        optimizer.step()
        failAt('step')
        return { loss }
      }
    return {
      ddp,
      compile: (failing = 'never') => reason(compile(step(failing), inputs, { runtime })),
    }
  })
}

test.each([
  ['forward', ringOf, {}],
  ['backward', meshOf, {}],
  ['step', meshOf, {}],
  ['forward', ringOf, { findUnusedParameters: true }],
  ['step', meshOf, { findUnusedParameters: true }],
  ['forward', meshOf, { bucketCapMb: 1 }],
] as const)(
  'a step that throws on one rank (%s) throws on all, which can then compile again',
  async (place, make, options) => {
    const groups = await make(3)
    const ranks = ranksOf(groups, options)
    const ends = await Promise.all(
      ranks.map((rank, at) => rank.compile(at === 1 ? place : 'never')),
    )
    const received = `peer.mismatch: compile: the step did not compile on rank 1: mine, ${place}`
    expect(ends).toEqual([received, `RangeError: mine, ${place}`, received])
    expect(await Promise.all(ranks.map((rank) => rank.compile()))).toEqual(['none', 'none', 'none'])
    for (const group of groups) group.destroy()
  },
)

test('a rank that fails waits at most some seconds for the others, which learn of it later too', async () => {
  const env = new VirtualEnv(1)
  const groups = memoryMesh(env, 2)
  const ranks = ranksOf(groups)
  await env.until(Promise.all(ranks.map(({ ddp }) => ddp.ready)), 1000)
  const beganMs = env.now()
  expect(await env.until(ranks[1].compile('forward'), 5000)).toBe('RangeError: mine, forward')
  expect(env.now() - beganMs).toBeLessThan(2500)
  expect(await env.until(ranks[0].compile(), 5000)).toMatch(
    /the step did not compile on rank 1: mine, forward$/,
  )
  const again = Promise.all(ranks.map((rank) => rank.compile()))
  expect(await env.until(again, 5000)).toEqual(['none', 'none'])
})

test('where it throws on all, each has its error, and all can compile again', async () => {
  const groups = await ringOf(2)
  const ranks = ranksOf(groups)
  const ends = await Promise.all(
    ranks.map((rank, at) => rank.compile(at === 0 ? 'forward' : 'step')),
  )
  expect(ends).toEqual(['RangeError: mine, forward', 'RangeError: mine, step'])
  expect(await Promise.all(ranks.map((rank) => rank.compile()))).toEqual(['none', 'none'])
  for (const group of groups) group.destroy()
})

test('an evaluation that does not compile on one rank does not affect the others', async () => {
  const groups = await ringOf(2)
  const ranks = ranksOf(groups)
  for (const { ddp } of ranks) ddp.eval()
  expect(await ranks[1].compile('forward')).toBe('RangeError: mine, forward')
  expect(await ranks[0].compile()).toBe('none')
  for (const { ddp } of ranks) ddp.train()
  expect(await Promise.all(ranks.map((rank) => rank.compile()))).toEqual(['none', 'none'])
  for (const group of groups) group.destroy()
})

test('ranks get a mismatch that names both calls when one fails before it forwards and wraps again', async () => {
  const groups = await ringOf(2)
  const ranks = ranksOf(groups)
  const waiting = ranks[0].compile()
  expect(await ranks[1].compile('before')).toBe('RangeError: mine, before')
  const [processGroup] = [groups[1]]
  const rebuilt = reason(new DistributedDataParallel(new Linear(2, 2), { processGroup }).ready)
  for (const end of await Promise.all([waiting, rebuilt])) {
    expect(end).toMatch(/^peer.mismatch: /)
    expect(end).toMatch(/rank 0 runs compile, via allGatherU32/)
    expect(end).toMatch(/rank 1 runs DistributedDataParallel, via allGatherU32/)
  }
  for (const group of groups) group.destroy()
})

test.each([
  ['an input of another length', { x: new Float32Array(3) }, compile],
  ['an input that nothing reads', { x: new Float32Array(2), z: new Float32Array(2) }, compile],
  ['the same in an accumulation', { x: new Float32Array(3) }, compileAccumulated],
])('a run that one rank refuses for %s ends at once on the others', async (_, wrong, make) => {
  const groups = await ringOf(2)
  const ends = await Promise.all(
    groups.map(async (processGroup, rank) => {
      const model = new DistributedDataParallel(new Linear(2, 2), { processGroup })
      const optimizer = new SGD(model.parameters(), { lr: 1 })
      const step = await make(
        ({ x }) => {
          model.forward(x).sum().backward()
          optimizer.step()
          return {}
        },
        inputs,
        { runtime },
      )
      return reason(step.run(rank === 1 ? wrong : { x: new Float32Array(2) }))
    }),
  )
  expect(ends[1]).toMatch(/^graph.misuse: run: /)
  expect(ends[0]).toMatch(/^peer.aborted: .*rank 1 failed in a step: run: /)
  for (const group of groups) group.destroy()
})
