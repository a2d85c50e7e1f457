import { expect, test } from 'vitest'
import {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
} from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { ModuleBuffer } from '../../../src/graph/trace/module-buffer.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import type { AlgorithmChoice } from '../../../src/peer/algorithms/algorithm-choice.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import {
  classifiers,
  classifiersOf,
  endAll,
  lossesOfStep,
  parametersOf,
  train,
} from '../../support/classification.ts'
import { ifMember } from '../../support/members.ts'
import { meshOf, ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()

/** Parameters and a buffer as a test wants them. */
class Parts extends Module {
  readonly parts: Readonly<Record<string, Parameter>>
  constructor(shapes: Readonly<Record<string, readonly number[]>>, buffer?: ModuleBuffer) {
    super()
    this.parts = {}
    for (const [name, shape] of Object.entries(shapes)) {
      const count = shape.reduce((a, b) => a * b, 1)
      const parameter = new Parameter(shape, uniform(1, name.length, count))
      Object.assign(this, { [name]: parameter })
      Object.assign(this.parts, { [name]: parameter })
    }
    if (buffer) this.registerBuffer('scale', buffer)
  }
  forward(x: Tensor): Tensor {
    return x
  }
}

/** Why each rank's wrapping failed. */
async function reasons(
  modules: readonly Module[],
  options: (rank: number) => DistributedDataParallelOptions = () => ({}),
  prepare: (group: ProcessGroup, rank: number) => void = () => undefined,
) {
  const groups = await ringOf(modules.length)
  for (const [rank, group] of groups.entries()) prepare(group, rank)
  const all = await Promise.all(
    modules.map((module, rank) =>
      new DistributedDataParallel(module, {
        processGroup: groups[rank],
        ...options(rank),
      }).ready.then(
        () => 'none',
        (error) => `${error.code}: ${error.message}`,
      ),
    ),
  )
  for (const group of groups) group.destroy()
  return all
}

const same = { w: [3, 4], b: [4] }
test.each([
  [
    'a shape',
    [same, { w: [3, 5], b: [4] }, same],
    'parameter "w" f32[3, 4] on ranks 0 and 2, parameter "w" f32[3, 5] on rank 1',
  ],
  [
    'a name',
    [same, same, { w: [3, 4], c: [4] }],
    'parameter "b" f32[4] on ranks 0 and 1, parameter "c" f32[4] on rank 2',
  ],
  [
    'the order',
    [{ b: [4], w: [3, 4] }, same, same],
    'parameter "b" f32[4] on rank 0, parameter "w" f32[3, 4] on ranks 1 and 2',
  ],
  [
    'one too many',
    [same, { ...same, extra: [1] }, same],
    'no further one on ranks 0 and 2, parameter "extra" f32[1] on rank 1',
  ],
] as const)(
  '%s that differs between ranks is an error on all of them',
  async (_, shapes, received) => {
    const all = await reasons(shapes.map((one) => new Parts(one)))
    expect(new Set(all).size).toBe(1)
    expect(all[0]).toBe(
      `peer.mismatch: DistributedDataParallel: ranks disagree about parameters and buffers, or their order: ${received}. Build the same module on all ranks.`,
    )
  },
)

test('buffers and options are compared too', async () => {
  const buffers = [Float32Array.of(1), Int32Array.of(1)]
  const all = await reasons(buffers.map((data) => new Parts(same, new ModuleBuffer([1], data))))
  expect(all[0]).toContain('buffer "scale" f32[1] on rank 0, buffer "scale" i32[1] on rank 1')
  expect(all[1]).toBe(all[0])
  const options = await reasons([new Parts(same), new Parts(same)], (rank) => ({
    bucketCapMb: rank + 1,
  }))
  expect(options[0]).toMatch(
    /ranks disagree about options: bucketCapMb 1, .* on rank 0, bucketCapMb 2, .* on rank 1/,
  )
  expect(options[1]).toBe(options[0])
})

test('compiling a step rejects with what ranks differ in', async () => {
  const groups = await ringOf(2)
  const all = await Promise.all(
    groups.map((processGroup, rank) => {
      const ddp = new DistributedDataParallel(new Linear(2, 2 + rank), { processGroup })
      const optimizer = new SGD(ddp.parameters(), { lr: 1 })
      const step = ({ x }: Record<string, Tensor>) => {
        const loss = ddp.forward(x).sum()
        loss.backward()
        optimizer.step()
        return { loss }
      }
      return compile(step, { x: tensorType([1, 2]) }, { runtime }).then(
        () => 'none',
        (error) => error.message,
      )
    }),
  )
  expect(all[0]).toContain('parameter "weight" f32[2, 2] on rank 0')
  expect(all[1]).toBe(all[0])
})

test.each([
  [{ bucketCapMb: 0 }, 'bucketCapMb must be above 0'],
  [{ firstBucketMb: -1 }, 'firstBucketMb must be above 0'],
  [{ broadcastBuffers: 1 as unknown as boolean }, 'broadcastBuffers must be true or false'],
  [{ findUnusedParameters: 'yes' as unknown as boolean }, 'findUnusedParameters must be true'],
  [{ overlap: 0 as unknown as boolean }, 'overlap must be true or false'],
])('%o is refused', async (options, text) => {
  const [processGroup] = await ringOf(1)
  const make = () => new DistributedDataParallel(new Linear(1, 1), { processGroup, ...options })
  expect(make).toThrow(text)
})

/** Layers that are used as `uses` says, one product after the other. */
class Chain extends Module {
  readonly layers: Parameter[]
  constructor(sizes: readonly number[]) {
    super()
    this.layers = sizes.map((size, i) => {
      const parameter = new Parameter([size], uniform(3, i, size))
      Object.assign(this, { [`p${i}`]: parameter })
      return parameter
    })
  }
  /** The sum of what each used layer makes of x. */
  forward(x: Tensor, uses: readonly number[]): Tensor {
    return uses
      .map((i) =>
        this.layers[i]
          .mul(x.sum())
          .sum()
          .mul(i + 1),
      )
      .reduce((sum, one) => sum.add(one))
  }
}

/** `size` ranks with a step each; rank r uses the layers `uses(r)`. */
async function chains(
  size: number,
  sizes: readonly number[],
  options: DistributedDataParallelOptions,
  uses: (rank: number) => readonly number[] = () => sizes.map((_, i) => i),
  make: (params: Parameter[]) => SGD | AdamW = (params) => new SGD(params, { lr: 0.5 }),
) {
  const groups = await ringOf(size)
  return Promise.all(
    groups.map(async (processGroup, rank) => {
      const model = new Chain(sizes)
      const ddp = new DistributedDataParallel(model, { processGroup, ...options })
      const optimizer = make(ddp.parameters())
      const program = await compile(
        ({ x }) => {
          const loss = ddp.forward(x, uses(rank))
          optimizer.zeroGrad()
          loss.backward()
          const norm = clipGradNorm(ddp.parameters(), 1e6)
          optimizer.step()
          return { loss, norm }
        },
        { x: tensorType([2]) },
        { runtime },
      )
      return { group: processGroup, model, ddp, optimizer, program }
    }),
  )
}

test('the first bucket closes early, later ones at the cap; a cap below it holds for the first too', async () => {
  const kib = 256
  const sizes = [kib, kib, 2 * kib, kib, kib]
  const counts = async (options: DistributedDataParallelOptions) => {
    const [{ optimizer, group }, other] = await chains(2, sizes, options)
    const layout = optimizer.buckets.map(({ parameters }) => parameters.map(({ count }) => count))
    for (const one of [group, other.group]) one.destroy()
    return layout
  }
  const large = { bucketCapMb: 3 / 1024 }
  expect(await counts({ ...large, firstBucketMb: 1 / 1024 })).toEqual([
    [kib],
    [kib, 2 * kib],
    [kib, kib],
  ])
  expect(await counts({ ...large, firstBucketMb: 2 / 1024 })).toEqual([
    [kib, kib],
    [2 * kib, kib],
    [kib],
  ])
  expect(await counts({ ...large, firstBucketMb: 1 })).toEqual([[kib, kib], [2 * kib, kib], [kib]])
})

test('ranks that were seeded differently begin with the bits of rank 0', async () => {
  const groups = await ringOf(3)
  const ranks = await Promise.all(
    groups.map(async (processGroup, rank) => {
      manualSeed(100 + rank)
      const model = new Sequential(new Linear(5, 7), new BatchNorm1d(7), new Linear(7, 2))
      const read = async () => Object.values(await model.stateDict()).map(({ data }) => [...data])
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      // A copy from before the broadcast: wrapping has only begun.
      const own = await Promise.all(model.parameters().map(async (one) => [...(await one.read())]))
      await ddp.ready
      return { own, all: await read() }
    }),
  )
  expect(ranks[1].own).not.toEqual(ranks[0].own)
  for (const { all } of ranks) expect(all).toEqual(ranks[0].all)
  for (const group of groups) group.destroy()
})

test('buckets hold the parameters in the reverse of their order in the module, and leave in the order of buckets', async () => {
  const seen: number[][] = [[], []]
  const ranks = await classifiers(2, runtime, (ddp, rank) =>
    ddp.registerCommHook(null, (_, bucket) => {
      seen[rank].push(bucket.index())
      return bucket.reduceScatter()
    }),
  )
  await train(ranks, 2)
  const [{ optimizer, ddp }] = ranks
  const names = optimizer.buckets.map(({ parameters }) => parameters.map(({ name }) => name))
  expect(names.length).toBeGreaterThan(1)
  const places = names.map((own) =>
    own.map((name) => ddp.parameters().findIndex((one) => one.name === name)),
  )
  for (const [i, own] of places.slice(1).entries())
    expect(Math.max(...own)).toBeLessThan(Math.min(...places[i]))
  const order = names.map((_, i) => i)
  expect(seen).toEqual([
    [...order, ...order],
    [...order, ...order],
  ])
  endAll(ranks)
})

test('without a cap ranks measure one: the same on all, before the first layout, once for a group', async () => {
  const ranks = await chains(3, [64, 64], {})
  const caps = ranks.map(({ ddp }) => ddp.bucketCapMb!)
  expect(new Set(caps).size).toBe(1)
  expect([1 / 16, 1 / 4, 1, 4]).toContain(caps[0])
  const sent = ranks[0].group.stats().payloadBytesSent
  const others = ranks.map(
    ({ group }) => new DistributedDataParallel(new Linear(2, 2), { processGroup: group }),
  )
  await Promise.all(others.map(({ ready }) => ready))
  expect(others.map(({ bucketCapMb }) => bucketCapMb)).toEqual(caps)
  expect(ranks[0].group.stats().payloadBytesSent - sent).toBeLessThan(4096)
  for (const { group } of ranks) group.destroy()
})

test('with a cap ranks still measure how collectives travel, unless the group has a choice', async () => {
  const setupBytes = async (choice?: AlgorithmChoice) => {
    const groups = await meshOf(3)
    for (const group of groups) if (choice) group.choice = choice
    const options = { bucketCapMb: 1 }
    const all = groups.map(
      (group) => new DistributedDataParallel(new Linear(2, 2), { processGroup: group, ...options }),
    )
    await Promise.all(all.map(({ ready }) => ready))
    const sent = groups[0].stats().payloadBytesSent
    for (const group of groups) group.destroy()
    return sent
  }
  expect(await setupBytes({ oneShotMaxBytes: 0, directMaxBytes: 0 })).toBeLessThan(4096)
  // At least the smallest size that is timed, by each algorithm.
  expect(await setupBytes()).toBeGreaterThan(3 * 4096)
  const apart = await reasons([new Parts(same), new Parts(same)], undefined, (group, rank) => {
    group.choice = { oneShotMaxBytes: rank, directMaxBytes: 0 }
  })
  expect(apart[0]).toMatch(/ranks disagree about options: .*"oneShotMaxBytes":1/)
})

test('the size of buckets decides the bits of 3 ranks, and not those of 2', async () => {
  const bitsOf = async (size: number, bucketCapMb: number) => {
    const ranks = await classifiers(size, runtime, undefined, { bucketCapMb })
    const buckets = ranks[0].optimizer.buckets.length
    await train(ranks, 5)
    const [first] = await parametersOf(ranks)
    endAll(ranks)
    return { buckets, first }
  }
  const two = await bitsOf(2, 0.006)
  expect(two.buckets).toBeGreaterThan(1)
  expect(await bitsOf(2, 0.001)).toMatchObject({ first: two.first })
  expect(await bitsOf(2, 1)).toEqual({ buckets: 1, first: two.first })
  const three = await bitsOf(3, 0.006)
  expect(await bitsOf(3, 0.006)).toEqual(three)
  expect((await bitsOf(3, 1)).first).not.toEqual(three.first)
})

test('two groups of two of four ranks train a model each, at once, to the bits of groups that are alone', async () => {
  const alone = await Promise.all(
    [0, 1].map(async (first) => {
      const ranks = await classifiers(2, runtime)
      await train(ranks, 5, undefined, 10 * first)
      const parameters = await parametersOf(ranks)
      endAll(ranks)
      return parameters
    }),
  )
  expect(alone[1]).not.toEqual(alone[0])
  const world = await meshOf(4)
  const groups = await Promise.all(
    world.map(async (group) => {
      const pairs = [await group.newGroup([0, 2]), await group.newGroup([1, 3])]
      return pairs.map(ifMember).find((pair) => pair !== undefined)!
    }),
  )
  const ends = await Promise.all(
    [0, 1].map(async (first) => {
      const ranks = await classifiersOf([groups[first], groups[first + 2]], runtime)
      await train(ranks, 5, undefined, 10 * first)
      return parametersOf(ranks)
    }),
  )
  expect(ends).toEqual(alone)
  for (const group of world) group.destroy()
})

test('a step that fails over two of three ranks ends their group, and not that of all', async () => {
  const world = await meshOf(3)
  const pairs = await Promise.all(world.map((group) => group.newGroup([0, 1])))
  const steps = await Promise.all(
    pairs.slice(0, 2).map((pair) => {
      const ddp = new DistributedDataParallel(new Linear(3, 4), { processGroup: ifMember(pair)! })
      const optimizer = new SGD(ddp.parameters(), { lr: 0.1 })
      const step: Parameters<typeof compile>[0] = ({ x, y }) => {
        crossEntropy(ddp.forward(x), y).backward()
        optimizer.step()
        return {}
      }
      return compile(step, { x: tensorType([1, 3]), y: tensorType([1], 'i32') }, { runtime })
    }),
  )
  const runs = steps.map((step, rank) =>
    step.run({ x: new Float32Array(3), y: Int32Array.of(rank === 0 ? 9 : 1) }),
  )
  for (const { status } of await Promise.allSettled(runs)) expect(status).toBe('rejected')
  await Promise.all(world.map((group) => group.barrier()))
  for (const group of world) group.destroy()
})

const forward = (options: DistributedDataParallelOptions, uses: (rank: number) => number[]) =>
  chains(2, [3, 2, 4], options, uses, (params) => new AdamW(params, { lr: 0.1, weightDecay: 0.5 }))

test('a parameter without a gradient is an error on all ranks, which names it and the ranks', async () => {
  const groupsEnd = await forward({}, (rank) => (rank === 0 ? [0, 1, 2] : [0])).then(
    () => 'none',
    (error) => `${error.code}: ${error.message}`,
  )
  expect(groupsEnd).toBe(
    'graph.misuse: DistributedDataParallel: every parameter that requires a gradient must get one, but there is none for "module.p1" on rank 1, "module.p2" on rank 1. Use them in the loss, freeze them with requiresGrad_(false), or wrap the model with findUnusedParameters: true.',
  )
})

test.each(['findUnusedParameters', 'staticGraph'])(
  '%s: what some ranks use is updated on all, what none uses keeps its value',
  async (option) => {
    const ranks = await forward({ [option]: true, bucketCapMb: 0.0001 }, (rank) =>
      rank === 0 ? [0] : [1, 0],
    )
    const before = await Promise.all(ranks[0].model.layers.map((layer) => layer.read()))
    const norms: number[] = []
    for (let step = 0; step < 3; step++) {
      const outputs = await Promise.all(
        ranks.map(({ program }, rank) => program.run({ x: Float32Array.of(1, rank) })),
      )
      norms.push(outputs[0].norm[0])
      expect(outputs[1].norm[0]).toBe(outputs[0].norm[0])
    }
    // Halves of 1 and 2 on p0 [3], half of twice 2 on p1 [2].
    expect(norms[0]).toBeCloseTo(Math.hypot(1.5 * Math.sqrt(3), 2 * Math.sqrt(2)), 5)
    const after = await Promise.all(
      ranks.map(({ model }) => Promise.all(model.layers.map((layer) => layer.read()))),
    )
    expect(after[1]).toEqual(after[0])
    expect(after[0][0]).not.toEqual(before[0])
    expect(after[0][1]).not.toEqual(before[1])
    expect(after[0][2]).toEqual(before[2])
    for (const { group } of ranks) group.destroy()
  },
)

test('frozen parameters need no gradient', async () => {
  const groups = await ringOf(2)
  await Promise.all(
    groups.map(async (processGroup) => {
      const model = new Chain([2, 2])
      model.layers[1].requiresGrad = false
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      const optimizer = new SGD(ddp.parameters(), { lr: 1 })
      const step = ({ x }: Record<string, Tensor>) => {
        const loss = ddp.forward(x, [0])
        loss.backward()
        optimizer.step()
        return { loss }
      }
      await compile(step, { x: tensorType([2]) }, { runtime })
    }),
  )
})

test('steps that differ between ranks are refused on all', async () => {
  const groups = await ringOf(2)
  const all = await Promise.all(
    groups.map((processGroup, rank) => {
      const model = new Chain([2, 3])
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      const optimizer = new SGD(ddp.parameters(), { lr: 1 })
      const step = ({ x }: Record<string, Tensor>) => {
        const loss = ddp.forward(x, rank === 0 ? [0, 1] : [1, 0])
        loss.backward()
        optimizer.step()
        return { loss }
      }
      return compile(step, { x: tensorType([2]) }, { runtime }).then(
        () => 'none',
        (error) => error.message,
      )
    }),
  )
  expect(all[0]).toMatch(
    /^compile: ranks disagree about the step: 128 module.p1 module.p0 on rank 0, 128 module.p0 module.p1 on rank 1/,
  )
  expect(all[1]).toBe(all[0])
})

/** Two ranks' running statistics after three steps on different samples, and those of rank 0's samples alone. */
async function statistics(options: DistributedDataParallelOptions, isAccumulated = false) {
  const groups = await ringOf(2)
  const types = { x: tensorType([4, 2]) }
  const make = async (processGroup: (typeof groups)[number] | undefined) => {
    const model = new Sequential(new BatchNorm1d(2), new Linear(2, 1))
    const wrapped = processGroup
      ? new DistributedDataParallel(model, { processGroup, bucketCapMb: 1, ...options })
      : model
    const optimizer = new SGD(wrapped.parameters(), { lr: 0 })
    const step = ({ x }: Record<string, Tensor>) => {
      const loss = wrapped.forward(x).square().mean()
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    }
    const program = isAccumulated
      ? await compileAccumulated(step, types, { runtime, steps: 3 })
      : await compile(step, types, { runtime })
    const read = async () =>
      Promise.all(model.buffers().map(async (buffer) => [...(await buffer.read())]))
    return { program, read }
  }
  const [alone, other, ...ranks] = await Promise.all([
    make(undefined),
    make(undefined),
    ...groups.map((group) => make(group)),
  ])
  for (let step = 0; step < 3; step++) {
    const x = (rank: number) => uniform(5 + rank, step, 8, -1, 2 + rank)
    await Promise.all([
      alone.program.run({ x: x(0) }),
      other.program.run({ x: x(1) }),
      ...ranks.map(({ program }, rank) => program.run({ x: x(rank) })),
    ])
  }
  const read = await Promise.all([alone, other, ...ranks].map((one) => one.read()))
  for (const group of groups) group.destroy()
  return { alone: read[0], other: read[1], ranks: read.slice(2) }
}

test.each([false, true])(
  'all ranks take rank 0’s running statistics and counts, accumulated: %s',
  async (isAccumulated) => {
    const { alone, other, ranks } = await statistics({}, isAccumulated)
    expect(ranks[0]).toEqual(alone)
    expect(ranks[1]).toEqual(alone)
    expect(other).not.toEqual(alone)
    expect(ranks[1][2]).toEqual([3])
  },
)

test('broadcastBuffers: false leaves each rank its own', async () => {
  const { alone, other, ranks } = await statistics({ broadcastBuffers: false })
  expect(ranks).toEqual([alone, other])
})

test('a loss is the mean over the ranks, and with averageOutputs: false the one of the rank', async () => {
  const mean = await lossesOfStep(runtime, {})
  const own = await lossesOfStep(runtime, { averageOutputs: false })
  expect(new Set(mean.losses).size).toBe(1)
  expect(new Set(own.losses).size).toBe(3)
  const average = own.losses.reduce((sum, loss) => sum + loss, 0) / 3
  expect(mean.losses[0]).toBeCloseTo(average, 5)
  expect(own.parameters).toEqual(mean.parameters)
})
